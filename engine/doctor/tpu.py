"""Checks of the TPU: is it there, can a framework use it, does another process hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine.holders import LOCK
from .check import Finding, Verdict, could_not_tell

if TYPE_CHECKING:
    from ..machine.environment import Environment
    from ..machine.holders import Holder, Holders, Lock
    from ..machine.packages import Packages

_WITHOUT_HUGE_PAGES = ("v2", "v3", "v4")


def check_tpu(facts: Environment) -> Finding | None:
    """Say which TPU is here, or that one is announced and not there."""
    tpu, title = facts.tpu, "TPU"
    if tpu is None:
        return None
    if not tpu.is_here and not tpu.address:
        where = "Choose a TPU in the notebook's settings and start it anew." if facts.place.is_notebook else ""
        text = f"Variables announce a TPU, but no chip of one is on this machine. {where}".strip()
        command = "" if facts.place.is_notebook else "ls -l /dev/accel* /dev/vfio /sys/bus/pci/devices"
        return Finding("tpu", title, Verdict.WARNING, text, tpu.evidence, command)
    text = f"{tpu}."
    if tpu.all_chips > tpu.chips > 0 and tpu.hosts == 1:
        text += f" {tpu.accelerator_type} has {tpu.all_chips} chips: the others are at other hosts."
    return Finding("tpu", title, Verdict.OK, text, tpu.evidence)


def check_tensorflow_road(facts: Environment) -> Finding | None:
    """Check whether TensorFlow can use the TPU: only ``tensorflow-tpu`` has the operations."""
    tpu, packages, title = facts.tpu, facts.packages, "TensorFlow on the TPU"
    if tpu is None or not (tpu.is_here or tpu.address):
        return None
    if packages is None:
        return could_not_tell("tpu-tensorflow", title, facts, "packages")
    evidence = tuple(f"{package.name} {package.version}" for package in packages.tensorflows)
    if len(evidence) > 1:
        text = "Several packages wrote TensorFlow's files; which of them is imported cannot be told (see Packages)."
        return Finding("tpu-tensorflow", title, Verdict.UNKNOWN, text, evidence)
    if packages.version("tensorflow-tpu"):
        if packages.libtpu or not tpu.is_here:
            text = "It is built with TPU operations, for TPUStrategy."
            return Finding("tpu-tensorflow", title, Verdict.OK, text, evidence)
        text = "TensorFlow has TPU operations, but the TPU's runtime, libtpu, is not installed."
        asked = packages.asks("tensorflow-tpu", "libtpu") or "libtpu"
        return Finding("tpu-tensorflow", title, Verdict.PROBLEM, text, evidence, f"pip install '{asked}'")
    jax = _jax_is_ready(packages) and tpu.is_here
    what = "is built without TPU operations" if evidence else "is not installed"
    text = f"TensorFlow {what}; "
    if facts.place.is_notebook:
        text += "on this runtime JAX is the road to the TPU" + (", and it is ready." if jax else ".")
        return Finding("tpu-tensorflow", title, Verdict.NOTE, text, evidence)
    if jax:
        text += "the JAX backend is ready in its place."
        return Finding("tpu-tensorflow", title, Verdict.NOTE, text, evidence)
    text += "the package with them is tensorflow-tpu. One road to the TPU, this or JAX, is enough."
    gone = " ".join(package.name for package in packages.tensorflows)
    command = (f"pip uninstall -y {gone} && " if gone else "") + "pip install tensorflow-tpu"
    return Finding("tpu-tensorflow", title, Verdict.PROBLEM, text, evidence, command)


def check_jax_road(facts: Environment) -> Finding | None:
    """Check whether JAX can use the TPU of this machine."""
    tpu, packages, title = facts.tpu, facts.packages, "JAX on the TPU"
    if tpu is None or not tpu.is_here:
        return None
    if packages is None:
        return could_not_tell("tpu-jax", title, facts, "packages")
    found = {name: packages.version(name) and f"{name} {packages.version(name)}" for name in ("jax", "jaxlib")}
    found["libtpu"] = packages.libtpu
    evidence = tuple(text for text in found.values() if text)
    if _jax_is_ready(packages):
        return Finding("tpu-jax", title, Verdict.OK, "JAX and its TPU runtime are installed.", evidence)
    missing = ", ".join(name for name, text in found.items() if not text)
    other_road = bool(packages.version("tensorflow-tpu") and packages.libtpu)
    text = f"Not installed: {missing}." + ("" if other_road else " JAX cannot use the TPU without.")
    # Beside tensorflow-tpu, whose libtpu it would replace, JAX's TPU package is no next step.
    command = "" if other_road else "pip install 'jax[tpu]'"
    verdict = Verdict.NOTE if other_road else Verdict.PROBLEM
    return Finding("tpu-jax", title, verdict, text, evidence, command)


def check_held(facts: Environment) -> Finding | None:
    """Name the process that holds the TPU."""
    tpu, holders, title = facts.tpu, facts.holders, "TPU free"
    if tpu is None or not tpu.is_here:
        return None
    if holders is None:
        return could_not_tell("tpu-held", title, facts, "holders")
    if holders.processes:
        return _held(holders, facts)
    if holders.lock is not None and holders.lock.is_locked:
        text = f"A process outside this container has locked /{LOCK}. Wait for its end, or end it from outside."
        return Finding("tpu-held", title, Verdict.PROBLEM, text, ("/proc/locks",), f"sudo lsof -w /{LOCK}")
    devices = tpu.device_text or "the TPU's devices"
    if holders.unseen:
        text = f"None of your processes holds it; {holders.unseen} of other users cannot be looked into."
        command = f"sudo lsof -w {' '.join(tpu.devices)}" if tpu.devices else ""
        return Finding("tpu-held", title, Verdict.UNKNOWN, text, ("/proc/*/fd", "/proc/locks"), command)
    return Finding("tpu-held", title, Verdict.OK, f"No process has {devices} open.", ("/proc/*/fd", "/proc/locks"))


def check_lock(facts: Environment) -> Finding | None:
    """Tell a lock file that was left behind."""
    tpu, holders, title = facts.tpu, facts.holders, "libtpu's lock"
    if tpu is None or not tpu.is_here or holders is None or holders.processes:
        return None  # where the TPU is held, the lock belongs to the holder
    if (lock := holders.lock) is None:
        return Finding("tpu-lock", title, Verdict.OK, "No lock file was left behind.", (f"/{LOCK}",))
    return None if lock.is_locked else _left_behind(lock, title)


def check_huge_pages(facts: Environment) -> Finding | None:
    """Check what JAX warns of on v5e and later: without huge pages the runtime starts and ends slowly."""
    tpu, setting, title = facts.tpu, facts.huge_pages, "Huge pages"
    if tpu is None or not tpu.is_here or not tpu.kind or tpu.kind in _WITHOUT_HUGE_PAGES or not setting:
        return None
    if facts.place.is_notebook:
        return None  # nobody there can change the kernel's settings
    evidence = (f"/sys/kernel/mm/transparent_hugepage/enabled: {setting}",)
    if "[always]" in setting:
        return Finding("huge-pages", title, Verdict.OK, "Transparent huge pages are on.", evidence)
    text = "Transparent huge pages are not always on; the TPU's runtime starts and ends faster with them."
    line = 'sudo sh -c "echo always > /sys/kernel/mm/transparent_hugepage/enabled"'
    return Finding("huge-pages", title, Verdict.NOTE, text, evidence, line)


def _jax_is_ready(packages: Packages) -> bool:
    return bool(packages.version("jax") and packages.version("jaxlib") and packages.libtpu)


def _held(holders: Holders, facts: Environment) -> Finding:
    first = holders.processes[0]
    more = f" (and {len(holders.processes) - 1} more)" if len(holders.processes) > 1 else ""
    text = f"Process {first.pid} of {first.user} holds the TPU{more}: {first.command}. {_advice(first, facts)}"
    evidence = tuple(holder.evidence for holder in holders.processes)
    verdict = Verdict.NOTE if all(_is_run(holder) for holder in holders.processes) else Verdict.PROBLEM
    command = "tpu-console stop" if _is_run(first) else f"ps -o pid,user,lstart,args -p {first.pid}"
    return Finding("tpu-held", "TPU free", verdict, text, evidence, command)


def _advice(holder: Holder, facts: Environment) -> str:
    if _is_run(holder):
        return "It is a run of this console: wait for it, or ask it to stop."
    if "ipykernel" in holder.command or "colab_kernel" in holder.command:
        where = "the runtime" if facts.place.is_notebook else "its kernel"
        return f"It is a notebook: restart {where} there, and the TPU is free."
    return "One process at a time can use it: wait for its end, or end it if it is yours and no longer needed."


def _is_run(holder: Holder) -> bool:
    return "-m engine.process.main" in holder.command


def _left_behind(lock: Lock, title: str) -> Finding:
    evidence = (f"/{LOCK} of {lock.user}", "/proc/locks: no lock on it")
    if lock.is_ours:
        text = "A lock file was left behind. It is yours and not locked, so libtpu takes it again; nothing to do."
        return Finding("tpu-lock", title, Verdict.NOTE, text, evidence)
    text = (
        f"{lock.user} left a lock file behind that no process locks. libtpu cannot open it and takes the TPU for "
        "in use. Make sure that nobody trains here, then remove it."
    )
    return Finding("tpu-lock", title, Verdict.PROBLEM, text, evidence, f"sudo rm /{LOCK}")


CHECKS = (check_tpu, check_tensorflow_road, check_jax_road, check_held, check_lock, check_huge_pages)
