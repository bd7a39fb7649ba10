"""The kind of machine: a notebook service, a TPU VM, a cluster, a plain machine.

Sources of the names: Kaggle/docker-python (`tpu/Dockerfile`), googlecolab/backend-info, JAX's
`_src/clusters/cloud_tpu_cluster.py`, and "TPUs in GKE" of Google's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .devices import tpu_pci_devices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sources import Sources

# Attributes of the metadata server that only a TPU VM has.
_ATTRIBUTES = ("accelerator-type", "agent-worker-number", "worker-network-endpoints", "tpu-env")
_PRODUCT = "sys/class/dmi/id/product_name"


class Kind(StrEnum):
    """The kinds of machines."""

    COLAB = "Colab"
    KAGGLE = "Kaggle"
    GKE = "GKE"
    KUBERNETES = "Kubernetes"
    TPU_VM = "TPU VM"
    GOOGLE_VM = "Google Cloud VM"
    MACHINE = "plain machine"


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """The kind of this machine, and what shows it."""

    kind: Kind
    detail: str = ""  # ``interactive`` or ``committed`` on Kaggle; empty elsewhere
    evidence: tuple[str, ...] = ()  # the variables and files that were read

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


def find_place(sources: Sources, metadata: dict[str, str]) -> ThisMachine:
    """Find out what kind of machine this is."""
    if (service := find_service(sources.environ)) is not None:
        return service
    product = sources.text(_PRODUCT)
    machine = (f"/{_PRODUCT}: {product}",) if product else ()
    if "KUBERNETES_SERVICE_HOST" in sources.environ:
        names = ("KUBERNETES_SERVICE_HOST", "TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY")
        said = [_said(sources.environ, name) for name in names if name in sources.environ]
        is_gke = _is_googles(sources) or len(said) > 1
        return ThisMachine(Kind.GKE if is_gke else Kind.KUBERNETES, "", (*said, *machine))
    if not _is_googles(sources):
        return ThisMachine(Kind.MACHINE, "", machine)
    if metadata:
        evidence = f"metadata server: accelerator-type = {metadata['accelerator-type']}"
        return ThisMachine(Kind.TPU_VM, "", (*machine, evidence))
    if chips := tpu_pci_devices(sources.root):
        return ThisMachine(Kind.TPU_VM, "", (*machine, f"/sys/bus/pci/devices/{min(chips)}: a TPU chip"))
    return ThisMachine(Kind.GOOGLE_VM, "", machine)


def find_service(environ: Mapping[str, str]) -> ThisMachine | None:
    """Recognise Kaggle and Colab. Kaggle first: its images are built from Colab's and have Colab's variables."""
    kaggle = [n for n in ("KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_DOCKER_IMAGE", "KAGGLE_URL_BASE") if n in environ]
    if kaggle:
        run_type = environ.get("KAGGLE_KERNEL_RUN_TYPE", "")
        detail = {"Interactive": "interactive", "Batch": "committed"}.get(run_type, "")
        return ThisMachine(Kind.KAGGLE, detail, (_said(environ, kaggle[0]),))
    colab = [n for n in ("COLAB_RELEASE_TAG", "COLAB_BACKEND_VERSION", "COLAB_GPU", "COLAB_TPU_ADDR") if n in environ]
    if colab:
        return ThisMachine(Kind.COLAB, "", (_said(environ, colab[0]),))
    return None


def _is_googles(sources: Sources) -> bool:
    return "Google" in sources.text(_PRODUCT)


def _said(environ: Mapping[str, str], name: str) -> str:
    return f"{name}={environ[name]}"
