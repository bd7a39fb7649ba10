"""Chooses the Keras backend of a run, and says why.

Two backends can use a TPU. Today's Colab and Kaggle runtimes have JAX, and a TensorFlow without TPU operations; a TPU
VM with ``tensorflow-tpu`` has `TPUStrategy`. Without a TPU, TensorFlow is the default: on a CPU it trains a small CNN 9
times faster than JAX. Nothing here loads a framework, so the plan can use it at every key press. The process that
trains calls `prepare` before it imports Keras, which reads its backend at import.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..config.values import AcceleratorKind, parse_accelerator
from ..errors import AcceleratorError, ConsoleError
from ..machine.devices import ADDRESSES, Hardware
from ..machine.install import JAX_ON_TPU, install_line, tensorflow_here
from ..machine.packages import NEW_LIBTPU, TF_BUILDS, aborting_libtpu
from ..sanitize import printable
from ..storage.files import read_json
from ..storage.paths import keras_home, user_path
from .jax import Jax
from .table import FRAMEWORKS
from .tensorflow import TensorFlow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..config.run_config import RunConfig
    from .accelerator import Accelerator
    from .framework import Framework

TENSORFLOW, JAX = TensorFlow.name, Jax.name

_ON_CPU = (AcceleratorKind.CPU, AcceleratorKind.SIMULATED)
_LARGEST_SETTINGS = 1 << 20  # bytes of Keras's settings
_SEVERAL_HOSTS = "several hosts train together with JAX only"


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """How a run reaches its accelerator."""

    backend: str  # ``tensorflow`` or ``jax``
    why: str  # why this one, in a few words
    accelerator: str  # what the configuration asks for, with ``auto`` replaced by ``tpu`` if a TPU is used
    missing: str = ""  # why it cannot be used here; empty if nothing is known against it
    remedy: str = ""  # what to do about it
    install: tuple[str, ...] = ()  # packages that its backend lacks
    lacks_tensorflow: bool = False  # whether no other setting would help: TensorFlow reads the data of every run
    notes: tuple[str, ...] = ()  # variables and files that ask for something else, and why they are not followed

    @property
    def framework(self) -> Framework:
        """The framework of its backend."""
        return FRAMEWORKS[self.backend]


@cache
def is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    try:
        version(package)
    except PackageNotFoundError:
        return find_spec(package) is not None if package.isidentifier() else False
    return True


def choose_backend(
    config: RunConfig,
    hardware: Hardware,
    has: Callable[[str], bool] = is_installed,
    environ: Mapping[str, str] = os.environ,
) -> BackendChoice:
    """Choose the backend of a run, and say what it needs that is not installed."""
    choice = _follow_keras(config, hardware, has, environ)
    platforms = environ.get("JAX_PLATFORMS") or "cpu"
    if choice.backend == JAX and config.requested.kind in _ON_CPU and "cpu" not in platforms.split(","):
        note = f"JAX_PLATFORMS={platforms} is not followed: accelerator={config.accelerator}."
        choice = replace(choice, notes=(*choice.notes, note))
    missing, packages = [choice.missing] if choice.missing else [], [*choice.install]
    choice = replace(choice, lacks_tensorflow=not any(has(name) for name in TF_BUILDS))
    if choice.lacks_tensorflow:
        missing.append("TensorFlow is not installed; it reads the data of every run, also with JAX.")
        packages.append(tensorflow_here(hardware, environ))
    elif has("tensorflow-tpu") and (aborting := aborting_libtpu()):
        missing.append(f"TensorFlow cannot be imported with {aborting}, which is too new for tensorflow-tpu.")
        packages.append(f"libtpu<{NEW_LIBTPU}")
    if config.model == "hub" and not has("tensorflow-hub"):
        missing.append("TensorFlow Hub is not installed.")
        packages.append("tensorflow-hub")
    if choice.remedy or not missing:
        return choice
    remedy = f"To install it here: {install_line(*packages, environ=environ)}"
    return replace(choice, missing=" ".join(missing), remedy=remedy)


def _follow_keras(
    config: RunConfig, hardware: Hardware, has: Callable[[str], bool], environ: Mapping[str, str]
) -> BackendChoice:
    """Choose the backend; under ``auto`` the one that Keras is set to, unless the run cannot use it."""
    choice = _choose(config, hardware, has, environ)
    wished, said = _keras_setting(environ)
    # The file that Keras writes itself says tensorflow.
    if wished in {"", choice.backend} or (wished == TENSORFLOW and not environ.get("KERAS_BACKEND")):
        return choice
    if why_not := _why_not_followed(wished, config, hardware, choice, has):
        return replace(choice, notes=(f"{said} is not followed: {why_not}.",))
    changed = _choose(config.model_copy(update={"backend": wished}), hardware, has, environ)
    return replace(changed, why=said)


def _why_not_followed(
    wished: str, config: RunConfig, hardware: Hardware, choice: BackendChoice, has: Callable[[str], bool]
) -> str:
    """Say why a run cannot use the backend that Keras is set to, in a few words; empty if it can."""
    if wished not in {TENSORFLOW, JAX}:
        return "runs train on TensorFlow or JAX"
    if config.backend != "auto":
        return f"the run asks for {config.backend}"
    if config.hosts.is_several:
        return _SEVERAL_HOSTS
    if wished == JAX:
        remote = _is_tpu(choice) and not hardware.tpu
        return config.only_backend[1] or ("only TensorFlow can use a TPU on another machine" if remote else "")
    return "TensorFlow is built without TPU operations here" if _is_tpu(choice) and not has("tensorflow-tpu") else ""


def _is_tpu(choice: BackendChoice) -> bool:
    return parse_accelerator(choice.accelerator).is_tpu


def _keras_setting(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the backend that Keras would take, and where that is set; empty if nowhere."""
    if name := environ.get("KERAS_BACKEND"):
        return name, f"KERAS_BACKEND={name}"
    file = keras_home(environ) / "keras.json"
    try:
        name = printable(str(read_json(file, _LARGEST_SETTINGS, follows_links=True)["backend"]))
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""
    return name, f"backend={name} in {user_path(file)}"


