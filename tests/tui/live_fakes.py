"""Writes runs as an engine would, so that screens are tested on real journals without training anything."""

import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from textual.app import App
from textual.events import Key
from textual.pilot import Pilot
from textual.screen import Screen

from tests.helpers import LIMIT_S
from tpu_console.engine.runs import events
from tpu_console.engine.runs.control import Request, take_requests
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.screens.live import LiveScreen

S = TypeVar("S", bound=Screen[Any])

EPOCHS, STEPS = 10, 20


class FakeEngine:
    """A run that a test moves on event by event."""

    def __init__(self, folder: Path | None = None, label: str = "digits-cnn", replicas: int = 1) -> None:
        self.run = create_run(label, folder)
        write_whole(self.run.config, "")
        self.clock = time.time() - 60
        self.replicas = replicas
        self._journal = JournalWriter(self.run.journal, clock=lambda: self.clock)
        write_heartbeat(self.run, os.getpid())
        self._stops_beating = threading.Event()
        weakref.finalize(self, self._stops_beating.set)
        self._beating = threading.Thread(target=_beat, args=(self.run, self._stops_beating), daemon=True)
        self._beating.start()

    def write(self, *given: events.Event) -> None:
        for event in given:
            self._journal.write(event)

    def begin(self, epochs: int = 0) -> None:
        """Everything up to the first step, or up to the end of so many epochs."""
        self.prepare()
        for epoch in range(1, epochs + 1):
            self.train(epoch)

    def prepare(self) -> None:
        started, *ready = self.described()
        self.write(started)
        for seconds, phase in ((0, "importing"), (3, "connecting"), (1, "compiling")):
            self.clock += seconds
            self.write(events.PhaseStarted(phase))
        self.write(*ready)

    def described(self) -> tuple[events.Event, ...]:
        """The events that describe the data, the model and the devices."""
        replicas = tuple(
            events.Replica(i, f"/device:CPU:{i}", "CPU, simulated", "tpu-vm-0") for i in range(self.replicas)
        )
        config = {"dataset": "digits", "model": "cnn", "accelerator": "auto", "precision": "float32"}
        return (
            events.RunStarted("digits-cnn", "host", os.getpid(), socket.gethostname(), config),
            events.AcceleratorReady("cpu", "No GPU was found.", "one device", replicas, {"keras": "3.12.0"}),
            events.DataReady(1437, 360, (8, 8, 1), 10),
            events.ModelBuilt("cnn", 52_234, 52_234, 208_936, 7),
            events.FitStarted(EPOCHS, STEPS, 32 * self.replicas, 32, 4, "Four steps take 0.3 s.", "val_accuracy"),
        )

    def train(self, epoch: int, *, ends: bool = True, loss: float | None = None) -> None:
        """One epoch, or the first half of one; accuracy is best in epoch 3."""
        loss = 2.0 / epoch if loss is None else loss
        accuracy = max(0.0, 0.9 - 0.05 * abs(epoch - 3))
        if epoch == 1:
            self.clock += 2
            self.write(events.PhaseStarted("training"))
        for step in range(4, (STEPS if ends else STEPS // 2) + 1, 4):
            self.clock += 0.04
            done = (epoch - 1) * STEPS + step
            self.write(events.Progress(epoch, step, done, done * 0.01, {"loss": loss, "accuracy": accuracy}))
        if ends:
            logs = {"accuracy": accuracy, "loss": loss, "val_accuracy": accuracy - 0.02, "val_loss": loss + 0.1}
            compile_s = 1.25 if epoch == 1 else 0.0
            done = epoch * STEPS
            self.write(
                events.EpochEnded(epoch, done, STEPS, done * 0.01, 0.2, compile_s, 0.0, 10.0, 3200.0, 0.002, logs)
            )

    def finish(self, outcome: str = "completed", reason: str = "All epochs are done.") -> None:
        self.write(events.RunFinished(outcome, reason, {}))

    def append(self, *lines: str) -> None:
        """Write raw lines, such as a newer version's or garbage."""
        with self.run.journal.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def freeze(self, seconds: float) -> None:
        """Stop beating, some time ago; the process, which is the test's, stays."""
        self._stops_beating.set()
        self._beating.join()
        at = time.time() - seconds
        os.utime(self.run.heartbeat, (at, at))

    def thaw(self) -> None:
        os.utime(self.run.heartbeat)

    def die(self) -> None:
        """Leave the heartbeat of a process that is gone."""
        self._stops_beating.set()
        self._beating.join()
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        write_heartbeat(self.run, process.pid)
        process.kill()
        process.communicate()


def _beat(run: RunDirectory, stops: threading.Event) -> None:
    """Beat as a run does, until it is stopped or the folder is gone."""
    with suppress(OSError):
        while not stops.wait(1.0):
            os.utime(run.heartbeat)


def send(app: App[Any], *keys: str) -> None:
    """Send keys at once, as from a hand that is faster than the machine; a pilot waits twice after each of them."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))


async def until(
    pilot: Pilot[Any], condition: Callable[[], object], limit_s: float = LIMIT_S, *, after: str | Sequence[str] = ()
) -> None:
    """Press a key, or several, and let the app run until something holds."""
    if after:
        await pilot.press(*([after] if isinstance(after, str) else after))
    deadline = time.monotonic() + limit_s
    pause_s = 0.02
    while not condition():
        assert time.monotonic() < deadline, f"never happened; the screen showed:\n{screen_text(pilot)}"
        await pilot.pause(pause_s)
        pause_s = min(1.2 * pause_s, 0.1)  # to look takes time from what is waited for


async def shows(pilot: Pilot[Any], *texts: str, after: str | Sequence[str] = ()) -> None:
    """Press a key, or several, and wait until the screen shows all these texts, wherever its lines break."""

    def stand() -> bool:
        shown = screen_text(pilot)
        words = " ".join(shown.replace("█", " ").replace("|", " ").split())
        return all(text in shown or text in words for text in texts)

    await until(pilot, stand, after=after)


async def opens(pilot: Pilot[Any], kind: type[S], after: str | Sequence[str] = ()) -> S:
    """Press a key, or several, and wait until a screen of a kind is on top; return it."""
    await until(pilot, lambda: isinstance(pilot.app.screen, kind), after=after)
    screen = pilot.app.screen
    assert isinstance(screen, kind)
    return screen


async def asked_of(pilot: Pilot[Any], run: RunDirectory) -> Request:
    """Wait until the console has asked a run for something; return the request."""
    await until(pilot, lambda: any(run.control.glob("*-*.json")))
    (request,) = take_requests(run)
    return request


async def resize(pilot: Pilot[Any], size: tuple[int, int]) -> None:
    """Give the terminal another size, and wait until the screen has it."""
    await pilot.resize_terminal(*size)
    await until(pilot, lambda: pilot.app.screen.size == size)


async def each_size(pilot: Pilot[Any], *sizes: tuple[int, int]) -> AsyncIterator[tuple[int, int]]:
    """Give the terminal one size after the other; starting an app costs more than what a test asks of it."""
    for size in sizes:
        await resize(pilot, size)
        yield size


def live(pilot: Pilot[Any]) -> LiveScreen:
    """The live screen at the bottom of whatever is open."""
    return next(screen for screen in pilot.app.screen_stack if isinstance(screen, LiveScreen))


def toasts(app: App[Any]) -> list[str]:
    """The toasts on the screen, each as its title and its message."""
    return [f"{one.title}\n{one.message}" for one in app._notifications]


def says(pilot: Pilot[Any], part: str) -> Callable[[], bool]:
    """Return a function that says whether any message has a text, even one that still waits for room."""
    return lambda: any(part in text for text in toasts(pilot.app))


def screen_text(pilot: Pilot[Any]) -> str:
    """What is on the screen, as plain lines."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)
