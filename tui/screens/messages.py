"""Messages that several screens post to the app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory

    from ..charts.raster import Marker


@dataclass
class OpenRun(Message):
    """Asks the app to open a run."""

    run: RunDirectory


@dataclass
class ResumeRun(Message):
    """Asks the app to resume a run that stopped, failed or crashed."""

    run: RunDirectory


@dataclass
class NewRunLike(Message):
    """Asks the app for the form, filled in as a run was."""

    run: RunDirectory
    is_trusted: bool = False  # whether it may run even if the user did not start it


@dataclass
class CompareRuns(Message):
    """Asks the app to compare runs."""

    runs: Sequence[RunDirectory]  # the runs, 2 to 20


@dataclass
class MarkerChosen(Message):
    """Asks the app to draw all charts with a marker that the user chose."""

    marker: Marker