def check_tensorflow() -> None:
    """Check that TensorFlow is installed, without loading it; raise `ConsoleError` if it is not installed."""
    if not is_installed("tensorflow"):
        remedy = f"To install it here: {install_line(tensorflow_here())}"
        raise ConsoleError("This needs TensorFlow, which is not installed.", remedy=remedy)


def _choose(
    config: RunConfig, hardware: Hardware, has: Callable[[str], bool], environ: Mapping[str, str]
) -> BackendChoice:
    remote = next((environ[name] for name in ADDRESSES if environ.get(name, "local") not in {"", "local"}), "")
    may_use_tpu = "tpu" in environ.get("JAX_PLATFORMS", "").split(",") or not environ.get("JAX_PLATFORMS")
    by_jax, by_tensorflow = has("jax") and has("libtpu") and may_use_tpu, has("tensorflow-tpu")
    backend = config.backend
    if config.requested.kind is AcceleratorKind.AUTO:
        if not (hardware.tpu or remote):
            return _off_tpu(config, has)
        usable = {JAX: bool(hardware.tpu) and by_jax, TENSORFLOW: by_tensorflow}
        if not any(usable[name] for name in usable if backend in {name, "auto"}):
            return _off_tpu(config, has)
    elif not config.requested.is_tpu:
        return _off_tpu(config, has)
    choice = _to_tpu(config, hardware, remote, by_jax=by_jax, by_tensorflow=by_tensorflow)
    if choice.backend == JAX and not may_use_tpu:
        missing = f"JAX_PLATFORMS={environ['JAX_PLATFORMS']} keeps JAX from using the TPU."
        return replace(choice, missing=missing, remedy="Unset it, or add tpu to it.", install=())
    return choice


