"""Prints how far `engine.preflight.estimate` is from the TPU compiler on twelve models, as a Markdown table.

The estimate was fitted to the first ten; the last two were compiled afterwards, to see what it is worth elsewhere.

The compiler's figures were taken once, with libtpu 0.0.51 for v5e-8: arguments, temporaries and program of the train
step in HBM, in bytes. Run it from the repository: ``python docs/preflight_estimates.py``.
"""

# ruff: noqa: INP001  a script, not a package
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.examples import Input, Signature, Task

if TYPE_CHECKING:
    from tpu_console.engine.preflight.result import Memory

_LIMIT = round(15.75 * 2**30)


@dataclass(frozen=True, slots=True)
class Case:
    """One train step that the compiler was asked about.

    Args:
        title: What it is.
        values: Its configuration.
        signature: Its examples.
        compiled_bytes: HBM that the compiled step takes.
    """

    title: str
    values: dict[str, Any]
    signature: Signature
    compiled_bytes: int


def _images(*shape: int, classes: int = 10) -> Signature:
    return Signature(Task.CLASSES, {"image": Input(shape)}, classes)


def _application(name: str, compiled_bytes: int) -> Case:
    values = {
        "dataset": "image-folder",
        "data": {"options": {"path": "photos"}},
        "model": "application",
        "model_options": {"name": name, "weights": "none", "trainable": "all"},
        "batch_size": 64,
        "precision": "mixed_bfloat16",
    }
    return Case(f"{name}, 224×224, all of it trained", values, _images(224, 224, 3, classes=4), compiled_bytes)


_TEXT = {"dataset": "text-csv", "data": {"options": {"path": "a.csv", "text_column": "a", "label_column": "b"}}}
_PAIRS = {"dataset": "text-pairs", "data": {"options": {"path": "a.txt"}}, "optimizer": {"name": "rmsprop"}}
_RATINGS = {"dataset": "ratings-csv", "data": {"options": {"path": "a.csv"}}, "loss": "mean_squared_error"}

CASES = (
    Case(
        "digits-cnn",
        {
            "dataset": "digits",
            "model": "cnn",
            "batch_size": 128,
            "model_options": {"filters": [32, 64], "padding": "same", "hidden": [64], "dropout": 0.3},
        },
        _images(8, 8, 1),
        2_323_456,
    ),
    Case(
        "fashion-mnist-cnn",
        {
            "dataset": "fashion-mnist",
            "model": "cnn",
            "batch_size": 1024,
            "precision": "mixed_bfloat16",
            "model_options": {"filters": [64]},
        },
        _images(28, 28, 1),
        140_352_512,
    ),
    Case("cifar10-vgg", {"dataset": "cifar10", "model": "vgg", "batch_size": 128}, _images(32, 32, 3), 31_505_920),
    Case(
        "mnist-mlp",
        {
            "dataset": "mnist",
            "model": "mlp",
            "batch_size": 128,
            "optimizer": {"name": "rmsprop"},
            "model_options": {"hidden": [512, 512], "dropout": 0.2},
        },
        _images(28, 28, 1),
        8_631_296,
    ),
    _application("ResNet50", 3_192_820_224),
    _application("MobileNetV2", 1_430_698_496),
    _application("EfficientNetB0", 1_469_312_512),
    Case(
        "nmt-transformer",
        {
            **_PAIRS,
            "model": "transformer",
            "batch_size": 64,
            "model_options": {"final_dropout": 0.5},
        },
        Signature(
            Task.TRANSLATION,
            {"source": Input((20,), "int32"), "target": Input((20,), "int32")},
            15000,
            {"source_vocabulary": 15000, "target_vocabulary": 15000},
        ),
        253_505_536,
    ),
    Case(
        "imdb-text",
        {**_TEXT, "model": "text", "batch_size": 32},
        Signature(Task.CLASSES, {"text": Input((500,), "int32")}, 2, {"vocabulary": 20000}),
        41_946_112,
    ),
    Case(
        "movielens-recommender",
        {**_RATINGS, "model": "recommender", "batch_size": 64, "metrics": [], "model_options": {"width": 50}},
        Signature(
            Task.RATINGS,
            {"user": Input((), "int32"), "item": Input((), "int32")},
            sizes={"users": 610, "items": 9724},
            label_mean=3.5,
        ),
        8_781_312,
    ),
)


HELD_OUT = (_application("DenseNet121", 2_902_789_120), _application("VGG16", 4_308_513_792))
"""Models that the estimate was not fitted to."""


def estimated(case: Case) -> Memory:
    """Return the estimate for a case."""
    import keras

    from tpu_console.engine.models.build import build_model
    from tpu_console.engine.preflight.estimate import estimate_memory

    config = parse_config({"epochs": 1, **case.values})
    keras.mixed_precision.set_dtype_policy(config.precision)
    try:
        return estimate_memory(build_model(config, case.signature), config, config.batch_size, _LIMIT)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")


def table() -> str:
    """Return the table."""
    lines = [
        "| model | batch a device | precision | compiler | estimate | error |",
        "| --- | --: | --- | --: | --: | --: |",
    ]
    for case in (*CASES, *HELD_OUT):
        guess = estimated(case).peak
        title = f"{case.title} (not fitted to)" if case in HELD_OUT else case.title
        lines.append(
            f"| {title} | {case.values['batch_size']} | {case.values.get('precision', 'float32')} | "
            f"{_mib(case.compiled_bytes)} | {_mib(guess)} | {guess / case.compiled_bytes - 1:+.0%} |"
        )
    return "\n".join(lines)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    print(table())
