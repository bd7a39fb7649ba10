"""The checks that take long: a preflight by the TPU compiler, and the runs that `tpu-console doctor --train` trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tpu_console.engine.accelerators.backend import choose_backend, is_installed
from tpu_console.engine.config.catalog import is_user_reference
from tpu_console.engine.data.cached_facts import function_record_of
from tpu_console.engine.errors import ConfigError, ConsoleError, Finding, Problem, Severity, most_severe_first, one_line
from tpu_console.engine.messages import exit_cause
from tpu_console.engine.planning import static_advice
from tpu_console.engine.preflight.choice import cached_verdicts, choices_of, versions
from tpu_console.engine.preflight.likely import likely_of
from tpu_console.engine.preflight.result import Outcome, Verdict, from_dict
from tpu_console.engine.preflight.topologies import TOPOLOGIES, USUAL, find_topology
from tpu_console.engine.preflight.worker_pool import LIMIT_S, check_compiler
from tpu_console.engine.runs.events import Phase

from ..terminal.output import complain, interrupts_call
from ..text.numbers import duration
from .run_process import HostedRun

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.runs.follower import StateReader
    from tpu_console.engine.self_test import Leg, Trained

DEFAULT_TPU = "v5e-8"  # the one that Kaggle offers
PRECISIONS = ("float32", "mixed_bfloat16")  # that a TPU can compute with
GRACE_S = 2.0  # how long a cancelled preflight may take to end: the compiler ignores signals while it works
STUCK_S = 20.0  # how long the job may take, beside its limit, to start and to end on a busy machine
_CODES = {Outcome.DOES_NOT_COMPILE: 3, Outcome.DOES_NOT_FIT: 4, Outcome.UNKNOWN: 1, Outcome.FITS: 0}
"""Exit code of each outcome, the worst first."""


class Choices(Struct, frozen=True):
    """The choices to judge: every combination of TPU, batch and precision."""

    tpus: tuple[str, ...]  # names of TPUs
    batches: tuple[int, ...]  # examples per step and replica
    precisions: tuple[str, ...]  # Keras's dtype policies
    search: bool = False  # whether to look for the largest batch that fits
    use_cache: bool = True  # whether to reuse the results of earlier compilations
    limit: float | None = None  # seconds for all choices together; None for the default

    @property
    def limit_s(self) -> float:
        """Seconds after which the choices that are not done are given up; a search compiles several times."""
        count = len(self.tpus) * len(self.batches) * len(self.precisions)
        return self.limit or count * LIMIT_S * (4 if self.search else 1)

    @property
    def stuck_s(self) -> float:
        """Seconds after which the job itself counts as stuck: it stops by itself when the limit is over."""
        return self.limit_s + STUCK_S

    def jobs(
        self, config: RunConfig, missing: ConsoleError | None = None, *, calls: bool = True
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the names and options of the jobs to do one after the other; the last one's result has the verdicts.

        `missing` is why there is no compiler. With `calls`, a dataset function is called if its shapes are unknown.
        """
        values = {"config": config.model_dump(mode="json")}
        is_unknown = is_user_reference(config.dataset) and function_record_of(config) is None
        first = [("call", values)] if is_unknown and calls else []
        choices = {"on": list(self.tpus), "batches": list(self.batches), "precisions": list(self.precisions)}
        if missing is not None:
            return [*first, ("least-memory", values | choices | {"reason": str(missing)})]
        asked = {"search": self.search, "use_cache": self.use_cache, "limit_s": self.limit_s}
        return [*first, ("preflight", values | choices | asked)]


def known_tpus(texts: Iterable[str], key: str) -> tuple[str, ...]:
    """Return the TPUs named in comma-separated texts of a key, without duplicates, or raise `ConfigError`."""
    names, problems = [], []
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        try:
            names += [find_topology(text).name] if text else []
        except ConsoleError as error:
            problems.append(Problem(key, f"{str(error)[0].lower()}{str(error)[1:]}"))
    if problems or not names:
        raise ConfigError(problems or [Problem(key, f"names no TPU; common ones: {', '.join(USUAL)}")])
    return tuple(dict.fromkeys(names))


def missing_compiler() -> ConsoleError | None:
    """Return why the TPU compiler is missing, with the command that installs it; None if it is there."""
    try:
        check_compiler()
    except ConsoleError as error:
        return error
    return None


def remembered(config: RunConfig, choices: Choices) -> dict[str, Any] | None:
    """Return the job's result from the cache if it has every verdict, else None."""
    if not choices.use_cache:
        return None
    topologies = [TOPOLOGIES[name] for name in choices.tpus]
    each = choices_of(config, topologies, choices.batches, choices.precisions)
    verdicts = cached_verdicts(each, search=choices.search)
    return None if verdicts is None else {"verdicts": [v.as_dict() for v in verdicts], "versions": versions()}


def read_verdicts(config: RunConfig, found: Mapping[str, Any]) -> list[Verdict]:
    """Return the verdicts of a job's result, each with the likely time and the advice that needs no compiler."""
    return [_advised(config, from_dict(values)) for values in found["verdicts"]]


def advice_for(config: RunConfig, tpus: Sequence[str]) -> tuple[Finding, ...]:
    """Return the advice on a configuration for TPUs that needs no compiler, without duplicates."""
    return tuple(dict.fromkeys(one for tpu in tpus for one in static_advice(config, TOPOLOGIES[tpu].devices)))


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """Return the exit code of the worst verdict; no verdict at all counts as unknown."""
    outcomes = {verdict.outcome for verdict in verdicts} or {Outcome.UNKNOWN}
    return next(code for outcome, code in _CODES.items() if outcome in outcomes)


def _advised(config: RunConfig, verdict: Verdict) -> Verdict:
    chosen = config.model_copy(update={"batch_size": verdict.replica_batch, "precision": verdict.precision})
    known = {finding.text for finding in verdict.findings}
    more = [one for one in static_advice(chosen, verdict.devices) if one.text not in known]
    if verdict.outcome in {Outcome.DOES_NOT_COMPILE, Outcome.DOES_NOT_FIT}:  # advice on speed would hide the change
        more = [one for one in more if one.severity is not Severity.INFO]
    findings = most_severe_first([*verdict.findings, *more])
    return replace(verdict, findings=findings, likely=likely_of(config, verdict))


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
        from tpu_console.engine.self_test import figures, judge, not_run

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
        from tpu_console.engine.process.launch import prepare_run, start_host
        from tpu_console.engine.runs.follower import StateReader
        from tpu_console.engine.self_test import Trained

        began = time.monotonic()
        try:
            run = prepare_run(leg.config)
            reader = StateReader(run)
            problem = self._wait(reader, HostedRun(run, start_host(run)), began, name)
        except (ConsoleError, OSError) as error:
            hint = f"{one_line(error)}; set TMPDIR to a folder on another disk." if isinstance(error, OSError) else ""
            return Trained(seconds=time.monotonic() - began, problem=hint or str(error))
        return Trained(reader.catch_up(), time.monotonic() - began, problem)

    def _wait(self, reader: StateReader, run: HostedRun, began: float, name: str) -> str:
        """Show a run's phases until its process ends; return what was wrong with that."""
        process, shown = run.process, {"", Phase.VALIDATING}
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
                run.kill()
        gone = f"Its process died. {exit_cause(process.wait())} See the end of its log."
        return gone if reader.catch_up().end is None else ""
