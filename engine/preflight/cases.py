"""The choices of a preflight, and what is remembered of them; loads no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cache import cached_verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config.run_config import RunConfig
    from .result import Verdict
    from .topologies import Topology


@dataclass(frozen=True, slots=True)
class Case:
    """One choice to judge.

    Args:
        config: The configuration, with the batch size and the precision in question.
        topology: The TPU.
    """

    config: RunConfig
    topology: Topology

    @property
    def label(self) -> str:
        """Its name in a line of progress."""
        return f"{self.topology.name}, {self.config.batch_size:,} a device, {self.config.precision}"


def cases_of(
    config: RunConfig, topologies: Sequence[Topology], batches: Sequence[int], precisions: Sequence[str]
) -> list[Case]:
    """Return every combination, TPU by TPU.

    Args:
        config: The configuration.
        topologies: The TPUs.
        batches: Examples a device; empty takes the configuration's.
        precisions: Keras's dtype policies; empty takes the configuration's.
    """
    chosen = [
        config.model_copy(update={"batch_size": batch, "precision": precision})
        for precision in (precisions or [config.precision])
        for batch in (batches or [config.batch_size])
    ]
    return [Case(one, topology) for topology in topologies for one in chosen]


def recall_all(cases: Sequence[Case], *, search: bool = False) -> list[Verdict] | None:
    """Return the verdicts if all of them were kept, without starting anything; None else."""
    found = [cached_verdict(case.config, case.topology.name, search=search) for case in cases]
    kept = [verdict for verdict in found if verdict is not None]
    return kept if len(kept) == len(cases) else None