def _off_tpu(config: RunConfig, has: Callable[[str], bool]) -> BackendChoice:
    if config.backend == JAX or config.hosts.is_several:
        why = "asked for" if config.backend == JAX else _SEVERAL_HOSTS
        if not has("jax"):
            return BackendChoice(JAX, why, config.accelerator, "JAX is not installed.", install=("jax",))
        return BackendChoice(JAX, why, config.accelerator)
    if config.backend == TENSORFLOW:
        return BackendChoice(TENSORFLOW, "asked for", config.accelerator)
    return BackendChoice(TENSORFLOW, "auto: faster without a TPU", config.accelerator)


def _to_tpu(config: RunConfig, hardware: Hardware, remote: str, *, by_jax: bool, by_tensorflow: bool) -> BackendChoice:
    accelerator = config.accelerator if config.requested.is_tpu else "tpu"
    address = config.requested.address or ("" if hardware.tpu else remote)
    if config.backend == JAX or config.hosts.is_several:
        why = "asked for" if config.backend == JAX else _SEVERAL_HOSTS
        return _jax_choice(why, accelerator, by_jax=by_jax, by_tensorflow=by_tensorflow)
    reason = config.only_backend[1]
    if config.backend == TENSORFLOW or reason or address:
        why = "asked for"
        if config.backend != TENSORFLOW:
            why = f"auto: {reason}" if reason else f"auto: only TensorFlow can use a TPU on another machine ({address})"
        if by_tensorflow:
            return BackendChoice(TENSORFLOW, why, accelerator)
        missing = "TensorFlow is built without TPU operations here."
        remedy = "Install tensorflow-tpu instead of tensorflow"
        remedy += ", or use backend=jax." if by_jax and not (reason or address) else "."
        return BackendChoice(TENSORFLOW, why, accelerator, missing, remedy)
    if by_jax or not by_tensorflow:
        return _jax_choice(
            "auto: Keras is tested on TPUs with JAX", accelerator, by_jax=by_jax, by_tensorflow=by_tensorflow
        )
    return BackendChoice(TENSORFLOW, "auto: tensorflow-tpu is installed and JAX's TPU package is not", accelerator)


def _jax_choice(why: str, accelerator: str, *, by_jax: bool, by_tensorflow: bool) -> BackendChoice:
    if by_jax:
        return BackendChoice(JAX, why, accelerator)
    missing = "JAX's TPU packages (jax, libtpu) are not installed."
    if by_tensorflow:
        remedy = "Install them in another environment: here they would replace the libtpu of tensorflow-tpu."
        return BackendChoice(JAX, why, accelerator, missing, remedy)
    return BackendChoice(JAX, why, accelerator, missing, install=(JAX_ON_TPU,))


def prepare(config: RunConfig, backend_choice: BackendChoice) -> None:
    """Set what Keras and the backend read when they are imported.

    Raises:
        AcceleratorError: This process has loaded Keras with another backend already.
    """
    loaded = sys.modules.get("keras")
    if loaded is not None and (backend := loaded.config.backend()) != backend_choice.backend:
        raise AcceleratorError(
            f"The run needs Keras on {backend_choice.backend}, but this process has loaded it on {backend}.",
            remedy="Start the run in its own process, without --in-process.",
        )
    backend_choice.framework.prepare(config)


def connect(config: RunConfig, backend_choice: BackendChoice) -> Accelerator:
    """Connect the accelerator of a configuration, once in a process and before anything is built.

    Raises:
        AcceleratorError: It is missing, or this process has already connected another one.
    """
    if backend_choice.missing:
        raise AcceleratorError(
            f"The accelerator '{config.accelerator}' cannot be used with {backend_choice.backend}.",
            why=backend_choice.missing,
            remedy=backend_choice.remedy,
        )
    return backend_choice.framework.connect(config, backend_choice.accelerator)
