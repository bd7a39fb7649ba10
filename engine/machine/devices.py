"""What this machine is: its accelerators, and the notebook service or cluster that it belongs to.

Nothing here loads a framework. `Hardware` is what plans use, read from device files in a millisecond; `Tpu` is all that
is known of a TPU, and its part of a slice of several hosts. A run asks the framework itself when it connects.

Sources of the names: JAX's `_src/clusters/cloud_tpu_cluster.py` and `_src/cloud_tpu_init.py`, pytorch/xla's
`core/xla_env_vars.py`, Kaggle/docker-python (`tpu/Dockerfile`), googlecolab/backend-info, "TPU configurations" and
"TPUs in GKE" of Google's documentation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from .sources import Sources

_PCI_GOOGLE = "0x1ae0"

SLICE_HOSTS = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")  # hosts of a TPU slice; the first that is set counts
ADDRESSES = ("COLAB_TPU_ADDR", "TPU_NAME")  # a TPU on another machine; likewise
_VARIABLES = (
    *("TPU_ACCELERATOR_TYPE", "ACCELERATOR_TYPE", *SLICE_HOSTS, "TPU_WORKER_ID", "WORKER_ID"),
    *("TPU_TOPOLOGY", "TOPOLOGY", *ADDRESSES),
)


class TpuChip(Struct, frozen=True):
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


class Hardware(Struct, frozen=True):
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
    on_pci, accel = tpu_pci_devices(root), numbered_devices(root, "accel")
    chips, hosts = _count_chips(on_pci) or len(accel), 1
    tpu = f"/{accel[0]}" if accel else f"PCI device {min(on_pci)}" if on_pci else ""
    if chips:
        hosts = _count_hosts(next((environ[name] for name in SLICE_HOSTS if environ.get(name)), ""))
        hosts *= count_slices(environ)
    described = [_word(path) for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information"))]
    models = [re.search(r"^Model:[ \t]*(\S.*)", text, re.MULTILINE) for text in described]
    gpus = [model[1].strip() if model else "NVIDIA GPU" for model in models]
    gpus = gpus or ["NVIDIA GPU"] * len(numbered_devices(root, "nvidia"))
    hidden = []
    if gpus and (listed := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        seen = _visible(gpus, listed)
        hidden += [f"CUDA_VISIBLE_DEVICES={listed} leaves {len(seen)} of {len(gpus)} GPUs."] * (len(seen) < len(gpus))
        gpus = seen
    for name in ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"):
        named = [part for part in environ.get(name, "").split(",") if part.strip()]
        if 0 < len(named) < chips:
            hidden.append(f"{name}={environ[name]} leaves {len(named)} of {chips} chips.")
            chips = len(named)
    return Hardware(tuple(gpus), tpu, _kinds(on_pci), chips, hosts, tuple(hidden))


def count_slices(environ: Mapping[str, str]) -> int:
    """Return the number of TPU slices that train together."""
    listed = environ.get("MEGASCALE_NUM_SLICES", "")
    return max(1, int(listed)) if listed.isdecimal() else 1


def _visible(gpus: list[str], listed: str) -> list[str]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves: CUDA ignores everything from the first unknown one on."""
    seen = []
    for part in map(str.strip, listed.split(",")):
        is_uuid = part.startswith(("GPU-", "MIG-"))  # which one it is matters to no plan
        if not is_uuid and not (part.isdecimal() and int(part) < len(gpus)):
            break
        seen.append(gpus[0 if is_uuid else int(part)])
    return seen


def _count_hosts(listed: str) -> int:
    """Count the hosts of a comma-separated list; Kaggle's ``TPU_PROCESS_ADDRESSES=local`` is one host."""
    return max(1, sum(bool(name) for name in listed.split(",")))


def tpu_pci_devices(root: Path) -> dict[str, TpuChip]:
    """Find the TPU chips on the PCI bus, by their address; network cards and disks of Google have the same vendor.

    The device numbers are those of JAX's `_src/hardware_utils.py` and of google/cloud-accelerator-diagnostics
    (`tpu_info/device.py`); v2 and v3 share one and differ by the subsystem.
    """
    found = {}
    for vendor in sorted(root.glob("sys/bus/pci/devices/*/vendor")):
        if _word(vendor) != _PCI_GOOGLE:
            continue
        device = _word(vendor.with_name("device"))
        if device == "0x0027":
            found[vendor.parent.name] = _V2 if _word(vendor.with_name("subsystem_device")) == "0x004e" else _V3
        elif device in _BY_DEVICE:
            found[vendor.parent.name] = _BY_DEVICE[device]
    return found


def _kinds(on_pci: Mapping[str, TpuChip]) -> str:
    return "/".join(sorted({chip.name for chip in on_pci.values()}))


def _count_chips(on_pci: Iterable[str]) -> int:
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


# The number in an accelerator type counts cores up to v5p, chips from v5e on.
_CORES_IN_TYPE = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2}
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "tpu7x": "7x"}


