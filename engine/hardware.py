"""What this machine has, told from device files in a millisecond, without loading a framework.

The console plans with it; the engine asks the framework itself when it connects.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PCI_GOOGLE = "0x1ae0"


@dataclass(frozen=True, slots=True)
class Hardware:
    """Accelerators seen on this machine.

    Args:
        gpus: Names of the NVIDIA GPUs.
        tpu: The device that shows a TPU, or empty.
    """

    gpus: tuple[str, ...] = ()
    tpu: str = ""


def detect_hardware(root: Path = Path("/")) -> Hardware:
    """Look for accelerators.

    Args:
        root: Where ``/dev``, ``/proc`` and ``/sys`` are found.
    """
    return Hardware(gpus=_gpus(root), tpu=_tpu(root))


def _gpus(root: Path) -> tuple[str, ...]:
    described = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    if described:
        return tuple(_gpu_name(path) for path in described)
    return tuple("NVIDIA GPU" for path in root.glob("dev/nvidia[0-9]*") if path.name[6:].isdigit())


def _gpu_name(information: Path) -> str:
    try:
        lines = information.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "NVIDIA GPU"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return names[0] if names else "NVIDIA GPU"


def _tpu(root: Path) -> str:
    accel = sorted(path for path in root.glob("dev/accel*") if path.name[5:].isdigit())
    if accel:
        return f"/dev/{accel[0].name}"
    for vendor in root.glob("sys/bus/pci/devices/*/vendor"):
        try:
            if vendor.read_text(encoding="utf-8").strip() == _PCI_GOOGLE:
                return f"PCI device {vendor.parent.name}"
        except OSError:
            continue
    return ""
