"""Judges the trainings of ``tpu-console doctor --train``: pure functions from what the runs reported to results.

Each accelerator trains digits with each backend, stops after the first epoch and is resumed. The CPU trains the same
without interruption, and their losses are compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..config.accelerator import parse_accelerator
from ..config.reading import parse_config
from ..findings import Severity
from ..runs.events import RunFailed
from ..runs.state import RunState
from .check import CheckResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config.run_config import RunConfig
    from ..machine.devices import Hardware
    from ..runs.events import AcceleratorReady

EPOCHS = 2
_GLOBAL_BATCH = 128
_MODEL = "tpu_console.engine.doctor.self_test_model:build"

TOLERANCES = {"cpu": 0.001, "sim": 0.001, "gpu": 0.005, "tpu": 0.01}
"""The largest difference between a loss and the CPU's, as a share of the CPU's.

On the CPU only the order of float32 sums differs. A TPU rounds the inputs of matrix products to bfloat16, a GPU to
TF32, which is eight times as precise. Rounding everything to bfloat16 (``mixed_bfloat16`` on a CPU, both backends,
three orders of the examples) changed no loss of this training by more than 0.30%; the limits leave room for the rest of
the arithmetic. A learning rate or gradient that is 10% too large changes the last loss by 8%.
"""


@dataclass(frozen=True, slots=True)
class Leg:
    """One training of the test."""

    accelerator: str  # as a configuration names it
    backend: str
    replicas: int  # how many replicas this machine should give
    batch: int  # examples per replica and step
    is_reference: bool = False  # whether the others are compared with it; it is not interrupted
    missing: str = ""  # why it cannot run here, and what to do; empty if nothing is known against it

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"{self.accelerator}, {self.backend}" + (", reference" if self.is_reference else "")

    @property
    def global_batch(self) -> int:
        """Examples per step."""
        return self.batch * self.replicas

    @property
    def config(self) -> RunConfig:
        """What it trains, with SGD: Adam hides gradients of a wrong scale, such as a sum over replicas, not a mean."""
        return parse_config(
            {
                "name": self.name.replace(", ", "-").replace(":", "-"),
                "dataset": "digits",
                "model": _MODEL,
                "batch_size": self.batch,
                "epochs": EPOCHS,
                "seed": 7,
                "accelerator": self.accelerator,
                "backend": self.backend,
                "optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9},
                "sinks": [],
            }
        )


@dataclass(frozen=True, slots=True)
class Trained:
    """How a leg was trained."""

    state: RunState = field(default_factory=RunState)
    seconds: float = 0.0
    stopped_after: int = 0  # epochs that were done when it stopped, before it was resumed; 0 if it never stopped
    problem: str = ""  # why its process was ended or died, and what to do; empty if the run ended by itself
    log: tuple[str, ...] = ()  # the end of its log
    bound_ms: float | None = None  # the least time of a step by the TPU compiler
    no_bound: str = ""  # why that is missing

    @property
    def failure(self) -> str:
        """What went wrong and what to do, in sentences; empty if it trained to the end."""
        phase = f" It was {self.state.phase}." if self.state.phase else ""
        if isinstance(end := self.state.end, RunFailed) and not self.problem:
            return " ".join(filter(None, (end.what, end.why, end.remedy)))
        if self.problem or len(self.state.epochs) >= EPOCHS:
            return self.problem and self.problem + phase
        return f"Only {len(self.state.epochs)} of {EPOCHS} epochs were trained; see the log."

    @property
    def step_ms(self) -> float | None:
        """Milliseconds per step of its faster epoch."""
        return min((epoch.step_ms for epoch in self.state.epochs if epoch.step_ms is not None), default=None)


def legs_of(hardware: Hardware, accelerators: Sequence[str]) -> list[Leg]:
    """Return what to train on a machine, first the CPU's reference for each global batch.

    Without `accelerators` it is all of the machine's, or simulated replicas if it has none.
    """
    chosen = accelerators or [*["tpu"] * bool(hardware.tpu), *["gpu"] * bool(hardware.gpus)] or ["sim:8"]
    legs = [_leg(name, backend, hardware) for name in chosen for backend in ("tensorflow", "jax")]
    # TensorFlow is faster on a CPU, and every run needs it to read the data.
    references = [Leg("cpu", "tensorflow", 1, leg.global_batch, is_reference=True) for leg in legs]
    return list(dict.fromkeys([*references, *legs]))


def _leg(accelerator: str, backend: str, hardware: Hardware) -> Leg:
    asked = parse_accelerator(accelerator)
    counts = {"gpu": len(hardware.gpus), "tpu": hardware.tpu_devices, "sim": asked.simulated}
    replicas = counts.get(asked.kind) or 1
    missing = ""
    if asked.is_tpu and hardware.tpu_hosts > 1:
        missing = f"The TPU has {hardware.tpu_hosts} hosts; start `tpu-console run` on each of them."
    return Leg(accelerator, backend, replicas, max(1, _GLOBAL_BATCH // replicas), missing=missing)


def judge(leg: Leg, trained: Trained, reference: Trained | None) -> tuple[CheckResult, ...]:
    """Return the results of one leg, each of what it reached.

    `reference` is how the CPU trained; None if it did not, and for the reference itself.
    """
    state = trained.state
    results = [_result("Training", f"{EPOCHS} epochs in {trained.seconds:.0f} s.", trained.failure)]
    if state.accelerator is not None:
        results.append(_replicas(leg, state.accelerator))
    if state.epochs:
        results.append(_falling(state) if leg.is_reference else _compared(leg, state, reference))
    if not leg.is_reference and not trained.failure:
        results.append(_resumed(trained))
    if state.accelerator is not None:
        results += [_memory(state), _duty(state)]
    return (*results, _speed(trained)) if state.epochs else tuple(results)


def not_run(leg: Leg, *, is_alone: bool) -> CheckResult:
    """Return the result of a leg that cannot run here; a problem only if its accelerator cannot be used otherwise."""
    return CheckResult("training", "Training", Severity.ERROR if is_alone else Severity.INFO, f"Not run. {leg.missing}")


def figures(leg: Leg, trained: Trained) -> dict[str, Any]:
    """Return what a leg did, as JSON holds it."""
    state, ready = trained.state, trained.state.accelerator
    return {
        "name": leg.name,
        "accelerator": leg.accelerator,
        "backend": leg.backend,
        "global_batch": leg.global_batch,
        "seconds": round(trained.seconds, 1),
        "phases_s": {name: round(seconds, 2) for name, seconds in state.phase_s.items()},
        "epochs": [
            {"epoch": epoch.epoch} | {k: v if math.isfinite(v) else None for k, v in epoch.logs.items()}
            for epoch in state.epochs
        ],
        "compile_s": state.epochs[0].compile_s if state.epochs else None,
        "step_ms": trained.step_ms,
        "bound_ms": trained.bound_ms,
        "devices": [f"{one.device} ({one.kind})" for one in ready.replicas] if ready is not None else [],
        "versions": ready.versions if ready is not None else {},
        "log": list(trained.log),
    }


def _result(
    title: str, text: str, problem: str = "", evidence: Sequence[str] = (), *, is_note: bool = False
) -> CheckResult:
    severity = Severity.ERROR if problem else Severity.INFO if is_note else Severity.OK
    return CheckResult(title.lower().replace(" ", "-"), title, severity, problem or text, tuple(evidence))


def _replicas(leg: Leg, ready: AcceleratorReady) -> CheckResult:
    devices = [replica.device for replica in ready.replicas]
    kinds = " and ".join(sorted({replica.kind or "an unknown kind" for replica in ready.replicas}))
    expected = [
        (ready.accelerator, leg.accelerator, "accelerator"),
        (ready.backend, leg.backend, "backend"),
        (len(devices), leg.replicas, "number of replicas"),
        (len(set(devices)), len(devices), "number of different devices"),
    ]
    wrong = "; ".join(f"the {what} is {found}, not {right}" for found, right, what in expected if found != right)
    problem = f"Not as expected: {wrong}. Look for variables that hide devices, or report it." if wrong else ""
    evidence = filter(None, (", ".join(devices), ready.topology, ready.strategy))
    return _result("Replicas", f"{len(devices)} of {kinds}.", problem, tuple(evidence))


def _falling(state: RunState) -> CheckResult:
    first, last = (epoch.logs.get("loss", math.nan) for epoch in (state.epochs[0], state.epochs[-1]))
    text = f"From {first:.4f} to {last:.4f}"
    return _result("Losses", f"{text}.", "" if last < first else f"{text}: the loss should fall. Report it.")


def _compared(leg: Leg, state: RunState, reference: Trained | None) -> CheckResult:
    if reference is None or reference.failure:
        return CheckResult("losses", "Losses", Severity.UNKNOWN, "Not compared, because the CPU's training failed.")
    worst, evidence, allowed = 0.0, [], TOLERANCES[parse_accelerator(leg.accelerator).kind]
    for mine, theirs in zip(state.epochs, reference.state.epochs, strict=False):
        for name in ("loss", "val_loss"):
            here, there = (epoch.logs.get(name, math.nan) for epoch in (mine, theirs))
            share = abs(here - there) / there
            worst = max(worst, share if math.isfinite(share) else math.inf)
            evidence.append(f"epoch {mine.epoch} {name} {here:.5f}, CPU {there:.5f}")
    text = f"They differ from the CPU's by up to {worst:.2%} ({allowed:.1%} is allowed)."
    problem = f"{text} Do not trust what is trained here; report it with this file." if worst > allowed else ""
    if state.fit is not None and state.fit.global_batch != leg.global_batch:
        problem = f"Not comparable: a step had {state.fit.global_batch} examples, and {leg.global_batch} on the CPU."
    return _result("Losses", text, problem, evidence)


def _resumed(trained: Trained) -> CheckResult:
    text = f"It stopped after epoch {trained.stopped_after}"
    resumed, problem = trained.state.resumed, ""
    if not trained.stopped_after:
        problem = "It was asked to stop after epoch 1 and trained on; report it."
    elif not resumed or resumed[-1].epoch != trained.stopped_after:
        problem = f"{text} but did not go on from there; report it."
    return _result("Stop and resume", f"{text}, and a new process went on from its checkpoint.", problem)


def _memory(state: RunState) -> CheckResult:
    known = [one for one in state.memory.values() if one.used_bytes is not None]
    reasons = dict.fromkeys(one.why_not for one in state.memory.values() if one.why_not)
    used = max((one.peak_bytes or one.used_bytes or 0 for one in known), default=0) / 2**30
    limit = max((one.limit_bytes or 0 for one in known), default=0) / 2**30
    text = f"At most {used:.2f} GiB per replica" + (f" of {limit:.1f} GiB." if limit else ".")
    if not known:
        return _result("Memory", "Not available.", evidence=tuple(reasons) or ("nothing was reported",), is_note=True)
    return _result("Memory", text, evidence=tuple(reasons), is_note=bool(reasons))


def _duty(state: RunState) -> CheckResult:
    duty = [one.duty_percent for one in state.memory.values() if one.duty_percent is not None]
    reasons = tuple(dict.fromkeys(one.duty_why_not for one in state.memory.values() if one.duty_why_not))
    if not duty:
        return _result("Duty cycle", "Not available.", evidence=reasons or ("nothing was reported",), is_note=True)
    return _result("Duty cycle", f"{min(duty):.0f}% to {max(duty):.0f}% of {len(duty)} devices in the last sample.")


def _speed(trained: Trained) -> CheckResult:
    step_ms, bound_ms = trained.step_ms, trained.bound_ms
    text = f"Compiling and the first steps took {trained.state.epochs[0].compile_s:.1f} s"
    text += f", a step {step_ms:.3g} ms" if step_ms is not None else ", and no step could be timed"
    text += f"; preflight's bound is {bound_ms:.3g} ms" if bound_ms is not None else ""
    is_wrong = step_ms is not None and bound_ms is not None and step_ms < bound_ms
    problem = f"{text}, and no step can be faster than that; report it." if is_wrong else ""
    return _result("Speed", f"{text}.", problem, (trained.no_bound,) * bool(trained.no_bound))
