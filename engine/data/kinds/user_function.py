"""Data that the user's function returns; `engine.data.function_data` reads it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...config.user_code import call_user_function
from ...config.values import Section
from ...errors import DataError, UserCodeError
from ..cached_facts import function_record_of
from ..examples import Examples, Signature, own_signature
from ..predictions import BATCH, NewData, Table, TrainedModel, chosen, number, probabilities
from .kind import DatasetKind, ImageRecord, UnknownShapesError
from .skimming import Survey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..code import DataCode
    from ..places import OnFetch

_NOT_EXACT = 0.01  # by how much the probabilities of an example may miss 1


class UserFunction(DatasetKind[Section]):
    """The user's function, whose options are any; what is known of it is from its last call on this machine."""

    name = "mine.py:function"
    title = "custom function"
    Options = Section
    new_data = "a function that returns the new inputs, as in mine.py:new_data"
    Record = ImageRecord
    needs_record = False
    is_limited = False

    def goals(self, options: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
        """Return the defaults, whatever the options mean."""
        return self.model, self.loss, self.metrics

    def survey(self, config: RunConfig) -> Survey:
        if (seen := function_record_of(config)) is None:
            return Survey()
        return Survey(total=seen.train_count, validation=seen.validation_count or 0)

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        name = config.dataset
        if (seen := function_record_of(config)) is not None:
            assumed = f"The shapes are those of the last call of {name} on this machine, on {seen.day}."
            return own_signature(seen.train[0], seen.classes), assumed
        from ...config.reading import value_text
        from ...config.run_config import flat_values

        given = " ".join(
            f"--set {shlex.quote(f'{key}={value_text(key, value)}')}"
            for key, value in flat_values(config).items()
            if key.startswith("data.options.")
        )
        raise UnknownShapesError(
            f"The shapes of {name} are unknown until it is called, which may load or download data.",
            remedy=f"Call it once with `tpu-console inspect {f'{name} {given}'.strip()}`: its shapes are kept.",
        )

    def load(self, config: RunConfig, on_fetch: OnFetch) -> Examples:
        """Call the function; raise `UserCodeError` if it failed or returned the wrong thing."""
        import tensorflow as tf

        from ..function_data import load

        try:
            return load(config, on_fetch)
        except tf.errors.OpError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise UserCodeError(f"{config.dataset} cannot be read: {lines[0].rpartition('}} ')[2]}") from error

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict what a function returns: inputs as the model takes them, alone or followed by labels, for any run.

        A row is an example, numbered from 0. A probability for each class becomes the likeliest class and its
        probability; other outputs become a column per number. Several outputs have their names before their columns.
        Images and other arrays are saved beside the table, which names their file. Labels are ignored. Raises
        `ConsoleError` if the function or the model fails.
        """
        from ..function_data import PartReader

        reference = request.only()
        part = call_user_function(reference)
        if isinstance(part, dict | list) or (hasattr(part, "shape") and hasattr(part, "__len__")):
            part = (part,)
        found = PartReader(reference, count=False, new_batches=False).read(part)
        batches = found.dataset.batch(BATCH) if found.batches is None else found.batches
        outputs = trained.named_outputs(batches.map(lambda *element: element[0]), found.count, reporter)
        columns, cells, arrays = ["index"], list[list[tuple[str, ...]]](), dict[str, Any]()
        for name, values in outputs.items():
            heads, rows = _described(trained, values, name, request.arrays.name)
            if values.ndim > 2:
                arrays[name or "prediction"] = values
            columns += [
                f"{name}_{head}".strip("_") if name and head != "prediction" else name or head for head in heads
            ]
            cells.append(rows)
        count = len(next(iter(outputs.values())))
        table = ((str(index), *(cell for rows in cells for cell in rows[index])) for index in range(count))
        return Table(tuple(columns), table, arrays=arrays)

    def write_code(self, code: DataCode) -> None:
        """Write code that calls the function; raise `DataError` if it returned what only a run can read."""
        name, forms = code.config.dataset, code.record.get("returned", ["examples", "examples"])
        if "" in forms:
            what = f"{name} returned a generator, a PyDataset or a table, which cannot be exported as code."
            remedy = "Return arrays, such as table.to_numpy(), or a tf.data.Dataset, and train again."
            raise DataError(what, remedy=remedy)
        parts = dict(zip(("train", "validation"), forms, strict=False))
        code.add("# Batches as the function made them." if "kept" in forms else "# Datasets of single examples.")
        given = {option: code.literal(value) for option, value in code.config.data.options.items()}
        targets = ", ".join(part if form else "_" for part, form in parts.items())
        code.call(targets, code.imports.own(name), **given)
        for part, form in parts.items():
            if form == "arrays":
                code.add(f"{part} = tf.data.Dataset.from_tensor_slices({part})")
            elif form == "batches":
                code.add(f"{part} = {part}.unbatch()")


def _described(
    trained: TrainedModel, values: NDArray[np.float32], name: str, saved_in: str
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the columns of an output and its cells."""
    import numpy as np

    if values.ndim > 2:
        return ["prediction"], [(saved_in,)] * len(values)
    if values.ndim == 1:
        values = values[:, None]
    is_only, loss = not name, trained.config.losses.get(name, "")
    if (known := trained.record.get("class_outputs")) is None:  # a run of an earlier version
        is_share = bool((values >= 0).all()) and np.allclose(values.sum(axis=1), 1, atol=_NOT_EXACT)
        known = [name] if (is_share if values.shape[1] > 1 else loss.startswith("binary_crossentropy")) else []
    if name in known:
        classes = max(values.shape[1], 2)
        names = trained.class_names(classes) if is_only else tuple(map(str, range(classes)))
        return ["label", "probability"], [chosen(probabilities(row), names) for row in values]
    heads = ["prediction"] if values.shape[1] == 1 else [f"prediction_{place}" for place in range(values.shape[1])]
    return heads, [tuple(map(number, row)) for row in values]
