import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import run_python, small_config
from tpu_console.engine.accelerators.backend import choose_backend
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.cached_facts import FunctionRecord, note_outputs, save_function_record
from tpu_console.engine.data.examples import Input
from tpu_console.engine.data.kinds.table import train_examples_of
from tpu_console.engine.errors import Finding, Severity
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import budget_finding, devices_of, make_plan, own_findings, static_advice
from tpu_console.engine.runs.timing import PastRun

NOTHING = Hardware()
TWO_GPUS = Hardware(gpus=("NVIDIA H200", "NVIDIA H200"))


def config(**changes: Any) -> RunConfig:
    values = {"dataset": "digits", "model": "cnn", "batch_size": 32, "epochs": 3, "accelerator": "cpu"}
    return parse_config(values | changes)


def advice_of(hardware: Hardware = NOTHING, **changes: Any) -> dict[str, Finding]:
    return {advice.text: advice for advice in make_plan(config(**changes), hardware).advice}


def severity(text: str, hardware: Hardware = NOTHING, **changes: Any) -> Severity:
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


HOSTS = {"count": 2, "index": 0, "coordinator": "10.0.0.1"}
FOUR_HOSTS = Hardware(tpu="/dev/accel0", tpu_kind="v5p", tpu_chips=4, tpu_hosts=4)


@pytest.mark.parametrize(
    ("accelerator", "hosts", "hardware", "name", "replicas"),
    [
        ("cpu", HOSTS, TWO_GPUS, "2 × CPU", 2),
        ("gpu", HOSTS, TWO_GPUS, "4 × NVIDIA H200", 4),
        ("sim:4", HOSTS, TWO_GPUS, "4 simulated replicas on the CPU on 2 hosts", 4),
        ("tpu", {}, FOUR_HOSTS, "TPU v5p, 16 devices on 4 hosts", 16),
        ("tpu", {"count": 1}, FOUR_HOSTS, "TPU v5p, 4 devices", 4),
        ("cpu", {}, FOUR_HOSTS, "CPU", 1),
    ],
)
def test_the_accelerators_of_several_hosts_are_counted(
    accelerator: str, hosts: dict[str, Any], hardware: Hardware, name: str, replicas: int
) -> None:
    plan = make_plan(config(accelerator=accelerator, hosts=hosts), hardware)
    assert (plan.accelerator, plan.replicas, plan.global_batch) == (name, replicas, replicas * 32)


@pytest.mark.parametrize(
    ("accelerator", "backend", "expected"),
    [
        ("tpu", "tensorflow", Severity.INFO),  # it may be on another machine
        ("tpu:10.0.0.2", "tensorflow", Severity.INFO),
        ("tpu", "jax", Severity.ERROR),
        ("gpu", "tensorflow", Severity.ERROR),
    ],
)
def test_a_missing_device_is_an_error_unless_the_run_is_for_another_machine(
    accelerator: str, backend: str, expected: Severity
) -> None:
    plan = make_plan(config(accelerator=accelerator, backend=backend), NOTHING)
    texts = {finding.severity: finding.text for finding in plan.advice if finding.key == "accelerator"}
    assert plan.replicas == (8 if expected is Severity.INFO else 1)
    assert ("available: cpu, sim:N" in texts[expected]) == (expected is Severity.ERROR)
    assert not plan.is_possible or expected is Severity.INFO


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
    own = config(dataset=f"{tmp_path}/own.py:data", batch_size=64, data={"train_limit": 8})  # a limit of other data
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


def test_an_unused_tpu_is_reported() -> None:
    def problems(hardware: Hardware, accelerator: str) -> list[Severity]:
        asked = config(accelerator=accelerator)
        choice = choose_backend(asked, hardware, {"tensorflow"}.__contains__, {"KERAS_HOME": "/nowhere"})
        return [one.severity for one in devices_of(asked, hardware, choice)[3]]

    tpu = Hardware(tpu="/dev/accel0")
    assert problems(tpu, "auto") == [Severity.WARNING]
    assert problems(tpu, "cpu") == problems(NOTHING, "auto") == []


