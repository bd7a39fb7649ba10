"""The string `accelerator`, parsed, and the batch that its replicas share."""

from __future__ import annotations

import pytest

from tests.helpers import small_config
from tpu_console.engine.config.batch import global_batch, steps_per_epoch
from tpu_console.engine.config.values import AcceleratorKind, RequestedAccelerator, parse_accelerator


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", RequestedAccelerator(AcceleratorKind.AUTO)),
        ("cpu", RequestedAccelerator(AcceleratorKind.CPU)),
        ("gpu", RequestedAccelerator(AcceleratorKind.GPU)),
        ("tpu", RequestedAccelerator(AcceleratorKind.TPU)),
        ("tpu:10.0.0.2:8470", RequestedAccelerator(AcceleratorKind.TPU, address="10.0.0.2:8470")),
        ("sim:8", RequestedAccelerator(AcceleratorKind.SIMULATED, simulated=8)),
    ],
)
def test_an_accelerator_is_parsed_into_kind_address_and_replicas(text: str, expected: RequestedAccelerator) -> None:
    assert small_config(accelerator=text).requested == parse_accelerator(text) == expected
    assert expected.is_tpu == text.startswith("tpu")


@pytest.mark.parametrize("text", ["", "tpus", "tpu:", "tpu:a b", "cpu:1", "sim", "sim:0", "sim:08", "sim:100", "8"])
def test_other_texts_are_not_accelerators(text: str) -> None:
    with pytest.raises(ValueError, match="is not an accelerator; valid: auto, cpu, gpu, tpu, tpu:ADDRESS, sim:N"):
        parse_accelerator(text)


def test_steps_follow_from_the_global_batch_unless_they_are_set() -> None:
    assert global_batch(16, 8) == 128
    config = small_config(batch_size=16)
    assert (steps_per_epoch(config, 1000, 8), steps_per_epoch(config, None, 8)) == (7, None)
    assert steps_per_epoch(config.model_copy(update={"steps_per_epoch": 50}), None, 8) == 50


def test_only_tensorflow_makes_the_step_of_a_hub_model_or_when_asked_to() -> None:
    assert small_config().tpu_backend == "jax"
    assert small_config(backend="tensorflow").tpu_backend == "tensorflow"
    assert small_config(model="hub", model_options={"path": "here"}).tpu_backend == "tensorflow"
