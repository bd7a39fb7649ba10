"""Recorded environments as real files: puts a recording's devices, files and processes under a folder to read them."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpu_console.engine.machine.sources import Package, Sources, Space

ENVIRONMENTS = Path(__file__).with_name("environments")
NAMES = sorted(path.parent.name for path in ENVIRONMENTS.glob("*/recording.toml"))


@dataclass(frozen=True)
class Recorded:
    """A recording, laid out on disk."""

    sources: Sources
    asked: list[str]  # attributes that the metadata server was asked for
    reached: list[str]  # hosts that a connection was tried to


def expected_of(name: str) -> dict[str, Any]:
    """What is to come out of a recording."""
    return tomllib.loads((ENVIRONMENTS / name / "expected.toml").read_text(encoding="utf-8"))


def lay_out(name: str, root: Path) -> Recorded:
    """Write a recording's files below a folder, and make sources that read them."""
    told = tomllib.loads((ENVIRONMENTS / name / "recording.toml").read_text(encoding="utf-8"))
    for path, text in told.get("files", {}).items():
        put(root / path, text)
    put(root / "proc/meminfo", f"MemTotal:       {told['memory_kib']} kB\n")
    for device in told.get("devices", []):
        put(root / device)
    for card in told.get("pci", []):
        folder = root / "sys/bus/pci/devices" / card["address"]
        for file in ("vendor", "device", "subsystem_device"):
            put(folder / file, f"{card.get(file, '0x0000')}\n")
    for process in told.get("process", []):
        _add_process(root, process)
    _add_lock(root, told)
    asked: list[str] = []
    reached: list[str] = []
    return Recorded(_sources(told, root, asked, reached), asked, reached)


def _sources(told: dict[str, Any], root: Path, asked: list[str], reached: list[str]) -> Sources:
    attributes: dict[str, str] = told.get("metadata", {})
    printed: dict[str, str] = told.get("commands", {})

    def package(name: str) -> Package | None:
        version = told.get("packages", {}).get(name)
        return Package(name, version, tuple(told.get("requires", {}).get(name, ()))) if version else None

    def space(folder: Path) -> Space | None:
        room = told["disks"].get(str(folder))
        return Space(int(room[0] * 1e9), int(room[1] * 1e9)) if room else None

    def metadata(key: str) -> str | None:
        asked.append(key)
        return attributes.get(key)

    def run(command: Sequence[str]) -> str | None:
        return printed.get(command[0])

    def reaches(host: str, port: int) -> bool:
        reached.append(f"{host}:{port}")
        return bool(told["internet"])

    home = told["environ"].get("HOME", "/root")
    return Sources(
        environ=told["environ"],
        root=root,
        uid=told["uid"],
        cpus=told["cpus"],
        python=told["python"],
        folders={"Keras cache": Path(home, ".keras"), "runs": Path(home, ".local/share/tpu-console/runs")},
        package=package,
        space=space,
        metadata=metadata,
        run=run,
        which=lambda program: f"/usr/bin/{program}" if program in told.get("programs", []) else None,
        reaches=reaches,
        is_terminal=told["is_terminal"],
    )


def _add_process(root: Path, process: dict[str, Any]) -> None:
    folder = root / "proc" / str(process["pid"])
    put(folder / "cmdline", process["command"].replace(" ", "\0") + "\0")
    put(folder / "status", f"Name:\tpython\nUid:\t{process['uid']}\t{process['uid']}\n")
    (folder / "fd").mkdir()
    for number, target in enumerate(process.get("opens", []), start=3):
        (folder / "fd" / str(number)).symlink_to(target)


def _add_lock(root: Path, told: dict[str, Any]) -> None:
    """Write libtpu's lock file. It belongs to whoever runs the tests, so a recording of another's has another uid."""
    if (lock := told.get("lock")) is None:
        return
    path = root / "tmp/libtpu_lockfile"
    put(path)
    path.chmod(0o600)
    if lock["pid"]:
        number = path.stat().st_ino
        put(root / "proc/locks", f"1: POSIX  ADVISORY  WRITE {lock['pid']} 08:01:{number} 0 EOF\n")


def put(path: Path, text: str = "") -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
