"""Real verdicts of the TPU's compiler, against a direct call of it and against counts by hand."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.engine.preflight.reached import verdicts_of
from tests.helpers import ROOT, known, run_forked, run_python
from tpu_console.engine.preflight.choice import versions
from tpu_console.engine.preflight.result import Memory, Outcome, Verdict, from_dict
from tpu_console.engine.preflight.worker_pool import PREFLIGHT
from tpu_console.presets.catalog import find_preset

pytest.importorskip("libtpu", reason="the extra [tpu] is not installed")
pytestmark = pytest.mark.slow

BATCH, TOO_MANY = 128, 1 << 21

BREADTH = ROOT / "tests" / "breadth"
DIRECTLY = "import sys; from tests.breadth.direct import main; main('digits', int(sys.argv[1]))"


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What direct calls of the compiler say: of a batch that fits, and of one that does not.

    The same program and the same compiler say the same, so that is recorded; with any other one they are called.
    """
    recorded: dict[str, Any] = json.loads((ROOT / "tests/engine/preflight/direct.json").read_text("utf-8"))
    program = b"".join((BREADTH / name).read_bytes() for name in ("direct.py", "models.py"))
    of = {"program": hashlib.sha256(program).hexdigest(), "versions": versions()}
    if recorded["of"] == of:
        said: dict[str, Any] = recorded["said"]
        return said
    home, env = tmp_path_factory.mktemp("direct"), PREFLIGHT | {"PYTHONPATH": str(ROOT)}
    fits, refused = (json.loads(run_python(DIRECTLY, str(batch), cwd=home, env=env)) for batch in (BATCH, TOO_MANY))
    said = fits | {"says": refused["says"]}
    print(json.dumps({"of": of, "said": said}))  # what to record
    return said


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Verdict], list[dict[str, Any]]]:
    """The preset digits-cnn at 128 per device, on eight devices and on one; and its messages."""
    config = find_preset("digits-cnn").config.model_dump(mode="json")
    options = json.dumps({"config": config, "on": ["v5e-8", "v5e-1"], "batches": [BATCH]})
    home = tmp_path_factory.mktemp("home")
    job = "from runpy import run_module; run_module('tpu_console.engine.jobs.job', None, '__main__', True)"
    said, again = (
        [json.loads(line) for line in run_python(job, "preflight", options, cwd=home).splitlines()] for _ in range(2)
    )
    assert [one["kind"] for one in again] == ["result"]
    assert all(verdict["is_remembered"] for verdict in again[-1]["verdicts"])
    return [from_dict(values) for values in said[-1]["verdicts"]], said


def test_the_verdict_agrees_with_a_direct_call_of_the_compiler(
    direct: dict[str, Any], small: tuple[list[Verdict], list[dict[str, Any]]]
) -> None:
    found = small[1][-1]["verdicts"][0]
    assert (found["outcome"], found["tpu"], found["replica_batch"]) == ("fits", "v5e-8", BATCH)
    # The seeds are other numbers in the same program.
    assert found["bound"]["flops"] == pytest.approx(direct["flops"], rel=0.001)
    assert found["memory"]["temporaries"] == pytest.approx(direct["temporaries"], rel=0.01)
    assert found["memory"]["peak"] == pytest.approx(direct["peak"], rel=0.01)
    assert found["bound"]["step_s"] >= direct["flops"] / 197e12


def test_a_small_model_fits(small: tuple[list[Verdict], list[dict[str, Any]]]) -> None:
    verdicts, said = small
    assert [(verdict.tpu, verdict.devices) for verdict in verdicts] == [("v5e-8", 8), ("v5e-1", 1)]
    for verdict in verdicts:
        assert verdict.outcome is Outcome.FITS, verdict.reason
        memory = known(verdict.memory)
        assert memory.headroom > 0.99
        # Adam keeps two numbers a weight, and counts steps.
        assert memory.optimizer >= 2 * 4 * 35_914
        assert memory.batch == BATCH * (8 * 8 * 4 + 4)
        assert known(verdict.bound).step_s > 0
    phases = [one["what"].rpartition(": ")[2] for one in said if one["kind"] == "progress"]
    assert phases.index("building the model") < phases.index("compiling the training step")


def test_operations_agree_with_a_count_by_hand(small: tuple[list[Verdict], list[dict[str, Any]]]) -> None:
    # Multiplications of one example, going forwards; with "same" padding those with the border are not done.
    first = (3 * 8 - 2) ** 2 * 1 * 32
    others = (3 * 4 - 2) ** 2 * 32 * 64 + 2 * 2 * 64 * 64 + 64 * 10
    # Backwards as much again for the weights, and for what came in; of the images nobody asks that.
    multiplications = 3 * (first + others) - first
    for verdict in small[0]:
        bound = known(verdict.bound)
        assert bound.flops == pytest.approx(2 * multiplications * BATCH, rel=0.05), verdict.tpu
        exchanged = 2 * 7 / 8 * 4 * 35_914 if verdict.devices == 8 else 0
        assert bound.all_reduce_bytes == pytest.approx(exchanged, rel=0.1)


