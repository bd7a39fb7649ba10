"""The frameworks, and which of them a run uses as its Keras backend, and why.

Two backends can use a TPU. Today's Colab and Kaggle runtimes have JAX, and a TensorFlow without TPU operations; a TPU
VM with ``tensorflow-tpu`` has `TPUStrategy`. Without a TPU, TensorFlow is the default: on a CPU it trains a small CNN 9
times faster than JAX. Nothing here loads a framework, so the plan can use it at every key press. The process that
trains calls `prepare` before it imports Keras, which reads its backend at import.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..config.values import AcceleratorKind
from ..errors import AcceleratorError, ConsoleError
from ..machine.devices import ADDRESSES, Hardware
from ..machine.install import JAX_ON_TPU, NEW_LIBTPU, TF_BUILDS, aborting_libtpu, install_line, tensorflow_here
from ..sanitize import printable
from ..storage.files import read_json
from ..storage.paths import keras_home, user_path
from .jax import Jax
from .tensorflow import TensorFlow

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .framework import Accelerator, Framework

FRAMEWORKS: dict[str, Framework] = {one.name: one for one in (TensorFlow(), Jax())}
"""The frameworks by Keras's names of them."""

TENSORFLOW, JAX = TensorFlow.name, Jax.name

_ON_CPU = (AcceleratorKind.CPU, AcceleratorKind.SIMULATED)
_LARGEST_SETTINGS = 1 << 20  # bytes of Keras's settings


class BackendChoice(Struct, frozen=True):
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


def framework_of(backend: str) -> Framework:
    """Return the framework of a backend; a notebook may train on another one, which is treated as TensorFlow."""
    return FRAMEWORKS.get(backend, FRAMEWORKS[TENSORFLOW])


def loaded_framework() -> Framework:
    """Return the framework that Keras has loaded in this process."""
    import keras

    return framework_of(keras.config.backend())


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
        note = f"JAX_PLATFORMS={platforms} is ignored: accelerator={config.accelerator}."
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
    """Choose the backend; under ``auto`` the one that Keras is set to, unless the run cannot use it as well."""
    choice = _choose(config, hardware, has, environ)
    wished, said = _keras_setting(environ)
    # The file that Keras writes itself says tensorflow.
    if wished in {"", choice.backend} or (wished == TENSORFLOW and not environ.get("KERAS_BACKEND")):
        return choice
    why_not = "" if wished in FRAMEWORKS else "runs train on TensorFlow or JAX"
    is_fixed = config.backend != "auto" or config.hosts.is_several or config.only_backend[1] or config.requested.address
    if not why_not and is_fixed:
        why_not = f"the run uses {choice.backend} ({choice.why})"
    if not why_not:
        changed = _choose(config.model_copy(update={"backend": wished}), hardware, has, environ)
        if changed.accelerator == choice.accelerator and not changed.missing:
            return replace(changed, why=said)
        why_not = changed.missing or f"{wished} cannot use the TPU"
    return replace(choice, notes=(f"{said} is ignored: {why_not.rstrip('.')}.",))


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
    """Choose the backend by what is asked for, what is installed and where the TPU is."""
    asked, backend, reason = config.requested, config.backend, config.only_backend[1]
    remote = next((environ[name] for name in ADDRESSES if environ.get(name, "local") not in {"", "local"}), "")
    may_use_tpu = "tpu" in environ.get("JAX_PLATFORMS", "").split(",") or not environ.get("JAX_PLATFORMS")
    by_jax, by_tensorflow = has("jax") and has("libtpu") and may_use_tpu, has("tensorflow-tpu")
    usable = {JAX: bool(hardware.tpu) and by_jax, TENSORFLOW: bool(hardware.tpu or remote) and by_tensorflow}
    found = asked.kind is AcceleratorKind.AUTO and any(usable[name] for name in usable if backend in {name, "auto"})
    on_tpu = asked.is_tpu or found
    address = asked.address or ("" if hardware.tpu else remote)
    if backend != "auto":
        chosen, why = str(backend), "asked for"
    elif config.hosts.is_several:
        chosen, why = JAX, "several hosts train together with JAX only"
    elif not on_tpu:
        chosen, why = TENSORFLOW, "auto: faster without a TPU"
    elif reason or address:
        chosen = TENSORFLOW
        why = f"auto: {reason or f'only TensorFlow can use a TPU on another machine ({address})'}"
    elif by_tensorflow and not by_jax:
        chosen, why = TENSORFLOW, "auto: tensorflow-tpu is installed and JAX's TPU package is not"
    else:
        chosen, why = JAX, "auto: Keras is tested on TPUs with JAX"
    choice = BackendChoice(chosen, why, "tpu" if found else config.accelerator)
    if not on_tpu:
        lacks_jax = chosen == JAX and not has("jax")
        return replace(choice, missing="JAX is not installed.", install=("jax",)) if lacks_jax else choice
    if by_jax if chosen == JAX else by_tensorflow:
        return choice
    if chosen == TENSORFLOW:
        instead = ", or use backend=jax" if by_jax and not reason and not address else ""
        remedy = f"Install tensorflow-tpu instead of tensorflow{instead}."
        return replace(choice, missing="TensorFlow is built without TPU operations here.", remedy=remedy)
    hidden = "" if may_use_tpu else environ["JAX_PLATFORMS"]
    return _without_jax(choice, hidden, has_other=by_tensorflow)


def _without_jax(choice: BackendChoice, hidden: str, *, has_other: bool) -> BackendChoice:
    """Say why JAX cannot use the TPU; `hidden` is the variable ``JAX_PLATFORMS`` if it is set so."""
    if hidden:
        missing = f"JAX_PLATFORMS={hidden} keeps JAX from using the TPU."
        return replace(choice, missing=missing, remedy="Unset it, or add tpu to it.")
    missing = "JAX's TPU packages (jax, libtpu) are not installed."
    if has_other:
        remedy = "Install them in another environment: here they would replace the libtpu of tensorflow-tpu."
        return replace(choice, missing=missing, remedy=remedy)
    return replace(choice, missing=missing, install=(JAX_ON_TPU,))


def prepare(config: RunConfig, backend_choice: BackendChoice) -> None:
    """Set what Keras and the backend read on import; raise `AcceleratorError` if Keras has loaded another backend."""
    loaded = sys.modules.get("keras")
    if loaded is not None and (backend := loaded.config.backend()) != backend_choice.backend:
        raise AcceleratorError(
            f"The run needs Keras on {backend_choice.backend}, but this process has loaded it on {backend}.",
            remedy="Start the run in its own process, without --in-process.",
        )
    backend_choice.framework.prepare(config)


@contextmanager
def importing() -> Iterator[None]:
    """Import TensorFlow or Keras in the block without looking through their million objects for garbage.

    Python would do so again and again, for a quarter of the import's time, and for half a second at times afterwards.
    What exists at the end of the block is not looked through again. Does nothing if TensorFlow is already imported.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def connect(config: RunConfig, backend_choice: BackendChoice) -> Accelerator:
    """Connect the accelerator of a configuration, once in a process and before anything is built.

    Raises `AcceleratorError` if it is missing, or this process has already connected another one.
    """
    if backend_choice.missing:
        raise AcceleratorError(
            f"The accelerator '{config.accelerator}' cannot be used with {backend_choice.backend}.",
            why=backend_choice.missing,
            remedy=backend_choice.remedy,
        )
    return backend_choice.framework.connect(config, backend_choice.accelerator)
