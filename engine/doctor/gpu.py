"""Checks of the GPUs, and of a machine that has neither GPU nor TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import Finding, Severity
from ..machine.packages import CUDA_PLUGINS
from .check import install_command, not_checked, result_of

if TYPE_CHECKING:
    from ..machine.environment import Environment

_WITH_CUDA = ("tensorflow", "tf-nightly")


def check_gpu(facts: Environment) -> Finding | None:
    """Report the GPUs."""
    gpus, title = facts.gpus, "GPU"
    if "gpus" in facts.unanswered:
        return not_checked("gpu", title, facts, "gpus")
    if gpus is None:
        return None
    driver = f", driver {gpus.driver}" if gpus.driver else ""
    return result_of("gpu", title, Severity.OK, f"{gpus}{driver}.", gpus.evidence)


def check_tensorflow_gpu(facts: Environment) -> Finding | None:
    """Check that TensorFlow is built with CUDA and that the CUDA libraries are installed."""
    gpus, packages, title = facts.gpus, facts.packages, "TensorFlow on the GPU"
    if gpus is None or packages is None or not packages.tensorflows:
        return None
    built = [package for package in packages.tensorflows if package.name in _WITH_CUDA]
    if not built:
        other = packages.tensorflows[0]
        text = f"{other.name} is built without CUDA, so TensorFlow trains on the CPU."
        command = f"pip uninstall -y {other.name} && pip install 'tensorflow[and-cuda]'"
        return result_of("gpu-tensorflow", title, Severity.WARNING, text, (f"{other.name} {other.version}",), command)
    version = f"{built[0].name} {built[0].version}"
    places = tuple(f"{name}: {place}" for name, place in gpus.libraries)
    if gpus.missing:
        text = f"CUDA libraries are missing: {', '.join(gpus.missing)}. TensorFlow cannot use the GPU without them."
        command = install_command(facts, f"{built[0].name}[and-cuda]=={built[0].version}")
        return result_of("gpu-tensorflow", title, Severity.ERROR, text, (version, *places), command)
    return result_of("gpu-tensorflow", title, Severity.OK, "The CUDA libraries are installed.", (version, *places))


def check_jax_gpu(facts: Environment) -> Finding | None:
    """Check that JAX, if installed, has its CUDA plugin."""
    gpus, packages, title = facts.gpus, facts.packages, "JAX on the GPU"
    if gpus is None or packages is None or not packages.version("jax"):
        return None
    found = [f"{name} {packages.version(name)}" for name in ("jax", *CUDA_PLUGINS) if packages.version(name)]
    if len(found) > 1:
        return result_of("gpu-jax", title, Severity.OK, "The CUDA plugin of JAX is installed.", tuple(found))
    text = "The CUDA plugin of JAX is missing, so JAX trains on the CPU."
    command = install_command(facts, "jax[cuda12]")
    return result_of("gpu-jax", title, Severity.INFO, text, tuple(found), command)


def check_no_accelerator(facts: Environment) -> Finding | None:
    """Report that training runs on the CPU."""
    if facts.tpu is not None or facts.gpus is not None or "gpus" in facts.unanswered:
        return None
    text = "No TPU and no NVIDIA GPU was found; training runs on the CPU."
    if facts.place.is_notebook:
        text += " You can choose an accelerator in the notebook's settings."
    evidence = ("none in /sys/bus/pci/devices, /dev/accel*, /dev/nvidia* and /proc/driver/nvidia",)
    return result_of("no-accelerator", "Accelerator", Severity.INFO, text, evidence)


CHECKS = (check_gpu, check_tensorflow_gpu, check_jax_gpu, check_no_accelerator)
