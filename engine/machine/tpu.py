"""The TPU of this machine: generation, chips, and its part of a slice of several hosts.

Sources of the names: JAX's `_src/clusters/cloud_tpu_cluster.py` and `_src/cloud_tpu_init.py`, pytorch/xla's
`core/xla_env_vars.py`, Kaggle/docker-python (`tpu/Dockerfile`), "TPU configurations" of Google's documentation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .devices import ADDRESSES, CHIPS, SLICE_HOSTS, count_chips, count_hosts, numbered_devices, tpu_pci_devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .sources import Sources

# The number in an accelerator type counts cores up to v5p, chips from v5e on.
_CORES_IN_TYPE = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2}
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "tpu7x": "7x"}


@dataclass(frozen=True, slots=True)
class Tpu:
    """The facts about the TPU; unknown ones are 0 or empty."""

    kind: str = ""  # generation, such as ``v5e``
    chips: int = 0
    accelerator_type: str = ""  # Google's name of the whole slice, such as ``v5p-32``
    topology: str = ""  # chips of the slice along each axis, such as ``2x2x4``
    hosts: int = 1
    host_index: int = -1  # number of this host among them; -1 if unknown
    address: str = ""  # address of a TPU on another machine
    devices: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # the files, variables and attributes that were read

    @property
    def is_here(self) -> bool:
        """Whether this machine has TPU chips."""
        return self.chips > 0

    @property
    def device_text(self) -> str:
        """The device files in a few words."""
        return _span([name.removeprefix("/") for name in self.devices])

    @property
    def cores(self) -> int:
        """Devices that a framework sees on this host; 0 if the generation is unknown."""
        return self.chips * CHIPS[self.kind].cores if self.kind in CHIPS else 0

    @property
    def all_chips(self) -> int:
        """Chips of the whole slice according to its type; 0 if unknown."""
        number, kind = re.search(r"-(\d+)$", self.accelerator_type), _kind_of(self.accelerator_type)
        return max(1, int(number[1]) // _CORES_IN_TYPE.get(kind, 1)) if number and kind else 0

    def __str__(self) -> str:
        if not self.is_here:
            return f"TPU at {self.address}" if self.address else "none found, but variables name a TPU"
        name = f"TPU {self.kind}" if self.kind else "TPU"
        text = f"{name}, {self.chips} chip{'s' if self.chips > 1 else ''}"
        if self.cores > self.chips:
            text += f" ({self.cores} devices)"
        if self.hosts > 1:
            index = f"host {self.host_index} of " if self.host_index >= 0 else "one host of "
            text += f", {index}{self.hosts} of {self.accelerator_type or 'a slice'}"
        return text


def find_tpu(sources: Sources, metadata: Mapping[str, str]) -> Tpu | None:
    """Find the TPU in device files, variables and metadata; None if there is no sign of one."""
    variables = _Variables(sources.environ, _tpu_env(metadata))
    accelerator_type = variables.first("TPU_ACCELERATOR_TYPE", "ACCELERATOR_TYPE") or metadata.get(
        "accelerator-type", ""
    )
    address = next((sources.environ[name] for name in ADDRESSES if sources.environ.get(name)), "")
    on_pci = tpu_pci_devices(sources.root)
    accel = numbered_devices(sources.root, "accel")
    # A numbered vfio device may be any passed-through card; it counts only with another sign of a TPU.
    vfio = numbered_devices(sources.root, "vfio/") if on_pci or accelerator_type else []
    files = accel or vfio
    if not (on_pci or files or accelerator_type or address):
        return None
    kinds = {chip.name for chip in on_pci.values()} or {_kind_of(accelerator_type)}
    chips = count_chips(on_pci) or len(files)
    hosts = count_hosts(variables.first(*SLICE_HOSTS) or metadata.get("worker-network-endpoints", ""))
    index = variables.first("TPU_WORKER_ID", "WORKER_ID") or metadata.get("agent-worker-number", "")
    evidence = [f"/sys/bus/pci/devices: {len(on_pci)} of vendor 0x1ae0, {'/'.join(sorted(kinds))}"] if on_pci else []
    evidence += [_span(files)] if files else []
    evidence += variables.evidence
    evidence += [f"{name}={sources.environ[name]}" for name in ADDRESSES if sources.environ.get(name)]
    evidence += [f"metadata server: {', '.join(metadata)}"] if metadata else []
    return Tpu(
        kind="/".join(sorted(kinds)),
        chips=chips,
        accelerator_type=accelerator_type,
        topology=variables.first("TPU_TOPOLOGY", "TOPOLOGY"),
        hosts=hosts,
        host_index=int(index) if index.isdigit() else -1,
        address=address,
        devices=tuple(f"/{name}" for name in files),
        evidence=tuple(evidence),
    )


def _span(files: Sequence[str]) -> str:
    """Write device files in order, such as ``/dev/accel0 to /dev/accel3``."""
    if len(files) > 2:
        return f"/{files[0]} to /{files[-1]}"
    return " and ".join(f"/{name}" for name in files)


class _Variables:
    """Looks up variables in the environment, then in the metadata's ``tpu-env``, and records them as evidence."""

    def __init__(self, environ: Mapping[str, str], tpu_env: Mapping[str, str]) -> None:
        self.evidence: list[str] = []
        self._environ = environ
        self._tpu_env = tpu_env

    def first(self, *names: str) -> str:
        for name in names:
            if value := self._environ.get(name):
                self.evidence.append(f"{name}={value}")
                return value
        return next((self._tpu_env[name] for name in names if self._tpu_env.get(name)), "")


def _tpu_env(metadata: Mapping[str, str]) -> dict[str, str]:
    """Parse the attribute ``tpu-env``, with lines such as ``TOPOLOGY: '2x2x4'``."""
    pairs = (line.partition(":") for line in metadata.get("tpu-env", "").splitlines() if ":" in line)
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def _kind_of(accelerator_type: str) -> str:
    name = accelerator_type.rpartition("-")[0].lower()
    name = _ALIASES.get(name, name)
    return name if name in CHIPS else ""
