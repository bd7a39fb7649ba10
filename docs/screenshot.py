"""Draws the pictures of the documentation, or every screen worth looking at, from the real console.

``make screenshot`` trains the preset `digits-cnn` in its own process and home folder, and draws ``docs/live.svg`` from
the first part of its journal, so that the picture shows a run that goes on and is the same whichever moment the machine
was slow at. ``make screenshot TO=folder`` draws a gallery into a folder instead, in three sizes, dark, light, without
color and in ASCII; ``RUNS="folder folder"`` adds your own runs.

A picture holds what a terminal's cells hold: each character has its place, and braille is drawn as dots, so that no
renderer and no font shifts a curve.
"""

# ruff: noqa: INP001  a script, not a package
from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

# Before anything of ours is imported that reads them.
_HOME = tempfile.TemporaryDirectory(prefix="tpu-console-screenshot-")
os.environ |= {"TPU_CONSOLE_HOME": _HOME.name, "TF_CPP_MIN_LOG_LEVEL": "3", "COLORTERM": "truecolor"}
os.environ.pop("NO_COLOR", None)

from textual.widgets import DataTable  # noqa: E402

from tpu_console.engine.runs.heartbeat import write_heartbeat  # noqa: E402
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, find_run  # noqa: E402
from tpu_console.engine.storage.files import write_whole  # noqa: E402
from tpu_console.tui.app import ConsoleApp  # noqa: E402
from tpu_console.tui.screens.live import LiveScreen  # noqa: E402
from tpu_console.tui.screens.results import CompareScreen  # noqa: E402
from tpu_console.tui.screens.setup import SetupScreen  # noqa: E402
from tpu_console.tui.widgets.setup_parts import PlanPanel  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from textual.pilot import Pilot

SIZE = (120, 36)
DOCS = Path(__file__).parent
PRESET = "digits-cnn"
_SHOWN_EPOCH = 16  # of 60: the curves are on their way, and a best epoch is marked
_LIMIT_S, _SETTLE_S = 180.0, 5.0  # for a compilation; a spinner never rests
_READ_STEP = 2000.0
_SPIKE_STEPS = 8

SIZES = ((80, 24), (120, 40), (200, 50))
LOOKS = {"dark": {}, "light": {"theme_name": "console-light"}, "no-color": {}, "ascii": {"marker": "ascii"}}
_WIDE, _HIGH = 10, 20  # pixels of a cell
_DOTS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]  # column and row of the bits of braille


@dataclass(frozen=True)
class Picture:
    """One picture of the gallery.

    Args:
        name: What it shows.
        runs: The run, or the runs to compare; none for the form.
        keys: What is pressed before it is drawn.
        step: Where the cursor stands; None without one.
    """

    name: str
    runs: tuple[RunDirectory, ...] = ()
    keys: tuple[str, ...] = ()
    step: float | None = None

    def app(self, options: dict[str, Any]) -> ConsoleApp:
        """Return the console that shows it."""
        if len(self.runs) > 1:
            return ConsoleApp(compared=self.runs, **options)
        return ConsoleApp(run=self.runs[0] if self.runs else None, **options)


def train(*arguments: str, command: str = "run") -> RunDirectory:
    """Train a preset, or resume a run, and return the newest run."""
    program = Path(sys.executable).parent / "tpu-console"
    subprocess.run([program, command, *arguments], check=True)
    return find_run()


def records_of(run: RunDirectory) -> list[dict[str, Any]]:
    """Read a run's journal."""
    return [json.loads(line) for line in run.journal.read_text(encoding="utf-8").splitlines()]


def copy(run: RunDirectory, records: Sequence[dict[str, Any]], label: str = PRESET) -> RunDirectory:
    """Return a run with these records in its journal, the last of them written now."""
    made = create_run(label)
    for name in ("config", "log"):
        if getattr(run, name).exists():
            shutil.copy(getattr(run, name), getattr(made, name))
    write_whole(made.journal, "\n".join(map(json.dumps, records)) + "\n")
    go_on(made, records)
    return made


