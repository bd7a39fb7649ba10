"""Advice on a configuration for a TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import run_python, small_config
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.cached_facts import FunctionRecord, save_function_record
from tpu_console.engine.data.examples import Input
from tpu_console.engine.findings import Finding, Severity
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.advice import budget_finding, own_findings, static_advice
from tpu_console.engine.planning.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path


def advice(devices: int = 8, **changes: Any) -> list[Finding]:
    """Advice on a configuration about which there is little to say."""
    values = {
        "dataset": "mnist",
        "model": "mlp",
        "model_options": {"hidden": [128]},
        "batch_size": 128,
        "epochs": 1,
        "precision": "mixed_bfloat16",
        "steps_per_epoch": 50,
        "optimizer": {"scale_with_replicas": True},
    }
    return list(static_advice(parse_config(values | changes), devices))


def test_a_function_without_validation_data_is_named_once_it_is_known() -> None:
    config = parse_config(
        {"dataset": "mine.py:data", "model": "mlp", "batch_size": 128, "epochs": 1, "metrics": ["accuracy"]}
    )
    number = Input((4,))
    for held_out, is_said in ((0, True), (8, False), (None, False)):
        save_function_record(config, FunctionRecord((number, Input(())), (), 2, 64, held_out, "2026-11-20"))
        said = [one.text for one in own_findings(config) if one.key == "validation"]
        assert any("no validation data" in text for text in said) == is_said


@pytest.mark.parametrize(
    ("loss", "whole", "is_said"),
    [
        ("sparse_categorical_crossentropy", False, True),
        ("sparse_categorical_crossentropy", True, False),
        ("mean_squared_error", False, False),
    ],
)
def test_decimal_labels_do_not_suit_a_loss_of_classes(loss: str, whole: bool, is_said: bool) -> None:
    config = small_config(dataset="mine.py:data", loss=loss, metrics=[])
    part = (Input((4,)), Input(()))
    save_function_record(config, FunctionRecord(part, part, 2, 64, 8, "2026-11-20", whole_labels=whole))
    assert ("loss" in [one.key for one in own_findings(config)]) == is_said


def test_a_file_of_weights_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "there.weights.h5").touch()
    for name, is_said in (("there", False), ("gone", True)):
        config = small_config(weights=str(tmp_path / f"{name}.weights.h5"))
        assert ("weights" in [one.key for one in own_findings(config)]) == is_said


@pytest.mark.parametrize(("rate", "is_said"), [(10, True), (1, False), (0.1, False)])
def test_a_learning_rate_of_ten_is_advised_against(rate: float, is_said: bool) -> None:
    config = small_config(optimizer={"learning_rate": rate})
    found = [one.severity for one in own_findings(config) if one.key == "optimizer.learning_rate"]
    assert found == [Severity.WARNING] * is_said


def test_a_configuration_that_suits_a_tpu_gets_no_advice() -> None:
    assert advice() == advice(1, optimizer={}) == []
    assert [one.key for one in advice(2, optimizer={})] == ["optimizer.scale_with_replicas"]


@pytest.mark.parametrize(
    ("changes", "severity", "key", "text"),
    [
        ({"batch_size": 100}, "warning", "batch_size", "pads it to 104"),
        ({"batch_size": 64}, "info", "batch_size", "multiples of 128"),
        ({"batch_size": 8000}, "error", "batch_size", "the largest batch size that fits is 7500"),
        ({"batch_size": 7}, "info", "batch_size", "pads it to 8"),
        ({"steps_per_epoch": "all"}, "info", "batch_size", "each epoch drops 608"),
        ({"optimizer": {}}, "info", "optimizer.scale_with_replicas", "grows 8-fold"),
        ({"precision": "float32"}, "info", "precision", "twice the memory"),
        ({"precision": "mixed_float16"}, "warning", "precision", "convert float16"),
        ({"steps_per_execution": 2}, "info", "steps_per_execution", "is not used: JAX queues steps"),
        (
            {"steps_per_execution": 32, "backend": "tensorflow"},
            "info",
            "steps_per_execution",
            "is not used: Keras runs one step at a time with several replicas",
        ),
    ],
)
def test_a_configuration_that_does_not_suit_a_tpu_gets_advice(
    changes: dict[str, Any], severity: str, key: str, text: str
) -> None:
    (found,) = advice(**changes)
    assert (found.severity, found.key) == (severity, key)
    assert text in found.text


@pytest.mark.parametrize(
    ("steps", "severity", "text"), [(1, "info", "waits for the host"), (64, "warning", "more than the 50 steps")]
)
def test_steps_per_execution_are_checked_if_they_are_used(steps: int, severity: str, text: str) -> None:
    (found,) = advice(1, steps_per_execution=steps, backend="tensorflow")
    assert (found.severity, found.key) == (severity, "steps_per_execution")
    assert text in found.text
    assert advice(1, steps_per_execution=50, backend="tensorflow") == []
    assert advice(1, steps_per_execution=1) == []


@pytest.mark.parametrize(("heads", "is_said"), [(8, True), (2, False), (1, False)])
def test_heads_narrower_than_the_matrix_unit_get_advice(tmp_path: Path, heads: int, is_said: bool) -> None:
    (tmp_path / "pairs.txt").write_text("a\tb\n" * 20)
    options = {"width": 256, "heads": heads, "hidden": 512}
    data = {"options": {"path": str(tmp_path / "pairs.txt")}}
    found = advice(dataset="text-pairs", data=data, model="transformer", model_options=options)
    assert [one.key for one in found if "32 wide" in one.text] == ["model_options.heads"] * is_said


@pytest.mark.parametrize(("changes", "severity"), [({"rotation": 10.0}, "error"), ({"flip": "horizontal"}, "warning")])
def test_augmentation_in_the_model_should_move_to_the_pipeline(changes: dict[str, Any], severity: str) -> None:
    (found,) = advice(augmentation={"placement": "model", **changes})
    assert found.severity == severity
    assert "augmentation.placement=pipeline" in found.remedy
    assert advice(augmentation={"placement": "auto", **changes}) == []


@pytest.mark.parametrize(
    ("size", "padded_to", "use"), [(12, 16, 16), (63, 64, 64), (136, 256, 128), (200, 256, 256), (65, 128, 128)]
)
def test_a_size_that_a_tpu_pads_comes_with_the_nearest_that_it_does_not(size: int, padded_to: int, use: int) -> None:
    assert not advice(model_options={"hidden": [use]})
    (found,) = advice(model_options={"hidden": [size, size]})
    assert f"from {size} to {padded_to}." in found.text
    assert f"Use {use} instead of {size} " in found.remedy


def test_replicas_that_have_no_example_each_are_too_many() -> None:
    (found, *_) = advice(100_000, batch_size=1)
    assert (found.severity, "fewer replicas" in found.text) == ("error", True)
    assert advice(1, batch_size=60_000, steps_per_epoch=1)[0].severity != "error", "one batch of all examples fits"


@pytest.mark.parametrize(
    ("budget", "fitting", "severity", "words"),
    [
        ("90m", 1, "warning", "About 1 of 2 epochs fit into the budget of 90m;"),
        ("20s", 2, "info", "All 2 epochs fit into the budget of 20s."),
        ("kaggle", None, "info", "the budget of kaggle (9 hours) is unknown"),
    ],
)
def test_a_budget_says_how_many_epochs_fit(budget: str, fitting: int | None, severity: str, words: str) -> None:
    found = budget_finding(small_config(epochs=2, budget=budget), 9 * 3600, fitting)
    assert (found.severity, found.key) == (severity, "budget")
    assert words in found.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outputs": "logits"}, "gives logits"),
        ({"outputs": "probabilities"}, "gives probabilities"),
        ({}, "is checked when it is built"),
        ({"loss": "mine.py:loss"}, "set outputs=logits"),
        ({"loss": "mine.py:loss", "outputs": "logits"}, "gives logits"),
    ],
)
def test_what_a_custom_model_is_taken_to_give_is_said(changes: dict[str, Any], words: str) -> None:
    config = parse_config({"dataset": "digits", "model": "mine.py:build", "batch_size": 8, "epochs": 1} | changes)
    (said,) = [one.text for one in own_findings(config) if one.key == "outputs"]
    assert words in said


def test_the_most_severe_comes_first_and_the_plan_uses_the_same_words() -> None:
    changes: dict[str, Any] = {"batch_size": 100, "precision": "float32", "optimizer": {}}
    found = advice(**changes, augmentation={"placement": "model", "zoom": 0.1})
    order = ["error", "warning", "info"]
    assert [order.index(one.severity) for one in found] == sorted(order.index(one.severity) for one in found)
    config = parse_config(
        {"dataset": "mnist", "model": "mlp", "epochs": 1, "accelerator": "sim:8", "steps_per_epoch": 50} | changes
    )
    planned = {item.text for item in make_plan(config, Hardware()).advice}
    texts = {one.text for one in static_advice(config, 8) if one.key in {"batch_size", "optimizer.scale_with_replicas"}}
    assert len(texts) == 2
    assert texts <= planned


SCRIPT = """
import sys, time
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.planning.advice import own_findings, static_advice
config = parse_config({"dataset": "mnist", "model": "mlp", "batch_size": 100, "epochs": 1})
static_advice(config, 8)
print(sorted(sys.modules.keys() & {"tensorflow", "keras", "jax", "numpy", "pandas", "sklearn"}))
"""


def test_advice_loads_no_framework(tmp_path: Path) -> None:
    assert run_python(SCRIPT, cwd=tmp_path).strip() == "[]"
