"""Folders of runs and sweeps that lead out of themselves, or whose values are code, addresses and files of the user.

Out of each of `make_led_out` leads one thing: a link, a hard link or a pipe in place of a file or folder. Nothing may
follow it. What the values of the others name may not be run, called, read or written.
"""

import json
import os
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from tests.hostile_runs import EVENT_CLASSES, HOSTILE, NAMES, T0, epoch, fit, hostile_event, line, started

CANARY = "CANARY"
"""Stands in every file outside of the runs: what shows it or copies it has followed a link."""

FILES = (
    "config.toml", "events.jsonl", "console.log", "heartbeat.json", "reserved-space", "model.keras", "inputs.json",
    "history.csv", "summary.json", "report.json", "annotations.json", "checkpoints/best.keras",
    "checkpoints/state-000001.ckpt", "control/stop.json", "control/00000000000000000001-00000000.json",
    "cache/train.images", "tensorboard/train/events.out.tfevents.1.host.1.0.v2",
)  # fmt: skip
FOLDERS = ("control", "checkpoints", "tensorboard", "tensorboard/train", "cache", "hub", "hub/assets")
"""What a run's folder holds, and a hostile one holds as a link or the like."""

SWEEP_FILES = ("sweep.toml", "runs/0001", "control/stop", "lock", "study.db", "console.log")
SWEEP_FOLDERS = ("runs", "control")
"""The same of a sweep's folder."""

CODE = "__import__('os').system('touch PWNED')"
PAYLOADS = (
    f'"""\n{CODE}\n"""',
    f"a=1) if 0 else {CODE} or dict(b",
    f"'; {CODE} #",
    f"\\'\n{CODE}\n",
    f"{{{CODE}}}",
    f'")\n{CODE}\n#',
)
"""Texts that become code where a program writes them into a program."""

EVIL = """
import pathlib

pathlib.Path(__file__).with_name("PWNED").touch()


def load(*args, **options):
    return [[0.0]], [0]


class Thing:
    pass
"""
"""Code that leaves a mark beside it when it is imported."""


def led_out(folder: Path, name: str, elsewhere: Path, kind: str, *, is_folder: bool) -> None:
    """Put a file or folder of a run outside of it, with a canary, and something in its place that leads there."""
    path, target = folder / name, elsewhere / f"{folder.name} {name.replace('/', ' ')}"
    path.parent.mkdir(exist_ok=True, parents=True)
    if is_folder:
        path.mkdir(exist_ok=True)
        for name_there in (".bashrc.1", "notes.7.draft", ".draft-1-x", "state-000009.ckpt", "stop.json", "0003"):
            (path / name_there).write_text(CANARY)
            os.utime(path / name_there, (1e9, 1e9))
    else:
        with path.open("ab") as file:
            file.write(canary_of(path.suffix))
    path.rename(target)
    if kind == "new":  # a link that makes a file elsewhere when it is written
        remove = shutil.rmtree if target.is_dir() else os.unlink
        remove(target)
    {"hard": os.link, "pipe": lambda _, place: os.mkfifo(place)}.get(kind, os.symlink)(target, path)


def canary_of(suffix: str) -> bytes:
    kinds = {".toml": f"# {CANARY}\n".encode(), ".jsonl": line(message=CANARY), ".csv": f"{CANARY}\n".encode()}
    return {**kinds, ".json": b"\n" * 3, ".keras": b""}.get(suffix, CANARY.encode())