def go_on(run: RunDirectory, records: Sequence[dict[str, Any]]) -> None:
    """Let a run's last record be one that was written now, unless the run has ended."""
    if records[-1]["type"] == "RunFinished":
        return
    late = time.time() - records[-1]["t"]
    lines = [json.dumps(record | {"t": record["t"] + late}) for record in records]
    write_whole(run.journal, "\n".join(lines) + "\n")
    write_heartbeat(run, os.getpid())


def cut(run: RunDirectory) -> RunDirectory:
    """Return a run that stands where the trained one stood in the middle of an epoch, as if that were now."""
    records = records_of(run)
    end = next(i for i, record in enumerate(records) if _is_end(record, _SHOWN_EPOCH))
    return copy(run, records[:end])


def _is_end(record: dict[str, Any], epoch: int) -> bool:
    return bool(record["type"] == "EpochEnded" and record["epoch"] == epoch)


def changed(run: RunDirectory, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> RunDirectory:
    """Return a copy of a run that has not begun to save its model, whose metrics a function has changed."""
    records = list(itertools.takewhile(lambda record: record.get("phase") != "saving", records_of(run)))
    for record in records:
        if "logs" in record:
            change(record, record["logs"])
    return copy(run, records)


def with_spikes(record: dict[str, Any], logs: dict[str, float]) -> None:
    """Let the loss be 60 in the first steps, and jump once in epoch 20; the reports are means over the epoch so far."""
    done = record.get("epoch_step") or record["epoch_steps"]
    if record["epoch"] == 1:
        logs["loss"] += 60.0 * _SPIKE_STEPS / max(done, _SPIKE_STEPS)
    elif record["epoch"] == 20 and done > 40:
        logs["loss"] += 9.0 * _SPIKE_STEPS / done


def with_nan(record: dict[str, Any], logs: dict[str, Any]) -> None:
    """Let the loss become NaN in epoch 40."""
    if record["epoch"] >= 40:
        logs |= {name: "NaN" for name in logs if name.endswith("loss")}


def with_six_metrics(_record: dict[str, Any], logs: dict[str, float]) -> None:
    """Add four metrics."""
    for name in [name for name in logs if name.endswith("accuracy")]:
        for number, other in enumerate(("precision", "recall", "auc", "top_5_accuracy"), 1):
            logs[name.replace("accuracy", other)] = logs[name] ** (number / 2)


def without_validation(_record: dict[str, Any], logs: dict[str, float]) -> None:
    """Drop what was measured on validation data."""
    for name in [name for name in logs if name.startswith("val_")]:
        del logs[name]


def as_long_as(run: RunDirectory, epochs: int) -> RunDirectory:
    """Return a finished run of so many epochs, whose validation loss rises after a fifth of them."""
    records, made = records_of(run), list[dict[str, Any]]()
    first = next(i for i, record in enumerate(records) if record["type"] in {"Progress", "EpochEnded"})
    report = next(record for record in records if record["type"] == "Progress")
    end = [record for record in records if record["type"] == "EpochEnded"][-1]
    steps = end["epoch_steps"]
    for epoch in range(1, epochs + 1):
        noise = math.sin(epoch * 12.9898) * 43758.5453 % 1 - 0.5
        loss = 1.6 * math.exp(-8 * epoch / epochs) + 0.02 * (1 + noise)
        held_out = loss + 0.05 + 0.3 * max(0.0, epoch / epochs - 0.2) + 0.03 * noise
        logs = {"loss": loss, "accuracy": 1 - loss / 4, "val_loss": held_out, "val_accuracy": 1 - held_out / 4}
        place = {"epoch": epoch, "step": epoch * steps, "elapsed_s": epoch * 0.2, "t": end["t"] + epoch * 0.2}
        made.append(report | place | {"epoch_step": steps, "logs": {name: logs[name] for name in report["logs"]}})
        made.append(end | place | {"logs": logs, "learning_rate": 0.002 * (1 + math.cos(math.pi * epoch / epochs)) / 2})
    head = [record | ({"epochs": epochs} if record["type"] == "FitStarted" else {}) for record in records[:first]]
    return copy(run, [*head, *made, records[-1]])


def before_training(run: RunDirectory) -> RunDirectory:
    """Return a run that compiles."""
    records = records_of(run)
    end = next(i for i, record in enumerate(records) if record["type"] == "FitStarted")
    return copy(run, records[: end + 2])


def gallery(own: Sequence[RunDirectory]) -> Iterator[Picture]:
    """Train, and yield what to draw."""
    digits = train(PRESET)
    yield Picture("digits-60-epochs", (digits,))
    yield Picture("digits-training", (cut(digits),))
    yield Picture("digits-cursor", (digits,), step=_READ_STEP)
    yield Picture("digits-zoom", (digits,), ("end", "plus", "plus", "plus", "comma", "escape"))
    yield Picture("digits-smooth", (digits,), ("s", "s"))
    yield Picture("spike", (changed(digits, with_spikes),))
    yield Picture("nan", (changed(digits, with_nan),))
    yield Picture("six-metrics", (changed(digits, with_six_metrics),))
    yield Picture("no-validation", (changed(digits, without_validation),))
    yield Picture("2000-epochs", (as_long_as(digits, 2000),))
    yield Picture("waiting", (before_training(digits),))
    short = train(PRESET, "--epochs", "5", "--set", "optimizer.learning_rate=0.0005")
    yield Picture("short", (short,))
    yield Picture("one-epoch", (train(PRESET, "--epochs", "1"),))
    yield Picture("compare", (digits, short, train(PRESET, "--epochs", "20", "--set", "optimizer.learning_rate=0.3")))
    train(short.run_id, "--epochs", "12", command="resume")
    yield Picture("resumed", (short,))
    yield Picture("form")
    yield Picture("runs", keys=("ctrl+l",))
    yield Picture("preflight", keys=("f9", "enter"))
    for run in own:
        yield Picture(run.run_id, (run,))


def as_svg(app: ConsoleApp) -> str:
    """Return the cells of an app as a picture."""
    import pyte
    from rich.console import Console

    console = Console(
        width=app.size.width,
        height=app.size.height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        record=True,
        legacy_windows=False,
    )
    # What Textual's own `export_screenshot` renders.
    drawn = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)  # noqa: SLF001
    console.print(drawn)
    terminal = pyte.Screen(*app.size)
    pyte.Stream(terminal).feed(console.export_text(styles=True).rstrip("\n").replace("\n", "\r\n"))
    theme = app.current_theme
    plain = ("#e0e0e0", "#121212") if theme.dark else ("#202020", "#f5f5f5")
    grid = itertools.product(range(app.size.height), range(app.size.width))
    page = Counter(_color(terminal.buffer[row][column].bg, plain[1]) for row, column in grid).most_common(1)[0][0]
    shapes = []
    for row, column in itertools.product(range(app.size.height), range(app.size.width)):
        cell = terminal.buffer[row][column]
        front, back = (_color(name, which) for name, which in zip((cell.fg, cell.bg), plain, strict=True))
        if cell.reverse:
            front, back = back, front
        shapes += _cell(column * _WIDE, row * _HIGH, cell.data, front, back, page, is_bold=cell.bold)
    width, height = app.size.width * _WIDE, app.size.height * _HIGH
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="16" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">\n<rect width="{width}" height="{height}" '
        f'fill="{page}"/>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def _color(name: str, default: str) -> str:
    return default if name == "default" else f"#{name}" if len(name) == 6 else name


