"""Checks of the machine: limits, disks, internet, terminal, GPUs, packages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..findings import Finding, Severity
from ..machine.install import tensorflow_for
from ..machine.packages import CUDA_PLUGINS, NEW_LIBTPU, Misfit
from ..machine.place import Kind
from ..storage.disk_space import size_text
from .check import install_command, not_checked, result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..machine.environment import Environment
    from ..machine.resources import Disk


_GB = 1e9
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 2 * _GB, 0.5 * _GB
_SMALL_SHM_BYTES = 512e6
_MANY_COLOURS = 256


def check_limits(facts: Environment) -> Finding:
    """Report the usable cores and memory."""
    resources, title = facts.resources, "Cores and memory"
    if resources is None:
        return not_checked("limits", title, facts, "resources")
    text = f"{resources.cores:g} of {resources.processors} cores"
    if resources.memory_bytes:
        text += f", {resources.memory_bytes / _GB:.1f} of {resources.machine_memory_bytes / _GB:.1f} GB of memory"
    limited = any("cgroup" in name for name in resources.evidence)
    text += "; limited by a container." if limited else "."
    return result_of("limits", title, Severity.INFO if limited else Severity.OK, text, resources.evidence)


def check_disks(facts: Environment) -> list[Finding]:
    """Check the disk space for downloads and runs, and shared memory."""
    if facts.disks is None:
        return [not_checked("disks", "Disks", facts, "disks")]
    results = []
    for disk in facts.disks:
        if disk.purpose == "shared memory":
            results.append(_shared_memory(disk, facts))
            continue
        check, title = f"disk-{disk.purpose.lower().replace(' ', '-')}", f"Disk ({disk.purpose})"
        severity, text, command = Severity.UNKNOWN, "The free space could not be read.", ""
        if disk.space is not None:
            free = disk.space.free_bytes
            severity = Severity.OK if free >= _LITTLE_BYTES else Severity.WARNING
            severity = Severity.ERROR if free < _TOO_LITTLE_BYTES else severity
            text = f"{size_text(free)} free of {size_text(disk.space.total_bytes)}."
            if severity is not Severity.OK:
                text += " Datasets, weights and checkpoints can take hundreds of megabytes each."
                command = f"du -xh --max-depth=2 {disk.measured_at} | sort -h | tail"
        results.append(result_of(check, title, severity, text, (str(disk.folder),), command))
    return results


def _shared_memory(disk: Disk, facts: Environment) -> Finding:
    title, evidence = "Shared memory", (str(disk.folder),)
    if disk.space is None:
        text = "There is no /dev/shm, which training processes use to exchange data."
        command = "sudo mount -t tmpfs -o size=1g tmpfs /dev/shm"
        return result_of("shared-memory", title, Severity.WARNING, text, evidence, command)
    text = f"{size_text(disk.space.total_bytes)}."
    if facts.gpus is not None and len(facts.gpus.names) > 1 and disk.space.total_bytes < _SMALL_SHM_BYTES:
        text += " Several GPUs exchange gradients through it and need more; start the container with --shm-size=1g."
        return result_of("shared-memory", title, Severity.WARNING, text, evidence, "df -h /dev/shm")
    return result_of("shared-memory", title, Severity.OK, text, evidence)


def check_internet(facts: Environment) -> Finding | None:
    """Check whether Kaggle's internet switch is on; datasets and weights cannot be downloaded without it."""
    title = "Internet"
    if facts.place.kind is not Kind.KAGGLE:
        return None
    if "has_internet" in facts.unanswered:
        return not_checked("internet", title, facts, "has_internet")
    evidence = (f"{'a' if facts.has_internet else 'no'} connection to {facts.data_host}:443",)
    if facts.has_internet:
        return result_of("internet", title, Severity.OK, f"{facts.data_host} answers.", evidence)
    text = (
        f"{facts.data_host} does not answer: downloads will fail. Turn on internet in the notebook's settings "
        "(this needs a verified phone number), or train on data that is already here."
    )
    command = "tpu-console run digits-cnn   # needs no download"
    return result_of("internet", title, Severity.WARNING, text, evidence, command)


