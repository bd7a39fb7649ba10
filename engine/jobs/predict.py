"""Predicts new data with a trained run, by its model and the record of its data, and writes the result as CSV.

Arguments are checked before TensorFlow is imported, and Keras is imported when the model is loaded.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..accelerators.backend import importing
from ..config.catalog import is_user_reference
from ..config.reading import load_config
from ..config.user_code import call_model_function, is_own_source
from ..data.kinds.table import USER_FUNCTION, kind_of, read_record
from ..data.predictions import BATCH, NewData, Table, TrainedModel
from ..errors import ConfigError, ConsoleError, DataError, UntrustedCodeError, UserCodeError, one_line
from ..models.saved_code import Architecture, find_code, has_graph, is_own, move_graphs, read_architecture
from ..runs.run_directory import RunDirectory, find_run, is_named, list_runs
from ..storage.files import is_disk_full, open_regular, require_plain, whole_file
from ..storage.paths import check_place, user_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..config.run_config import RunConfig
    from ..messages import Reporter

Checkpoint = Literal["last", "best"]


def predict_with_run(
    reporter: Reporter,
    run: str | None,
    data: Sequence[str],
    out: str,
    checkpoint: Checkpoint = "last",
    images: str | None = None,
    *,
    skip_bad: bool = False,
    force: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Predict new data with a trained run and write a CSV file.

    A run is given as in `open_trained`. `skip_bad` skips images that cannot be read, and `force` replaces an existing
    file. Returns the run, the model and the file, the columns, the number of rows, whether they are all, and how many
    got no prediction. Raises as `open_trained` does, and `ConsoleError` if the data cannot be read or the file written.
    """
    path, arrays = Path(out), Path(out).with_suffix(".npz")
    is_function = is_user_reference(data[0]) and data[0].rpartition(":")[2].isidentifier()
    for file in (path, arrays) if is_function else (path,):
        check_place(file, force=force)
    trained = open_trained(run, checkpoint, trust=trust, takes_function=is_function)
    import tensorflow as tf

    with suppress(RuntimeError):  # TensorFlow is initialized already
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)  # a run may be using it
    request = NewData(tuple(data), images, skip_bad, arrays)
    kind = USER_FUNCTION if is_function else kind_of(trained.config.dataset)
    table = kind.predict(trained, request, reporter)
    rows, is_whole = write_table(table, path)
    return {
        "run": trained.run.run_id,
        "model": str(trained.model_path),
        "out": str(path),
        "columns": list(table.columns),
        "rows": rows,
        "is_whole": is_whole,
        "skipped": table.skipped,
    }


def write_table(table: Table, path: Path) -> tuple[int, bool]:
    """Write a table as CSV, and its arrays in an .npz file beside it; return the rows, and whether they are all.

    If it is interrupted, the rows that were predicted until then are kept. Raises `ConsoleError` if the file cannot be
    written, and `KeyboardInterrupt` before the first row; then an existing file is unchanged.
    """
    count, is_whole = 0, True
    try:
        if table.arrays:
            with whole_file(path.with_suffix(".npz"), private=False) as draft, draft.open("wb") as saved:
                np.savez_compressed(saved, allow_pickle=False, **table.arrays)
        with whole_file(path, private=False) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.columns)
            try:
                for row in table.rows:
                    writer.writerow(row)
                    count += 1
            except KeyboardInterrupt:
                if not count:
                    raise
                is_whole = False
    except OSError as error:
        reason, remedy = error.strerror or error, "Choose another file with --out."
        if is_disk_full(error):
            reason, remedy = "the disk is full", "Free space and predict again."
        raise ConsoleError(f"{user_path(path)} cannot be written: {reason}.", remedy=remedy) from error
    return count, is_whole