def _cell(x: int, y: int, text: str, front: str, back: str, page: str, *, is_bold: bool) -> Iterator[str]:
    """Yield the shapes of a cell."""
    if back != page:
        yield f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" fill="{back}"/>'
    code = ord(text[0]) if text else 32
    if 0x2800 < code < 0x2900:
        dots = [(x + 2.5 + 5 * right, y + 2.5 + 5 * down) for bit, (right, down) in enumerate(_DOTS) if code >> bit & 1]
        yield f'<path fill="{front}" d="{"".join(f"M{left - 1.5} {top - 1.5}h3v3h-3z" for left, top in dots)}"/>'
    elif text.strip():
        weight = ' font-weight="bold"' if is_bold else ""
        yield f'<text x="{x}" y="{y + 15}" textLength="{_WIDE}" fill="{front}"{weight}>{escape(text)}</text>'


def stopped_clock() -> AbstractContextManager[object]:
    """Keep the time of day as it is, so that a run that trains looks the same until its picture is drawn."""
    return patch("time.time", return_value=time.time())


async def draw(
    app: ConsoleApp,
    is_ready: Callable[[Pilot[int]], bool],
    path: Path,
    size: tuple[int, int] = SIZE,
    keys: Sequence[str] = (),
    step: float | None = None,
) -> None:
    """Write a picture of an app once it is ready, keys were pressed and the cursor was put on a step."""
    async with app.run_test(size=size) as pilot:
        await _until(is_ready, pilot, path.name)
        for key in keys:
            await pilot.press(key)
        await _until(_is_filled, pilot, path.name)
        if step is not None:
            app.screen.cursor = step  # type: ignore[attr-defined]  # the live screen
        before, drawn, deadline = "", as_svg(app), time.monotonic() + _SETTLE_S
        while drawn != before and time.monotonic() < deadline:  # on a slow machine the layout comes in several steps
            await pilot.pause(0.3)
            before, drawn = drawn, as_svg(app)
        path.write_text(drawn, encoding="utf-8")
    print(f"Written {path}")


