"""Draws ``docs/live.svg`` and ``docs/setup.svg`` from the real console: ``make screenshot``.

The preset `digits-cnn` is trained for real, in a host process and a home folder of its own. The live screen is then
drawn from the first part of its journal, so that the picture shows a run that goes on and is the same whichever
moment the machine was slow at.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before anything of ours is imported that reads them.
_HOME = tempfile.TemporaryDirectory(prefix="tpu-console-screenshot-")
os.environ |= {"TPU_CONSOLE_HOME": _HOME.name, "TF_CPP_MIN_LOG_LEVEL": "3", "COLORTERM": "truecolor"}
os.environ.pop("NO_COLOR", None)

from tpu_console.engine.runs.heartbeat import write_heartbeat  # noqa: E402
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, find_run  # noqa: E402
from tpu_console.tui.app import ConsoleApp  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

SIZE = (120, 36)
DOCS = Path(__file__).parent
PRESET = "digits-cnn"
_SHOWN_EPOCH = 16  # of 60: the curves are on their way, and a best epoch is marked
_LIMIT_S = 30.0


def train() -> RunDirectory:
    """Train the preset and return its run."""
    program = Path(sys.executable).parent / "tpu-console"
    subprocess.run([program, "run", PRESET], check=True)
    return find_run()


def cut(run: RunDirectory) -> RunDirectory:
    """Return a run that stands where the trained one stood in the middle of an epoch, as if that were now."""
    records = [json.loads(line) for line in run.journal.read_text(encoding="utf-8").splitlines()]
    end = next(i for i, record in enumerate(records) if _is_shown_end(record))
    kept = records[:end]
    late = time.time() - kept[-1]["t"]
    half = create_run(PRESET)
    lines = [json.dumps(record | {"t": record["t"] + late}) for record in kept]
    half.write_private(half.journal, "\n".join(lines) + "\n")
    shutil.copy(run.config, half.config)
    shutil.copy(run.log, half.log)
    write_heartbeat(half, os.getpid())
    return half


def _is_shown_end(record: dict[str, Any]) -> bool:
    return bool(record["type"] == "EpochEnded" and record["epoch"] == _SHOWN_EPOCH)


async def draw(app: ConsoleApp, is_ready: Callable[[Pilot[int]], bool], path: Path) -> None:
    """Draw an app's screen once it is ready."""
    async with app.run_test(size=SIZE) as pilot:
        deadline = time.monotonic() + _LIMIT_S
        while not is_ready(pilot):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path.name} was never ready")
            await pilot.pause(0.05)
        await pilot.pause()
        path.write_text(app.export_screenshot(title="tpu-console"), encoding="utf-8")
    print(f"Written {path}")


def _has_plan(pilot: Pilot[int]) -> bool:
    from tpu_console.tui.screens.setup import SetupScreen
    from tpu_console.tui.widgets.plan_panel import PlanPanel

    screen = pilot.app.screen
    return isinstance(screen, SetupScreen) and bool(screen.query_one(PlanPanel).command)


def _has_curves(pilot: Pilot[int]) -> bool:
    from tpu_console.tui.screens.live import LiveScreen

    screen = pilot.app.screen
    return isinstance(screen, LiveScreen) and len(screen.snapshot.state.epochs) == _SHOWN_EPOCH - 1


def main() -> None:
    """Train, then draw both screens."""
    half = cut(train())
    asyncio.run(draw(ConsoleApp(run=half), _has_curves, DOCS / "live.svg"))
    asyncio.run(draw(ConsoleApp(), _has_plan, DOCS / "setup.svg"))


if __name__ == "__main__":
    main()
