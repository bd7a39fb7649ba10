"""The accelerators of this machine, read from device files in a millisecond, without a framework.

The plan uses them; a run asks the framework itself when it connects.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PCI_GOOGLE = "0x1ae0"

SLICE_HOSTS = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")
"""Variables that list the hosts of a TPU slice; the first one that is set counts."""

ADDRESSES = ("COLAB_TPU_ADDR", "TPU_NAME")
"""Variables that name a TPU on another machine; the first one that is set counts."""


@dataclass(frozen=True, slots=True)
class TpuChip:
    """A generation of TPU chips."""

    name: str  # Google's name, such as ``v5e``
    cores: int  # devices that a framework sees per chip


_V2, _V3 = TpuChip("v2", 2), TpuChip("v3", 2)
_BY_DEVICE = {
    "0x005e": TpuChip("v4", 1),
    "0x0062": TpuChip("v5p", 1),
    "0x0063": TpuChip("v5e", 1),
    "0x006f": TpuChip("v6e", 1),
    "0x0076": TpuChip("7x", 2),
}
CHIPS = {chip.name: chip for chip in (_V2, _V3, *_BY_DEVICE.values())}  # every generation by its name


@dataclass(frozen=True, slots=True)
class Hardware:
    """The accelerators of this machine."""

    gpus: tuple[str, ...] = ()
    tpu: str = ""  # the device file or PCI device of the TPU; empty for none
    tpu_kind: str = ""  # generation of the TPU, such as ``v5e``; empty if unknown
    tpu_chips: int = 0
    tpu_hosts: int = 1  # hosts of its slices according to variables; a run also asks the metadata server
    hidden: tuple[str, ...] = ()  # variables that hide some of the devices, and how many they leave

    @property
    def tpu_devices(self) -> int:
        """Devices that a framework sees on this host; one per chip if the generation is unknown."""
        return self.tpu_chips * (CHIPS[self.tpu_kind].cores if self.tpu_kind in CHIPS else 1)


def detect_hardware(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> Hardware:
    """Find the accelerators, from ``/dev``, ``/proc`` and ``/sys`` under `root`."""
    on_pci = tpu_pci_devices(root)
    accel = numbered_devices(root, "accel")
    kinds = sorted({chip.name for chip in on_pci.values()})
    chips = count_chips(on_pci) or len(accel)
    tpu = f"/{accel[0]}" if accel else f"PCI device {min(on_pci)}" if on_pci else ""
    hosts = count_hosts(next((environ[name] for name in SLICE_HOSTS if environ.get(name)), "")) if chips else 1
    hosts *= count_slices(environ) if chips else 1
    gpus, hidden = _gpus(root), []
    if gpus and (listed := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        seen = visible_gpus(gpus, listed)
        hidden += [f"CUDA_VISIBLE_DEVICES={listed} leaves {len(seen)} of {len(gpus)} GPUs."] * (len(seen) < len(gpus))
        gpus = seen
    for name in ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"):
        if (named := [part for part in environ.get(name, "").split(",") if part.strip()]) and len(named) < chips:
            hidden.append(f"{name}={environ[name]} leaves {len(named)} of {chips} chips.")
            chips = len(named)
    kind = "/".join(kinds)
    return Hardware(gpus=gpus, tpu=tpu, tpu_kind=kind, tpu_chips=chips, tpu_hosts=hosts, hidden=tuple(hidden))


def count_slices(environ: Mapping[str, str]) -> int:
    """Return the number of TPU slices that train together."""
    listed = environ.get("MEGASCALE_NUM_SLICES", "")
    return max(1, int(listed)) if listed.isdecimal() else 1


def visible_gpus(gpus: tuple[str, ...], listed: str) -> tuple[str, ...]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves: CUDA ignores everything from the first unknown one on."""
    seen = []
    for part in (part.strip() for part in listed.split(",")):
        if part.isdecimal() and int(part) < len(gpus):
            seen.append(gpus[int(part)])
        elif part.startswith(("GPU-", "MIG-")):  # a UUID; which one it is matters to no plan
            seen.append(gpus[0])
        else:
            break
    return tuple(seen)


def count_hosts(listed: str) -> int:
    """Count the hosts of a comma-separated list; Kaggle's ``TPU_PROCESS_ADDRESSES=local`` is one host."""
    return max(1, len([name for name in listed.split(",") if name]))


def tpu_pci_devices(root: Path) -> dict[str, TpuChip]:
    """Find the TPU chips on the PCI bus, by their address.

    The vendor is not enough: network cards and disks of Google's virtual machines have it too. The device
    numbers are those of `tpu_info/device.py` in google/cloud-accelerator-diagnostics
    and of JAX's `_src/hardware_utils.py`; v2 and v3 share one and differ by the subsystem.
    """
    found = {}
    for vendor in sorted(root.glob("sys/bus/pci/devices/*/vendor")):
        if _word(vendor) != _PCI_GOOGLE:
            continue
        device = _word(vendor.with_name("device"))
        chip = _BY_DEVICE.get(device)
        if device == "0x0027":
            chip = _V2 if _word(vendor.with_name("subsystem_device")) == "0x004e" else _V3
        if chip is not None:
            found[vendor.parent.name] = chip
    return found


def count_chips(on_pci: Iterable[str]) -> int:
    """Count chips by their addresses: one of two cores may be two functions of a device, 0000:00:04.0 and .1."""
    return len({address.partition(".")[0] for address in on_pci})


def numbered_devices(root: Path, prefix: str) -> list[str]:
    """List the device files ``/dev/<prefix>N`` in order, such as ``dev/accel0`` or ``dev/vfio/0``."""
    folder, _, start = f"dev/{prefix}".rpartition("/")
    numbers = [path.name.removeprefix(start) for path in root.glob(f"{folder}/{start}*")]
    return [f"{folder}/{start}{number}" for number in sorted((n for n in numbers if n.isdigit()), key=int)]


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _gpus(root: Path) -> tuple[str, ...]:
    described = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    if described:
        found = (re.search(r"^Model:[ \t]*(\S.*)", _word(path), re.MULTILINE) for path in described)
        return tuple(model[1].strip() if model else "NVIDIA GPU" for model in found)
    return tuple("NVIDIA GPU" for _ in numbered_devices(root, "nvidia"))