def led_out_kinds(files: Sequence[str], folders: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return, by the name of a hostile folder, what leads out of it and how."""
    pairs = [(name, kind) for kind in ("link", "new", "hard", "pipe") for name in files]
    pairs += [(name, kind) for kind in ("link", "new") for name in folders]
    return {f"20280101-{number:06d}-{kind}": (name, kind) for number, (name, kind) in enumerate(pairs)}


def make_led_out(place: Path, elsewhere: Path, good: Path, files: Sequence[str], folders: Sequence[str]) -> list[Path]:
    """Make copies of a folder, out of each of which something else leads, and a link to another copy."""
    made = []
    for name, (inner, kind) in led_out_kinds(files, folders).items():
        made.append(place / name)
        shutil.copytree(good, made[-1])
        led_out(made[-1], inner, elsewhere, kind, is_folder=inner in folders)
    shutil.copytree(good, elsewhere / good.name)
    made.append(place / "20280101-999999-linked")
    made[-1].symlink_to(elsewhere / good.name)
    return made


def reaching(user: Path, address: str) -> list[dict[str, Any]]:
    """Return what configurations change to reach code, addresses and files of the user."""
    thing, load = f"{user / 'evil.py'}:Thing", f"{user / 'evil.py'}:load"
    return [
        {"dataset": load},
        {"dataset": "evil.py:load"},
        {"model": thing},
        {"optimizer": {"name": thing}},
        {"loss": load},
        *({key: [thing]} for key in ("callbacks", "custom_objects", "metrics")),
        {"callbacks": [f"model_checkpoint({str(user / 'new.keras')!r})"]},
        {"alerts": {"webhook": f"{address}/hook"}},
        {"mirror": str(user / "published")},
        {"sinks": ["wandb"]},
        {"weights": str(user / ".bashrc")},
        {"accelerator": f"tpu:{address[7:]}"},
    ]


def misleading() -> list[dict[str, Any]]:
    """Return what configurations change to have code in their keys and texts."""
    found: list[dict[str, Any]] = []
    for text in PAYLOADS:
        found += [{"model_options": {text: 1}}, {"augmentation": {text: 1}}, {"data": {"options": {text: 1}}}]
        found.append({"dataset": "text-csv", "data": {"options": {"path": text, "inputs": text}}})
    return found


def make_values(place: Path, user: Path, good: Path, address: str) -> list[Path]:
    """Make runs with hostile configurations, with names and texts that are code, and with hostile names."""
    (user / "published").mkdir()
    (user / "evil.py").write_text(EVIL)
    config = tomllib.loads((good / "config.toml").read_text())
    made = []

    def copied(name: str) -> Path:
        made.append(place / name)
        shutil.copytree(good, made[-1])
        return made[-1]

    reaches = reaching(user, address)
    for number, changes in enumerate([*reaches, *misleading()]):
        run = copied(f"20290101-{number:06d}-{'reaches' if number < len(reaches) else 'config'}")
        (run / "evil.py").write_text(EVIL)
        whole = {
            **config,
            **{key: {**config[key], **new} if isinstance(new, dict) else new for key, new in changes.items()},
        }
        (run / "config.toml").write_text(tomli_w.dumps(whole))
    for number, text in enumerate((*PAYLOADS, HOSTILE)):
        run = copied(f"20290102-{number:06d}-texts")
        records = [hostile_event(cls, T0 + at, text) for at, cls in enumerate(EVENT_CLASSES)]
        (run / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (run / "annotations.json").write_text(json.dumps({"title": text, "tags": [text], "note": text}))
        (run / "inputs.json").write_text(json.dumps({"class_names": [text] * 10, "classes": [text] * 10}))
        copied(f"20290103-{number:06d}-{text.replace('/', '')[:60]}")
    for name in NAMES:
        copied(name)
    outside = [
        line("RunFailed", T0 + 99, what="w", why="y", remedy="r", log="../../../user/.bashrc"),
        line("CheckpointSaved", T0 + 1, epoch=1, path=str(user / ".bashrc"), metric="loss", value=1.0),
    ]
    for number, event in enumerate(outside):
        (copied(f"20290104-{number:06d}-path") / "events.jsonl").write_bytes(started() + fit() + epoch() + event)
    return made


def make_sweep_values(place: Path, user: Path, good: Path, address: str) -> list[Path]:
    """Make sweeps with hostile configurations, values, storages and names of runs."""
    definition = tomllib.loads((good / "sweep.toml").read_text())
    config, made = definition["config"], list[Path]()
    changes: list[dict[str, Any]] = [{"config": {**config, **values}} for values in reaching(user, address)]
    changes += [{"over": [f"dataset={user / 'evil.py'}:load"]}, {"over": [f"mirror={user / 'published'}"]}]
    changes += [{"search": "random", "storage": f"{address.replace('http', 'mysql')}/x"}]
    changes += [{"search": "random", "storage": str(user / "study.log")}]
    for number, change in enumerate(changes):
        made.append(place / f"20290101-{number:06d}-reaches")
        shutil.copytree(good, made[-1])
        (made[-1] / "sweep.toml").write_text(tomli_w.dumps({**definition, **change}))
    for number, name in enumerate(("..", ".", "", "../../user", str(user), "\0", HOSTILE)):
        made.append(place / f"20290102-{number:06d}-names")
        shutil.copytree(good, made[-1])
        (made[-1] / "runs" / "0001").write_text(name)
    return made
