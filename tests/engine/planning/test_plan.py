"""The plan of a run, before anything is loaded."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING, Any

import pytest

from tpu_console.engine.accelerators.backend import is_installed
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.cached_facts import FunctionRecord, note_outputs, save_function_record
from tpu_console.engine.data.examples import Input
from tpu_console.engine.data.kinds.table import train_examples_of
from tpu_console.engine.findings import Finding, Severity
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan
from tpu_console.engine.runs.run_history import PastRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig

NOTHING = Hardware()
TWO_GPUS = Hardware(gpus=("NVIDIA H200", "NVIDIA H200"))


def config(**changes: Any) -> RunConfig:
    values = {"dataset": "digits", "model": "cnn", "batch_size": 32, "epochs": 3, "accelerator": "cpu"}
    return parse_config(values | changes)


def advice_of(hardware: Hardware = NOTHING, **changes: Any) -> dict[str, Finding]:
    """The advice, by its text."""
    return {advice.text: advice for advice in make_plan(config(**changes), hardware).advice}


def severity(text: str, hardware: Hardware = NOTHING, **changes: Any) -> Severity:
    """How severe the advice that holds a text is."""
    (found,) = [advice for sentence, advice in advice_of(hardware, **changes).items() if text in sentence]
    return found.severity


@pytest.mark.parametrize(
    ("changes", "replicas", "global_batch", "steps", "images", "remainder"),
    [
        ({}, 1, 32, 44, 1408, 29),
        ({"batch_size": 3}, 1, 3, 479, 1437, 0),
        ({"accelerator": "sim:4"}, 4, 128, 11, 1408, 29),
        ({"steps_per_epoch": 1000}, 1, 32, 1000, 32_000, 0),
        ({"data": {"train_limit": 100}}, 1, 32, 3, 96, 4),
        ({"data": {"validation_fraction": 0.5}}, 1, 32, 28, 896, 2),
        ({"dataset": "mnist", "batch_size": 128, "accelerator": "sim:8"}, 8, 1024, 58, 59_392, 608),
        ({"dataset": "json:loads", "steps_per_epoch": 7}, 1, 32, 7, 224, 0),
        ({"dataset": "json:loads"}, 1, 32, None, None, 0),
    ],
)
def test_the_arithmetic_of_an_epoch(
    changes: dict[str, Any], replicas: int, global_batch: int, steps: int | None, images: int | None, remainder: int
) -> None:
    plan = make_plan(config(**changes), NOTHING)
    assert (plan.replicas, plan.replica_batch) == (replicas, plan.global_batch // replicas)
    assert (plan.global_batch, plan.steps_per_epoch, plan.images_per_epoch) == (global_batch, steps, images)
    assert plan.remainder == remainder
    assert plan.is_possible


@pytest.mark.parametrize("fraction", [0.01, 0.3, 0.5, 0.99])
def test_digits_are_split_as_by_scikit_learn(fraction: float) -> None:
    from sklearn.model_selection import train_test_split

    train, _ = train_test_split(list(range(1797)), test_size=fraction)
    assert train_examples_of(config(data={"validation_fraction": fraction})) == len(train)


@pytest.mark.parametrize(
    ("accelerator", "hardware", "name", "replicas"),
    [
        ("cpu", TWO_GPUS, "CPU", 1),
        ("auto", NOTHING, "CPU (auto: no GPU found)", 1),
        ("auto", TWO_GPUS, "2 × NVIDIA H200 (auto)", 2),
        ("gpu", Hardware(gpus=("NVIDIA H200",)), "NVIDIA H200", 1),
        ("auto", Hardware(gpus=("NVIDIA H200",)), "NVIDIA H200 (auto)", 1),
        ("sim:3", TWO_GPUS, "3 simulated replicas on the CPU", 3),
        ("tpu", Hardware(tpu="/dev/accel0", tpu_chips=1), "TPU, 1 device", 1),
        ("tpu", Hardware(tpu="/dev/accel0", tpu_chips=4, tpu_kind="v3"), "TPU v3, 8 devices", 8),
    ],
)
def test_the_accelerator_is_named(accelerator: str, hardware: Hardware, name: str, replicas: int) -> None:
    plan = make_plan(config(accelerator=accelerator), hardware)
    assert (plan.accelerator, plan.replicas) == (name, replicas)


@pytest.mark.parametrize(
    ("accelerator", "name", "replicas"),
    [("cpu", "2 × CPU", 2), ("gpu", "4 × NVIDIA H200", 4), ("sim:4", "4 simulated replicas on the CPU on 2 hosts", 4)],
)
def test_the_accelerators_of_several_hosts_are_counted(accelerator: str, name: str, replicas: int) -> None:
    hosts = {"count": 2, "index": 0, "coordinator": "10.0.0.1"}
    plan = make_plan(config(accelerator=accelerator, hosts=hosts), TWO_GPUS)
    assert (plan.accelerator, plan.replicas) == (name, replicas)


@pytest.mark.parametrize(
    ("accelerator", "backend", "expected"),
    [
        ("tpu", "tensorflow", Severity.INFO),  # it may be on another machine
        ("tpu:10.0.0.2", "tensorflow", Severity.INFO),
        ("tpu", "jax", Severity.ERROR),
    ],
)
def test_a_tpu_that_is_not_here_is_elsewhere_or_missing(accelerator: str, backend: str, expected: Severity) -> None:
    plan = make_plan(config(accelerator=accelerator, backend=backend), NOTHING)
    assert expected in {finding.severity for finding in plan.advice if finding.key == "accelerator"}
    assert plan.replicas == (8 if expected is Severity.INFO else 1)


@pytest.mark.parametrize(("accelerator", "is_said"), [("auto", True), ("cpu", False), ("sim:2", False)])
def test_variables_that_hide_devices_are_a_warning_unless_no_device_is_wanted(accelerator: str, is_said: bool) -> None:
    advice = make_plan(config(accelerator=accelerator), Hardware(hidden=("All are hidden.",))).advice
    assert [one.severity for one in advice if one.text == "All are hidden."] == [Severity.WARNING] * is_said


def test_the_learning_rate_is_scaled_only_when_asked() -> None:
    scaled = {"optimizer": {"learning_rate": 0.002, "scale_with_replicas": True}}
    assert make_plan(config(accelerator="sim:4", **scaled), NOTHING).learning_rate == 0.008
    assert make_plan(config(accelerator="sim:4"), NOTHING).learning_rate == 0.001


@pytest.mark.parametrize(
    ("counts", "changes", "expected"),
    [
        ({"a": 5, "b": 5}, {}, {}),
        ({"a": 25, "b": 5}, {}, {"class_weight": "a has 25 examples, but b only 5"}),
        ({"a": 25, "b": 5}, {"class_weight": "balanced"}, {}),
        ({"a": 4, "b": 1}, {}, {"data.options.path": "One class has a single example, .*: b."}),
        ({"a": 4, **dict.fromkeys("bcdefgh", 1)}, {}, {"data.options.path": "7 .*: b, c, d, e, f and 2 more."}),
    ],
)
def test_uneven_and_single_classes_are_reported(
    tmp_path: Path, counts: dict[str, int], changes: dict[str, Any], expected: dict[str, str]
) -> None:
    rows = [f"words,{name}" for name, count in counts.items() for _ in range(count)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    options = {"path": str(tmp_path / "texts.csv")}
    values = {"dataset": "text-csv", "model": "text", "batch_size": 1, "data": {"options": options}}
    advice = make_plan(config(**values | changes), NOTHING).advice
    found = {f.key: f.text for f in advice if f.key in {"class_weight", "data.options.path"}}
    assert found.keys() == expected.keys()
    assert all(re.search(text, found[key]) for key, text in expected.items())


@pytest.mark.parametrize("count", [40, None])
def test_the_last_call_of_a_dataset_function_decides_what_is_counted(tmp_path: Path, count: int | None) -> None:
    (tmp_path / "own.py").write_text("def data(): ...\n", encoding="utf-8")
    own = config(dataset=f"{tmp_path}/own.py:data", batch_size=64)
    part = (Input((4,)), Input(()))
    save_function_record(own, FunctionRecord(part, part, 3, count, 16, "2026-03-01"))
    plan = make_plan(own, NOTHING)
    assert plan.is_possible
    assert (plan.train_examples, "dataset" in {f.key for f in plan.advice}) == (count, count is not None)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 1.0 + 3 * (44 * 0.1 + 2.0)),
        ({"batch_size": 64}, 1.0 + 3 * (22 * 0.2 + 2.0)),
        ({"dataset": "json:loads"}, None),
    ],
)
def test_the_last_similar_run_says_how_long_this_one_takes(
    similar_run: Callable[[PastRun], None], changes: dict[str, Any], seconds: float | None
) -> None:
    similar_run(PastRun(step_ms=100.0, epoch_s=2.0, rest_s=1.0, batch=32, day="2026-03-01"))
    plan = make_plan(config(**changes), NOTHING)
    assert plan.seconds == (None if seconds is None else pytest.approx(seconds))
    budgeted = make_plan(config(budget="60s", **changes), NOTHING)
    assert [f.key for f in budgeted.advice].count("budget") == 1


def test_a_missing_gpu_makes_the_run_impossible() -> None:
    plan = make_plan(config(accelerator="gpu"), NOTHING)
    assert not plan.is_possible
    assert plan.advice[0].key == "accelerator"
    assert "available: cpu, sim:N" in plan.advice[0].text


def test_a_batch_larger_than_the_data_suggests_one_that_fits() -> None:
    plan = make_plan(config(batch_size=400, accelerator="sim:4"), NOTHING)
    assert not plan.is_possible
    assert re.findall(r"[\d,]*\d", plan.advice[0].text) == ["1,600", "400", "4", "1,437", "359"]
    fits = make_plan(config(batch_size=359, accelerator="sim:4"), NOTHING)
    assert fits.is_possible
    assert fits.steps_per_epoch == 1


def test_a_missing_dataset_is_reported_with_its_size_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (text,) = [text for text in advice_of(dataset="fashion-mnist") if "storage.googleapis.com" in text]
    assert re.search(r"\b3[01][\d.]* MB\b", text)
    assert f"{tmp_path}/datasets/fashion-mnist" in text
    file = tmp_path / "datasets" / "mnist.npz"
    file.parent.mkdir()
    file.touch()
    assert not [text for text in advice_of(dataset="mnist") if "downloaded" in text]


def test_a_slice_is_planned_with_all_hosts_unless_one_is_requested() -> None:
    slice_of_four = Hardware(tpu="/dev/accel0", tpu_kind="v5p", tpu_chips=4, tpu_hosts=4)
    plan = make_plan(config(accelerator="tpu"), slice_of_four)
    assert (plan.replicas, plan.global_batch, plan.accelerator) == (16, 16 * 32, "TPU v5p, 16 devices on 4 hosts")
    alone = make_plan(config(accelerator="tpu", hosts={"count": 1}), slice_of_four)
    assert (alone.replicas, alone.accelerator) == (4, "TPU v5p, 4 devices")
    assert make_plan(config(), slice_of_four).replicas == 1  # on the CPU


def test_an_unused_tpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpu_console.engine.accelerators.backend.find_spec", lambda _name: None)
    monkeypatch.setattr("tpu_console.engine.accelerators.backend.version", _not_installed)
    is_installed.cache_clear()
    tpu = Hardware(tpu="/dev/accel0")
    assert severity("accel0) is not", tpu, accelerator="auto") is Severity.WARNING
    for hardware, accelerator in ((tpu, "cpu"), (NOTHING, "auto")):
        assert not [text for text in advice_of(hardware, accelerator=accelerator) if "is not used" in text]
    is_installed.cache_clear()


def _not_installed(package: str) -> str:
    raise PackageNotFoundError(package)


def test_too_many_simulated_replicas_for_the_cores_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    assert severity("replicas share 1 core, ", accelerator="sim:8") is Severity.WARNING
    assert not [text for text in advice_of(accelerator="sim:4") if "share 1 core" in text]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert severity("replicas share 2 cores", accelerator="sim:16", batch_size=8) is Severity.WARNING
    hosts = {"count": 2, "index": 0, "coordinator": "10.0.0.1"}  # each simulates its share
    for changes in ({"accelerator": "sim:8"}, {"accelerator": "sim:16", "hosts": hosts}):
        assert not [text for text in advice_of(batch_size=8, **changes) if "share 2 cores" in text]


def test_code_of_the_user_that_is_missing_is_refused_and_logits_are_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def build(shape, classes): ...\n", encoding="utf-8")
    own: dict[str, Any] = {"model": "mine.py:build", "model_options": {}}
    assert severity("no file", model="gone.py:build", model_options={}) is Severity.ERROR
    assert severity("mean 'build'?", model="mine.py:biuld", model_options={}) is Severity.ERROR
    assert severity("probabilities or logits", **own) is Severity.INFO
    note_outputs(config(**own), "logits")
    assert severity("gives logits (found", **own) is Severity.INFO
    several = {**own, "loss": "kind=mae, team=categorical_crossentropy"}
    assert severity("kind mean_absolute_error, ", **several) is Severity.INFO
    (tmp_path / "mine.py").write_text("import gone_of_mine\ndef build(shape, classes): ...\n", encoding="utf-8")
    assert severity("imports gone_of", **own) is Severity.ERROR
    (tmp_path / "mine.py").write_text("def build(shape, classes): ...\n", encoding="utf-8")
    note_outputs(config(**own), "probabilities")
    assert severity("probabilities (found", **own) is Severity.INFO
    assert severity("probabilities to mine", loss="mine.py:build", **own) is Severity.INFO
    assert severity("(outputs=logits)", outputs="logits", **own) is Severity.INFO
    numbers: dict[str, Any] = {"loss": "mean_squared_error", "metrics": ["accuracy"]}
    assert severity("accuracy says little", **numbers) is Severity.WARNING


def test_a_mirror_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    missing = str(tmp_path / "drive")
    assert severity(f"{missing} cannot be written", mirror=missing) == "warning"
    assert severity("reports whether", mirror="gs://bucket/runs") == "info"
    assert not [text for text in advice_of(mirror=str(tmp_path)) if "mirror" in text]
