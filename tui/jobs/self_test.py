"""Trains the legs of ``tpu-console doctor --train``, each through the same road as ``tpu-console run``, one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tpu_console.engine.accelerators.backend import choose_backend, is_installed
from tpu_console.engine.doctor.doctor import Group
from tpu_console.engine.doctor.self_test import Trained, figures, judge, not_run
from tpu_console.engine.errors import ConsoleError, one_line
from tpu_console.engine.messages import exit_cause
from tpu_console.engine.preflight.topologies import TOPOLOGIES
from tpu_console.engine.process.launch import prepare_run, start_host
from tpu_console.engine.process.resume import prepare_resumption
from tpu_console.engine.runs.events import Phase
from tpu_console.engine.runs.follower import LogTail, StateReader
from tpu_console.engine.runs.requests import Action, ask
from tpu_console.engine.storage.paths import HOME_VARIABLE

from ..text.numbers import duration
from .command_job import run_job
from .preflights import GRACE_S, Choices, missing_compiler, read_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType
    from typing import Any

    from tpu_console.engine.doctor.self_test import Leg
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.runs.run_directory import RunDirectory

_POLL_S = 0.2
_LAST_WORDS_S = 2.0
_PREFLIGHT_S = 120.0
_QUIET = (Phase.VALIDATING, Phase.CHECKPOINTING)
_BY = "requested by tpu-console doctor"


class SelfTest:
    """Trains legs in a folder, one after the other, and judges them.

    Args:
        legs: The legs.
        hardware: The accelerators of this machine.
        folder: Where their runs are, and everything else that they write.
        limit_s: Seconds that a leg may take.
        show: Called with each line of progress.

    Attributes:
        groups: The results so far, one group for each leg.
        figures: What the legs did, as JSON holds it.
        was_interrupted: Whether Ctrl-C or SIGTERM ended it.
    """

    def __init__(
        self, legs: Sequence[Leg], hardware: Hardware, folder: Path, limit_s: float, show: Callable[[str], None]
    ) -> None:
        self._legs = [leg if leg.missing else replace(leg, missing=_missing(leg, hardware)) for leg in legs]
        self._hardware = hardware
        self._folder = folder
        self._limit_s = limit_s
        self._show = show
        self._trained: dict[Leg, Trained] = {}
        self.groups: list[Group] = []
        self.figures: list[dict[str, Any]] = []
        self.was_interrupted = False

    def run(self) -> None:
        """Train every leg that can run; one that fails does not keep the others from running."""
        can_run = {leg.accelerator for leg in self._legs if not leg.missing}
        with _home(self._folder), _sigterm_interrupts():
            for number, leg in enumerate(self._legs, 1):
                name = f"[{number}/{len(self._legs)}] {leg.name}"
                if leg.missing:
                    result = not_run(leg, is_alone=leg.accelerator not in can_run)
                    self._show(f"{name}: not run")
                    self.groups.append(Group(f"Training: {leg.name}", (result,)))
                    continue
                trained = self._train(leg, name)
                reference = next((old for one, old in self._trained.items() if _is_reference_of(one, leg)), None)
                self._trained[leg] = trained
                group = Group(f"Training: {leg.name}", judge(leg, trained, reference))
                bad = [one.title.lower() for one in group.results if one.word == "problem"]
                self._show(f"{name}: {'failed: ' + ', '.join(bad) if bad else 'passed'} in {duration(trained.seconds)}")
                self.groups.append(group)
                self.figures.append(figures(leg, trained))
                if self.was_interrupted:
                    return

    def _train(self, leg: Leg, name: str) -> Trained:
        """Train a leg; stop it after the first epoch and resume it, unless it is a reference."""
        began = time.monotonic()
        deadline = began + self._limit_s
        run: RunDirectory | None = None
        stopped_after, problem = 0, ""
        self._show(f"{name}: starting")
        try:
            run = prepare_run(leg.config, self._folder / "runs")
            if not leg.is_reference:
                ask(run, Action.STOP_AFTER_EPOCH, _BY)
            problem = self._wait(run, start_host(run), deadline, name)
            state = StateReader(run).catch_up()
            if not problem and state.stop is not None and len(state.epochs) < leg.config.epochs:
                stopped_after = len(state.epochs)
                problem = self._wait(run, prepare_resumption(run).start(), deadline, f"{name}, resumed")
        except ConsoleError as error:
            problem = str(error)
        except OSError as error:
            problem = f"Its folder cannot be used: {one_line(error, 200)}. Set TMPDIR to another disk."
        except KeyboardInterrupt:
            self.was_interrupted = True
            problem = "It was interrupted."
        state = StateReader(run).catch_up() if run is not None else Trained().state
        trained = Trained(state, time.monotonic() - began, stopped_after, problem)
        if trained.failure:
            return replace(trained, log=LogTail(run).read()[-40:] if run is not None else ())
        return self._with_bound(leg, trained)

    def _wait(self, run: RunDirectory, process: subprocess.Popen[bytes], deadline: float, name: str) -> str:
        """Show a run's phases until its process ends; return what was wrong with that."""
        reader, shown = StateReader(run), {"", *_QUIET}
        try:
            while process.poll() is None:
                if (phase := reader.catch_up().phase) not in shown:
                    shown.add(phase)
                    self._show(f"{name}: {phase}")
                if time.monotonic() > deadline:
                    return (
                        f"It did not end within {duration(self._limit_s)}, so it was ended. If this machine is slow, "
                        "allow more with --limit; the log may say what it waited for."
                    )
                time.sleep(_POLL_S)
        finally:
            _end(process)
        code = process.wait()
        if reader.catch_up().end is None:
            return f"Its process died. {exit_cause(code)} See the end of its log."
        return ""

    def _with_bound(self, leg: Leg, trained: Trained) -> Trained:
        """Ask the TPU compiler for the least time of a step, if a TPU trained."""
        if leg.kind != "tpu":
            return trained
        names = [
            one.name
            for one in TOPOLOGIES.values()
            if one.generation.name.removeprefix("tpu") == self._hardware.tpu_kind and one.devices == leg.replicas
        ]
        if not names:
            return replace(trained, no_bound=f"no bound: {leg.replicas} devices of this TPU are not known")
        if (missing := missing_compiler()) is not None:
            return replace(trained, no_bound=f"no bound: {missing}")
        choices = Choices((names[0],), (leg.batch,), (leg.config.precision,), limit=_PREFLIGHT_S)
        try:
            job, options = choices.job(leg.config)
            found = run_job(job, options, limit_s=choices.stuck_s, grace_s=GRACE_S)
        except ConsoleError as error:
            return replace(trained, no_bound=f"no bound: {error}")
        except KeyboardInterrupt:
            self.was_interrupted = True
            return trained
        verdict = read_verdicts(leg.config, found)[0]
        if verdict.bound is None:
            return replace(trained, no_bound=f"no bound: {verdict.reason}")
        return replace(trained, bound_ms=1000 * verdict.bound.step_s)


def _is_reference_of(one: Leg, leg: Leg) -> bool:
    return one.is_reference and one.global_batch == leg.global_batch


def _missing(leg: Leg, hardware: Hardware) -> str:
    choice = choose_backend(leg.config, hardware, is_installed)
    return " ".join(filter(None, (choice.missing, choice.remedy))) if choice.missing else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a training process that still runs, with everything that it started."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_LAST_WORDS_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
        process.wait()


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Keep the runs' records of times and speeds out of the user's."""
    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(folder)
    try:
        yield
    finally:
        del os.environ[HOME_VARIABLE]
        if before is not None:
            os.environ[HOME_VARIABLE] = before


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does while the block runs."""

    def hear(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
