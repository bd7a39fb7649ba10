"""What ``tpu-console doctor --train`` trains, and how it judges what came of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tpu_console.engine.doctor.self_test import Leg, Trained, figures, judge, legs_of, not_run
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.runs.events import (
    AcceleratorReady,
    EpochEnded,
    FitStarted,
    MemorySampled,
    PhaseStarted,
    Replica,
    ReplicaMemory,
    RunFailed,
    RunFinished,
    RunResumed,
)
from tpu_console.engine.runs.state import RunState, reduce

if TYPE_CHECKING:
    from tpu_console.engine.runs.events import Event

TPU = Leg("tpu", "jax", 8, 16)
REFERENCE = Leg("cpu", "tensorflow", 1, 128, is_reference=True)
LOSSES = (2.27, 2.19, 2.04, 1.67)
_ALL = ("training", "replicas", "losses", "stop-and-resume", "memory", "duty-cycle", "speed")


def folded(*events: Event) -> RunState:
    state = RunState()
    for at, event in enumerate(events):
        state = reduce(state, event, float(at))
    return state


def ready(leg: Leg, count: int | None = None) -> AcceleratorReady:
    replicas = tuple(
        Replica(index, f"tpu:{index}", "TPU v5 lite", "worker-0", f"{index},0,0")
        for index in range(leg.replicas if count is None else count)
    )
    return AcceleratorReady(leg.accelerator, "found", "DataParallel", replicas, {"jax": "0.7"}, leg.backend, "", "2x4")


def epoch(number: int, loss: float, val_loss: float, step_ms: float = 2.0) -> EpochEnded:
    logs = {"loss": loss, "val_loss": val_loss}
    return EpochEnded(number, 11 * number, 11, 1.0, 1.0, 3.5, 0.1, step_ms, 5000.0, 0.05, logs)


def trained(leg: Leg, losses: tuple[float, ...] = LOSSES, *, batch: int = 128) -> Trained:
    """A leg that went well: stopped after the first epoch, and resumed."""
    memory = MemorySampled(tuple(ReplicaMemory(i, 2**28, 2**29, 2**34, "", 40.0 + i) for i in range(leg.replicas)))
    fit = FitStarted(2, 11, batch, leg.batch, 1)
    first, last = epoch(1, *losses[:2]), epoch(2, *losses[2:])
    resumed: list[Event] = [] if leg.is_reference else [RunResumed(1, 0, 11, 1.0, 2, "worker-0")]
    state = folded(ready(leg), fit, memory, first, *resumed, last, RunFinished("completed", "All epochs.", {}))
    return Trained(state, 21.0, stopped_after=0 if leg.is_reference else 1)


def words(leg: Leg, done: Trained, reference: Trained | None = None) -> dict[str, str]:
    return {one.check: one.word for one in judge(leg, done, reference or trained(REFERENCE))}


def test_a_machine_without_accelerator_simulates_one_on_both_backends() -> None:
    legs = legs_of(Hardware(), ())
    assert [leg.name for leg in legs] == ["cpu, tensorflow, reference", "sim:8, tensorflow", "sim:8, jax"]
    assert {leg.global_batch for leg in legs} == {128}


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        (Hardware(tpu="/dev/accel0", tpu_kind="v5e", tpu_chips=8), [("tpu", 8)]),
        (Hardware(tpu="/dev/accel0", tpu_kind="v3", tpu_chips=4), [("tpu", 8)]),
        (Hardware(gpus=("A100",)), [("gpu", 1)]),
        (Hardware(gpus=("T4",) * 2, tpu="/dev/accel0", tpu_chips=1), [("tpu", 1), ("gpu", 2)]),
    ],
)
def test_every_accelerator_found_is_trained_on_all_its_devices(
    hardware: Hardware, expected: list[tuple[str, int]]
) -> None:
    legs = [leg for leg in legs_of(hardware, ()) if leg.backend == "jax"]
    assert [(leg.accelerator, leg.replicas) for leg in legs] == expected


def test_a_number_of_devices_that_does_not_divide_128_has_a_reference_with_its_own_batch() -> None:
    legs = legs_of(Hardware(gpus=("A100",) * 3), ("gpu", "cpu"))
    assert [leg.global_batch for leg in legs if leg.is_reference] == [126, 128]


def test_a_tpu_of_several_hosts_is_not_trained_from_one_of_them() -> None:
    (*_, leg) = legs_of(Hardware(tpu="/dev/accel0", tpu_kind="v5e", tpu_chips=4, tpu_hosts=4), ())
    assert not_run(leg, is_alone=True).word == "problem"
    assert "4 hosts" in not_run(leg, is_alone=True).text
    assert not_run(leg, is_alone=False).word == "note"


def test_the_configuration_is_valid_and_the_same_for_every_device_but_the_batch() -> None:
    one, eight = REFERENCE.config, TPU.config
    assert one.model_copy(update={"name": "", "accelerator": "", "backend": "", "batch_size": 0}) == eight.model_copy(
        update={"name": "", "accelerator": "", "backend": "", "batch_size": 0}
    )


def test_a_leg_that_went_well_has_every_result() -> None:
    found = words(TPU, replace(trained(TPU), bound_ms=0.5))
    assert found == dict.fromkeys(_ALL, "ok")
    assert words(REFERENCE, trained(REFERENCE))["losses"] == "ok"
    assert "stop-and-resume" not in words(REFERENCE, trained(REFERENCE))


@pytest.mark.parametrize(
    ("losses", "word"),
    [
        ((2.271, 2.192, 2.045, 1.68), "ok"),  # 0.6% off, which bfloat16 may be
        ((2.27, 2.19, 2.04, 1.70), "problem"),  # 1.8% off
        ((2.30, 2.30, 2.30, 2.30), "problem"),  # nothing was learnt
        ((2.27, 2.19, math.nan, math.nan), "problem"),
    ],
)
def test_losses_are_compared_with_the_cpu(losses: tuple[float, ...], word: str) -> None:
    assert words(TPU, trained(TPU, losses))["losses"] == word


def test_the_cpu_computes_more_precisely_than_a_tpu_so_less_is_allowed() -> None:
    leg, losses = Leg("sim:8", "jax", 8, 16), (2.27, 2.19, 2.04, 1.675)
    assert words(leg, trained(leg, losses))["losses"] == "problem"
    assert words(TPU, trained(TPU, losses))["losses"] == "ok"


def test_a_loss_that_rises_on_the_cpu_is_a_problem() -> None:
    assert words(REFERENCE, trained(REFERENCE, (2.0, 2.0, 2.1, 2.1)))["losses"] == "problem"


def test_losses_without_a_reference_or_of_another_batch_are_not_compared() -> None:
    failed = Trained(problem="It died.")
    assert words(TPU, trained(TPU), failed)["losses"] == "could not tell"
    assert words(TPU, trained(TPU, batch=64))["losses"] == "problem"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (ready(TPU, 4), "the number of replicas is 4, not 8"),
        (replace(ready(TPU), accelerator="cpu"), "the accelerator is cpu, not tpu"),
        (replace(ready(TPU), backend="tensorflow"), "the backend is tensorflow, not jax"),
        (replace(ready(TPU), replicas=ready(TPU, 1).replicas * 8), "the number of different devices is 1, not 8"),
    ],
)
def test_other_replicas_than_expected_are_a_problem(wrong: AcceleratorReady, text: str) -> None:
    done = trained(TPU)
    (result,) = [
        one
        for one in judge(TPU, replace(done, state=replace(done.state, accelerator=wrong)), trained(REFERENCE))
        if one.check == "replicas"
    ]
    assert result.word == "problem"
    assert text in result.text


def test_a_run_that_does_not_stop_or_go_on_where_it_stopped_is_a_problem() -> None:
    done = trained(TPU)
    assert words(TPU, replace(done, stopped_after=0))["stop-and-resume"] == "problem"
    assert words(TPU, replace(done, state=replace(done.state, resumed=())))["stop-and-resume"] == "problem"


def test_missing_figures_are_named_and_no_problem() -> None:
    done = trained(TPU)
    missing = {0: ReplicaMemory(0, None, None, None, "JAX reports no memory", None, "port 8431 is closed")}
    results = {one.check: one for one in judge(TPU, replace(done, state=replace(done.state, memory=missing)), None)}
    assert (results["memory"].word, results["memory"].evidence) == ("note", ("JAX reports no memory",))
    assert (results["duty-cycle"].word, results["duty-cycle"].evidence) == ("note", ("port 8431 is closed",))


def test_a_step_faster_than_the_bound_is_a_problem() -> None:
    assert words(TPU, replace(trained(TPU), bound_ms=2.5))["speed"] == "problem"


def test_a_failure_says_what_happened_and_leaves_the_rest_out() -> None:
    state = folded(PhaseStarted("connecting"), RunFailed("No TPU.", "It is held.", "Stop the other.", "console.log"))
    (result,) = judge(TPU, Trained(state, 3.0), trained(REFERENCE))
    assert (result.word, result.text) == ("problem", "No TPU. It is held. Stop the other.")
    (result,) = judge(TPU, Trained(folded(PhaseStarted("compiling")), 9.0, problem="It did not end."), None)
    assert result.text == "It did not end. It was compiling."


def test_figures_are_plain_values() -> None:
    shown = figures(TPU, replace(trained(TPU), bound_ms=0.5))
    assert (shown["compile_s"], shown["step_ms"], shown["bound_ms"]) == (3.5, 2.0, 0.5)
    assert shown["epochs"][1] == {"epoch": 2, "loss": 2.04, "val_loss": 1.67}
    assert figures(TPU, trained(TPU, (2.27, 2.19, math.nan, math.inf)))["epochs"][1]["loss"] is None  # JSON has no NaN
    assert figures(TPU, Trained())["epochs"] == []
