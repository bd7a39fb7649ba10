"""Trains the legs of ``tpu-console doctor --train`` one by one, each as ``tpu-console run`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tpu_console.engine.accelerators.backend import choose_backend, is_installed
from tpu_console.engine.doctor.self_test import Leg, Trained, figures, judge, not_run
from tpu_console.engine.errors import ConsoleError, one_line
from tpu_console.engine.messages import exit_cause
from tpu_console.engine.process.launch import prepare_run, start_host
from tpu_console.engine.runs.events import Phase
from tpu_console.engine.runs.follower import StateReader

from ..terminal.output import complain, interrupts_call
from ..text.numbers import duration
from .run_process import HostedRun

if TYPE_CHECKING:
    import subprocess

    from tpu_console.engine.errors import Finding
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.runs.run_directory import RunDirectory

_POLL_S = 0.2


class SelfTest:
    """Trains legs one after the other, each for at most `limit_s`, and judges them."""

    def __init__(
        self,
        legs: Sequence[Leg],
        hardware: Hardware,
        limit_s: float,
        has_package: Callable[[str], bool] = is_installed,
    ) -> None:
        self._legs = []
        for leg in legs:
            choice = choose_backend(leg.config, hardware, has_package)
            missing = f"{choice.missing} {choice.remedy}" if choice.missing else ""
            self._legs.append(replace(leg, missing=leg.missing or missing))
        self._limit_s = limit_s
        self.groups: dict[str, tuple[Finding, ...]] = {}  # the results so far, one group for each leg
        self.figures: list[dict[str, Any]] = []  # what the legs did, as JSON holds it
        self.was_interrupted = False  # by Ctrl-C or SIGTERM

    def run(self) -> None:
        """Train every leg that can run; one that fails does not keep the others from running."""
        can_run = {leg.accelerator for leg in self._legs if not leg.missing}
        with interrupts_call(self._hear):
            for number, leg in enumerate(self._legs, 1):
                name = f"[{number}/{len(self._legs)}] {leg.name}"
                if leg.missing:
                    result, end = not_run(leg, is_alone=leg.accelerator not in can_run), "not run"
                else:
                    complain([f"{name}: starting"])
                    trained = self._train(leg, name)
                    result = judge(leg, trained)
                    self.figures.append(figures(leg, trained))
                    end = f"{'failed' if result.severity == 'error' else 'passed'} in {duration(trained.seconds)}"
                self.groups[f"Training: {leg.name}"] = (result,)
                complain([f"{name}: {end}"])
                if self.was_interrupted:
                    return

    def _hear(self, _number: int) -> None:
        # Not an exception: raised while a training process is started, it would leave that behind.
        self.was_interrupted = True

    def _train(self, leg: Leg, name: str) -> Trained:
        began = time.monotonic()
        try:
            run = prepare_run(leg.config)
            problem = self._wait(run, start_host(run), began, name)
        except (ConsoleError, OSError) as error:
            hint = f"{one_line(error)}; set TMPDIR to a folder on another disk." if isinstance(error, OSError) else ""
            return Trained(seconds=time.monotonic() - began, problem=hint or str(error))
        return Trained(StateReader(run).catch_up(), time.monotonic() - began, problem)

    def _wait(self, run: RunDirectory, process: subprocess.Popen[bytes], began: float, name: str) -> str:
        """Show a run's phases until its process ends; return what was wrong with that."""
        reader, shown = StateReader(run), {"", Phase.VALIDATING}
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
            if process.poll() is None:
                HostedRun(run, process).kill()
        gone = f"Its process died. {exit_cause(process.wait())} See the end of its log."
        return gone if reader.catch_up().end is None else ""
