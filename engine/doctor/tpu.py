"""Checks of the TPU: whether it is there, a framework can use it, and no other process holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import Finding, Severity
from ..machine.holders import LOCK, Holder, Holders
from .check import install_command, not_checked, result_of

if TYPE_CHECKING:
    from ..machine.environment import Environment
    from ..machine.packages import Packages


def check_tpu(facts: Environment) -> Finding | None:
    """Report the TPU, or that variables name one which is not here."""
    tpu, title = facts.tpu, "TPU"
    if tpu is None:
        return None
    if not tpu.is_here and not tpu.address:
        where = "Choose a TPU in the notebook's settings and restart it." if facts.place.is_notebook else ""
        text = f"Environment variables name a TPU, but this machine has no TPU chip. {where}".strip()
        command = "" if facts.place.is_notebook else "ls -l /dev/accel* /dev/vfio /sys/bus/pci/devices"
        return result_of("tpu", title, Severity.WARNING, text, tpu.evidence, command)
    text = f"{tpu}."
    if tpu.all_chips > tpu.chips > 0 and tpu.hosts == 1:
        text += f" {tpu.accelerator_type} has {tpu.all_chips} chips; the others belong to other hosts."
    return result_of("tpu", title, Severity.OK, text, tpu.evidence)


def check_tensorflow_backend(facts: Environment) -> Finding | None:
    """Check whether TensorFlow can use the TPU; only ``tensorflow-tpu`` has the operations."""
    tpu, packages, title = facts.tpu, facts.packages, "TensorFlow on the TPU"
    if tpu is None or not (tpu.is_here or tpu.address):
        return None
    if packages is None:
        return not_checked("tpu-tensorflow", title, facts, "packages")
    evidence = tuple(f"{package.name} {package.version}" for package in packages.tensorflows)
    if evidence and not packages.has_one_tensorflow:
        text = "Several TensorFlow packages share one folder, so it is unclear which is imported (see Packages)."
        return result_of("tpu-tensorflow", title, Severity.UNKNOWN, text, evidence)
    if packages.version("tensorflow-tpu"):
        if packages.libtpu or not tpu.is_here:
            text = "tensorflow-tpu has TPU operations, for TPUStrategy."
            return result_of("tpu-tensorflow", title, Severity.OK, text, evidence)
        text = "tensorflow-tpu is installed, but libtpu, the TPU's runtime, is not."
        asked = next((one.requirement for one in packages.misfits("tensorflow-tpu", "libtpu")), "libtpu")
        return result_of("tpu-tensorflow", title, Severity.ERROR, text, evidence, f"pip install '{asked}'")
    text = f"TensorFlow {'is built without TPU operations' if evidence else 'is not installed'}; "
    if facts.place.is_notebook or (_jax_is_ready(packages) and tpu.is_here):
        return result_of("tpu-tensorflow", title, Severity.INFO, f"{text}the JAX backend uses the TPU.", evidence)
    text += "tensorflow-tpu has them. Either it or JAX is enough."
    gone = " ".join(package.name for package in packages.tensorflows)
    command = (f"pip uninstall -y {gone} && " if gone else "") + "pip install tensorflow-tpu"
    return result_of("tpu-tensorflow", title, Severity.ERROR, text, evidence, command)


def check_jax_backend(facts: Environment) -> Finding | None:
    """Check whether JAX can use the TPU of this machine."""
    tpu, packages, title = facts.tpu, facts.packages, "JAX on the TPU"
    if tpu is None or not tpu.is_here:
        return None
    if packages is None:
        return not_checked("tpu-jax", title, facts, "packages")
    found = {name: packages.version(name) and f"{name} {packages.version(name)}" for name in ("jax", "jaxlib")}
    found["libtpu"] = packages.libtpu
    evidence = tuple(text for text in found.values() if text)
    if _jax_is_ready(packages):
        return result_of("tpu-jax", title, Severity.OK, "JAX and its TPU runtime are installed.", evidence)
    missing = ", ".join(name for name, text in found.items() if not text)
    has_tensorflow = bool(packages.version("tensorflow-tpu") and packages.libtpu)
    text = f"Not installed: {missing}." + ("" if has_tensorflow else " JAX needs these packages to use the TPU.")
    # Not beside tensorflow-tpu: JAX's TPU package would replace its libtpu.
    command = "" if has_tensorflow else install_command(facts, "jax[tpu]")
    severity = Severity.INFO if has_tensorflow else Severity.ERROR
    return result_of("tpu-jax", title, severity, text, evidence, command)


def check_held(facts: Environment) -> Finding | None:
    """Name the process that holds the TPU."""
    tpu, holders, title = facts.tpu, facts.holders, "TPU free"
    if tpu is None or not tpu.is_here:
        return None
    if holders is None:
        return not_checked("tpu-held", title, facts, "holders")
    if holders.processes:
        return _held(holders, facts)
    if holders.lock is not None and holders.lock.is_locked:
        text = f"A process outside this container has locked /{LOCK}. Wait until it ends, or end it from outside."
        return result_of("tpu-held", title, Severity.ERROR, text, ("/proc/locks",), f"sudo lsof -w /{LOCK}")
    devices = tpu.device_text or "the TPU's devices"
    if holders.unseen:
        text = f"None of your processes holds the TPU; {holders.unseen} processes of other users cannot be checked."
        command = f"sudo lsof -w {' '.join(tpu.devices)}" if tpu.devices else ""
        return result_of("tpu-held", title, Severity.UNKNOWN, text, ("/proc/*/fd", "/proc/locks"), command)
    return result_of("tpu-held", title, Severity.OK, f"No process has {devices} open.", ("/proc/*/fd", "/proc/locks"))


def check_lock(facts: Environment) -> Finding | None:
    """Report a lock file that was left behind."""
    tpu, holders, title = facts.tpu, facts.holders, "libtpu's lock"
    if tpu is None or not tpu.is_here or holders is None or holders.processes:
        return None  # then the lock belongs to the process that holds the TPU
    if (lock := holders.lock) is None:
        return result_of("tpu-lock", title, Severity.OK, "No lock file was left behind.", (f"/{LOCK}",))
    if lock.is_locked:
        return None
    evidence = (f"/{LOCK} of {lock.user}", "/proc/locks: no lock on it")
    if lock.is_ours:
        text = "A lock file was left behind. It is yours and not locked, so libtpu can use it again."
        return result_of("tpu-lock", title, Severity.INFO, text, evidence)
    text = (
        f"{lock.user} left a lock file behind. libtpu cannot open it, so it thinks that the TPU is in "
        "use. Make sure that nobody is training here, then remove it."
    )
    return result_of("tpu-lock", title, Severity.ERROR, text, evidence, f"sudo rm /{LOCK}")


def _jax_is_ready(packages: Packages) -> bool:
    return bool(packages.version("jax") and packages.version("jaxlib") and packages.libtpu)


def _held(holders: Holders, facts: Environment) -> Finding:
    first = holders.processes[0]
    more = f" (and {len(holders.processes) - 1} more)" if len(holders.processes) > 1 else ""
    advice = "wait until it ends, or end it if it is yours and no longer needed."
    if _is_run(first):
        advice = "it is a tpu-console run: wait for it, or stop it."
    elif "ipykernel" in first.command or "colab_kernel" in first.command:
        advice = f"it is a notebook: restart its {'runtime' if facts.place.is_notebook else 'kernel'} to free the TPU."
    text = f"Process {first.pid} of {first.user} holds the TPU{more}: {first.command}; {advice}"
    evidence = tuple(holder.evidence for holder in holders.processes)
    severity = Severity.INFO if all(_is_run(holder) for holder in holders.processes) else Severity.ERROR
    command = "tpu-console stop" if _is_run(first) else f"ps -o pid,user,lstart,args -p {first.pid}"
    return result_of("tpu-held", "TPU free", severity, text, evidence, command)


def _is_run(holder: Holder) -> bool:
    return any(f"-m tpu_console.engine.process.{module}" in holder.command for module in ("main", "warm"))


CHECKS = (check_tpu, check_tensorflow_backend, check_jax_backend, check_held, check_lock)
