"""Checks of the machine and of the terminal: limits, disks, internet, encoding, colours, lost connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine.place import Kind
from .check import Finding, Verdict, could_not_tell

if TYPE_CHECKING:
    from ..machine.environment import Environment
    from ..machine.resources import Disk

_GB = 1e9
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 2 * _GB, 0.5 * _GB
_SMALL_SHM_BYTES = 512e6
_MANY_COLOURS = 256


def check_limits(facts: Environment) -> Finding | None:
    """Say how many cores and how much memory may be used."""
    resources, title = facts.resources, "Cores and memory"
    if resources is None:
        return could_not_tell("limits", title, facts, "resources")
    text = f"{resources.cores:g} cores"
    if resources.cores < resources.processors:
        text += f" of {resources.processors}"
    if resources.memory_bytes:
        text += f", {resources.memory_bytes / _GB:.1f} GB of memory"
    if resources.memory_bytes < resources.machine_memory_bytes:
        text += f" of {resources.machine_memory_bytes / _GB:.1f} GB"
    limited = any("cgroup" in name for name in resources.evidence)
    text += "; a container sets the limit." if limited else "."
    return Finding("limits", title, Verdict.NOTE if limited else Verdict.OK, text, resources.evidence)


def check_disks(facts: Environment) -> list[Finding]:
    """Check the room for downloads and for runs, and shared memory."""
    if facts.disks is None:
        return [could_not_tell("disks", "Disks", facts, "disks")]
    return [_shared_memory(d, facts) if d.purpose == "shared memory" else _disk(d) for d in facts.disks]


def check_internet(facts: Environment) -> Finding | None:
    """Check Kaggle's internet switch, without which no data set and no weights can be fetched."""
    title = "Internet"
    if facts.place.kind is not Kind.KAGGLE:
        return None
    if "internet" in facts.unanswered:
        return could_not_tell("internet", title, facts, "internet")
    evidence = (f"a connection to {facts.data_host}:443",)
    if facts.has_internet:
        return Finding("internet", title, Verdict.OK, f"{facts.data_host} answers.", evidence)
    text = (
        f"{facts.data_host} does not answer: downloads will fail. Switch internet on in the notebook's settings "
        "(the account needs a verified phone number), or train on data that is here."
    )
    command = "tpu-console run digits-cnn   # needs no download"
    return Finding("internet", title, Verdict.WARNING, text, evidence, command)


def check_metadata(facts: Environment) -> Finding | None:
    """Say that Google's metadata server gave no answer in time, where it was asked."""
    if "metadata" not in facts.unanswered:
        return None
    return could_not_tell("metadata", "Metadata server", facts, "metadata")


def check_encoding(facts: Environment) -> Finding:
    """Check that the locale is a UTF-8 one."""
    shell, title = facts.shell, "UTF-8"
    evidence = (shell.locale or "LC_ALL, LC_CTYPE and LANG are not set",)
    if shell.is_utf8:
        return Finding("utf-8", title, Verdict.OK, "Curves can be drawn with braille.", evidence)
    text = "The locale is not a UTF-8 one: the console draws with ASCII characters only."
    return Finding("utf-8", title, Verdict.WARNING, text, evidence, "export LC_ALL=C.UTF-8")


def check_colours(facts: Environment) -> Finding | None:
    """Check how many colours the terminal says it shows."""
    shell, title = facts.shell, "Colours"
    if not shell.is_terminal:
        return None  # nothing is coloured in a pipe or a notebook cell
    evidence = (shell.colour_evidence,)
    if shell.colours >= _MANY_COLOURS:
        return Finding("colours", title, Verdict.OK, f"{shell.colours:,} colours.", evidence)
    if shell.colour_evidence.startswith("NO_COLOR"):
        text = "Colours are switched off: curves differ by their lines and labels only."
        return Finding("colours", title, Verdict.NOTE, text, evidence, "unset NO_COLOR")
    if shell.colours:
        text = f"{shell.colours} colours by its name; most terminals show 256, and curves are told apart better then."
        return Finding("colours", title, Verdict.NOTE, text, evidence, "export TERM=xterm-256color")
    text = "The terminal shows no colours and cannot place the cursor: there are plain lines only."
    return Finding("colours", title, Verdict.WARNING, text, evidence, "export TERM=xterm-256color")


def check_connection(facts: Environment) -> Finding | None:
    """Check what becomes of the console when a connection through SSH is lost."""
    shell, title = facts.shell, "Lost connection"
    if not shell.ssh:
        return None
    if shell.multiplexer:
        text = f"This runs in {shell.multiplexer}, which outlives the connection."
        return Finding("connection", title, Verdict.OK, text, (shell.ssh,))
    stays = "A run goes on when the connection is lost, the console does not"
    if shell.installed:
        tool = shell.installed[0]
        command = "tmux new -A -s train" if tool == "tmux" else "screen -dRS train"
        return Finding("connection", title, Verdict.NOTE, f"{stays}; {tool} keeps both.", (shell.ssh,), command)
    text = f"{stays}. tmux keeps both; neither tmux nor screen is installed."
    return Finding("connection", title, Verdict.WARNING, text, (shell.ssh,), "sudo apt-get install tmux")


def _size(count: float) -> str:
    return f"{count / _GB:,.1f} GB" if count >= _GB else f"{count / 1e6:.0f} MB"


def _disk(disk: Disk) -> Finding:
    check, title = f"disk-{disk.purpose.lower().replace(' ', '-')}", f"Disk ({disk.purpose})"
    evidence = (str(disk.folder),)
    if disk.space is None:
        return Finding(check, title, Verdict.UNKNOWN, "No folder above it could be read.", evidence)
    free = disk.space.free_bytes
    text = f"{_size(free)} free of {_size(disk.space.total_bytes)}."
    if free >= _LITTLE_BYTES:
        return Finding(check, title, Verdict.OK, text, evidence)
    verdict = Verdict.PROBLEM if free < _TOO_LITTLE_BYTES else Verdict.WARNING
    text += " Data sets, weights and checkpoints take hundreds of megabytes each."
    return Finding(check, title, verdict, text, evidence, f"du -xh --max-depth=2 {disk.measured_at} | sort -h | tail")


def _shared_memory(disk: Disk, facts: Environment) -> Finding:
    title, evidence = "Shared memory", (str(disk.folder),)
    if disk.space is None:
        text = "There is no /dev/shm. Processes of one training use it to hand data to one another."
        command = "sudo mount -t tmpfs -o size=1g tmpfs /dev/shm"
        return Finding("shared-memory", title, Verdict.WARNING, text, evidence, command)
    text = f"{_size(disk.space.total_bytes)}."
    several = facts.gpus is not None and len(facts.gpus.names) > 1
    if several and disk.space.total_bytes < _SMALL_SHM_BYTES:
        text += " Several GPUs exchange gradients through it and need more: start the container with --shm-size=1g."
        return Finding("shared-memory", title, Verdict.WARNING, text, evidence, "df -h /dev/shm")
    return Finding("shared-memory", title, Verdict.OK, text, evidence)


MACHINE_CHECKS = (check_limits, check_disks, check_internet, check_metadata)
TERMINAL_CHECKS = (check_encoding, check_colours, check_connection)
