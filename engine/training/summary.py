"""The result of a run as plain values, computed from its journal."""

from statistics import median_high
from typing import Any

from ..preflight.likely import efficiency_of
from ..runs.class_report import ClassReport
from ..runs.events import RunOutcome
from ..runs.facts import result_of
from ..runs.state import RunState


def summary_of(state: RunState, outcome: RunOutcome, reason: str, classes: ClassReport | None = None) -> dict[str, Any]:
    """Return what ``summary.json`` holds; times in seconds, ``best`` by the run's monitored metric."""
    timed = [epoch.step_ms for epoch in state.epochs if epoch.step_ms is not None]
    rates = [epoch.examples_per_s for epoch in state.epochs if epoch.examples_per_s is not None]
    best = efficiency_of(state)
    return {
        "run": state.started.label if state.started else "",
        "outcome": outcome,
        "reason": reason,
        "accelerator": state.accelerator.accelerator if state.accelerator else "",
        "replicas": len(state.accelerator.replicas) if state.accelerator else 0,
        "versions": state.accelerator.versions if state.accelerator else {},
        "parameters": state.model.parameters if state.model else 0,
        "steps": state.epochs[-1].step if state.epochs else 0,
        **result_of(state),
        "phase_seconds": dict(state.phase_s),
        "median_step_ms": median_high(timed) if timed else None,
        "median_examples_per_s": median_high(rates) if rates else None,
        "best_case": best and {"tpu": best.tpu, "step_ms": best.best_step_ms, "reached": best.share},
        "classes": classes and classes.as_dict(is_brief=True),
    }
