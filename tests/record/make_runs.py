"""Trains the recorded runs with the installed `tpu-console`: `python -m tests.record runs`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.helpers import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent

_SMALL = ("model=mlp", "model_options.hidden=[4]", "tensorboard.enabled=false", "accelerator=cpu", "backend=jax")
_FAILING = "def build(input_shape, classes):\n    raise ValueError('the model has no layers')\n"
_NOTEBOOK = """
import keras, numpy as np
from tpu_console import BridgeCallback
x, y = np.random.default_rng(0).normal(size=(256, 4)), np.arange(256) % 3
model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(3, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
callback = BridgeCallback("my-notebook", config={"units": 4, "comment": "two layers"})
model.fit(x, y, epochs=3, validation_split=0.25, verbose=0, callbacks=[callback])
"""
_TEXTS = ("a lovely film", "a boring film", "lovely and funny", "boring and long")


class _Recorder:
    """Runs the program with a folder of runs, and gives each run a short name."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.names: dict[str, str] = {}
        self._environ = os.environ | {"TPU_CONSOLE_HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tpu_console", *arguments]
        return subprocess.Popen(command, cwd=self.home, env=self._environ, stdout=subprocess.DEVNULL)

    def call(self, *arguments: str) -> None:
        self.start(*arguments).wait()

    def train(self, name: str, *settings: str, preset: str = "digits-cnn", epochs: int = 3) -> None:
        self.call(*self._run(preset, epochs, settings))
        self.take(name)

    def interrupt(
        self, name: str, *settings: str, after: Callable[[Path], bool], end: Callable[[str, int], None], epochs: int
    ) -> None:
        """Train until something holds of the run's folder, and end it."""
        process = self.start(*self._run("digits-cnn", epochs, settings))
        wait_until(lambda: self._new() is not None, "a new run")
        run = self.home / "runs" / str(self._new())
        wait_until(lambda: after(run), name)
        end(run.name, json.loads((run / "heartbeat.json").read_text())["pid"])
        process.wait()
        self.take(name)

    def take(self, *names: str) -> None:
        """Name the newest runs, in the order in which they were trained."""
        new = sorted({path.name for path in (self.home / "runs").iterdir()} - {*self.names.values()})
        self.names |= dict(zip(names, new, strict=True))

    def _new(self) -> str | None:
        folder = self.home / "runs"
        found = {path.parent.name for path in folder.glob("*/heartbeat.json")} - {*self.names.values()}
        return next(iter(found), None)

    @staticmethod
    def _run(preset: str, epochs: int, settings: tuple[str, ...]) -> list[str]:
        return ["run", preset, "--epochs", str(epochs), *(part for text in settings for part in ("--set", text))]


def _has(name: str) -> Callable[[Path], bool]:
    return lambda run: any(run.glob(name))


def _count(run: Path, event: str) -> int:
    return (run / "events.jsonl").read_text().count(event) if (run / "events.jsonl").exists() else 0


def _counts_more(run: Path, event: str, before: int) -> bool:
    return _count(run, event) > before


def _epochs(count: int) -> Callable[[Path], bool]:
    return lambda run: _count(run, "EpochEnded") >= count


def make_runs() -> None:
    """Train all runs and replace the recorded ones."""
    with TemporaryDirectory() as folder:
        recorder = _Recorder(Path(folder))
        _train_all(recorder)
        _keep(recorder)


def _train_all(recorder: _Recorder) -> None:
    home = recorder.home
    kill = lambda _name, pid: os.kill(pid, signal.SIGKILL)  # noqa: E731
    recorder.train("finished", *_SMALL, "name=digits-cnn")
    recorder.call("rename", recorder.names["finished"], "A small layer")
    recorder.call("annotate", recorder.names["finished"], "--tag", "baseline", "--note", "The first one.")
    recorder.interrupt(
        "killed", *_SMALL, "batch_size=8", after=_has("checkpoints/state-000002.ckpt"), end=kill, epochs=5000
    )
    recorder.interrupt(
        "resumed", *_SMALL, "batch_size=8", after=_has("checkpoints/state-000002.ckpt"), end=kill, epochs=12
    )
    recorder.call("resume", recorder.names["resumed"])
    recorder.interrupt(
        "stopped",
        *_SMALL,
        "batch_size=8",
        "optimizer.schedule=constant",
        after=_epochs(2),
        end=_steer_and_stop(recorder),
        epochs=5000,
    )
    diverging = ("optimizer.name=sgd", "optimizer.learning_rate=1e30")
    recorder.train("diverged", *_SMALL, *diverging)
    recorder.train("diverged-on", *_SMALL, *diverging, "alerts.nan=warn")
    overfitting = ("model_options.hidden=[256]", "data.train_limit=60", "optimizer.learning_rate=0.05")
    recorder.train("overfitting", *_SMALL[:1], *_SMALL[2:], *overfitting, epochs=30)
    (home / "failing.py").write_text(_FAILING)
    recorder.train("failed", "model=failing.py:build", "accelerator=cpu", "tensorboard.enabled=false")
    recorder.train("two-replicas", *_SMALL[:3], "accelerator=sim:2", "backend=tensorflow")
    lines = [f"{_TEXTS[n % 4]} number {n},{n % 2}" for n in range(80)]
    (home / "reviews.csv").write_text("\n".join(["text,label", *lines]))
    texts = ("data.options.path=reviews.csv", "data.options.vocabulary=20", "data.options.length=8")
    small = (
        "model_options.width=4",
        "model_options.filters=[4]",
        "model_options.kernel_size=2",
        "model_options.hidden=4",
    )
    columns = ("data.options.inputs=text", "data.options.label=label")
    recorder.train("texts", *texts, *columns, *small, *_SMALL[2:4], preset="imdb-text", epochs=2)
    environ = os.environ | {"TPU_CONSOLE_HOME": str(home), "KERAS_BACKEND": "jax"}
    subprocess.run([sys.executable, "-c", _NOTEBOOK], cwd=ROOT, env=environ, check=True)
    recorder.take("notebook")
    settings = [part for text in _SMALL for part in ("--set", text)]
    recorder.call("sweep", "digits-cnn", "--over", "batch_size=16,64", "--epochs", "2", *settings)
    recorder.take("sweep-16", "sweep-64")


def _steer_and_stop(recorder: _Recorder) -> Callable[[str, int], None]:
    def end(name: str, _pid: int) -> None:
        run = recorder.home / "runs" / name
        for action, *values in (("pause",), ("continue",), ("set", "learning_rate=0.002"), ("set", "epochs=4000")):
            before = _count(run, "Steered")
            recorder.call(action, name, *values)
            wait_until(partial(_counts_more, run, "Steered", before), action)
        recorder.call("stop", name)

    return end


def _keep(recorder: _Recorder) -> None:
    """Copy what is small, and note the times of the heartbeats, which git does not keep."""
    beats: dict[str, float] = {}
    for folder in (HERE / "runs", HERE / "sweeps"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        recorder.home / "sweeps", HERE / "sweeps", ignore=shutil.ignore_patterns("lock", "control", ".training-*")
    )
    dropped = shutil.ignore_patterns("*.keras", "cache", "control", "reserved-space", "tensorboard", "mistakes.json")
    for short, name in recorder.names.items():
        run = HERE / "runs" / name
        shutil.copytree(recorder.home / "runs" / name, run, ignore=dropped)
        beats[name] = (recorder.home / "runs" / name / "heartbeat.json").stat().st_mtime
        states = sorted(run.glob("checkpoints/*"))
        for state in states if short != "killed" else states[:-1]:
            state.unlink()
        for file in (*run.glob("*.jsonl"), *run.glob("*.log")):
            file.write_text(file.read_text().replace(str(recorder.home), "/home/me"))
    # An earlier version named the speed differently.
    older = HERE / "runs" / "20261101-120000-older"
    older.mkdir()
    journal = HERE / "runs" / recorder.names["finished"] / "events.jsonl"
    (older / "events.jsonl").write_text(journal.read_text().replace("examples_per_s", "images_per_s"))
    recorder.names["older"] = older.name
    (HERE / "runs.json").write_text(json.dumps({"names": recorder.names, "beats": beats}, indent=1) + "\n")
