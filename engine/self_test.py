"""The trainings of ``tpu-console doctor --train``: one small one per accelerator and backend, and what each proves."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from .config.reading import parse_config
from .config.run_config import RunConfig
from .config.values import parse_accelerator
from .errors import Finding, Severity
from .machine.devices import Hardware
from .runs.events import RunFailed
from .runs.state import RunState

EPOCHS = 2
_GLOBAL_BATCH = 128
_finding = partial(Finding, key="training", title="Training")


class Leg(Struct, frozen=True):
    """One training of the test."""

    accelerator: str  # as a configuration names it
    backend: str
    replicas: int  # how many replicas this machine should give
    missing: str = ""  # why it cannot run here, and what to do; empty if nothing is known against it

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"{self.accelerator}, {self.backend}"

    @property
    def config(self) -> RunConfig:
        """What it trains."""
        return parse_config(
            {
                "name": self.name.replace(", ", "-").replace(":", "-"),
                "dataset": "digits",
                "model": "cnn",
                "model_options": {"filters": [32, 64], "padding": "same"},
                "batch_size": max(1, _GLOBAL_BATCH // self.replicas),
                "epochs": EPOCHS,
                "accelerator": self.accelerator,
                "backend": self.backend,
                "checkpoint": {"monitor": "none"},
                "sinks": [],
            }
        )


class Trained(Struct, frozen=True):
    """How a leg was trained."""

    state: RunState = field(default_factory=RunState)
    seconds: float = 0.0
    problem: str = ""  # why its process was ended or died, and what to do; empty if the run ended by itself

    @property
    def failure(self) -> str:
        """What went wrong and what to do, in sentences; empty if it trained to the end."""
        if self.problem:
            return self.problem + (f" It was {self.state.phase}." if self.state.phase else "")
        if isinstance(end := self.state.end, RunFailed):
            return " ".join(filter(None, (end.what, end.why, end.remedy)))
        losses = self.losses
        if len(losses) < EPOCHS:
            return f"Only {len(losses)} of {EPOCHS} epochs were trained; see the log."
        return "" if losses[-1] < losses[0] else f"The loss should fall from {losses[0]:.4f}, not be {losses[-1]:.4f}."

    @property
    def losses(self) -> list[float]:
        """The loss of each epoch."""
        return [epoch.logs.get("loss", math.nan) for epoch in self.state.epochs]

    @property
    def step_ms(self) -> float | None:
        """Milliseconds per step of its faster epoch."""
        return min((epoch.step_ms for epoch in self.state.epochs if epoch.step_ms is not None), default=None)


def legs_of(hardware: Hardware, accelerators: Sequence[str]) -> list[Leg]:
    """Return what to train on a machine: without `accelerators` on all of its own, or on the CPU if it has none."""
    chosen = accelerators or [*["tpu"] * bool(hardware.tpu), *["gpu"] * bool(hardware.gpus)] or ["cpu"]
    legs = []
    for name in dict.fromkeys(chosen):
        asked = parse_accelerator(name)
        counts = {"gpu": len(hardware.gpus), "tpu": hardware.tpu_devices, "sim": asked.simulated}
        missing = ""
        if asked.is_tpu and hardware.tpu_hosts > 1:
            missing = f"The TPU has {hardware.tpu_hosts} hosts; start `tpu-console run` on each of them."
        legs += [Leg(name, backend, counts.get(asked.kind) or 1, missing) for backend in ("tensorflow", "jax")]
    return legs


def judge(leg: Leg, trained: Trained) -> Finding:
    """Return the result of one leg: it trains, the loss falls, and all devices take part."""
    problem = trained.failure
    ready = trained.state.accelerator
    devices = tuple(replica.device for replica in ready.replicas) if ready is not None else ()
    if ready is not None and not problem:
        expected = [
            (ready.accelerator, leg.accelerator, "accelerator"),
            (ready.backend, leg.backend, "backend"),
            (len(set(devices)), leg.replicas, "number of devices"),
        ]
        wrong = "; ".join(f"the {what} is {found}, not {right}" for found, right, what in expected if found != right)
        problem = f"Not as expected: {wrong}. Look for variables that hide devices, or report it." if wrong else ""
    if problem:
        return _finding(Severity.ERROR, problem, evidence=devices)
    step = f", a step {trained.step_ms:.3g} ms" if trained.step_ms is not None else ""
    text = (
        f"{EPOCHS} epochs in {trained.seconds:.0f} s, the loss fell from {trained.losses[0]:.4f} to "
        f"{trained.losses[-1]:.4f}. Compiling and the first steps took {trained.state.epochs[0].compile_s:.1f} s{step}."
    )
    return _finding(Severity.OK, text, evidence=devices)


def not_run(leg: Leg, *, is_alone: bool) -> Finding:
    """Return the result of a leg that cannot run here; a problem only if its accelerator cannot be used otherwise."""
    return _finding(Severity.ERROR if is_alone else Severity.INFO, f"Not run. {leg.missing}")


def figures(leg: Leg, trained: Trained) -> dict[str, Any]:
    """Return what a leg did, as JSON holds it."""
    state, ready = trained.state, trained.state.accelerator
    return {
        "name": leg.name,
        "seconds": round(trained.seconds, 1),
        "losses": [loss if math.isfinite(loss) else None for loss in trained.losses],
        "compile_s": state.epochs[0].compile_s if state.epochs else None,
        "step_ms": trained.step_ms,
        "devices": [f"{one.device} ({one.kind})" for one in ready.replicas] if ready is not None else [],
        "versions": ready.versions if ready is not None else {},
    }
