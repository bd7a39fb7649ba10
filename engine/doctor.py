"""The doctor: its checks, pure functions of the facts about this machine, and the report that they make.

A check returns what it found, or None. One that needs facts that could not be read ends with `UnansweredError`.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .errors import Finding, Severity
from .machine.devices import Kind
from .machine.environment import DATA_HOST, LOCK, Disk, Environment, Holder
from .machine.install import CUDA_PLUGINS, NEW_LIBTPU, Misfit, Packages, line_in_cell, tensorflow_for
from .storage.files import size_text

Check = Callable[[Environment], Finding | list[Finding] | None]
Facts = TypeVar("Facts")

ok, note, warning, problem, unknown = (
    partial(Finding, severity)
    for severity in (Severity.OK, Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.UNKNOWN)
)

_GB = 1e9
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 2 * _GB, 0.5 * _GB
_SMALL_SHM_BYTES = 512e6
_MANY_COLORS = 256
_WITH_CUDA = ("tensorflow", "tf-nightly")
_METADATA = ("metadata of the installed packages",)
_OPEN_FILES = ("/proc/*/fd", "/proc/locks")

CHECKS: dict[str, list[tuple[str, str, Check]]] = {}
"""The checks of each group of the report, by name and title; a finding may have its own."""


class UnansweredError(Exception):
    """The facts that a check needs could not be read."""


def _check(group: str, key: str, title: str) -> Callable[[Check], Check]:
    """Add a function to `CHECKS`."""

    def add(check: Check) -> Check:
        CHECKS.setdefault(group, []).append((key, title, check))
        return check

    return add


def _known(facts: Environment, probe: str, found: Facts | None) -> Facts:
    if found is None:
        raise UnansweredError(f"Not checked: {facts.unanswered[probe]}.")
    return found


def _install(facts: Environment, *packages: str) -> str:
    """Return the command that adds packages, which changes none that a notebook service has installed."""
    return line_in_cell(*packages) if facts.place.is_notebook else shlex.join(["pip", "install", *packages])


@_check("Accelerator", "tpu", "TPU")
def _tpu(facts: Environment) -> Finding | None:
    tpu = facts.tpu
    if tpu is None:
        return None
    if not tpu.is_here and not tpu.address:
        text = "Environment variables name a TPU, but this machine has no TPU chip."
        if facts.place.is_notebook:
            return warning(f"{text} Choose a TPU in the notebook's settings and restart it.", evidence=tpu.evidence)
        return warning(text, remedy="ls -l /dev/accel* /dev/vfio /sys/bus/pci/devices", evidence=tpu.evidence)
    text = f"{tpu}."
    if tpu.all_chips > tpu.chips > 0 and tpu.hosts == 1:
        text += f" {tpu.accelerator_type} has {tpu.all_chips} chips; the others belong to other hosts."
    return ok(text, evidence=tpu.evidence)


@_check("Accelerator", "tpu-tensorflow", "TensorFlow on the TPU")
def _tensorflow_on_tpu(facts: Environment) -> Finding | None:
    tpu = facts.tpu
    if tpu is None or not (tpu.is_here or tpu.address):
        return None
    packages = _known(facts, "packages", facts.packages)
    evidence = tuple(f"{package.name} {package.version}" for package in packages.tensorflows)
    if evidence and not packages.has_one_tensorflow:
        text = "Several TensorFlow packages share one folder, so it is unclear which is imported (see Packages)."
        return unknown(text, evidence=evidence)
    if packages.version("tensorflow-tpu"):
        if packages.libtpu or not tpu.is_here:
            return ok("tensorflow-tpu has TPU operations, for TPUStrategy.", evidence=evidence)
        text = "tensorflow-tpu is installed, but libtpu, the TPU's runtime, is not."
        asked = next((one.requirement for one in packages.misfits("tensorflow-tpu", "libtpu")), "libtpu")
        return problem(text, remedy=f"pip install '{asked}'", evidence=evidence)
    text = f"TensorFlow {'is built without TPU operations' if evidence else 'is not installed'}; "
    if facts.place.is_notebook or (tpu.is_here and _has_jax_for_tpu(packages)):
        return note(f"{text}the JAX backend uses the TPU.", evidence=evidence)
    text += "tensorflow-tpu can use the TPU. Either it or JAX is enough."
    gone = " ".join(package.name for package in packages.tensorflows)
    command = (f"pip uninstall -y {gone} && " if gone else "") + "pip install tensorflow-tpu"
    return problem(text, remedy=command, evidence=evidence)


def _has_jax_for_tpu(packages: Packages) -> bool:
    return bool(packages.version("jax") and packages.version("jaxlib") and packages.libtpu)


@_check("Accelerator", "tpu-jax", "JAX on the TPU")
def _jax_on_tpu(facts: Environment) -> Finding | None:
    if facts.tpu is None or not facts.tpu.is_here:
        return None
    packages = _known(facts, "packages", facts.packages)
    found = {name: packages.version(name) and f"{name} {packages.version(name)}" for name in ("jax", "jaxlib")}
    found["libtpu"] = packages.libtpu
    evidence = tuple(text for text in found.values() if text)
    if _has_jax_for_tpu(packages):
        return ok("JAX and its TPU runtime are installed.", evidence=evidence)
    missing = f"Not installed: {', '.join(name for name, text in found.items() if not text)}."
    if packages.version("tensorflow-tpu") and packages.libtpu:
        return note(missing, evidence=evidence)  # JAX's TPU package would replace the libtpu of tensorflow-tpu
    text = f"{missing} JAX needs these packages to use the TPU."
    return problem(text, remedy=_install(facts, "jax[tpu]"), evidence=evidence)


@_check("Accelerator", "tpu-held", "TPU free")
def _held(facts: Environment) -> Finding | None:
    tpu = facts.tpu
    if tpu is None or not tpu.is_here:
        return None
    holders = _known(facts, "holders", facts.holders)
    if not holders.processes:
        if holders.lock is not None and holders.lock.is_locked:
            text = f"A process outside this container has locked /{LOCK}. Wait until it ends, or end it from outside."
            return problem(text, remedy=f"sudo lsof -w /{LOCK}", evidence=("/proc/locks",))
        if holders.unseen:
            text = f"None of your processes holds the TPU; {holders.unseen} processes of other users cannot be checked."
            command = f"sudo lsof -w {' '.join(tpu.devices)}" if tpu.devices else ""
            return unknown(text, remedy=command, evidence=_OPEN_FILES)
        devices = tpu.device_text or "the TPU's devices"
        return ok(f"No process has {devices} open.", evidence=_OPEN_FILES)
    first = holders.processes[0]
    more = f" (and {len(holders.processes) - 1} more)" if len(holders.processes) > 1 else ""
    advice = "wait until it ends, or end it if it is yours and no longer needed."
    if _is_run(first):
        advice = "it is a tpu-console run: wait for it, or stop it."
    elif "ipykernel" in first.command or "colab_kernel" in first.command:
        advice = f"it is a notebook: restart its {'runtime' if facts.place.is_notebook else 'kernel'} to free the TPU."
    return Finding(
        Severity.INFO if all(map(_is_run, holders.processes)) else Severity.ERROR,
        f"Process {first.pid} of {first.user} holds the TPU{more}: {first.command}; {advice}",
        remedy="tpu-console stop" if _is_run(first) else f"ps -o pid,user,lstart,args -p {first.pid}",
        evidence=tuple(holder.evidence for holder in holders.processes),
    )


def _is_run(holder: Holder) -> bool:
    return "-m tpu_console.engine.process.main" in holder.command


@_check("Accelerator", "tpu-lock", "libtpu's lock")
def _lock(facts: Environment) -> Finding | None:
    holders = facts.holders
    if facts.tpu is None or not facts.tpu.is_here or holders is None or holders.processes:
        return None  # a lock belongs to the process that holds the TPU
    if (lock := holders.lock) is None:
        return ok("No lock file was left behind.", evidence=(f"/{LOCK}",))
    if lock.is_locked:
        return None
    evidence = (f"/{LOCK} of {lock.user}", "/proc/locks: no lock on it")
    if lock.is_ours:
        text = "A lock file was left behind. It is yours and not locked, so libtpu can use it again."
        return note(text, evidence=evidence)
    text = (
        f"{lock.user} left a lock file behind. libtpu cannot open it, so it thinks that the TPU is in "
        "use. Make sure that nobody is training here, then remove it."
    )
    return problem(text, remedy=f"sudo rm /{LOCK}", evidence=evidence)


@_check("Accelerator", "gpu", "GPU")
def _gpu(facts: Environment) -> Finding | None:
    if "gpus" in facts.unanswered:
        raise UnansweredError(f"Not checked: {facts.unanswered['gpus']}.")
    if (gpus := facts.gpus) is None:
        return None
    return ok(f"{gpus}{f', driver {gpus.driver}' if gpus.driver else ''}.", evidence=gpus.evidence)


@_check("Accelerator", "gpu-tensorflow", "TensorFlow on the GPU")
def _tensorflow_on_gpu(facts: Environment) -> Finding | None:
    gpus, packages = facts.gpus, facts.packages
    if gpus is None or packages is None or not packages.tensorflows:
        return None
    built = next((package for package in packages.tensorflows if package.name in _WITH_CUDA), None)
    if built is None:
        other = packages.tensorflows[0]
        text = f"{other.name} is built without CUDA, so TensorFlow trains on the CPU."
        command = f"pip uninstall -y {other.name} && pip install 'tensorflow[and-cuda]'"
        return warning(text, remedy=command, evidence=(f"{other.name} {other.version}",))
    evidence = (f"{built.name} {built.version}", *(f"{name}: {place}" for name, place in gpus.libraries))
    if gpus.missing:
        text = f"CUDA libraries are missing: {', '.join(gpus.missing)}. TensorFlow cannot use the GPU without them."
        return problem(text, remedy=_install(facts, f"{built.name}[and-cuda]=={built.version}"), evidence=evidence)
    return ok("The CUDA libraries are installed.", evidence=evidence)


@_check("Accelerator", "gpu-jax", "JAX on the GPU")
def _jax_on_gpu(facts: Environment) -> Finding | None:
    packages = facts.packages
    if facts.gpus is None or packages is None or not packages.version("jax"):
        return None
    found = tuple(f"{name} {packages.version(name)}" for name in ("jax", *CUDA_PLUGINS) if packages.version(name))
    if len(found) > 1:
        return ok("The CUDA plugin of JAX is installed.", evidence=found)
    text = "JAX lacks its CUDA plugin, and trains on the CPU."
    return note(text, remedy=_install(facts, "jax[cuda12]"), evidence=found)


@_check("Accelerator", "no-accelerator", "Accelerator")
def _no_accelerator(facts: Environment) -> Finding | None:
    if facts.tpu is not None or facts.gpus is not None or "gpus" in facts.unanswered:
        return None
    text = "No TPU and no NVIDIA GPU was found; training runs on the CPU."
    if facts.place.is_notebook:
        text += " You can choose an accelerator in the notebook's settings."
    return note(text, evidence=("none in /sys/bus/pci/devices, /dev/accel*, /dev/nvidia* and /proc/driver/nvidia",))


@_check("Packages", "tensorflow", "TensorFlow")
def _tensorflow(facts: Environment) -> Finding:
    packages = _known(facts, "packages", facts.packages)
    found = packages.tensorflows
    if not found:
        text = "TensorFlow is not installed. Training reads data with tf.data, whatever the backend."
        has_tpu, has_gpu = facts.tpu is not None and facts.tpu.is_here, facts.gpus is not None
        name = tensorflow_for(has_tpu=has_tpu, has_gpu=has_gpu, is_notebook=facts.place.is_notebook)
        return problem(text, remedy=_install(facts, name), evidence=_METADATA)
    names = " and ".join(f"{package.name} {package.version}" for package in found)
    if packages.has_one_tensorflow:
        return ok(f"{names}.", evidence=_METADATA)
    tpu = facts.tpu is not None and (facts.tpu.is_here or bool(facts.tpu.address))
    keep = next((p for p in found if (p.name == "tensorflow-tpu") == tpu), found[0])
    gone = " ".join(package.name for package in found if package is not keep)
    text = f"{names} are installed into the same folder, so the imported TensorFlow is a mixture of them."
    command = f"pip uninstall -y {gone} && pip install --force-reinstall --no-deps {keep.name}=={keep.version}"
    return problem(text, remedy=command, evidence=_METADATA)


@_check("Packages", "keras", "Keras")
def _keras(facts: Environment) -> Finding | None:
    if (packages := facts.packages) is None:
        return None  # the check of TensorFlow reports it
    keras = packages.version("keras")
    if not keras or keras.startswith(("1.", "2.")):
        text = f"Keras 3 is needed, but {f'Keras {keras} is installed' if keras else 'Keras is not installed'}."
        return problem(text, remedy="pip install 'keras>=3.7'", evidence=_METADATA)
    if misfits := [one for package in packages.tensorflows for one in packages.misfits(package.name, "keras")]:
        return _misfit(misfits)
    return ok(f"keras {keras}.", evidence=_METADATA)


@_check("Packages", "jax", "JAX")
def _jax(facts: Environment) -> Finding | None:
    packages = facts.packages
    if packages is None or not (jax := packages.version("jax")):
        return None
    if misfits := packages.misfits("jax", "jaxlib"):
        return _misfit(misfits)
    if not (jaxlib := packages.version("jaxlib")):
        return problem(f"jax {jax}, jaxlib missing.", remedy=f"pip install 'jax=={jax}'", evidence=_METADATA)
    return ok(f"jax {jax}, jaxlib {jaxlib}.", evidence=_METADATA)


@_check("Packages", "libtpu", "libtpu")
def _libtpu(facts: Environment) -> Finding | None:
    packages = facts.packages
    if packages is None or not (libtpu := packages.version("libtpu")):
        return None
    if for_tensorflow := packages.misfits("tensorflow-tpu", "libtpu"):
        found = _misfit(for_tensorflow)
        if NEW_LIBTPU not in for_tensorflow[0].requirement:
            return found
        return replace(found, text=f"{found.text} With libtpu {NEW_LIBTPU} or newer, importing TensorFlow aborts.")
    for_jax = packages.misfits("jax", "libtpu", extra="tpu")
    if for_jax and facts.place.is_notebook:
        text = (
            f"{facts.place.kind.value} ships libtpu {libtpu}; {for_jax[0].owner} was released for "
            f"{for_jax[0].requirement}. Leave it: the other packages of this image may need it."
        )
        return note(text, evidence=(f"jax[tpu] requires {for_jax[0].requirement}",))
    if for_jax:
        is_needed = facts.tpu is not None and facts.tpu.is_here and not packages.version("tensorflow-tpu")
        return _misfit(for_jax, Severity.ERROR if is_needed else Severity.WARNING)
    return ok(f"libtpu {libtpu}.", evidence=_METADATA)


def _misfit(misfits: Sequence[Misfit], severity: Severity = Severity.ERROR) -> Finding:
    first = misfits[0]
    have = f"{first.found} is installed" if first.found else "it is not installed"
    evidence = tuple(f"requirements of {misfit.owner}" for misfit in misfits)
    text, command = f"{first.owner} requires {first.requirement}, but {have}.", f"pip install '{first.requirement}'"
    return Finding(severity, text, remedy=command, evidence=evidence)


@_check("Machine", "limits", "Cores and memory")
def _limits(facts: Environment) -> Finding:
    resources = _known(facts, "resources", facts.resources)
    text = f"{resources.cores:g} of {resources.processors} cores"
    if resources.memory_bytes:
        text += f", {resources.memory_bytes / _GB:.1f} of {resources.machine_memory_bytes / _GB:.1f} GB of memory"
    if any("cgroup" in name for name in resources.evidence):
        return note(f"{text}; limited by a container.", evidence=resources.evidence)
    return ok(f"{text}.", evidence=resources.evidence)


@_check("Machine", "disks", "Disks")
def _disks(facts: Environment) -> list[Finding]:
    return [
        _shared_memory(disk, facts) if disk.purpose == "shared memory" else _disk(disk)
        for disk in _known(facts, "disks", facts.disks)
    ]


def _disk(disk: Disk) -> Finding:
    severity, text, command = Severity.UNKNOWN, "The free space could not be read.", ""
    if disk.space is not None:
        free = disk.space.free_bytes
        severity = Severity.OK if free >= _LITTLE_BYTES else Severity.WARNING
        severity = Severity.ERROR if free < _TOO_LITTLE_BYTES else severity
        text = f"{size_text(free)} free of {size_text(disk.space.total_bytes)}."
        if severity is not Severity.OK:
            text += " Datasets, weights and checkpoints can take hundreds of megabytes each."
            command = f"du -xh --max-depth=2 {disk.measured_at} | sort -h | tail"
    key, title = f"disk-{disk.purpose.lower().replace(' ', '-')}", f"Disk ({disk.purpose})"
    return Finding(severity, text, remedy=command, key=key, title=title, evidence=(str(disk.folder),))


def _shared_memory(disk: Disk, facts: Environment) -> Finding:
    text, command = "There is no /dev/shm, which training processes use to exchange data.", ""
    if disk.space is None:
        command = "sudo mount -t tmpfs -o size=1g tmpfs /dev/shm"
    else:
        text = f"{size_text(disk.space.total_bytes)}."
        if facts.gpus is not None and len(facts.gpus.names) > 1 and disk.space.total_bytes < _SMALL_SHM_BYTES:
            text += " Several GPUs exchange gradients through it and need more; start the container with --shm-size=1g."
            command = "df -h /dev/shm"
    found = warning(text, remedy=command) if command else ok(text)
    return replace(found, key="shared-memory", title="Shared memory", evidence=(str(disk.folder),))


@_check("Machine", "internet", "Internet")
def _internet(facts: Environment) -> Finding | None:
    if facts.place.kind is not Kind.KAGGLE:
        return None
    if _known(facts, "has_internet", facts.has_internet):
        return ok(f"{DATA_HOST} answers.", evidence=(f"a connection to {DATA_HOST}:443",))
    text = (
        f"{DATA_HOST} does not answer: downloads will fail. Turn on internet in the notebook's settings "
        "(this needs a verified phone number), or train on data that is already here."
    )
    command = "tpu-console run digits-cnn   # needs no download"
    return warning(text, remedy=command, evidence=(f"no connection to {DATA_HOST}:443",))


@_check("Terminal", "utf-8", "UTF-8")
def _encoding(facts: Environment) -> Finding:
    evidence = (facts.shell.locale or "LC_ALL, LC_CTYPE and LANG are not set",)
    if facts.shell.is_utf8:
        return ok("Curves can be drawn with braille.", evidence=evidence)
    text = "The locale does not use UTF-8, so the console draws with ASCII characters only."
    return warning(text, remedy="export LC_ALL=C.UTF-8", evidence=evidence)


@_check("Terminal", "colours", "Colors")
def _colors(facts: Environment) -> Finding | None:
    shell = facts.shell
    if not shell.is_terminal:
        return None  # nothing is colored in a pipe or a notebook cell
    evidence = (shell.color_evidence,)
    if shell.colors >= _MANY_COLORS:
        return ok(f"{shell.colors:,} colors.", evidence=evidence)
    if shell.color_evidence.startswith("NO_COLOR"):
        text = "Colors are turned off; curves differ only in their lines and labels."
        return note(text, remedy="unset NO_COLOR", evidence=evidence)
    text = f"The terminal reports {shell.colors} colors; most support 256, which makes curves easier to tell apart."
    found = note if shell.colors else warning
    return found(text, remedy="export TERM=xterm-256color", evidence=evidence)


@_check("Terminal", "connection", "Lost connection")
def _connection(facts: Environment) -> Finding | None:
    shell = facts.shell
    evidence = (shell.ssh,)
    if not shell.ssh:
        return None
    if shell.multiplexer:
        return ok(f"The console runs in {shell.multiplexer}, which survives a lost connection.", evidence=evidence)
    stays = "When the connection is lost, runs continue but the console ends"
    if shell.installed:
        command = "tmux new -A -s train" if shell.installed[0] == "tmux" else "screen -dRS train"
        return note(f"{stays}; {shell.installed[0]} keeps it open.", remedy=command, evidence=evidence)
    text = f"{stays}. tmux keeps it open, but neither tmux nor screen is installed."
    return warning(text, remedy="sudo apt-get install tmux", evidence=evidence)


_WORDS = {
    Severity.OK: "ok",
    Severity.INFO: "note",
    Severity.WARNING: "warning",
    Severity.ERROR: "problem",
    Severity.UNKNOWN: "could not tell",
}
_SHOWN = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "keras", "jax", "libtpu")


def word_of(result: Finding) -> str:
    """Return the severity as reports and ``--json`` write it."""
    return _WORDS[result.severity]


class Report(Struct, frozen=True):
    """What the doctor reports."""

    header: dict[str, str]  # the place, its accelerators, cores and software, by name
    groups: dict[str, tuple[Finding, ...]]  # the results that belong together, by the group's name

    @property
    def results(self) -> tuple[Finding, ...]:
        """Every result, in order."""
        return tuple(result for group in self.groups.values() for result in group)

    @property
    def is_well(self) -> bool:
        """Whether no check found a problem."""
        return all(result.severity is not Severity.ERROR for result in self.results)

    @property
    def summary(self) -> str:
        """The number of results of each severity, the worst first."""
        counts = Counter(result.severity for result in self.results)
        parts = [
            f"{counts[severity]} {_WORDS[severity]}{'s' if counts[severity] > 1 else ''}"
            for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
            if counts[severity]
        ]
        parts += [f"{counts[Severity.UNKNOWN]} unknown"] if counts[Severity.UNKNOWN] else []
        return ", ".join([*parts, f"{counts[Severity.OK]} ok"]) + "."

    def as_dict(self) -> dict[str, object]:
        """Return it as ``--json`` writes it."""
        findings = [
            {
                "group": group,
                "check": result.key,
                "title": result.title,
                "verdict": word_of(result),
                "text": result.text,
                "evidence": list(result.evidence),
                "command": result.remedy,
            }
            for group, results in self.groups.items()
            for result in results
        ]
        return {"ok": self.is_well, "environment": self.header, "findings": findings}


def examine(facts: Environment) -> Report:
    """Run every check."""
    groups = {}
    for group, checks in CHECKS.items():
        results: list[Finding] = []
        for key, title, check in checks:
            try:
                found = check(facts)
            except UnansweredError as error:
                found = unknown(str(error))
            several = found if isinstance(found, list) else [found] if found is not None else []
            results += [replace(one, key=one.key or key, title=one.title or title) for one in several]
        if results:
            groups[group] = tuple(results)
    header = {"where": str(facts.place)}
    seen = [str(one) for one in (facts.tpu, facts.gpus) if one is not None]
    if seen or "gpus" not in facts.unanswered:
        header["accelerator"] = "; ".join(seen) or "none found"
    if (resources := facts.resources) is not None:
        memory = f", {resources.memory_bytes / 1e9:.1f} GB of memory" if resources.memory_bytes else ""
        header["cores"] = f"{resources.cores:g}{memory}"
    if (packages := facts.packages) is not None:
        versions = [f"{name} {packages.version(name)}" for name in _SHOWN if packages.version(name)]
        header["software"] = ", ".join([f"Python {packages.python}", *versions])
    return Report(header, groups)
