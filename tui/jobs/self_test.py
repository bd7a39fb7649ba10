"""Trains the legs of ``tpu-console doctor --train`` one by one, each as ``tpu-console run`` does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tpu_console.engine.accelerators.backend import choose_backend, is_installed
from tpu_console.engine.doctor.doctor import Group
from tpu_console.engine.doctor.self_test import EPOCHS, Trained, figures, judge, not_run
from tpu_console.engine.errors import ConsoleError, one_line
from tpu_console.engine.messages import exit_cause
from tpu_console.engine.preflight.topologies import TOPOLOGIES
from tpu_console.engine.process.launch import prepare_run, start_host
from tpu_console.engine.process.resume import prepare_resumption
from tpu_console.engine.runs.events import Phase
from tpu_console.engine.runs.follower import LogTail, StateReader
from tpu_console.engine.runs.requests import Action, ask

from ..terminal.interrupts import interrupts_call
from ..terminal.output import complain
from ..text.numbers import duration
from .command_job import run_job
from .preflights import GRACE_S, Choices, missing_compiler, read_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tpu_console.engine.doctor.check import CheckResult
    from tpu_console.engine.doctor.self_test import Leg
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.runs.run_directory import RunDirectory

_POLL_S = 0.2
_LAST_WORDS_S = 2.0
_LOG_LINES = 40
_QUIET = (Phase.VALIDATING, Phase.CHECKPOINTING)


class SelfTest:
    """Trains legs one after the other, and judges them.

    Args:
        limit_s: Seconds that a leg may take.

    Attributes:
        groups: The results so far, one group for each leg.
        figures: What the legs did, as JSON holds it.
        was_interrupted: Whether Ctrl-C or SIGTERM ended it.
    """

    def __init__(self, legs: Sequence[Leg], hardware: Hardware, limit_s: float) -> None:
        self._legs = [leg if leg.missing else replace(leg, missing=_missing(leg, hardware)) for leg in legs]
        self._hardware = hardware
        self._limit_s = limit_s
        self._references: dict[int, Trained] = {}
        self.groups: list[Group] = []
        self.figures: list[dict[str, Any]] = []
        self.was_interrupted = False

    def run(self) -> None:
        """Train every leg that can run; one that fails does not keep the others from running."""
        with interrupts_call(self._hear):
            self._run()

    def _hear(self, _number: int) -> None:
        # Not an exception: raised while a training process is started, it would leave that behind.
        self.was_interrupted = True

    def _run(self) -> None:
        can_run = {leg.accelerator for leg in self._legs if not leg.missing}
        for number, leg in enumerate(self._legs, 1):
            name = f"[{number}/{len(self._legs)}] {leg.name}"
            results: tuple[CheckResult, ...]
            if leg.missing:
                results, end = (not_run(leg, is_alone=leg.accelerator not in can_run),), "not run"
            else:
                complain([f"{name}: starting"])
                trained = self._train(leg, name)
                results = judge(leg, trained, self._references.get(leg.global_batch))
                if leg.is_reference:
                    self._references[leg.global_batch] = trained
                failed = ", ".join(one.title.lower() for one in results if one.word == "problem")
                self.figures.append(figures(leg, trained if failed else replace(trained, log=())))
                end = f"{f'failed ({failed})' if failed else 'passed'} in {duration(trained.seconds)}"
            self.groups.append(Group(f"Training: {leg.name}", results))
            complain([f"{name}: {end}"])
            if self.was_interrupted:
                return

    def _train(self, leg: Leg, name: str) -> Trained:
        """Train a leg; stop it after the first epoch and resume it, unless it is a reference."""
        began = time.monotonic()
        run: RunDirectory | None = None
        stopped_after, problem = 0, ""
        try:
            run = prepare_run(leg.config)
            if not leg.is_reference:
                ask(run, Action.STOP_AFTER_EPOCH, "requested by tpu-console doctor")
            problem = self._wait(run, start_host(run), began, name)
            done = len(StateReader(run).catch_up().epochs)
            if not problem and not leg.is_reference and 0 < done < EPOCHS:
                stopped_after = done
                problem = self._wait(run, prepare_resumption(run).start(), began, f"{name}, resumed")
        except ConsoleError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{one_line(error)}; set TMPDIR to a folder on another disk."
        seconds = time.monotonic() - began
        if run is None:
            return Trained(seconds=seconds, problem=problem)
        log = LogTail(run).read()[-_LOG_LINES:]
        trained = Trained(StateReader(run).catch_up(), seconds, stopped_after, problem, log)
        return self._with_bound(leg, trained) if leg.accelerator == "tpu" and not trained.failure else trained

    def _wait(self, run: RunDirectory, process: subprocess.Popen[bytes], began: float, name: str) -> str:
        """Show a run's phases until its process ends; return what was wrong with that."""
        reader, shown = StateReader(run), {"", *_QUIET}
        try:
            while process.poll() is None:
                if (phase := reader.catch_up().phase) not in shown:
                    shown.add(phase)
                    complain([f"{name}: {phase}"])
                if self.was_interrupted:
                    return "It was interrupted."
                if time.monotonic() - began > self._limit_s:
                    return (
                        f"It did not end within {duration(self._limit_s)}, so it was ended. If this machine is slow, "
                        "allow more with --limit; the log may say what it waited for."
                    )
                time.sleep(_POLL_S)
        finally:
            _end(process)
        gone = f"Its process died. {exit_cause(process.wait())} See the end of its log."
        return gone if reader.catch_up().end is None else ""

    def _with_bound(self, leg: Leg, trained: Trained) -> Trained:
        """Ask the TPU compiler for the least time of a step on this TPU."""
        name = tpu_name(self._hardware.tpu_kind, leg.replicas)
        if not name:
            return replace(trained, no_bound=f"no bound: a TPU of {leg.replicas} such devices is not known")
        choices = Choices((name,), (leg.batch,), (leg.config.precision,), limit=self._limit_s)
        try:
            if (missing := missing_compiler()) is not None:
                raise missing
            job, options = choices.job(leg.config)
            found = run_job(job, options, limit_s=choices.stuck_s, grace_s=GRACE_S)
            (verdict,) = read_verdicts(leg.config, found)
        except ConsoleError as error:
            return replace(trained, no_bound=f"no bound: {error}")
        except KeyboardInterrupt:  # of `run_job`, which listens to the signals itself
            self.was_interrupted = True
            return trained
        if verdict.bound is None:
            return replace(trained, no_bound=f"no bound: {verdict.reason}")
        return replace(trained, bound_ms=1000 * verdict.bound.step_s)


def tpu_name(kind: str, devices: int) -> str:
    """Return what preflight calls a TPU of this machine; empty if it knows none of this size."""
    same = (one for one in TOPOLOGIES.values() if one.generation.name in {kind, f"tpu{kind}"})
    return next((one.name for one in same if one.devices == devices), "")


def _missing(leg: Leg, hardware: Hardware) -> str:
    choice = choose_backend(leg.config, hardware, is_installed)
    return f"{choice.missing} {choice.remedy}" if choice.missing else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a training process that still runs, with everything that it started."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
        with suppress(subprocess.TimeoutExpired):  # a driver may keep it from dying
            process.wait(_LAST_WORDS_S)
