"""The kind of machine: a notebook service, a TPU VM, a cluster, a plain machine.

Sources of the names: Kaggle/docker-python (`tpu/Dockerfile`), googlecolab/backend-info, JAX's
`_src/clusters/cloud_tpu_cluster.py`, and "TPUs in GKE" of Google's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from .devices import tpu_pci_devices

if TYPE_CHECKING:
    from .sources import Sources

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
