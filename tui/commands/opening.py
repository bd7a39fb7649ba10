"""Opens the full screen. Does not import click's commands."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tpu_console.engine.errors import ConfigError, ConsoleError, Problem, did_you_mean

from ..terminal.output import say, speaks_utf8

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Literal

    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.sweeps.folder import Sweep

    Markers = Literal["braille", "block", "ascii"]


class NoTerminalError(ConsoleError):
    """A screen was requested without a terminal."""


def has_terminal() -> bool:
    """Return whether there is a terminal for output and input, or a page of `tpu-console web`.

    A command in a notebook's cell (``!tpu-console attach``) has one whose screen and keys nobody has.
    """
    if os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver"):
        return True
    term = os.environ.get("TERM")
    is_cell = "JPY_PARENT_PID" in os.environ and term == "xterm-color"  # what a Jupyter kernel sets
    return sys.stdin.isatty() and sys.stdout.isatty() and term != "dumb" and not is_cell


def open_console(
    *,
    run: RunDirectory | None = None,
    compared: Sequence[RunDirectory] = (),
    metric: str = "",
    sweep: Sweep | None = None,
    preset_files: Sequence[Path] = (),
    in_process: bool = False,
    markers: Markers | None = None,
    theme: str | None = None,
) -> int:
    """Open the full screen with a run, a comparison, a sweep, or else the list of presets; return the exit code.

    Without a metric, runs are compared by one that they share; without markers, the locale decides.

    Raises:
        NoTerminalError: There is no terminal.
        ConfigError: There is no such theme.
    """
    if not has_terminal():
        raise NoTerminalError(
            "The console needs a terminal.",
            remedy="For plain lines: tpu-console run PRESET, or tpu-console attach RUN > file.",
        )
    # Read when Textual is imported: the longest delay before a change is drawn. Without changes nothing is drawn.
    os.environ.setdefault("TEXTUAL_FPS", "200")
    if preset_files:
        from .preset_choice import check_files

        check_files(preset_files)
    from ..app import ConsoleApp

    app = ConsoleApp(
        run=run,
        compared=compared,
        metric=metric,
        sweep=sweep,
        preset_files=preset_files,
        in_process=in_process,
        marker=markers or ("braille" if speaks_utf8() else "ascii"),
        theme_name=theme,
    )
    if theme is not None and theme not in app.available_themes:
        raise ConfigError([Problem("", f"There is no theme '{theme}'; {did_you_mean(theme, app.available_themes)}")])
    with _native_output(diverted=in_process):
        code = app.run()
    if app.farewell:
        say([app.farewell])
    code = code or app.return_code or 0
    if in_process and app.trains_here:
        from ..jobs.run_process import exit_at_once

        atexit.register(exit_at_once, code)
    if app.failure is not None:
        raise app.failure
    return code


def _native_output(*, diverted: bool) -> AbstractContextManager[None]:
    """Keep the output of native code off the screen if this process trains."""
    if not diverted:
        return nullcontext()
    from ..terminal.output import native_output_diverted

    return native_output_diverted()
