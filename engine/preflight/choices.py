"""The choices of a preflight, and the verdicts that are cached for them. Loads no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..data.function_record import known_batch
from .cache import cached_verdict, versions
from .result import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config.run_config import RunConfig
    from .topologies import Topology


@dataclass(frozen=True, slots=True)
class Choice:
    """One configuration on one TPU."""

    config: RunConfig  # the configuration, with the batch size and the precision of this choice
    topology: Topology

    @property
    def label(self) -> str:
        """Its name in a line of progress."""
        return f"{self.topology.name}, batch {self.config.batch_size:,}, {self.config.precision}"

    def undecided(self, reason: str = "") -> Verdict:
        """Return a verdict that says only why there is none, or that is to be filled in."""
        return Verdict(
            tpu=self.topology.name,
            devices=self.topology.devices,
            hosts=self.topology.hosts,
            replica_batch=self.config.batch_size,
            precision=self.config.precision,
            outcome=Outcome.UNKNOWN,
            reason=reason,
            versions=dict(versions()),
        )


def choices_of(
    config: RunConfig, topologies: Sequence[Topology], batches: Sequence[int], precisions: Sequence[str]
) -> list[Choice]:
    """Return every combination, TPU by TPU; without batches or precisions, those of the configuration."""
    configs = [
        config.model_copy(update={"batch_size": batch or known_batch(config), "precision": precision})
        for precision in (precisions or [config.precision])
        for batch in (batches or [config.batch_size])
    ]
    return [Choice(one, topology) for topology in topologies for one in configs]


def cached_verdicts(choices: Sequence[Choice], *, search: bool = False) -> list[Verdict] | None:
    """Return the verdicts on all choices if every one of them is cached, else None."""
    found = [cached_verdict(choice.config, choice.topology.name, search=search) for choice in choices]
    cached = [verdict for verdict in found if verdict is not None]
    return cached if len(cached) == len(choices) else None