def check_encoding(facts: Environment) -> Finding:
    """Check that the locale uses UTF-8."""
    shell, title = facts.shell, "UTF-8"
    evidence = (shell.locale or "LC_ALL, LC_CTYPE and LANG are not set",)
    if shell.is_utf8:
        return result_of("utf-8", title, Severity.OK, "Curves can be drawn with braille.", evidence)
    text = "The locale does not use UTF-8, so the console draws with ASCII characters only."
    return result_of("utf-8", title, Severity.WARNING, text, evidence, "export LC_ALL=C.UTF-8")


def check_colours(facts: Environment) -> Finding | None:
    """Check how many colours the terminal supports."""
    shell, title = facts.shell, "Colours"
    if not shell.is_terminal:
        return None  # nothing is coloured in a pipe or a notebook cell
    evidence = (shell.colour_evidence,)
    if shell.colours >= _MANY_COLOURS:
        return result_of("colours", title, Severity.OK, f"{shell.colours:,} colours.", evidence)
    is_off = shell.colour_evidence.startswith("NO_COLOR")
    text = f"The terminal reports {shell.colours} colours; most support 256, which makes curves easier to tell apart."
    text = "Colours are turned off; curves differ only in their lines and labels." if is_off else text
    command = "unset NO_COLOR" if is_off else "export TERM=xterm-256color"
    severity = Severity.INFO if shell.colours or is_off else Severity.WARNING
    return result_of("colours", title, severity, text, evidence, command)


def check_connection(facts: Environment) -> Finding | None:
    """Check whether the console survives a lost SSH connection."""
    shell, title = facts.shell, "Lost connection"
    if not shell.ssh:
        return None
    if shell.multiplexer:
        text = f"The console runs in {shell.multiplexer}, which survives a lost connection."
        return result_of("connection", title, Severity.OK, text, (shell.ssh,))
    stays = "When the connection is lost, runs continue but the console ends"
    if shell.installed:
        command = "tmux new -A -s train" if shell.installed[0] == "tmux" else "screen -dRS train"
        text = f"{stays}; {shell.installed[0]} keeps it open."
        return result_of("connection", title, Severity.INFO, text, (shell.ssh,), command)
    text = f"{stays}. tmux keeps it open, but neither tmux nor screen is installed."
    return result_of("connection", title, Severity.WARNING, text, (shell.ssh,), "sudo apt-get install tmux")


MACHINE_CHECKS = (check_limits, check_disks, check_internet)
TERMINAL_CHECKS = (check_encoding, check_colours, check_connection)


_WITH_CUDA = ("tensorflow", "tf-nightly")


def check_gpu(facts: Environment) -> Finding | None:
    """Report the GPUs, or that training runs on the CPU."""
    gpus, title = facts.gpus, "GPU"
    if "gpus" in facts.unanswered:
        return not_checked("gpu", title, facts, "gpus")
    if gpus is not None:
        driver = f", driver {gpus.driver}" if gpus.driver else ""
        return result_of("gpu", title, Severity.OK, f"{gpus}{driver}.", gpus.evidence)
    if facts.tpu is not None:
        return None
    text = "No TPU and no NVIDIA GPU was found; training runs on the CPU."
    if facts.place.is_notebook:
        text += " You can choose an accelerator in the notebook's settings."
    evidence = ("none in /sys/bus/pci/devices, /dev/accel*, /dev/nvidia* and /proc/driver/nvidia",)
    return result_of("no-accelerator", "Accelerator", Severity.INFO, text, evidence)


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
    evidence = (f"{built[0].name} {built[0].version}", *(f"{name}: {place}" for name, place in gpus.libraries))
    if gpus.missing:
        text = f"CUDA libraries are missing: {', '.join(gpus.missing)}. TensorFlow cannot use the GPU without them."
        command = install_command(facts, f"{built[0].name}[and-cuda]=={built[0].version}")
        return result_of("gpu-tensorflow", title, Severity.ERROR, text, evidence, command)
    return result_of("gpu-tensorflow", title, Severity.OK, "The CUDA libraries are installed.", evidence)


