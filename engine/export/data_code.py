"""Writes how a run read its examples: plain NumPy, pandas and `tf.data`, split and ordered as in the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..code.writing import call, literals, write
from ..config.catalog import DATASETS, is_user_reference
from ..data.data_code import DataCode, datasets
from ..data.kinds.table import KINDS
from ..errors import DataError

if TYPE_CHECKING:
    from ..code.imports import Imports
    from ..config.run_config import RunConfig


def data_code(config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
    """Return the code that reads a run's examples; raise `DataError` if it cannot be exported as code.

    The record is the run's ``inputs.json``. The imports that the code needs are added to `imports`.
    """
    kind = KINDS.get(config.dataset)
    if kind is None:
        return _own(config, record, imports) if is_user_reference(config.dataset) else _arrays(config, imports)
    if missing := [name for name in kind.code_needs if not record.get(name)]:
        raise DataError(f"The run's inputs.json does not contain its {' and '.join(missing)}.")
    code = kind.code(config, held_out, record, imports)
    counts = record.get("class_counts", {})
    if any(sum(pair) == 1 for pair in zip(*counts.values(), strict=False)):
        code.marks.append("A class has only one example: the run used it for training, but the split here will fail.")
    return code


def _own(config: RunConfig, record: dict[str, Any], imports: Imports) -> DataCode:
    forms = record.get("returned", ["examples", "examples"])
    if "" in forms:
        raise DataError(
            f"{config.dataset} returned a generator, a PyDataset or a table, which cannot be exported as code.",
            remedy="Return arrays, such as table.to_numpy(), or a tf.data.Dataset, and train again.",
        )
    parts = dict(zip(("train", "validation"), forms, strict=False))
    names = ", ".join(name if form else "_" for name, form in parts.items())
    lines = [write(call(imports.own(config.dataset), **literals(config.data.options)), 0, f"{names} = ")]
    for name, form in parts.items():
        if form == "arrays":
            lines.append(f"{name} = tf.data.Dataset.from_tensor_slices({name})")
        elif form == "batches":
            lines.append(f"{name} = {name}.unbatch()")
    if "kept" in forms:
        return DataCode(["# Batches as the function made them.", *lines])
    return DataCode(["# Datasets of single examples: (inputs, label).", *lines])


def _arrays(config: RunConfig, imports: Imports) -> DataCode:
    info = DATASETS[config.dataset]
    shape = ", ".join(map(str, info.input_shape))
    if config.dataset == "digits":
        imports.add("load_digits", "sklearn.datasets")
        imports.add("train_test_split", "sklearn.model_selection")
        split = {"test_size": config.data.validation_fraction}
        lines = [
            "images, labels = load_digits(return_X_y=True)",
            f"images = images.reshape(-1, {shape})",
            write(
                call("train_test_split", "images", "labels", **literals(split), random_state="SEED", stratify="labels"),
                0,
                "x_train, x_val, y_train, y_val = ",
            ),
        ]
    else:
        module = config.dataset.replace("-", "_")
        lines = [f"(x_train, y_train), (x_val, y_val) = keras.datasets.{module}.load_data()"]
        if info.input_shape[2] == 1:
            lines += [f"x_train = x_train.reshape(-1, {shape})", f"x_val = x_val.reshape(-1, {shape})"]
        else:
            lines += ["y_train, y_val = y_train.flatten(), y_val.flatten()"]
    if limit := config.data.train_limit:
        lines.append(f"x_train, y_train = x_train[:{limit}], y_train[:{limit}]")
    return DataCode([*lines, *datasets("x", "y")], "y_train", 16.0 if config.dataset == "digits" else 255.0)
