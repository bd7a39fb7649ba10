"""A run that is being written as code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..accelerators.table import framework_of
from ..code.imports import Imports
from ..config.pieces import parse_piece
from ..models import pieces

if TYPE_CHECKING:
    from ..accelerators.framework import Framework
    from ..config.run_config import RunConfig
    from ..runs.events import AcceleratorReady, DataReady, FitStarted


@dataclass(slots=True)
class ExportedRun:
    """What is known of a run, and what its sections collect for the whole script."""

    config: RunConfig
    accelerator: AcceleratorReady
    data: DataReady
    fit: FitStarted
    is_compiled: bool  # whether the user's function compiled the model
    record: dict[str, Any]  # its ``inputs.json``
    imports: Imports = field(default_factory=Imports)
    marks: list[str] = field(default_factory=list)  # what differs from the run, in sentences

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return len(self.accelerator.replicas)

    def keeps_batches(self, part: int) -> bool:
        """Return whether the run kept the batches that the dataset function made, for training (0) or validation."""
        return (self.record.get("returned") or [])[part : part + 1] == ["kept"]

    @property
    def framework(self) -> Framework:
        """The framework that trained it."""
        return framework_of(self.accelerator.backend)

    @property
    def by_strategy(self) -> bool:
        """Whether a strategy of TensorFlow distributes the model."""
        return self.framework.uses_scope(self.accelerator.accelerator, self.replicas)

    def in_scope(self, lines: list[str]) -> list[str]:
        """Return lines in the strategy's scope, if there is one."""
        return ["with strategy.scope():", *(f"    {line}" for line in lines)] if self.by_strategy else lines

    @property
    def indent(self) -> int:
        """By how much `in_scope` indents lines."""
        return 4 if self.by_strategy else 0

    @property
    def needs_one_hot(self) -> bool:
        """Whether labels become a value per class: for the loss, or for metrics that compare such values."""
        by_class = any(parse_piece(text).name in pieces.BY_CLASS for text in self.config.metrics)
        return self.config.takes_shares or (
            by_class and self.config.effective_loss.startswith("sparse_") and not self.is_compiled
        )
