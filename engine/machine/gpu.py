"""The GPUs of this machine, their driver, and the CUDA libraries that frameworks need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .devices import detect_hardware

if TYPE_CHECKING:
    from .sources import Sources

_ASK = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_FOLDERS = (
    "usr/local/cuda/lib64",
    "usr/local/cuda-*/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib64-nvidia",
)
# TensorFlow and JAX load these two first; other libraries come with them. The packages of CUDA 12 are named in
# TensorFlow's extra and-cuda and required by jax-cuda12-plugin; those of CUDA 13 dropped the suffix.
_LIBRARIES = {
    "libcudart": ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
    "libcudnn": ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
}


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs."""

    names: tuple[str, ...] = ()
    memory_mib: tuple[int, ...] = ()  # memory of each, from nvidia-smi; empty if it does not answer
    driver: str = ""  # version of the kernel driver; empty if none is loaded
    libraries: tuple[tuple[str, str], ...] = ()  # the CUDA libraries that were found, each with its place
    evidence: tuple[str, ...] = ()  # the files and programs that were read

    @property
    def missing(self) -> tuple[str, ...]:
        """The CUDA libraries that were not found."""
        there = dict(self.libraries)
        return tuple(name for name in _LIBRARIES if name not in there)

    def __str__(self) -> str:
        memory = f", {self.memory_mib[0] / 1024:.0f} GiB" if self.memory_mib else ""
        memory += " each" if memory and len(self.names) > 1 else ""
        return (f"{len(self.names)} × " if len(self.names) > 1 else "") + self.names[0] + memory


def find_gpus(sources: Sources) -> Gpus | None:
    """Find the NVIDIA GPUs; None if there are none."""
    names = detect_hardware(sources.root, {}).gpus  # also those that a variable hides
    if not names:
        return None
    kernel = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", sources.text("proc/driver/nvidia/version"))
    named = (sources.root / "proc/driver/nvidia/gpus").is_dir()
    evidence = ["/proc/driver/nvidia/gpus" if named else "/dev/nvidia0"]
    memory: tuple[int, ...] = ()
    if answer := sources.run(_ASK):
        rows = [line.rpartition(",") for line in answer.splitlines() if "," in line]
        memory = tuple(int(mib) for _, _, mib in rows if mib.strip().isdigit())
        names = tuple(name.strip() for name, _, _ in rows) or names
        evidence.append("nvidia-smi")
    if kernel is not None:
        evidence.append("/proc/driver/nvidia/version")
    return Gpus(names, memory, kernel[1] if kernel else "", _libraries(sources), tuple(evidence))


def _libraries(sources: Sources) -> tuple[tuple[str, str], ...]:
    extra = [path.lstrip("/") for path in sources.environ.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]
    found = {}
    for library, packages in _LIBRARIES.items():
        for name in packages:
            if (package := sources.package(name)) is not None:
                found[library] = f"{name} {package.version}"
        if library not in found:
            files = (path for folder in (*extra, *_FOLDERS) for path in sources.root.glob(f"{folder}/{library}.so*"))
            if (path := next(files, None)) is not None:
                found[library] = f"/{path.relative_to(sources.root)}"
    return tuple(found.items())