@dataclass(frozen=True, slots=True)
class TrainedRun(TrainedModel):
    """A run with a saved model."""

    architecture: Architecture  # the saved model's architecture, which refers to the run's own SavedModel
    runs_code: bool  # whether loading it may run code in it: one of the user's runs saved it, or it is trusted

    @property
    def model_path(self) -> Path:
        """The saved model."""
        return self.architecture.path

    def load_model(self, inputs: Any = None) -> Any:
        """Load the model, or make it again by its function."""
        with importing():
            import keras

        from ..models.compile import custom_objects

        is_own = self.runs_code and is_user_reference(self.config.model) and inputs is not None
        if is_own and self.model_path.suffix == ".h5":
            return self._made_again(inputs)
        try:
            with keras.saving.CustomObjectScope(custom_objects(self.config) if self.runs_code else {}):
                if self.config.model == "hub":
                    # Its SavedModel may have moved: Keras itself would look at the path that was saved.
                    config = self.architecture.config
                    model = keras.saving.deserialize_keras_object(config, safe_mode=not self.runs_code)
                    model.load_weights(self.model_path)
                else:
                    model = keras.saving.load_model(self.model_path, compile=False, safe_mode=not self.runs_code)
        except UserCodeError:
            raise
        except Exception as error:
            if is_own:
                return self._made_again(inputs)
            remedy = "Try the other --checkpoint: last or best."
            if is_user_reference(self.config.model):
                remedy = "Name its custom layers in custom_objects of the run's config.toml, as file.py:Name."
            what = f"{user_path(self.model_path)} cannot be loaded."
            raise ConsoleError(what, why=one_line(error, 300), remedy=remedy) from error
        if not isinstance(model, keras.Model):
            raise ConsoleError(f"{user_path(self.model_path)} contains a {type(model).__name__}, not a model.")
        return model

    def _made_again(self, inputs: Any) -> Any:
        """Make the model with its function and load the weights; raise `ConsoleError` if they do not fit."""
        import tensorflow as tf

        shapes = tf.nest.map_structure(lambda part: tuple(part.shape[1:]), inputs)
        classes = self.record.get("class_count", 0)
        model = call_model_function(self.config.model, shapes, classes, self.config.model_options)
        try:
            call_model(model, inputs)
            model.load_weights(self.model_path)
        except Exception as error:
            what = f"{user_path(self.model_path)} cannot be loaded into a new model of {self.config.model}."
            remedy = "Give the model a call() that takes these inputs, and leave its code as it was in training."
            raise ConsoleError(what, why=one_line(error, 300), remedy=remedy) from error
        return model

    def probabilities_of(self, values: Any, output: str = "") -> Any:
        """Turn an output of the model into probabilities if it is logits; the only output has no name."""
        from ..models.outputs import activation_of, apply_activation

        return apply_activation(activation_of(self.record.get("activation", ""), output), values)

    def outputs_of(
        self, model: Any, batches: Iterable[Any], total: int, reporter: Reporter
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the model's output for each example."""
        import keras
        import tensorflow as tf

        done = 0
        reporter.progress("predicting", done, total, "examples")
        step = tf.function(lambda inputs: self.probabilities_of(call_model(model, inputs)), reduce_retracing=True)
        try:
            for inputs in batches:
                with inputs_fit():
                    outputs = keras.ops.convert_to_numpy(step(inputs)).astype(np.float32)
                if not np.isfinite(outputs).all():
                    why = "The loss was NaN at the end of training."
                    remedy = "Try --checkpoint best, or train again with a lower learning rate."
                    raise DataError("The model's predictions are NaN.", why=why, remedy=remedy)
                yield from outputs
                done += len(outputs)
                reporter.progress("predicting", done, total, "examples")
        except tf.errors.OpError as error:
            raise DataError("Prediction failed.", why=one_line(error)) from error

    def named_outputs(
        self, batches: Iterable[Any], total: int | None, reporter: Reporter
    ) -> dict[str, NDArray[np.float32]]:
        """Return the model's outputs by name."""
        import tensorflow as tf

        model, parts, done = None, list[Any](), 0
        reporter.progress("predicting", 0, total, "examples")
        for batch in batches:
            model = model or self.load_model(batch)
            with inputs_fit():
                found = call_model(model, batch)
            flat = found if isinstance(found, dict) else dict(enumerate(tf.nest.flatten(found)))
            parts.append({str(name): np.asarray(value, np.float32) for name, value in flat.items()})
            done += len(next(iter(parts[-1].values())))
            reporter.progress("predicting", done, total or done, "examples")
        if not parts:
            raise DataError("The function returned no examples.")
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        known = list(getattr(model, "output_names", ())) if len(joined) > 1 else [""]
        if len(joined) == 1 or set(joined) == {str(number) for number in range(len(known))}:
            joined = dict(zip(known, joined.values(), strict=True))
        return {name: np.asarray(self.probabilities_of(values, name)) for name, values in joined.items()}

    def translations_of(self, model: Any, sentences: Sequence[str], reporter: Reporter) -> Iterator[str]:
        """Yield a sentence in the other language for each sentence."""
        from ..training.outputs import Translator

        translator = Translator(model, self.record)
        for start in range(0, len(sentences), BATCH):
            part = sentences[start : start + BATCH]
            # The last batch is padded to the shape of the others, so that nothing is compiled again.
            filled = [*part, *[""] * (BATCH - len(part))] if start else part
            with inputs_fit():
                translations = translator.translate(filled)
            yield from translations[: len(part)]
            reporter.progress("translating", start + len(part), len(sentences), "sentences")


def call_model(model: Any, inputs: Any) -> Any:
    """Return what a model gives for a batch of inputs, which are preprocessed as in `fit`."""
    from ..models.outputs import prepared

    return model(prepared(model, inputs), training=False)


@contextmanager
def inputs_fit() -> Iterator[None]:
    """Run a model in the body; raise `DataError` if it does not fit: a run's files can come from two different runs."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        what, remedy = "The model does not fit the run's configuration and inputs.json.", "Use an unchanged run folder."
        raise DataError(what, why=one_line(error, 300), remedy=remedy) from error


def open_trained(
    name: str | None, checkpoint: Checkpoint, *, trust: bool = False, takes_function: bool = False
) -> TrainedRun:
    """Find a run and its model without loading it. No code that the run's files name is imported.

    `name` is as in `find_run`; a preset's name, or None, stands for the newest such run that has a model. `trust`
    allows code in a model that none of the user's runs saved; `takes_function` says that the user's function makes the
    inputs. Raises `UntrustedCodeError` for code that may not run, and `ConsoleError` if nothing can be predicted.
    """
    runs = [run for run in list_runs() if not name or is_named(run.run_id, name)]
    # The newest with that model; without one, the newest, whose error says why.
    run = next((run for run in runs if _has_model(run, checkpoint)), None) or next(iter(runs), None) or find_run(name)
    path = _model_of(run, checkpoint)
    weights = path.with_suffix(".weights.h5")
    is_whole = path.exists()
    if not is_whole and not weights.exists():
        other: Checkpoint = "best" if checkpoint == "last" else "last"
        is_other = _model_of(run, other).exists()
        raise ConsoleError(
            f"The run {run.run_id} has no {path.relative_to(run.path)}.",
            why="It is still training, or ended before it was saved.",
            remedy=f"Use --checkpoint {other}." if is_other else "`tpu-console runs show` says how it ended.",
        )
    try:
        config = load_config(run.config)
    except ConfigError as error:
        if run.config.exists():
            raise
        what, why = f"The run {run.run_id} was trained by a notebook or script.", "Only your code can make its inputs."
        remedy = f"Predict by hand, on data from your function: keras.models.load_model('{user_path(path)}').predict(…)"
        raise DataError(what, why=why, remedy=remedy) from error
    if not takes_function and (is_user_reference(config.dataset) or not is_whole):
        why = f"Only its weights are saved, because Keras could not save the code of {config.model}."
        raise DataError(
            f"To predict with {run.run_id}, name a function that returns its inputs.",
            why=f"Its data comes from your function {config.dataset}." if is_whole else why,
            remedy="Name a function that returns the new inputs, as in --data mine.py:new_data.",
        )
    record = read_record(run.inputs, config.dataset)
    if not is_whole:  # its function has to make the model again
        if not (trust or is_own_source(config.model)):
            raise _untrusted(config.model)
        open_regular(weights).close()  # Keras would follow a link
        return TrainedRun(run, config, record, Architecture(weights, {}, has_pickled_weights=False), runs_code=True)
    architecture = read_architecture(path)
    if config.model == "hub":
        require_plain(run.path, ["hub"], are_written=False)
        if not has_graph(run.hub):
            what = f"{user_path(run.hub)} does not exist; this run's model needs that SavedModel."
            raise ConsoleError(what, remedy="Copy or move the whole run folder.")
        move_graphs(architecture, run.hub)
    return TrainedRun(run, config, record, architecture, runs_code=_may_run_code(architecture, config, trust=trust))


def _untrusted(reference: str) -> UntrustedCodeError:
    return UntrustedCodeError(
        f"The run names the code {reference}, which none of your runs used from this folder.",
        remedy="Predict in the folder in which the run started; or if you trust the run's author, add --trust.",
    )


def _model_of(run: RunDirectory, checkpoint: Checkpoint) -> Path:
    return run.model if checkpoint == "last" else run.checkpoints / "best.keras"


def _has_model(run: RunDirectory, checkpoint: Checkpoint) -> bool:
    with suppress(OSError):  # its folder is a link
        path = _model_of(run, checkpoint)
        return path.is_file() or path.with_suffix(".weights.h5").is_file()
    return False


def _may_run_code(architecture: Architecture, config: RunConfig, *, trust: bool) -> bool:
    """Return whether a model has code that may run; raise `UntrustedCodeError` if it has code that may not be run."""
    code = find_code(architecture)
    if not code or trust:
        return bool(code)
    if is_own(architecture):
        named = [*config.custom_objects, *([config.model] if is_user_reference(config.model) else [])]
        if (foreign := next((name for name in named if not is_own_source(name)), None)) is not None:
            raise _untrusted(foreign)
        return True
    more = " Other layers have code, too." if code[1:] else ""
    raise UntrustedCodeError(
        f"{code[0]}, and none of your runs on this machine saved it.{more}",
        remedy="If you trust the run's author, add --trust to run its code.",
    )
