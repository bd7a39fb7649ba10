"""Checks of the machine: packages, limits, disks, internet, GPUs, encoding, colours, lost connections."""

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


def check_limits(facts: Environment) -> Finding | None:
    """Report the usable cores and memory."""
    resources, title = facts.resources, "Cores and memory"
    if resources is None:
        return not_checked("limits", title, facts, "resources")
    text = f"{resources.cores:g} cores"
    if resources.cores < resources.processors:
        text += f" of {resources.processors}"
    if resources.memory_bytes:
        text += f", {resources.memory_bytes / _GB:.1f} GB of memory"
    if resources.memory_bytes < resources.machine_memory_bytes:
        text += f" of {resources.machine_memory_bytes / _GB:.1f} GB"
    limited = any("cgroup" in name for name in resources.evidence)
    text += "; limited by a container." if limited else "."
    return result_of("limits", title, Severity.INFO if limited else Severity.OK, text, resources.evidence)


def check_disks(facts: Environment) -> list[Finding]:
    """Check the disk space for downloads and runs, and shared memory."""
    if facts.disks is None:
        return [not_checked("disks", "Disks", facts, "disks")]
    return [_shared_memory(d, facts) if d.purpose == "shared memory" else _disk(d) for d in facts.disks]


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


def check_metadata(facts: Environment) -> Finding | None:
    """Report a metadata server of Google Cloud that did not answer in time."""
    if "metadata" not in facts.unanswered:
        return None
    return not_checked("metadata", "Metadata server", facts, "metadata")


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
    if shell.colour_evidence.startswith("NO_COLOR"):
        text = "Colours are turned off; curves differ only in their lines and labels."
        return result_of("colours", title, Severity.INFO, text, evidence, "unset NO_COLOR")
    if shell.colours:
        text = (
            f"The terminal reports {shell.colours} colours. Most support 256, which makes curves easier to tell apart."
        )
        return result_of("colours", title, Severity.INFO, text, evidence, "export TERM=xterm-256color")
    text = "The terminal cannot show colours or move the cursor, so output is plain lines."
    return result_of("colours", title, Severity.WARNING, text, evidence, "export TERM=xterm-256color")


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
        tool = shell.installed[0]
        command = "tmux new -A -s train" if tool == "tmux" else "screen -dRS train"
        return result_of("connection", title, Severity.INFO, f"{stays}; {tool} keeps it open.", (shell.ssh,), command)
    text = f"{stays}. tmux keeps it open, but neither tmux nor screen is installed."
    return result_of("connection", title, Severity.WARNING, text, (shell.ssh,), "sudo apt-get install tmux")


def _disk(disk: Disk) -> Finding:
    check, title = f"disk-{disk.purpose.lower().replace(' ', '-')}", f"Disk ({disk.purpose})"
    evidence = (str(disk.folder),)
    if disk.space is None:
        return result_of(check, title, Severity.UNKNOWN, "The free space could not be read.", evidence)
    free = disk.space.free_bytes
    text = f"{size_text(free)} free of {size_text(disk.space.total_bytes)}."
    if free >= _LITTLE_BYTES:
        return result_of(check, title, Severity.OK, text, evidence)
    severity = Severity.ERROR if free < _TOO_LITTLE_BYTES else Severity.WARNING
    text += " Datasets, weights and checkpoints can take hundreds of megabytes each."
    return result_of(
        check, title, severity, text, evidence, f"du -xh --max-depth=2 {disk.measured_at} | sort -h | tail"
    )


def _shared_memory(disk: Disk, facts: Environment) -> Finding:
    title, evidence = "Shared memory", (str(disk.folder),)
    if disk.space is None:
        text = "There is no /dev/shm, which training processes use to exchange data."
        command = "sudo mount -t tmpfs -o size=1g tmpfs /dev/shm"
        return result_of("shared-memory", title, Severity.WARNING, text, evidence, command)
    text = f"{size_text(disk.space.total_bytes)}."
    several = facts.gpus is not None and len(facts.gpus.names) > 1
    if several and disk.space.total_bytes < _SMALL_SHM_BYTES:
        text += " Several GPUs exchange gradients through it and need more; start the container with --shm-size=1g."
        return result_of("shared-memory", title, Severity.WARNING, text, evidence, "df -h /dev/shm")
    return result_of("shared-memory", title, Severity.OK, text, evidence)


MACHINE_CHECKS = (check_limits, check_disks, check_internet, check_metadata)
TERMINAL_CHECKS = (check_encoding, check_colours, check_connection)


_WITH_CUDA = ("tensorflow", "tf-nightly")


def check_gpu(facts: Environment) -> Finding | None:
    """Report the GPUs."""
    gpus, title = facts.gpus, "GPU"
    if "gpus" in facts.unanswered:
        return not_checked("gpu", title, facts, "gpus")
    if gpus is None:
        return None
    driver = f", driver {gpus.driver}" if gpus.driver else ""
    return result_of("gpu", title, Severity.OK, f"{gpus}{driver}.", gpus.evidence)


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
    version = f"{built[0].name} {built[0].version}"
    places = tuple(f"{name}: {place}" for name, place in gpus.libraries)
    if gpus.missing:
        text = f"CUDA libraries are missing: {', '.join(gpus.missing)}. TensorFlow cannot use the GPU without them."
        command = install_command(facts, f"{built[0].name}[and-cuda]=={built[0].version}")
        return result_of("gpu-tensorflow", title, Severity.ERROR, text, (version, *places), command)
    return result_of("gpu-tensorflow", title, Severity.OK, "The CUDA libraries are installed.", (version, *places))


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


def check_no_accelerator(facts: Environment) -> Finding | None:
    """Report that training runs on the CPU."""
    if facts.tpu is not None or facts.gpus is not None or "gpus" in facts.unanswered:
        return None
    text = "No TPU and no NVIDIA GPU was found; training runs on the CPU."
    if facts.place.is_notebook:
        text += " You can choose an accelerator in the notebook's settings."
    evidence = ("none in /sys/bus/pci/devices, /dev/accel*, /dev/nvidia* and /proc/driver/nvidia",)
    return result_of("no-accelerator", "Accelerator", Severity.INFO, text, evidence)


GPU_CHECKS = (check_gpu, check_tensorflow_gpu, check_jax_gpu, check_no_accelerator)


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


PACKAGE_CHECKS = (check_tensorflow, check_keras, check_jax, check_libtpu)
