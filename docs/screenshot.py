"""Draws the pictures of the documentation, or every screen worth looking at, from the real console.

``make screenshot`` trains the preset `digits-cnn` in its own process and home folder, and draws ``docs/live.svg`` from
the first part of its journal, so that the picture shows a run that goes on and is the same whichever moment the machine
was slow at. ``make screenshot TO=folder`` draws the live screen of several runs into a folder instead, in three sizes,
dark, light and without colour; ``RUNS="folder folder"`` adds your own runs.
"""

# ruff: noqa: INP001  a script, not a package
from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before anything of ours is imported that reads them.
_HOME = tempfile.TemporaryDirectory(prefix="tpu-console-screenshot-")
os.environ |= {"TPU_CONSOLE_HOME": _HOME.name, "TF_CPP_MIN_LOG_LEVEL": "3", "COLORTERM": "truecolor"}
os.environ.pop("NO_COLOR", None)

from tpu_console.engine.runs.heartbeat import write_heartbeat  # noqa: E402
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, find_run  # noqa: E402
from tpu_console.engine.storage.files import write_whole  # noqa: E402
from tpu_console.tui.app import ConsoleApp  # noqa: E402
from tpu_console.tui.charts.cursor import Cursor  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from textual.pilot import Pilot

SIZE = (120, 36)
DOCS = Path(__file__).parent
PRESET = "digits-cnn"
_SHOWN_EPOCH = 16  # of 60: the curves are on their way, and a best epoch is marked
_LIMIT_S = 60.0
_READ_STEP = 2000.0
_SPIKE_STEPS = 8

SIZES = ((80, 24), (120, 40), (200, 50))
LOOKS = {"dark": {}, "light": {"theme_name": "console-light"}, "no-colour": {"marker": "ascii"}}


@dataclass(frozen=True)
class Picture:
    """One picture of the gallery.

    Args:
        name: What it shows.
        run: The run.
        keys: What is pressed before it is drawn.
        step: Where the cursor stands; None without one.
    """

    name: str
    run: RunDirectory
    keys: tuple[str, ...] = ()
    step: float | None = None


def train(preset: str, *options: str) -> RunDirectory:
    """Train a preset and return its run."""
    program = Path(sys.executable).parent / "tpu-console"
    subprocess.run([program, "run", preset, *options], check=True)
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
    """Return a copy of a run that goes on, whose metrics a function has changed."""
    records = [record for record in records_of(run) if record["type"] != "RunFinished"]
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


def before_training(run: RunDirectory) -> RunDirectory:
    """Return a run that compiles."""
    records = records_of(run)
    end = next(i for i, record in enumerate(records) if record["type"] == "FitStarted")
    return copy(run, records[: end + 2])


def gallery(own: Sequence[RunDirectory]) -> Iterator[Picture]:
    """Train, and yield what to draw."""
    digits = train(PRESET)
    yield Picture("digits-60-epochs", digits)
    yield Picture("digits-training", cut(digits))
    yield Picture("digits-cursor", digits, step=_READ_STEP)
    yield Picture("digits-zoom", digits, ("end", "plus", "plus", "plus", "comma", "escape"))
    yield Picture("spike", changed(digits, with_spikes))
    yield Picture("nan", changed(digits, with_nan))
    yield Picture("six-metrics", changed(digits, with_six_metrics))
    yield Picture("waiting", before_training(digits))
    yield Picture("fashion-mnist", train("fashion-mnist-cnn"))
    for run in own:
        yield Picture(run.run_id, run)


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
        deadline = time.monotonic() + _LIMIT_S
        while not is_ready(pilot):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path.name} was never ready")
            await pilot.pause(0.05)
        for key in keys:
            await pilot.press(key)
        if step is not None:
            app.screen.cursor = Cursor(step)  # type: ignore[attr-defined]  # the live screen
        before, drawn = "", app.export_screenshot(title="tpu-console")
        while drawn != before and time.monotonic() < deadline:  # on a slow machine the layout comes in several steps
            await pilot.pause(0.3)
            before, drawn = drawn, app.export_screenshot(title="tpu-console")
        path.write_text(drawn, encoding="utf-8")
    print(f"Written {path}")


def _has_plan(pilot: Pilot[int]) -> bool:
    from tpu_console.tui.screens.setup import SetupScreen
    from tpu_console.tui.widgets.setup_parts import PlanPanel

    screen = pilot.app.screen
    return isinstance(screen, SetupScreen) and bool(screen.query_one(PlanPanel).command)


def _is_drawn(pilot: Pilot[int]) -> bool:
    from tpu_console.tui.screens.live import LiveScreen

    screen = pilot.app.screen
    if not isinstance(screen, LiveScreen) or screen.snapshot.state.started is None or screen.latest.is_reading:
        return False
    return screen.is_waiting or bool(screen.grid.on_page)


async def draw_gallery(folder: Path, own: Sequence[RunDirectory]) -> None:
    """Draw every picture in every size and look."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in gallery(own):
        for size in SIZES:
            for look, options in LOOKS.items():
                os.environ |= {"NO_COLOR": "1"} if look == "no-colour" else {}
                app = ConsoleApp(run=picture.run, **options)  # type: ignore[arg-type]  # theme and marker only
                os.environ.pop("NO_COLOR", None)
                if picture.run not in own:
                    go_on(picture.run, records_of(picture.run))
                path = folder / f"{picture.name}-{size[0]}x{size[1]}-{look}.svg"
                await draw(app, _is_drawn, path, size, picture.keys, picture.step)


def main(folder: str = "", *runs: str) -> None:
    """Draw the gallery into a folder, or else the pictures of the documentation."""
    if folder:
        asyncio.run(draw_gallery(Path(folder), [RunDirectory(Path(run)) for run in runs]))
        return
    asyncio.run(draw(ConsoleApp(run=cut(train(PRESET))), _is_drawn, DOCS / "live.svg"))
    asyncio.run(draw(ConsoleApp(), _has_plan, DOCS / "setup.svg"))


if __name__ == "__main__":
    main(*sys.argv[1:])