@pytest.fixture
def one_core() -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("only Linux binds a thread to a core")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("one_core")
def test_too_many_simulated_replicas_for_the_cores_are_a_warning() -> None:
    for replicas, more, is_said in ((4, {}, False), (5, {}, True), (8, {"hosts": HOSTS}, False)):  # each its share
        advice = make_plan(config(accelerator=f"sim:{replicas}", batch_size=8, **more), NOTHING).advice
        assert [one.severity for one in advice if "share 1 core" in one.text] == [Severity.WARNING] * is_said


def test_a_mirror_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    missing = str(tmp_path / "drive")
    assert severity(f"{missing} cannot be written", mirror=missing) == "warning"
    assert severity("reports whether", mirror="gs://bucket/runs") == "info"
    assert not [text for text in advice_of(mirror=str(tmp_path)) if "mirror" in text]


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


SPARSE = "sparse_categorical_crossentropy"


@pytest.mark.parametrize(
    ("loss", "held_out", "has_whole_labels", "said"),
    [
        (SPARSE, 8, True, []),
        (SPARSE, 0, True, ["validation"]),
        (SPARSE, None, True, []),
        (SPARSE, 8, False, ["loss"]),
        ("mean_squared_error", 8, False, []),
    ],
)
def test_no_validation_data_and_decimal_labels_are_named_once_they_are_known(
    loss: str, held_out: int | None, has_whole_labels: bool, said: list[str]
) -> None:
    config = small_config(dataset="mine.py:data", loss=loss, metrics=[])
    part = (Input((4,)), Input(()))
    save_function_record(config, FunctionRecord(part, (), 2, 64, held_out, "2026-11-20", whole_labels=has_whole_labels))
    assert [one.key for one in own_findings(config) if one.key in {"validation", "loss"}] == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": "there.weights.h5"}, {}),
        ({"weights": "gone.weights.h5"}, {"weights": "error"}),
        ({"optimizer": {"learning_rate": 10}}, {"optimizer.learning_rate": "warning"}),
        ({"optimizer": {"learning_rate": 1}}, {}),
    ],
)
def test_missing_weights_and_a_learning_rate_of_ten_are_named(
    changes: dict[str, Any], said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.weights.h5").touch()
    advice = make_plan(small_config(**changes), NOTHING).advice
    assert {one.key: one.severity for one in advice if one.key in {"weights", "optimizer.learning_rate"}} == said


ON_TENSORFLOW, IN_MODEL = {"backend": "tensorflow"}, {"placement": "model"}


@pytest.mark.parametrize(
    ("devices", "changes"),
    [
        (8, {}),
        (1, {"optimizer": {}}),
        (1, {"steps_per_execution": 50, **ON_TENSORFLOW}),
        (1, {"steps_per_execution": 1}),
        (8, {"steps_per_epoch": 5}),  # few steps, which were asked for
        (8, {"augmentation": {"placement": "auto", "rotation": 10.0, "flip": "horizontal"}}),
    ],
)
def test_a_configuration_that_suits_a_tpu_gets_no_advice(devices: int, changes: dict[str, Any]) -> None:
    assert advice(devices, **changes) == []


@pytest.mark.parametrize(
    ("devices", "changes", "severity", "key", "text"),
    [
        (8, {"batch_size": 100}, "warning", "batch_size", "pads it to 104"),
        (8, {"batch_size": 64}, "info", "batch_size", "multiples of 128"),
        (8, {"batch_size": 8000}, "error", "batch_size", "the largest batch size that fits is 7500"),
        (8, {"batch_size": 7}, "info", "batch_size", "pads it to 8"),
        (8, {"steps_per_epoch": "all"}, "info", "batch_size", "each epoch drops 608"),
        (8, {"optimizer": {}}, "info", "optimizer.scale_with_replicas", "grows 8-fold"),
        (2, {"optimizer": {}}, "info", "optimizer.scale_with_replicas", "grows 2-fold"),
        (8, {"precision": "float32"}, "info", "precision", "twice the memory"),
        (8, {"precision": "mixed_float16"}, "warning", "precision", "convert float16"),
        (8, {"steps_per_execution": 2}, "info", "steps_per_execution", "is not used: JAX queues steps"),
        (8, {"steps_per_execution": 32, **ON_TENSORFLOW}, "info", "steps_per_execution", "one step at a time"),
        (1, {"steps_per_execution": 1, **ON_TENSORFLOW}, "info", "steps_per_execution", "waits for the host"),
        (1, {"steps_per_execution": 64, **ON_TENSORFLOW}, "warning", "steps_per_execution", "than the 50 steps"),
        (8, {"augmentation": IN_MODEL | {"rotation": 10.0}}, "error", "augmentation.placement", "a thousand times"),
        (8, {"augmentation": IN_MODEL | {"flip": "horizontal"}}, "warning", "augmentation.placement", "TPU time"),
    ],
)
def test_a_configuration_that_does_not_suit_a_tpu_gets_advice(
    devices: int, changes: dict[str, Any], severity: str, key: str, text: str
) -> None:
    (found,) = advice(devices, **changes)
    assert (found.severity, found.key) == (severity, key)
    assert text in found.text
    assert found.remedy or key in {"batch_size", "optimizer.scale_with_replicas"}


@pytest.mark.parametrize(("heads", "is_said"), [(8, True), (2, False), (1, False)])
def test_heads_narrower_than_the_matrix_unit_get_advice(tmp_path: Path, heads: int, is_said: bool) -> None:
    (tmp_path / "pairs.txt").write_text("a\tb\n" * 20)
    options = {"width": 256, "heads": heads, "hidden": 512}
    data = {"options": {"path": str(tmp_path / "pairs.txt")}}
    found = advice(dataset="text-pairs", data=data, model="transformer", model_options=options)
    assert [one.key for one in found if "32 wide" in one.text] == ["model_options.heads"] * is_said


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


MINE = "def build(shape, classes): ...\n"


@pytest.mark.parametrize(
    ("changes", "noted", "severity", "words"),
    [
        ({"model": "gone.py:build"}, "", "error", "no file"),
        ({"model": "mine.py:biuld"}, "", "error", "mean 'build'?"),
        ({"model": "needy.py:build"}, "", "error", "imports gone_of"),
        ({}, "", "info", "is checked when it is built"),
        ({}, "logits", "info", "gives logits (found"),
        ({}, "probabilities", "info", "probabilities (found"),
        ({"outputs": "logits"}, "", "info", "logits (outputs=logits)"),
        ({"outputs": "probabilities"}, "", "info", "gives probabilities"),
        ({"loss": "mine.py:build"}, "", "info", "set outputs=logits"),
        ({"loss": "mine.py:build", "outputs": "logits"}, "", "info", "gives logits"),
        ({"loss": "kind=mae, team=categorical_crossentropy"}, "", "info", "kind mean_absolute_error, "),
        ({"model": "cnn", "loss": "mean_squared_error", "metrics": ["accuracy"]}, "", "warning", "accuracy is"),
    ],
)
def test_what_is_said_of_the_user_s_code_and_its_outputs(
    changes: dict[str, Any], noted: str, severity: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "needy.py").write_text(f"import gone_of_mine\n{MINE}", encoding="utf-8")
    config = parse_config({"dataset": "digits", "model": "mine.py:build", "batch_size": 8, "epochs": 1} | changes)
    if noted:
        note_outputs(config, noted)
    assert severity in [one.severity for one in own_findings(config) if words in one.text]


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
from tpu_console.engine.planning import own_findings, static_advice
config = parse_config({"dataset": "mnist", "model": "mlp", "batch_size": 100, "epochs": 1})
static_advice(config, 8)
print(sorted(sys.modules.keys() & {"tensorflow", "keras", "jax", "numpy", "pandas", "sklearn"}))
"""


def test_advice_loads_no_framework(tmp_path: Path) -> None:
    assert run_python(SCRIPT, cwd=tmp_path).strip() == "[]"
