"""Prepares a preflight for the command and the screen: the choices, the job's options, the verdicts with advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tpu_console.engine.config.catalog import is_user_reference
from tpu_console.engine.data.cached_facts import function_record_of
from tpu_console.engine.errors import ConfigError, ConsoleError, Finding, Problem, Severity, most_severe_first
from tpu_console.engine.planning.plan import static_advice
from tpu_console.engine.preflight.cache import cached_verdicts, choices_of, versions
from tpu_console.engine.preflight.likely import likely_of
from tpu_console.engine.preflight.result import Outcome, Verdict, from_dict
from tpu_console.engine.preflight.topologies import TOPOLOGIES, USUAL, find_topology
from tpu_console.engine.preflight.worker_pool import LIMIT_S, check_compiler

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig

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
