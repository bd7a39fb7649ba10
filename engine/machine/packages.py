"""Versions and requirements of installed packages, read from their metadata without importing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sources import Package, Sources

# These packages share the folder tensorflow/, so only one of them can be intact.
TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly", "tf-nightly-cpu", "tf-nightly-tpu")
CUDA_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
_OTHERS = ("keras", "jax", "jaxlib", "libtpu", "libtpu-nightly", "tensorflow-hub", "setuptools")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A requirement that the installed packages do not meet."""

    owner: str  # the package with the requirement, and its version
    requirement: str  # the requirement, such as ``libtpu==0.0.10``
    found: str  # the installed version; empty for none


@dataclass(frozen=True)
class Packages:
    """The installed packages that matter for training."""

    found: Mapping[str, Package]
    python: str

    def version(self, name: str) -> str:
        """Return the version of a package; empty if it is not installed."""
        package = self.found.get(name)
        return package.version if package is not None else ""

    @property
    def libtpu(self) -> str:
        """The TPU's runtime with its version; empty for none. JAX up to 0.4 uses the nightly one."""
        return next((f"{n} {self.version(n)}" for n in ("libtpu", "libtpu-nightly") if self.version(n)), "")

    @property
    def tensorflows(self) -> tuple[Package, ...]:
        """The installed TensorFlow packages."""
        return tuple(self.found[name] for name in TENSORFLOWS if name in self.found)

    def misfits(self, owner: str, target: str, extra: str = "") -> tuple[Misfit, ...]:
        """Return the requirements of one package on another, or of its extra such as ``tpu``, that are not met."""
        if (package := self.found.get(owner)) is None:
            return ()
        have = self.version(target)
        misfits = []
        for text in package.requires:
            requirement = _parse(text)
            if requirement is None or _plain(requirement.name) != target or not _applies(requirement, extra):
                continue
            if not have or not requirement.specifier.contains(have, prereleases=True):
                asked = f"{target}{requirement.specifier}"
                misfits.append(Misfit(f"{owner} {package.version}", asked, have))
        return tuple(misfits)

    def asks(self, owner: str, target: str, extra: str = "") -> str:
        """Return the requirement of one package on another, such as ``libtpu~=0.0.14``; empty for none."""
        package = self.found.get(owner)
        parsed = [_parse(text) for text in package.requires] if package is not None else []
        of_target = [r for r in parsed if r is not None and _plain(r.name) == target and _applies(r, extra)]
        return ", ".join(f"{target}{requirement.specifier}" for requirement in of_target)


def find_packages(sources: Sources) -> Packages:
    """Read the versions and requirements of the packages that matter for training."""
    looked = ((name, sources.package(name)) for name in (*TENSORFLOWS, *CUDA_PLUGINS, *_OTHERS))
    return Packages({name: package for name, package in looked if package is not None}, sources.python)


def _parse(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _applies(requirement: Requirement, extra: str) -> bool:
    if requirement.marker is None:
        return not extra
    return requirement.marker.evaluate({"extra": extra}) and (not extra or "extra" in str(requirement.marker))
