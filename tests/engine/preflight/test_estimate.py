"""The memory that a train step is estimated to need, against what the TPU compiler told."""

from __future__ import annotations

import runpy
from typing import Any

import keras
import pytest

from tests.helpers import ROOT
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.preflight.estimate import activations, estimate_memory

DOCS = runpy.run_path(str(ROOT / "docs/preflight_estimates.py"))
CONFIG = parse_config({"dataset": "digits", "model": "cnn", "batch_size": 8, "epochs": 1})
LIMIT = 16 * 2**30


def stacked(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((64, 64, 3)), *layers, keras.layers.GlobalAveragePooling2D()])


def test_weights_optimizer_and_batch_are_counted_exactly() -> None:
    model = stacked(keras.layers.Conv2D(16, 3, name="conv"))
    weights = 4 * (3 * 3 * 3 * 16 + 16)
    found = estimate_memory(model, CONFIG, 8, LIMIT)
    assert (found.parameters, found.optimizer) == (weights, 2 * weights)  # Adam keeps two numbers a weight
    assert found.batch == 4 * 8 * (64 * 64 * 3 + 1)
    assert found.peak == found.parameters + found.optimizer + found.batch + found.temporaries
    assert (found.limit, found.is_estimate) == (LIMIT, True)
    plain = parse_config({**CONFIG.model_dump(), "optimizer": {"name": "sgd"}})
    assert estimate_memory(model, plain, 8, LIMIT).optimizer == 0


def test_what_a_convolution_reads_is_kept_and_what_is_frozen_keeps_nothing() -> None:
    first, second = keras.layers.Conv2D(16, 1), keras.layers.Conv2D(32, 1)
    model = stacked(first, second)
    assert activations(model, 8).kept == 4 * 8 * 64 * 64 * (3 + 16)
    first.trainable = False
    assert activations(model, 8).kept == 4 * 8 * 64 * 64 * 16


def test_half_the_precision_is_half_of_what_is_kept_between_layers() -> None:
    kept = []
    for precision in ("float32", "mixed_bfloat16"):
        layers = [keras.layers.Conv2D(16, 1, dtype=precision), keras.layers.BatchNormalization(dtype=precision)]
        kept.append(activations(stacked(*layers), 8).kept)
    image, between = 4 * 8 * 64 * 64 * 3, 4 * 8 * 64 * 64 * 16
    assert kept == [image + between, image + between // 2]


@pytest.mark.slow
@pytest.mark.parametrize("case", DOCS["CASES"], ids=lambda case: case.title)
def test_the_estimate_is_near_what_the_compiler_told(case: Any) -> None:
    guess = DOCS["estimated"](case).peak
    # A few megabytes decide nothing; where it matters, a quarter is what can be foreseen.
    assert guess == pytest.approx(case.compiled_bytes, rel=0.25, abs=8e6)