def check_jax_gpu(facts: Environment) -> Finding | None:
    """Check that JAX, if installed, has its CUDA plugin."""
    gpus, packages, title = facts.gpus, facts.packages, "JAX on the GPU"
    if gpus is None or packages is None or not packages.version("jax"):
        return None
    found = [f"{name} {packages.version(name)}" for name in ("jax", *CUDA_PLUGINS) if packages.version(name)]
    if len(found) > 1:
        return result_of("gpu-jax", title, Severity.OK, "The CUDA plugin of JAX is installed.", tuple(found))
    text = "JAX lacks its CUDA plugin, and trains on the CPU."
    command = install_command(facts, "jax[cuda12]")
    return result_of("gpu-jax", title, Severity.INFO, text, tuple(found), command)


GPU_CHECKS = (check_gpu, check_tensorflow_gpu, check_jax_gpu)


_METADATA = ("metadata of the installed packages",)


def check_tensorflow(facts: Environment) -> Finding:
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
    names = " and ".join(f"{package.name} {package.version}" for package in found)
    if packages.has_one_tensorflow:
        return result_of("tensorflow", title, Severity.OK, f"{names}.", _METADATA)
    tpu = facts.tpu is not None and (facts.tpu.is_here or bool(facts.tpu.address))
    keep = next((p for p in found if (p.name == "tensorflow-tpu") == tpu), found[0])
    gone = " ".join(package.name for package in found if package is not keep)
    text = f"{names} are installed into the same folder, so the imported TensorFlow is a mixture of them."
    command = f"pip uninstall -y {gone} && pip install --force-reinstall --no-deps {keep.name}=={keep.version}"
    return result_of("tensorflow", title, Severity.ERROR, text, _METADATA, command)


def check_keras(facts: Environment) -> Finding | None:
    """Check that Keras is version 3 and meets TensorFlow's requirement."""
    packages, title = facts.packages, "Keras"
    if packages is None:
        return None  # check_tensorflow reports it
    keras = packages.version("keras")
    if not keras or keras.startswith(("1.", "2.")):
        text = f"Keras 3 is needed, and {f'Keras {keras}' if keras else 'none'} is installed."
        return result_of("keras", title, Severity.ERROR, text, _METADATA, "pip install 'keras>=3.7'")
    if misfits := [one for package in packages.tensorflows for one in packages.misfits(package.name, "keras")]:
        return _misfit("keras", title, misfits, Severity.ERROR)
    return result_of("keras", title, Severity.OK, f"keras {keras}.", _METADATA)


def check_jax(facts: Environment) -> Finding | None:
    """Check jaxlib against JAX's requirement."""
    packages, title = facts.packages, "JAX"
    if packages is None or not (jax := packages.version("jax")):
        return None
    if misfits := packages.misfits("jax", "jaxlib"):
        return _misfit("jax", title, misfits, Severity.ERROR)
    jaxlib = packages.version("jaxlib")
    text, severity = f"jax {jax}, jaxlib {jaxlib or 'missing'}.", Severity.OK if jaxlib else Severity.ERROR
    return result_of("jax", title, severity, text, _METADATA, "" if jaxlib else f"pip install 'jax=={jax}'")


def check_libtpu(facts: Environment) -> Finding | None:
    """Check libtpu against the requirements of TensorFlow and JAX."""
    packages, title = facts.packages, "libtpu"
    if packages is None or not (libtpu := packages.version("libtpu")):
        return None
    for_jax = packages.misfits("jax", "libtpu", extra="tpu")
    if for_tensorflow := packages.misfits("tensorflow-tpu", "libtpu"):
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
    return result_of("libtpu", title, Severity.OK, f"libtpu {libtpu}.", _METADATA)


def _misfit(check: str, title: str, misfits: Sequence[Misfit], severity: Severity) -> Finding:
    first = misfits[0]
    have = f"{first.found} is installed" if first.found else "it is not installed"
    text = f"{first.owner} requires {first.requirement}, but {have}."
    evidence = tuple(f"requirements of {misfit.owner}" for misfit in misfits)
    return result_of(check, title, severity, text, evidence, f"pip install '{first.requirement}'")


PACKAGE_CHECKS = (check_tensorflow, check_keras, check_jax, check_libtpu)
