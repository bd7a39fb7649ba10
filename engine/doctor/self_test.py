"""Judges the short trainings of ``tpu-console doctor --train``: pure functions from what the runs reported to results.

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
from ..machine.devices import CHIPS
from ..runs.events import RunFailed
from ..runs.state import RunState
from .check import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..config.run_config import RunConfig
    from ..machine.devices import Hardware
    from ..runs.events import AcceleratorReady

EPOCHS = 2
LOSSES = ("loss", "val_loss")
_GLOBAL_BATCH = 128
_SIMULATED = "sim:8"
_REFERENCE = "tensorflow"  # the faster backend on a CPU, and every run needs it to read the data
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
    def kind(self) -> str:
        """``cpu``, ``gpu``, ``tpu`` or ``sim``."""
        return str(parse_accelerator(self.accelerator).kind)

    @property
    def tolerance(self) -> float:
        """The largest difference between its losses and the CPU's, as a share."""
        return TOLERANCES[self.kind]

    @property
    def config(self) -> RunConfig:
        """What it trains.

        SGD, because Adam hides a wrong scale of the gradients, such as a sum over the replicas instead of a mean. The
        model has no dropout, because its random numbers would depend on the device.
        """
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
                "tensorboard": {"enabled": False},
            }
        )


@dataclass(frozen=True, slots=True)
class Trained:
    """How a leg was trained."""

    state: RunState = field(default_factory=RunState)
    seconds: float = 0.0
    stopped_after: int = 0  # epochs that were done when it had stopped, before it was resumed; 0 if it never stopped
    problem: str = ""  # why its process was ended or died, and what to do; empty if the run ended by itself
    log: tuple[str, ...] = ()  # the end of its log
    bound_ms: float | None = None  # the least time of a step by the TPU compiler
    no_bound: str = ""  # why that is missing

    @property
    def failure(self) -> str:
        """What went wrong and what to do, in sentences; empty if it trained to the end."""
        if self.problem:
            return self.problem
        if isinstance(end := self.state.end, RunFailed):
            return " ".join(filter(None, (end.what, end.why, end.remedy)))
        return (
            "" if len(self.state.epochs) >= EPOCHS else f"Only {len(self.state.epochs)} of {EPOCHS} epochs were done."
        )

    @property
    def compile_s(self) -> float | None:
        """Seconds until the first execution returned."""
        return self.state.epochs[0].compile_s if self.state.epochs else None

    @property
    def step_ms(self) -> float | None:
        """Milliseconds per step of its faster epoch."""
        return min((epoch.step_ms for epoch in self.state.epochs if epoch.step_ms is not None), default=None)


def legs_of(hardware: Hardware, accelerators: Sequence[str], backends: Sequence[str]) -> list[Leg]:
    """Return what to train on a machine, first the CPU's reference for each global batch.

    Args:
        hardware: The accelerators of the machine.
        accelerators: Which to train on; by default all of the machine, or simulated replicas if it has none.
        backends: The backends.
    """
    found = ["tpu"] * bool(hardware.tpu) + ["gpu"] * bool(hardware.gpus)
    legs = [_leg(name, backend, hardware) for name in accelerators or found or [_SIMULATED] for backend in backends]
    references = [Leg("cpu", _REFERENCE, 1, leg.global_batch, is_reference=True) for leg in legs]
    return [*dict.fromkeys(references), *dict.fromkeys(legs)]