class Tpu(Struct, frozen=True):
    """The facts about the TPU; unknown ones are 0 or empty."""

    kind: str  # generation, such as ``v5e``
    chips: int
    accelerator_type: str  # Google's name of the whole slice, such as ``v5p-32``
    hosts: int
    host_index: int  # number of this host among them; -1 if unknown
    address: str  # address of a TPU on another machine
    devices: tuple[str, ...]
    evidence: tuple[str, ...]  # the files, variables and attributes that were read

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
    # The attribute has lines such as ``TOPOLOGY: '2x2x4'``.
    pairs = (line.partition(":") for line in metadata.get("tpu-env", "").splitlines() if ":" in line)
    known = {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}
    known |= {name: value for name in _VARIABLES if (value := sources.environ.get(name))}

    def first(*names: str) -> str:
        return next((known[name] for name in names if known.get(name)), "")

    accelerator_type = first("TPU_ACCELERATOR_TYPE", "ACCELERATOR_TYPE") or metadata.get("accelerator-type", "")
    on_pci = tpu_pci_devices(sources.root)
    # A numbered vfio device may be any passed-through card; it counts only with another sign of a TPU.
    vfio = numbered_devices(sources.root, "vfio/") if on_pci or accelerator_type else []
    files = numbered_devices(sources.root, "accel") or vfio
    if not (on_pci or files or accelerator_type or first(*ADDRESSES)):
        return None
    kind = _kinds(on_pci) or _kind_of(accelerator_type)
    index = first("TPU_WORKER_ID", "WORKER_ID") or metadata.get("agent-worker-number", "")
    evidence = [f"/sys/bus/pci/devices: {len(on_pci)} of vendor 0x1ae0, {kind}"] if on_pci else []
    evidence += [_span(files)] if files else []
    evidence += [f"{name}={sources.environ[name]}" for name in _VARIABLES if sources.environ.get(name)]
    evidence += [f"metadata server: {', '.join(metadata)}"] if metadata else []
    return Tpu(
        kind=kind,
        chips=_count_chips(on_pci) or len(files),
        accelerator_type=accelerator_type,
        hosts=_count_hosts(first(*SLICE_HOSTS) or metadata.get("worker-network-endpoints", "")),
        host_index=int(index) if index.isdigit() else -1,
        address=first(*ADDRESSES),
        devices=tuple(f"/{name}" for name in files),
        evidence=tuple(evidence),
    )


def _span(files: Sequence[str]) -> str:
    if len(files) > 2:
        return f"/{files[0]} to /{files[-1]}"
    return " and ".join(f"/{name}" for name in files)


def _kind_of(accelerator_type: str) -> str:
    name = accelerator_type.rpartition("-")[0].lower()
    name = _ALIASES.get(name, name)
    return name if name in CHIPS else ""


# Attributes of the metadata server that only a TPU VM has.
_ATTRIBUTES = ("accelerator-type", "agent-worker-number", "worker-network-endpoints", "tpu-env")
_KAGGLE = {"KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_DOCKER_IMAGE", "KAGGLE_URL_BASE"}
_COLAB = {"COLAB_RELEASE_TAG", "COLAB_BACKEND_VERSION", "COLAB_GPU", "COLAB_TPU_ADDR"}
_GKE = {"TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY"}


class Kind(StrEnum):
    """The kinds of machines."""

    COLAB = "Colab"
    KAGGLE = "Kaggle"
    GKE = "GKE"
    KUBERNETES = "Kubernetes"
    TPU_VM = "TPU VM"
    GOOGLE_VM = "Google Cloud VM"
    MACHINE = "plain machine"


class ThisMachine(Struct, frozen=True):
    """The kind of this machine."""

    kind: Kind
    detail: str = ""  # ``interactive`` or ``committed`` on Kaggle; empty elsewhere

    @property
    def is_notebook(self) -> bool:
        """Whether this is a notebook service, which manages packages and restarts."""
        return self.kind in (Kind.COLAB, Kind.KAGGLE)

    def __str__(self) -> str:
        return f"{self.kind.value}, {self.detail}" if self.detail else self.kind.value


def read_metadata(sources: Sources) -> dict[str, str]:
    """Ask the metadata server about the TPU, except in notebooks, outside Google Cloud, or if it is to be skipped."""
    if find_service(sources.environ) is not None or "TPU_SKIP_MDS_QUERY" in sources.environ or not _is_googles(sources):
        return {}
    first = sources.metadata(_ATTRIBUTES[0])
    if first is None:  # no TPU VM or no server
        return {}
    answers = {key: sources.metadata(key) for key in _ATTRIBUTES[1:]}
    return {_ATTRIBUTES[0]: first.strip()} | {key: text.strip() for key, text in answers.items() if text is not None}


def find_place(sources: Sources, metadata: Mapping[str, str]) -> ThisMachine:
    """Find out what kind of machine this is."""
    if (service := find_service(sources.environ)) is not None:
        return service
    is_googles = _is_googles(sources)
    if "KUBERNETES_SERVICE_HOST" in sources.environ:
        return ThisMachine(Kind.GKE if is_googles or _GKE & sources.environ.keys() else Kind.KUBERNETES)
    if not is_googles:
        return ThisMachine(Kind.MACHINE)
    return ThisMachine(Kind.TPU_VM if metadata or tpu_pci_devices(sources.root) else Kind.GOOGLE_VM)


def find_service(environ: Mapping[str, str]) -> ThisMachine | None:
    """Recognize Kaggle and Colab. Kaggle first: its images are built from Colab's and have Colab's variables."""
    if _KAGGLE & environ.keys():
        run_type = environ.get("KAGGLE_KERNEL_RUN_TYPE", "")
        return ThisMachine(Kind.KAGGLE, {"Interactive": "interactive", "Batch": "committed"}.get(run_type, ""))
    return ThisMachine(Kind.COLAB) if _COLAB & environ.keys() else None


def _is_googles(sources: Sources) -> bool:
    return "Google" in sources.text("sys/class/dmi/id/product_name")
