"""A run on a real TPU beside its preflight, from a journal as such a run writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers import small_config
from tests.made_verdicts import FITS
from tpu_console.engine.preflight.cache import save_verdict
from tpu_console.engine.preflight.likely import efficiency_of
from tpu_console.engine.runs.events import AcceleratorReady, EpochEnded, Replica, RunOutcome, RunStarted
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.training.summary import summary_of

if TYPE_CHECKING:
    from tpu_console.engine.runs.events import Event

CONFIG = small_config(accelerator="tpu", batch_size=128)


def state_of(kind: str = "TPU v5 lite", devices: int = 8, accelerator: str = "tpu") -> RunState:
    replicas = tuple(Replica(index, f"tpu:{index}", kind, "host") for index in range(devices))
    events: list[Event] = [
        RunStarted("small", "host", 1, "here", CONFIG.model_dump(mode="json")),
        AcceleratorReady(accelerator, "", "", replicas, {}),
        *(
            EpochEnded(n, n, 1, n, 1.0, 0.0, 0.0, step_ms, 9.0, 0.1, {"loss": 1.0})
            for n, step_ms in ((1, 9.0), (2, 4.0), (3, 2.9))
        ),
    ]
    state = RunState()
    for event in events:
        state = reduce(state, event, 0.0)
    return state


def test_a_run_is_compared_with_its_verdict_on_the_same_tpu() -> None:
    save_verdict(CONFIG, FITS)
    efficiency = efficiency_of(state_of())
    assert efficiency is not None
    assert (efficiency.tpu, efficiency.best_step_ms, efficiency.measured_step_ms) == ("v5e-8", 2.32, 4.0)
    assert efficiency.share == pytest.approx(0.58)
    summary = summary_of(state_of(), RunOutcome.COMPLETED, "")
    assert summary["best_case"] == {"tpu": "v5e-8", "step_ms": 2.32, "reached": pytest.approx(0.58)}


def test_no_efficiency_for_another_tpu_another_configuration_or_no_tpu() -> None:
    assert efficiency_of(state_of()) is None
    save_verdict(small_config(batch_size=128, model_options={"hidden": [9]}), FITS)
    assert efficiency_of(state_of()) is None
    save_verdict(CONFIG, FITS)
    assert efficiency_of(state_of(kind="TPU v4")) is None
    assert efficiency_of(state_of(devices=4)) is None
    assert efficiency_of(state_of(accelerator="cpu")) is None
    assert summary_of(state_of(accelerator="cpu"), RunOutcome.COMPLETED, "")["best_case"] is None