async def _until(holds: Callable[[Pilot[int]], bool], pilot: Pilot[int], name: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds(pilot):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} was never ready")
        await pilot.pause(0.05)


def _is_filled(pilot: Pilot[int]) -> bool:
    return all(table.row_count for table in pilot.app.screen.query(DataTable))


def _has_plan(pilot: Pilot[int]) -> bool:
    screen = pilot.app.screen
    return isinstance(screen, SetupScreen) and bool(screen.query_one(PlanPanel).command)


def _is_drawn(pilot: Pilot[int]) -> bool:
    screen = pilot.app.screen
    if not isinstance(screen, LiveScreen) or screen.snapshot.state.started is None or screen.snapshot.is_reading:
        return False
    return screen.is_waiting or bool(screen.grid.on_page)


def _is_compared(pilot: Pilot[int]) -> bool:
    screen = pilot.app.screen
    return isinstance(screen, CompareScreen) and bool(screen.curves)


async def draw_gallery(folder: Path, own: Sequence[RunDirectory]) -> None:
    """Draw every picture in every size and look."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in gallery(own):
        is_ready = {0: _has_plan, 1: _is_drawn}.get(len(picture.runs), _is_compared)
        for size in SIZES:
            for look, options in LOOKS.items():
                os.environ |= {"NO_COLOR": "1"} if look == "no-color" else {}
                app = picture.app(options)
                os.environ.pop("NO_COLOR", None)
                path = folder / f"{picture.name}-{size[0]}x{size[1]}-{look}.svg"
                with stopped_clock():
                    for run in picture.runs:
                        if run not in own:
                            go_on(run, records_of(run))
                    await draw(app, is_ready, path, size, picture.keys, picture.step)


def main(folder: str = "", *runs: str) -> None:
    """Draw the gallery into a folder, or else the pictures of the documentation."""
    if folder:
        asyncio.run(draw_gallery(Path(folder), [RunDirectory(Path(run)) for run in runs]))
        return
    trained = train(PRESET)
    # Before there is a run that seems to train.
    asyncio.run(draw(ConsoleApp(), _has_plan, DOCS / "setup.svg", SIZES[1]))
    with stopped_clock():
        asyncio.run(draw(ConsoleApp(run=cut(trained)), _is_drawn, DOCS / "live.svg"))


if __name__ == "__main__":
    main(*sys.argv[1:])
