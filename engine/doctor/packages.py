"""Checks that the packages are installed and that their versions meet each other's requirements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..findings import Finding, Severity
from ..machine.install import tensorflow_for
from ..machine.packages import NEW_LIBTPU, Misfit
from .check import install_command, not_checked, result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..machine.environment import Environment

_METADATA = ("metadata of the installed packages",)


def check_tensorflow(facts: Environment) -> Finding | None:
    """Check that exactly one TensorFlow is installed."""
    packages, title = facts.packages, "TensorFlow"
    if packages is None:
        return not_checked("tensorflow", title, facts, "packages")
    found = packages.tensorflows
    if not found:
        text = "TensorFlow is not installed. Training reads data with tf.data, whatever the backend."
        has_tpu, has_gpu = facts.tpu is not None and facts.tpu.is_here, facts.gpus is not None
        name = tensorflow_for(has_tpu=has_tpu, has_gpu=has_gpu, is_notebook=facts.place.is_notebook)
        return result_of("tensorflow", title, Severity.ERROR, text, _METADATA, install_command(facts, name))
    evidence = tuple(f"{package.name} {package.version}" for package in found)
    if len(found) == 1:
        return result_of("tensorflow", title, Severity.OK, f"{evidence[0]}.", _METADATA)
    if packages.has_one_tensorflow:
        text = f"{' and '.join(evidence)} share a folder, and have the same version."
        return result_of("tensorflow", title, Severity.OK, text, evidence)
    tpu = facts.tpu is not None and (facts.tpu.is_here or bool(facts.tpu.address))
    keep = next((p for p in found if (p.name == "tensorflow-tpu") == tpu), found[0])
    gone = " ".join(package.name for package in found if package is not keep)
    text = (
        f"{' and '.join(package.name for package in found)} are installed into the same folder, "
        "so the imported TensorFlow is a mixture of them."
    )
    command = f"pip uninstall -y {gone} && pip install --force-reinstall --no-deps {keep.name}=={keep.version}"
    return result_of("tensorflow", title, Severity.ERROR, text, evidence, command)


def check_keras(facts: Environment) -> Finding | None:
    """Check that Keras is version 3 and meets TensorFlow's requirement."""
    packages, title = facts.packages, "Keras"
    if packages is None:
        return None  # check_tensorflow reports it
    keras = packages.version("keras")
    if not keras:
        text = "Keras is not installed."
        return result_of("keras", title, Severity.ERROR, text, _METADATA, "pip install 'keras>=3.7'")
    if keras.startswith(("1.", "2.")):
        text = f"Keras {keras} is too old; Keras 3 is needed."
        return result_of("keras", title, Severity.ERROR, text, (f"keras {keras}",), "pip install 'keras>=3.7'")
    misfits = [m for package in packages.tensorflows for m in packages.misfits(package.name, "keras")]
    if misfits:
        return _misfit("keras", title, misfits, Severity.ERROR)
    owners = [(package.name, packages.asks(package.name, "keras")) for package in packages.tensorflows]
    asked = tuple(f"{name} requires {text}" for name, text in owners if text)
    return result_of("keras", title, Severity.OK, f"keras {keras}.", asked or _METADATA)


def check_libtpu(facts: Environment) -> Finding | None:
    """Check libtpu against the requirements of TensorFlow and JAX."""
    packages, title = facts.packages, "libtpu"
    if packages is None or not (libtpu := packages.version("libtpu")):
        return None
    for_tensorflow = packages.misfits("tensorflow-tpu", "libtpu")
    for_jax = packages.misfits("jax", "libtpu", extra="tpu")
    if for_tensorflow:
        found = _misfit("libtpu", title, for_tensorflow, Severity.ERROR)
        if NEW_LIBTPU not in for_tensorflow[0].requirement:
            return found
        return replace(found, text=f"{found.text} With libtpu {NEW_LIBTPU} or newer, importing TensorFlow aborts.")
    if for_jax and facts.place.is_notebook:
        text = (
            f"{facts.place.kind.value} ships libtpu {libtpu}; {for_jax[0].owner} was released for "
            f"{for_jax[0].requirement}. Leave it: the other packages of this image may need it."
        )
        return result_of("libtpu", title, Severity.INFO, text, (f"jax[tpu] requires {for_jax[0].requirement}",))
    if for_jax:
        needed = facts.tpu is not None and facts.tpu.is_here and not packages.version("tensorflow-tpu")
        return _misfit("libtpu", title, for_jax, Severity.ERROR if needed else Severity.WARNING)
    asked = {
        "tensorflow-tpu": packages.asks("tensorflow-tpu", "libtpu"),
        "jax[tpu]": packages.asks("jax", "libtpu", extra="tpu"),
    }
    required = tuple(f"{name} requires {text}" for name, text in asked.items() if text)
    return result_of("libtpu", title, Severity.OK, f"libtpu {libtpu}.", required)


def check_jax(facts: Environment) -> Finding | None:
    """Check jaxlib against JAX's requirement."""
    packages, title = facts.packages, "JAX"
    if packages is None or not (jax := packages.version("jax")):
        return None
    if misfits := packages.misfits("jax", "jaxlib"):
        return _misfit("jax", title, misfits, Severity.ERROR)
    jaxlib, asked = packages.version("jaxlib"), packages.asks("jax", "jaxlib")
    if not jaxlib:
        text = "jax is installed, but jaxlib is not."
        return result_of("jax", title, Severity.ERROR, text, (f"jax {jax}",), f"pip install 'jax=={jax}'")
    required = (f"jax requires {asked}",) if asked else ()
    return result_of("jax", title, Severity.OK, f"jax {jax}, jaxlib {jaxlib}.", required)


def _misfit(check: str, title: str, misfits: Sequence[Misfit], severity: Severity) -> Finding:
    first = misfits[0]
    have = f"{first.found} is installed" if first.found else "it is not installed"
    text = f"{first.owner} requires {first.requirement}, but {have}."
    evidence = tuple(f"requirements of {misfit.owner}" for misfit in misfits)
    return result_of(check, title, severity, text, evidence, f"pip install '{first.requirement}'")


CHECKS = (check_tensorflow, check_keras, check_jax, check_libtpu)
