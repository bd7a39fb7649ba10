"""One line on the sweeps and runs that train at the moment, above the form of the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import work
from textual.content import Content
from textual.widgets import Static
from textual.worker import get_current_worker

from tpu_console.engine.runs.run_directory import list_runs
from tpu_console.engine.storage.paths import sweeps_folder

from ..text.cells import end_of
from ..text.names import short_name
from .closing import is_closing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.events import Resize

    from tpu_console.engine.runs.liveness import HeartbeatWatch
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.sweeps.folder import Sweep

    from ..following.overview import Overview, OverviewReader

_LOOK_S = 5.0
_MOST_RUNS = 50  # the newest ones; each look reads their heartbeats


class RunningLine(Static):
    """Names the running sweeps and runs and how far they are; takes no room if there are none."""

    DEFAULT_CSS = """
    RunningLine { display: none; height: 1; padding: 0 1; color: $text-accent; background: $primary 12%; }
    RunningLine.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(id="running")
        self._watches: dict[str, HeartbeatWatch] = {}
        self._reader: OverviewReader | None = None
        self._overviews: Sequence[Overview] = ()
        self._sweeps: Mapping[Sweep, str] = {}

    @property
    def runs(self) -> list[RunDirectory]:
        """The running runs, the newest first."""
        return [overview.run for overview in self._overviews]

    @property
    def sweeps(self) -> list[Sweep]:
        """The running sweeps, the newest first."""
        return [*self._sweeps]

    def on_mount(self) -> None:
        """Look for runs after the first frame, and again every few seconds while the screen is seen."""
        self.call_after_refresh(self._look)
        self.set_interval(_LOOK_S, lambda: self._look() if self.screen.is_current else None, name="running runs")

    @work(thread=True, exclusive=True, group="running runs", name="look for running runs")
    def _look(self) -> None:
        newest = list_runs()[:_MOST_RUNS]
        sweeps = _running_sweeps()
        if not newest and not sweeps and not self._sweeps:
            return
        from tpu_console.engine.runs.liveness import Liveness, watch_once

        watches = {run.run_id: self._watches.get(run.run_id) or watch_once(run) for run in newest}
        self._watches = watches
        alive = [watch for watch in watches.values() if watch.look().liveness is not Liveness.DEAD]
        overviews = []
        if alive:
            # The journal reader imports NumPy: only for runs that need it.
            from ..following.overview import OverviewReader

            reader = self._reader = self._reader or OverviewReader()
            overviews = [overview for watch in alive if (overview := reader.read(watch)).status.is_live]
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self._show, overviews, sweeps)

    def _show(self, overviews: Sequence[Overview], sweeps: Mapping[Sweep, str]) -> None:
        if is_closing(self):
            return
        self._overviews, self._sweeps = overviews, sweeps
        is_shown = bool(overviews or sweeps)
        self._draw()
        if is_shown != self.has_class("-shown"):
            self.set_class(is_shown, "-shown")
            self.screen.refresh_bindings()

    def on_resize(self, event: Resize) -> None:  # noqa: ARG002  Textual's signature
        """Name as many runs as fit."""
        self._draw()

    def _draw(self) -> None:
        texts = [*self._sweeps.values(), *(_text(overview) for overview in self._overviews)]
        room, shown = self.app.size.width - 2, list(texts)
        while len(shown) > 1 and cell_len("   ".join(shown)) + 10 > room:
            shown.pop()
        more = f"   and {len(texts) - len(shown)} more" if len(shown) < len(texts) else ""
        text = "   ".join(shown) + more
        self.update(Content(text if cell_len(text) <= room else f"▶ {end_of(text, room - 2)}"))


def _running_sweeps() -> dict[Sweep, str]:
    """Return the running sweeps, with a text on each."""
    if not sweeps_folder().is_dir():
        return {}
    from tpu_console.engine.sweeps.folder import running_sweeps

    return {sweep: f"▶ sweep {short_name(sweep.name)}" for sweep in running_sweeps()}


def _text(overview: Overview) -> str:
    epochs = f", epoch {overview.epochs_done}/{overview.epochs}" if overview.epochs is not None else ""
    return f"▶ {overview.run.run_id} {overview.status_text}{epochs}"
