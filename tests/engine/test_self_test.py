"""What ``tpu-console doctor --train`` trains, and how it judges what came of it."""

import math

import pytest

from tests.helpers import replace
from tpu_console.engine.doctor import word_of
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.runs import events
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.self_test import Leg, Trained, figures, judge, legs_of, not_run

TPU = Leg("tpu", "jax", 8)


def folded(*history: events.Event) -> RunState:
    state = RunState()
    for at, event in enumerate(history):
        state = reduce(state, event, float(at))
    return state


def ready(count: int = 8) -> events.AcceleratorReady:
    replicas = tuple(events.Replica(index, f"tpu:{index}", "TPU v5 lite", "worker-0", "") for index in range(count))
    return events.AcceleratorReady("tpu", "found", "DataParallel", replicas, {"jax": "0.7"}, "jax", "", "2x4")


def trained(*losses: float, with_ready: events.AcceleratorReady | None = None) -> Trained:
    epochs = [
        events.EpochEnded(n, 11 * n, 11, 1.0, 1.0, 3.5, 0.1, 2.0, 5000.0, 0.05, {"loss": loss})
        for n, loss in enumerate(losses, 1)
    ]
    return Trained(folded(with_ready or ready(), *epochs, events.RunFinished("completed", "All epochs.", {})), 21.0)


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        (Hardware(), [("cpu", 1)]),
        (Hardware(tpu="/dev/accel0", tpu_kind="v5e", tpu_chips=8), [("tpu", 8)]),
        (Hardware(tpu="/dev/accel0", tpu_kind="v3", tpu_chips=4), [("tpu", 8)]),
        (Hardware(gpus=("T4",) * 2, tpu="/dev/accel0", tpu_chips=1), [("tpu", 1), ("gpu", 2)]),
    ],
)
def test_every_accelerator_found_is_trained_on_all_its_devices(
    hardware: Hardware, expected: list[tuple[str, int]]
) -> None:
    for backend in ("tensorflow", "jax"):
        legs = [leg for leg in legs_of(hardware, ()) if leg.backend == backend]
        assert [(leg.accelerator, leg.replicas) for leg in legs] == expected
        assert not any(leg.missing for leg in legs)


def test_a_tpu_of_several_hosts_is_not_trained_from_one_of_them() -> None:
    other, *_, leg = legs_of(Hardware(tpu="/dev/accel0", tpu_kind="v5e", tpu_chips=4, tpu_hosts=4), ("cpu", "tpu"))
    assert not other.missing
    assert word_of(not_run(leg, is_alone=True)) == "problem"
    assert "4 hosts" in not_run(leg, is_alone=True).text
    assert word_of(not_run(leg, is_alone=False)) == "note"


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (trained(2.3, 2.3), "The loss should fall"),
        (trained(2.3, math.nan), "The loss should fall"),
        (trained(2.3), "Only 1 of 2 epochs"),
        (trained(2.3, 1.9, with_ready=ready(4)), "the number of devices is 4, not 8"),
        (trained(2.3, 1.9, with_ready=replace(ready(), accelerator="cpu")), "the accelerator is cpu, not tpu"),
        (trained(2.3, 1.9, with_ready=replace(ready(), replicas=ready(1).replicas * 8)), "devices is 1, not 8"),
        (
            Trained(folded(events.RunFailed("No TPU.", "It is held.", "Stop it.", "console.log"))),
            "No TPU. It is held. Stop it.",
        ),
        (
            Trained(folded(events.PhaseStarted("compiling")), problem="It did not end."),
            "It did not end. It was compiling.",
        ),
    ],
)
def test_what_does_not_train_as_it_should_is_a_problem(done: Trained, text: str) -> None:
    result = judge(TPU, done)
    assert word_of(result) == "problem"
    assert text in result.text


def test_a_training_that_went_well_shows_its_losses_and_speed() -> None:
    result = judge(TPU, trained(2.3, 1.9))
    assert word_of(result) == "ok"
    assert all(part in result.text for part in ("from 2.3000 to 1.9000", "took 3.5 s", "a step 2 ms"))
    shown = figures(TPU, trained(2.3, math.nan))
    assert (shown["compile_s"], shown["step_ms"], shown["losses"]) == (3.5, 2.0, [2.3, None])  # JSON has no NaN
    assert figures(TPU, Trained())["losses"] == []
