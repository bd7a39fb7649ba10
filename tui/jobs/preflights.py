"""A preflight as the command and the screen both start it: the choices, the job's options, the verdicts with advice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpu_console.engine.errors import ConfigError, ConsoleError, Problem
from tpu_console.engine.findings import most_severe_first
from tpu_console.engine.jobs.preflighting.preflight import check_compiler
from tpu_console.engine.planning.advice import static_advice
from tpu_console.engine.preflight.cache import versions
from tpu_console.engine.preflight.choices import cached_verdicts, choices_of
from tpu_console.engine.preflight.result import Outcome, from_dict
from tpu_console.engine.preflight.topologies import TOPOLOGIES, USUAL, find_topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.findings import Finding
    from tpu_console.engine.preflight.result import Verdict

JOB = "preflight"
LEAST_MEMORY = "least-memory"
"""The job to run if there is no TPU compiler."""

DEFAULT_TPU = "v5e-8"
"""What Kaggle lends."""

PRECISIONS = ("float32", "mixed_bfloat16")
"""What a TPU computes with."""

GRACE_S = 2.0
"""How long a cancelled preflight may take to end by itself: the compiler hears no signal while it works."""

CHOICE_S = 600.0
"""Longest time for one choice, unless a person says otherwise."""

SEARCHED_S = 4 * CHOICE_S
"""The same with a search, which compiles several times."""

_CODES = {Outcome.DOES_NOT_COMPILE: 3, Outcome.DOES_NOT_FIT: 4, Outcome.UNKNOWN: 1, Outcome.FITS: 0}
"""Exit code of each outcome, the worst first."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What is to be judged: every TPU with every batch and every precision.

    Args:
        tpus: Names of TPUs.
        batches: Examples a step and replica.
        precisions: Keras's dtype policies.
        search: Whether to look for the largest batch that fits.
        use_cache: Whether what was compiled before need not be compiled again.
    """

    tpus: tuple[str, ...]
    batches: tuple[int, ...]
    precisions: tuple[str, ...]
    search: bool = False
    use_cache: bool = True

    @property
    def limit_s(self) -> float:
        """Seconds after which something must be wrong."""
        count = len(self.tpus) * len(self.batches) * len(self.precisions)
        return count * (SEARCHED_S if self.search else CHOICE_S)

    def job(self, config: RunConfig, missing: ConsoleError | None = None) -> tuple[str, dict[str, Any]]:
        """Return the name and the options of the job.

        Args:
            config: What is to be judged.
            missing: Why there is no compiler; the job then gives a lower bound on memory.
        """
        options = {
            "config": config.model_dump(mode="json"),
            "on": list(self.tpus),
            "batches": list(self.batches),
            "precisions": list(self.precisions),
        }
        if missing is not None:
            return LEAST_MEMORY, {**options, "reason": str(missing)}
        return JOB, {**options, "search": self.search, "use_cache": self.use_cache}


def known_tpus(texts: Iterable[str], key: str) -> tuple[str, ...]:
    """Return the TPUs that texts name, with commas between, each once.

    Args:
        texts: The texts.
        key: Where they come from, for the error.

    Raises:
        ConfigError: One is not known, and the nearest is named; or there is none at all.
    """
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
    """Return why there is no TPU compiler here, with the line that installs it; None where there is one."""
    try:
        check_compiler()
    except ConsoleError as error:
        return error
    return None


def remembered(config: RunConfig, choices: Choices) -> dict[str, Any] | None:
    """Return what the job would, at once, if every verdict was reached before; None else.

    Args:
        config: What is to be judged.
        choices: The choices.
    """
    if not choices.use_cache:
        return None
    topologies = [TOPOLOGIES[name] for name in choices.tpus]
    each = choices_of(config, topologies, choices.batches, choices.precisions)
    verdicts = cached_verdicts(each, search=choices.search)
    return None if verdicts is None else {"verdicts": [v.as_dict() for v in verdicts], "versions": versions()}


def read_verdicts(config: RunConfig, found: Mapping[str, Any]) -> list[Verdict]:
    """Return the verdicts of a job's result, each with what is known of the configuration without the compiler.

    Args:
        config: What was judged.
        found: What the job returned.
    """
    return [_advised(config, from_dict(values)) for values in found["verdicts"]]


def advice_for(config: RunConfig, tpus: Sequence[str]) -> tuple[Finding, ...]:
    """Return what is known of a configuration on TPUs without the compiler, each thing once.

    Args:
        config: The configuration.
        tpus: Names of TPUs.
    """
    found = [finding for tpu in tpus for finding in static_advice(config, TOPOLOGIES[tpu].devices)]
    return tuple(dict.fromkeys(found))


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """Return the exit code: the worst verdict decides, and nothing at all is as bad as an unknown one."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((code for outcome, code in _CODES.items() if outcome in outcomes), _CODES[Outcome.UNKNOWN])


def _advised(config: RunConfig, verdict: Verdict) -> Verdict:
    chosen = config.model_copy(update={"batch_size": verdict.replica_batch, "precision": verdict.precision})
    told = {finding.text for finding in verdict.findings}
    more = [one for one in static_advice(chosen, verdict.devices) if one.text not in told]
    findings = most_severe_first([*verdict.findings, *more])
    return replace(verdict, findings=findings)