@pytest.fixture(scope="module")
def too_large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """The verdicts on two configurations that do not fit."""
    digits, plants = (find_preset(name).config for name in ("digits-cnn", "plant-pathology-efficientnet"))
    changes = {
        "model_options": {"name": "MobileNet", "weights": "imagenet"},
        "batch_size": 4096,
        "precision": "mixed_bfloat16",
        "fine_tuning": plants.fine_tuning.model_copy(update={"after_epochs": 15, "from_layer": 0}),
    }
    configs = {
        "too-large-batch": digits.model_copy(update={"batch_size": TOO_MANY}),
        "too-large-phase": plants.model_copy(update=changes),
    }
    return verdicts_of(configs, "v5e-8", tmp_path_factory.mktemp("home"))


def memory_of(verdict: Verdict) -> Memory:
    """Return how much memory a configuration that does not fit would take."""
    assert verdict.outcome is Outcome.DOES_NOT_FIT, verdict.reason
    memory = known(verdict.memory)
    assert memory.limit == round(15.75 * 2**30)
    assert "exceeds available HBM (15.75G)" in verdict.compiler_says
    assert "15.75 GiB" in verdict.reason
    return memory


def test_what_is_much_too_large_does_not_fit(direct: dict[str, Any], too_large: dict[str, Verdict]) -> None:
    memory = memory_of(too_large["too-large-batch"])
    refused = known(re.search(r"([0-9.]+)G.? (?:exceeds available HBM|of 15.75G)", direct["says"]))
    assert memory.peak == pytest.approx(float(refused[1]) * 2**30, rel=0.02)


def test_the_verdict_on_two_phases_is_that_of_the_second(too_large: dict[str, Verdict]) -> None:
    verdict = too_large["too-large-phase"]
    memory = memory_of(verdict)
    # All weights have their gradients; batch normalization stays as it was trained, and keeps nothing.
    assert memory.optimizer == pytest.approx(2 * 4 * 3.2e6, rel=0.01)
    assert 16 * 2**30 < memory.peak < 25 * 2**30
    # Most of it are the results of convolutions on 4,096 images.
    assert len(verdict.fillings) == 3
    assert not [one for one in verdict.fillings if not one.what.startswith(("result", "tensor"))]
    # The photos and their table are not here.
    assert any("10 are assumed" in finding.text for finding in verdict.findings)
    (phase,) = [finding.text for finding in verdict.findings if finding.key == "fine_tuning.after_epochs"]
    assert "from epoch 16" in phase


def test_a_tensorflow_step_takes_the_same_work_and_memory(small: tuple[list[Verdict], object], tmp_path: Path) -> None:
    config = find_preset("digits-cnn").config.model_copy(update={"batch_size": BATCH, "backend": "tensorflow"})
    graph = verdicts_of({"graph": config}, "v5e-8", tmp_path, KERAS_BACKEND="tensorflow")["graph"]
    by_jax = small[0][0]
    assert graph.outcome is Outcome.FITS, graph.reason
    bound, of_jax = known(graph.bound), known(by_jax.bound)
    assert bound.flops == pytest.approx(of_jax.flops, rel=0.05)
    assert bound.all_reduce_bytes == pytest.approx(of_jax.all_reduce_bytes, rel=0.05)
    memory, there = known(graph.memory), known(by_jax.memory)
    # The seeds of random numbers are larger in TensorFlow.
    assert memory.parameters == pytest.approx(there.parameters, abs=64)
    assert memory.peak == pytest.approx(there.peak, rel=0.25)
    assert graph.findings[0].key == "backend"


ON_TENSORFLOW = """
import json
from tpu_console.engine.accelerators.framework import NotPossibleError
from tpu_console.engine.accelerators.tensorflow import _stable
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.preflight.build import build
from tpu_console.engine.preflight.choice import Batch
from tpu_console.engine.preflight.compile import Compiler, Subject
from tpu_console.engine.preflight.topologies import find_topology

given = {"user": Input((), "int32"), "item": Input((), "int32")}
signature = Signature(Task.RATINGS, given, sizes={"users": 600, "items": 9000}, label_mean=3.5)
config = parse_config({"dataset": "ratings-csv", "data": {"options": {"path": "a.csv"}}, "model": "recommender",
                       "loss": "mean_squared_error", "metrics": [], "batch_size": 64, "epochs": 1,
                       "model_options": {"width": 50}})
example = given, Input((), "float32")
model, batch = build(config, Batch(signature, example, example), 1)
program = Subject(config, batch, model, Compiler(find_topology("v5e-1"))).training_program()
try:
    _stable(b"no program")
except NotPossibleError as error:
    print(json.dumps([program.memory.batch, program.memory.parameters, program.flops, str(error)]))
"""


def test_on_tensorflow_a_model_of_two_inputs_is_taken_over_and_versions_that_do_not_fit_are_named(
    tmp_path: Path,
) -> None:
    said = run_forked(ON_TENSORFLOW, cwd=tmp_path, env=PREFLIGHT | {"KERAS_BACKEND": "tensorflow"})
    batch, parameters, flops, refusal = json.loads(said.splitlines()[-1])
    assert (batch, flops > 64 * 50) == (64 * 3 * 4, True)
    assert parameters == pytest.approx(4 * 51 * (600 + 9000), rel=0.01)
    assert "(tensorflow 2." in refusal