def _leg(accelerator: str, backend: str, hardware: Hardware) -> Leg:
    asked = parse_accelerator(accelerator)
    cores = CHIPS[hardware.tpu_kind].cores if hardware.tpu_kind in CHIPS else 1
    counts = {"gpu": len(hardware.gpus), "tpu": hardware.tpu_chips * cores, "sim": asked.simulated}
    replicas = counts.get(str(asked.kind)) or 1
    missing = ""
    if asked.is_tpu and hardware.tpu_hosts > 1:
        missing = f"The TPU has {hardware.tpu_hosts} hosts; start `tpu-console run` on each of them."
    return Leg(accelerator, backend, replicas, max(1, _GLOBAL_BATCH // replicas), missing=missing)


def judge(leg: Leg, trained: Trained, reference: Trained | None) -> tuple[CheckResult, ...]:
    """Return the results of one leg.

    Args:
        leg: The leg.
        trained: How it was trained.
        reference: How the CPU trained; None if it did not, and for the reference itself.
    """
    results = [_training(trained)]
    state = trained.state
    if state.accelerator is not None:
        results.append(_replicas(leg, state.accelerator))
    if state.epochs:
        results.append(_falling(state) if leg.is_reference else _compared(leg, state, reference))
    if not leg.is_reference and (trained.stopped_after or not trained.failure):
        results.append(_resumed(trained))
    if state.accelerator is not None:
        results += [_memory(state), _duty(state)]
    if state.epochs:
        results.append(_speed(trained))
    return tuple(results)


def not_run(leg: Leg, *, is_alone: bool) -> CheckResult:
    """Return the result of a leg that cannot run here; a problem only if its accelerator cannot be used otherwise."""
    return CheckResult("train", "Training", Severity.ERROR if is_alone else Severity.INFO, f"Not run. {leg.missing}")


def figures(leg: Leg, trained: Trained) -> dict[str, Any]:
    """Return what a leg did, as JSON holds it."""
    state = trained.state
    return {
        "accelerator": leg.accelerator,
        "backend": leg.backend,
        "is_reference": leg.is_reference,
        "global_batch": leg.global_batch,
        "seconds": round(trained.seconds, 1),
        "phases_s": {name: round(seconds, 2) for name, seconds in state.phase_s.items()},
        "epochs": [{"epoch": epoch.epoch, "step_ms": epoch.step_ms} | epoch.logs for epoch in state.epochs],
        "compile_s": trained.compile_s,
        "step_ms": trained.step_ms,
        "bound_ms": trained.bound_ms,
        "steps_per_execution": state.fit.steps_per_execution if state.fit is not None else None,
        "devices": [f"{one.device} ({one.kind})" for one in state.accelerator.replicas] if state.accelerator else [],
        "topology": state.accelerator.topology if state.accelerator else "",
        "versions": state.accelerator.versions if state.accelerator else {},
        "log": list(trained.log),
    }


def _training(trained: Trained) -> CheckResult:
    if trained.failure:
        phase = f" It was {trained.state.phase}." if trained.state.phase else ""
        return CheckResult("train", "Training", Severity.ERROR, trained.failure + phase)
    steps = trained.state.fit.steps_per_epoch if trained.state.fit is not None else None
    return CheckResult(
        "train", "Training", Severity.OK, f"{EPOCHS} epochs of {steps} steps in {trained.seconds:.0f} s."
    )


def _replicas(leg: Leg, ready: AcceleratorReady) -> CheckResult:
    devices = [replica.device for replica in ready.replicas]
    evidence = (", ".join(devices), *filter(None, (ready.topology, f"{ready.strategy}, {ready.backend}")))
    kinds = " and ".join(sorted({replica.kind for replica in ready.replicas}))
    wrong = [
        f"it ran on {ready.accelerator}" if ready.accelerator != leg.accelerator else "",
        f"it used {ready.backend}" if ready.backend != leg.backend else "",
        f"there are {len(devices)} replicas, not {leg.replicas}" if len(devices) != leg.replicas else "",
        "two replicas name one device" if len(set(devices)) < len(devices) else "",
        "a replica has no kind" if not all(replica.kind for replica in ready.replicas) else "",
    ]
    if found := list(filter(None, wrong)):
        text = f"Not as expected: {'; '.join(found)}. Look for variables that hide devices, or report it."
        return CheckResult("replicas", "Replicas", Severity.ERROR, text, evidence)
    return CheckResult("replicas", "Replicas", Severity.OK, f"{len(devices)} of {kinds}.", evidence)


def _falling(state: RunState) -> CheckResult:
    first, last = state.epochs[0].logs.get("loss", math.nan), state.epochs[-1].logs.get("loss", math.nan)
    text = f"From {first:.4f} in epoch 1 to {last:.4f} in epoch {len(state.epochs)}"
    if last < first:
        return CheckResult("losses", "Loss", Severity.OK, f"{text}.")
    text += ": it should fall. TensorFlow or JAX computes wrongly here; reinstall it, or report it."
    return CheckResult("losses", "Loss", Severity.ERROR, text)


def _compared(leg: Leg, state: RunState, reference: Trained | None) -> CheckResult:
    title, allowed = "Losses", f"{leg.tolerance:.1%}"
    if reference is None or reference.failure:
        return CheckResult("losses", title, Severity.UNKNOWN, "Not compared: the CPU's training failed.")
    if state.fit is not None and state.fit.global_batch != leg.global_batch:
        text = f"Not compared: a step had {state.fit.global_batch} examples, on the CPU {leg.global_batch}."
        return CheckResult("losses", title, Severity.ERROR, text)
    found = tuple(_differences(state, reference.state))
    evidence = tuple(f"epoch {epoch} {name} {mine:.5f}, CPU {theirs:.5f}" for epoch, name, mine, theirs, _ in found)
    worst = max((share if math.isfinite(share) else math.inf for *_, share in found), default=math.inf)
    if worst <= leg.tolerance:
        text = f"They differ from the CPU's by at most {worst:.2g} of their value ({allowed} is allowed)."
        return CheckResult("losses", title, Severity.OK, text, evidence)
    text = (
        f"They differ from the CPU's by up to {worst:.1%}; {allowed} is allowed. Do not trust what is trained here; "
        "report it with this file."
    )
    return CheckResult("losses", title, Severity.ERROR, text, evidence)


def _differences(state: RunState, reference: RunState) -> Iterable[tuple[int, str, float, float, float]]:
    for mine, theirs in zip(state.epochs, reference.epochs, strict=False):
        for name in LOSSES:
            here, there = mine.logs.get(name, math.nan), theirs.logs.get(name, math.nan)
            yield mine.epoch, name, here, there, abs(here - there) / abs(there) if there else math.inf


def _resumed(trained: Trained) -> CheckResult:
    title, resumed = "Stop and resume", trained.state.resumed
    if not trained.stopped_after:
        text = "It was asked to stop after epoch 1 and trained on; report it."
    elif not resumed or resumed[-1].epoch != trained.stopped_after:
        text = f"It stopped after epoch {trained.stopped_after} but did not go on from there; report it."
    else:
        text = f"It stopped after epoch {trained.stopped_after}, and a new process went on from the checkpoint."
        return CheckResult("resume", title, Severity.OK, text)
    return CheckResult("resume", title, Severity.ERROR, text)


def _memory(state: RunState) -> CheckResult:
    known = [one for one in state.memory.values() if one.used_bytes is not None]
    reasons = tuple(dict.fromkeys(one.why_not for one in state.memory.values() if one.why_not))
    used = max((one.peak_bytes or one.used_bytes or 0 for one in known), default=0)
    limit = max((one.limit_bytes or 0 for one in known), default=0)
    text = f"At most {used / 2**30:.2f} GiB per replica" + (f" of {limit / 2**30:.1f} GiB." if limit else ".")
    if not known:
        text = "Not available."
    severity = Severity.OK if known and not reasons else Severity.INFO
    return CheckResult("memory", "Memory", severity, text, reasons or (() if known else ("nothing was reported",)))


def _duty(state: RunState) -> CheckResult:
    duty = [one.duty_percent for one in state.memory.values() if one.duty_percent is not None]
    if duty:
        text = f"{min(duty):.0f}% to {max(duty):.0f}% in the newest sample of {len(duty)} devices."
        return CheckResult("duty", "Duty cycle", Severity.OK, text)
    reasons = tuple(dict.fromkeys(one.duty_why_not for one in state.memory.values() if one.duty_why_not))
    return CheckResult("duty", "Duty cycle", Severity.INFO, "Not available.", reasons or ("nothing was reported",))


def _speed(trained: Trained) -> CheckResult:
    step_ms, bound_ms = trained.step_ms, trained.bound_ms
    text = f"Compiling and the first steps took {trained.compile_s or 0:.1f} s"
    text += f", a step {step_ms:.3g} ms" if step_ms is not None else ", and no step could be timed"
    evidence = (trained.no_bound,) if trained.no_bound else ()
    if bound_ms is None:
        return CheckResult("speed", "Speed", Severity.OK, f"{text}.", evidence)
    text += f"; the preflight's bound is {bound_ms:.3g} ms"
    if step_ms is not None and step_ms < bound_ms:
        return CheckResult("speed", "Speed", Severity.WARNING, f"{text}, which no step can be faster than; report it.")
    return CheckResult("speed", "Speed", Severity.OK, f"{text}.")
