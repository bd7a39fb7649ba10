"""Checks of the GPUs, and of a machine that has neither GPU nor TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine.packages import CUDA_PLUGINS
from .check import Finding, Verdict, could_not_tell

if TYPE_CHECKING:
    from ..machine.environment import Environment

_WITH_CUDA = ("tensorflow", "tf-nightly")


def check_gpu(facts: Environment) -> Finding | None:
    """Say which GPUs are here."""
    gpus, title = facts.gpus, "GPU"
    if "gpus" in facts.unanswered:
        return could_not_tell("gpu", title, facts, "gpus")
    if gpus is None:
        return None
    driver = f", driver {gpus.driver}" if gpus.driver else ""
    return Finding("gpu", title, Verdict.OK, f"{gpus}{driver}.", gpus.evidence)


def check_tensorflow_gpu(facts: Environment) -> Finding | None:
    """Check that TensorFlow is built for CUDA and that CUDA's libraries are there."""
    gpus, packages, title = facts.gpus, facts.packages, "TensorFlow on the GPU"
    if gpus is None or packages is None or not packages.tensorflows:
        return None
    built = [package for package in packages.tensorflows if package.name in _WITH_CUDA]
    if not built:
        other = packages.tensorflows[0]
        text = f"{other.name} is built without CUDA: TensorFlow trains on the CPU here."
        command = f"pip uninstall -y {other.name} && pip install 'tensorflow[and-cuda]'"
        return Finding("gpu-tensorflow", title, Verdict.WARNING, text, (f"{other.name} {other.version}",), command)
    version = f"{built[0].name} {built[0].version}"
    places = tuple(f"{name}: {place}" for name, place in gpus.libraries)
    if gpus.missing:
        text = f"CUDA libraries are missing: {', '.join(gpus.missing)}. TensorFlow does not see the GPU without them."
        command = f"pip install '{built[0].name}[and-cuda]=={built[0].version}'"
        return Finding("gpu-tensorflow", title, Verdict.PROBLEM, text, (version, *places), command)
    return Finding("gpu-tensorflow", title, Verdict.OK, "CUDA's libraries are there.", (version, *places))


def check_jax_gpu(facts: Environment) -> Finding | None:
    """Check that JAX, where it is installed, has its CUDA plugin."""
    gpus, packages, title = facts.gpus, facts.packages, "JAX on the GPU"
    if gpus is None or packages is None or not packages.version("jax"):
        return None
    found = [f"{name} {packages.version(name)}" for name in ("jax", *CUDA_PLUGINS) if packages.version(name)]
    if len(found) > 1:
        return Finding("gpu-jax", title, Verdict.OK, "JAX has its CUDA plugin.", tuple(found))
    text = "JAX has no CUDA plugin and trains on the CPU."
    return Finding("gpu-jax", title, Verdict.NOTE, text, tuple(found), "pip install 'jax[cuda12]'")


def check_no_accelerator(facts: Environment) -> Finding | None:
    """Say that training is the CPU's matter here."""
    if facts.tpu is not None or facts.gpus is not None or "gpus" in facts.unanswered:
        return None
    text = "Neither a TPU nor an NVIDIA GPU is here; training runs on the CPU."
    if facts.place.is_notebook:
        text += " The notebook's settings offer accelerators."
    evidence = ("/sys/bus/pci/devices", "/dev/accel*", "/dev/nvidia*", "/proc/driver/nvidia")
    return Finding("no-accelerator", "Accelerator", Verdict.NOTE, text, evidence)


CHECKS = (check_gpu, check_tensorflow_gpu, check_jax_gpu, check_no_accelerator)
