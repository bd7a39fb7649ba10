"""Checks of the packages: are they there, and do their versions fit together by what they say themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from .check import Finding, Verdict, could_not_tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..machine.environment import Environment
    from ..machine.packages import Misfit

# tensorflow-hub 0.16.1 and before import pkg_resources, which setuptools 82 dropped (tensorflow/hub#934).
_HUB_NEEDS_PKG_RESOURCES, _SETUPTOOLS_WITHOUT = Version("0.16.1"), Version("82")
_METADATA = ("metadata of the installed packages",)


def check_tensorflow(facts: Environment) -> Finding | None:
    """Check that there is one TensorFlow and that Keras fits it."""
    packages, title = facts.packages, "TensorFlow"
    if packages is None:
        return could_not_tell("tensorflow", title, facts, "packages")
    found = packages.tensorflows
    if not found:
        text = "TensorFlow is not installed. Training reads its data with tf.data, with the JAX backend too."
        return Finding("tensorflow", title, Verdict.PROBLEM, text, _METADATA, "pip install tensorflow")
    evidence = tuple(f"{package.name} {package.version}" for package in found)
    if len(found) == 1:
        return Finding("tensorflow", title, Verdict.OK, f"{evidence[0]}.", _METADATA)
    tpu = facts.tpu is not None and (facts.tpu.is_here or bool(facts.tpu.address))
    keep = next((p for p in found if (p.name == "tensorflow-tpu") == tpu), found[0])
    gone = " ".join(package.name for package in found if package is not keep)
    text = (
        f"{' and '.join(package.name for package in found)} are installed and write the same files: "
        "what is imported is a mixture of them."
    )
    command = f"pip uninstall -y {gone} && pip install --force-reinstall --no-deps {keep.name}=={keep.version}"
    return Finding("tensorflow", title, Verdict.PROBLEM, text, evidence, command)


def check_keras(facts: Environment) -> Finding | None:
    """Check that Keras is version 3, and one that TensorFlow accepts."""
    packages, title = facts.packages, "Keras"
    if packages is None:
        return None  # said by check_tensorflow
    keras = packages.version("keras")
    if not keras:
        text = "Keras is not installed."
        return Finding("keras", title, Verdict.PROBLEM, text, _METADATA, "pip install 'keras>=3.7'")
    if keras.startswith(("1.", "2.")):
        text = f"Keras {keras} is too old: this console trains with Keras 3."
        return Finding("keras", title, Verdict.PROBLEM, text, (f"keras {keras}",), "pip install --upgrade keras")
    misfits = [m for package in packages.tensorflows for m in packages.misfits(package.name, "keras")]
    if misfits:
        return _misfit("keras", title, misfits, Verdict.PROBLEM)
    owners = [(package.name, packages.asks(package.name, "keras")) for package in packages.tensorflows]
    asked = tuple(f"{name} asks for {text}" for name, text in owners if text)
    return Finding("keras", title, Verdict.OK, f"keras {keras}.", asked or _METADATA)


def check_libtpu(facts: Environment) -> Finding | None:
    """Check libtpu against the TensorFlow or the JAX that would load it."""
    packages, title = facts.packages, "libtpu"
    if packages is None or not (libtpu := packages.version("libtpu")):
        return None
    for_tensorflow = packages.misfits("tensorflow-tpu", "libtpu")
    for_jax = packages.misfits("jax", "libtpu", extra="tpu")
    if for_tensorflow:
        return _misfit("libtpu", title, for_tensorflow, Verdict.PROBLEM)
    if for_jax:
        needed = facts.tpu is not None and facts.tpu.is_here and not packages.version("tensorflow-tpu")
        return _misfit("libtpu", title, for_jax, Verdict.PROBLEM if needed else Verdict.WARNING)
    asked = {
        "tensorflow-tpu": packages.asks("tensorflow-tpu", "libtpu"),
        "jax[tpu]": packages.asks("jax", "libtpu", extra="tpu"),
    }
    told = tuple(f"{name} asks for {text}" for name, text in asked.items() if text)
    return Finding("libtpu", title, Verdict.OK, f"libtpu {libtpu}.", told)


def check_jax(facts: Environment) -> Finding | None:
    """Check jaxlib against JAX."""
    packages, title = facts.packages, "JAX"
    if packages is None or not (jax := packages.version("jax")):
        return None
    if misfits := packages.misfits("jax", "jaxlib"):
        return _misfit("jax", title, misfits, Verdict.PROBLEM)
    jaxlib, asked = packages.version("jaxlib"), packages.asks("jax", "jaxlib")
    if not jaxlib:
        text = "jax is installed, jaxlib is not."
        return Finding("jax", title, Verdict.PROBLEM, text, (f"jax {jax}",), f"pip install 'jax=={jax}'")
    told = (f"jax asks for {asked}",) if asked else ()
    return Finding("jax", title, Verdict.OK, f"jax {jax}, jaxlib {jaxlib}.", told)


def check_hub(facts: Environment) -> Finding | None:
    """Check setuptools against TensorFlow Hub."""
    packages, title = facts.packages, "TensorFlow Hub"
    if packages is None or not (hub := packages.version("tensorflow-hub")):
        return None
    setuptools = packages.version("setuptools")
    evidence = (f"tensorflow-hub {hub}", f"setuptools {setuptools}" if setuptools else "setuptools is not installed")
    if _version(hub) > _HUB_NEEDS_PKG_RESOURCES or (setuptools and _version(setuptools) < _SETUPTOOLS_WITHOUT):
        return Finding(
            "hub-setuptools", title, Verdict.OK, "It finds the pkg_resources that it needs, or needs none.", evidence
        )
    text = f"tensorflow-hub {hub} imports pkg_resources, which setuptools has only before version 82."
    return Finding("hub-setuptools", title, Verdict.PROBLEM, text, evidence, "pip install 'setuptools<82'")


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _misfit(check: str, title: str, misfits: Sequence[Misfit], verdict: Verdict) -> Finding:
    first = misfits[0]
    have = f"{first.found} is installed" if first.found else "it is not installed"
    text = f"{first.owner} asks for {first.requirement}, and {have}."
    evidence = tuple(f"requirements of {misfit.owner}" for misfit in misfits)
    return Finding(check, title, verdict, text, evidence, f"pip install '{first.requirement}'")


CHECKS = (check_tensorflow, check_keras, check_jax, check_libtpu, check_hub)
