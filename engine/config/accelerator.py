"""What a run asks to train on: the string ``accelerator``, parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_PATTERN = re.compile(r"auto|cpu|gpu|tpu|tpu:(?P<address>\S+)|sim:(?P<simulated>[1-9][0-9]?)")


class AcceleratorKind(StrEnum):
    """The kinds of devices that a run can ask for."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"
    SIMULATED = "sim"


@dataclass(frozen=True, slots=True)
class RequestedAccelerator:
    """The devices that a run asks for."""

    kind: AcceleratorKind
    address: str = ""  # the address of a TPU on another machine; empty for none
    simulated: int = 0  # the number of simulated replicas; 0 unless `kind` is ``sim``

    @property
    def is_tpu(self) -> bool:
        """Whether a TPU is asked for by name."""
        return self.kind is AcceleratorKind.TPU


def parse_accelerator(text: str) -> RequestedAccelerator:
    """Parse ``auto``, ``cpu``, ``gpu``, ``tpu``, ``tpu:ADDRESS`` or ``sim:N``; raise `ValueError` for anything else."""
    if (match := _PATTERN.fullmatch(text)) is None:
        raise ValueError(
            f"'{text}' is not an accelerator; valid: auto, cpu, gpu, tpu, tpu:ADDRESS, sim:N with N from 1 to 99"
        )
    kind = AcceleratorKind(text.partition(":")[0])
    return RequestedAccelerator(kind, match["address"] or "", int(match["simulated"] or 0))
