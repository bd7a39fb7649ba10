"""A run with 20 metrics and a million progress events: opening it, drawing, zooming, panning, moving the cursor."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

import psutil
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll

from tests.bench.long_run import EVENTS, make_long_run, opening, progress, redraw
from tests.bench.report import Section, limit_row, percentile
from tests.bench.terminal import COLUMNS, ROWS
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.tui.charts.chart import MetricChart
from tpu_console.tui.widgets.chart_grid import curves_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.bench import Bench
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

_METRICS = ("loss", "accuracy", *(f"head_{number}_loss" for number in range(1, 19)))
_PICTURE_S, _DRAW_MS, _CURSOR_MS, _SHARE_PERCENT = 3.0, 30.0, 20.0, 3.0
_WATCHED_S = 20.0
_PRESSES = 100
_READING = b" ep "  # with 20 metrics, the reading is written short
_RIGHT, _LEFT = b"\x1b[C", b"\x1b[D"


def measure(bench: Bench) -> Section:
    """Open the run in a terminal, draw its charts without one, then move the cursor while it reports."""
    run = make_long_run(bench.folder / "home" / "runs", _METRICS)
    rows, state = opening(bench, run, 3)
    redraws, looks = asyncio.run(redraw(run, state, _METRICS))
    first = asyncio.run(_first_pictures(state))
    del state
    share, cursor = _watched(bench, run)
    return Section(
        "20 metrics, 1,000,000 progress events",
        f"A journal of {run.journal.stat().st_size / 1e6:.0f} MB. Opened with `tpu-console attach` in a "
        f"pseudo-terminal of {COLUMNS}×{ROWS}, where the cursor is moved too while the run reports ten times a second.",
        (
            *rows,
            limit_row("first picture of all 20 charts, from curves in memory", first, _PICTURE_S),
            limit_row("redraw after one more point, per chart", median(redraws) * 1e3, _DRAW_MS, "ms", 1),
            limit_row("zoom, per chart", median(looks["zoom_x"]) * 1e3, _DRAW_MS, "ms", 1),
            limit_row("pan, per chart", median(looks["pan"]) * 1e3, _DRAW_MS, "ms", 1),
            limit_row("arrow key to repaint, median", median(cursor) * 1e3, None, "ms", 1),
            limit_row("arrow key to repaint, 95th percentile", percentile(cursor, 0.95) * 1e3, _CURSOR_MS, "ms", 1),
            limit_row("the watching console, of one core", share * 100, _SHARE_PERCENT, "%", 1),
        ),
    )


async def _first_pictures(state: RunState) -> float:
    """Return the seconds in which every metric's chart is drawn for the first time."""
    charts = [MetricChart(title) for title in _METRICS]
    async with _Charts(charts).run_test(size=(COLUMNS, ROWS)) as pilot:
        await pilot.pause()
        began = time.perf_counter()
        for chart in charts:
            chart.show(curves_of(state, chart.title))
            chart.refresh()
            drawn = chart.render_lines(chart.size.region)
            assert "train" in "".join(segment.text for strip in drawn for segment in strip)
        return time.perf_counter() - began


class _Charts(App[None]):
    CSS = f"MetricChart {{ width: {COLUMNS // 2}; height: {ROWS // 2}; }}"

    def __init__(self, charts: Sequence[MetricChart]) -> None:
        super().__init__()
        self._charts = charts

    def compose(self) -> ComposeResult:
        yield VerticalScroll(*self._charts)


def _watched(bench: Bench, run: RunDirectory) -> tuple[float, list[float]]:
    """Let the run go on; return the share of a core that watching takes, and the seconds from keys to readings."""
    lines = run.journal.read_bytes()
    run.journal.write_bytes(lines[: lines.rstrip().rfind(b"\n") + 1])  # without its end
    del lines
    seconds = []
    with _training(run, _METRICS), bench.open(bench.console("attach", run.run_id)) as terminal:
        terminal.wait_for(b"ms/step", limit_s=60.0)
        terminal.settle(quiet_s=1.0, limit_s=2 * _PICTURE_S)
        console = psutil.Process(terminal.process.pid)
        before_s, began = sum(console.cpu_times()[:2]), time.perf_counter()
        time.sleep(3.0 if bench.is_quick else _WATCHED_S)
        share = (sum(console.cpu_times()[:2]) - before_s) / (time.perf_counter() - began)
        for number in bench.rounds(_PRESSES, 20):
            before, pressed_at = terminal.send(_LEFT if number < _PRESSES / 2 else _RIGHT)
            seconds.append(terminal.wait_for(_READING, before) - pressed_at)
            time.sleep(0.05)
    return share, seconds[1:]  # the first press puts the cursor on the screen


@contextmanager
def _training(run: RunDirectory, metrics: Sequence[str]) -> Iterator[None]:
    """Report as a training process does."""
    is_over = threading.Event()

    def report() -> None:
        journal = JournalWriter(run.journal)
        write_heartbeat(run, os.getpid())
        step = EVENTS
        while not is_over.wait(0.1):
            step += 10
            journal.write(progress(step, metrics))
            os.utime(run.heartbeat)

    reporter = threading.Thread(target=report, name="reporter", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        is_over.set()
        reporter.join()
