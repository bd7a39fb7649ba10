"""How quickly the screen answers, with a million progress events of a few and of many metrics."""

import asyncio
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import msgspec
import psutil
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot

from tests.bench.bench import COLUMNS, ROWS, Bench
from tests.bench.report import Row, Section, limit_row
from tests.helpers import replace, wait_until
from tpu_console.engine.runs import events
from tpu_console.engine.runs.follower import StateReader
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter, encode
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.charts.chart import MetricChart
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.widgets.chart_grid import curves_of

EVENTS, _EPOCHS = 1_000_000, 100
_OPEN_S, _REDRAW_MS, _CURSOR_MS = 2.5, 30.0, 20.0
_REDRAWS = 30
_METRICS = ("loss", "accuracy")
_BRAILLE = "⡀".encode()[:2]  # how a quarter of the characters begin of which curves are drawn


def long_run(bench: Bench) -> Section:
    """Write the run, open it in turn in a terminal and without one, then redraw it."""
    run = make_long_run(bench.folder / "home" / "runs", _METRICS)
    rows, state = opening(bench, run, 5, _OPEN_S)
    keys = [seconds for _ in bench.rounds(5) for seconds in open_run(bench, run)[1]]
    looks = asyncio.run(redraw(run, state, _METRICS))
    return Section(
        "A run with 1,000,000 progress events",
        f"A journal of {run.journal.stat().st_size / 1e6:.0f} MB, opened with `tpu-console attach` in a "
        "pseudo-terminal of 120×40. Redraw: a chart, after one more point.",
        (
            *rows,
            _ms_row("redraw", median(looks["redraw"]), _REDRAW_MS),
            _ms_row("zoom", median(looks["zoom_x"]), _REDRAW_MS),
            _ms_row("pan", median(looks["pan"]), _REDRAW_MS),
            _ms_row("cursor, 95th percentile", quantiles(looks["cursor"], n=20)[-1], _CURSOR_MS),
            _ms_row("key press to repaint", median(keys), 50.0),
        ),
    )


def _ms_row(what: str, seconds: float, most_ms: float | None = None) -> Row:
    return limit_row(what, seconds * 1e3, most_ms, "ms", 1)


def opening(bench: Bench, run: RunDirectory, rounds: int, most_s: float | None = None) -> tuple[list[Row], RunState]:
    """Open a finished run, and read it alone; return the rows and its state."""
    read, parsed, openings = [], [], []
    for _ in bench.rounds(rounds):
        parsed.append(_parsing_s(run))
        began = time.perf_counter()
        state = StateReader(run).catch_up()
        read.append(time.perf_counter() - began)
        openings.append(_opening_s(bench, run))
    curves, opened = zip(*openings, strict=True)
    rows = [
        limit_row("process start to the first curve on the screen", median(curves), most_s),
        limit_row("process start to all points on the screen", median(opened), most_s),
        limit_row("of it, reading and folding the journal alone", median(read)),
        limit_row("as a multiple of `msgspec.json.decode` of each line", median(read) / median(parsed), unit="×"),
    ]
    return rows, state


def _parsing_s(run: RunDirectory) -> float:
    began = time.perf_counter()
    with run.journal.open("rb") as file:
        for line in file:
            msgspec.json.decode(line)
    return time.perf_counter() - began


def _opening_s(bench: Bench, run: RunDirectory) -> tuple[float, float]:
    """Return the seconds until a curve is drawn, which goes on as the journal is read, and until it is whole."""
    with bench.open(bench.console("attach", run.run_id)) as terminal:
        curve, whole = terminal.wait_for(_BRAILLE), terminal.wait_for(b"Finished")
        return curve - terminal.started_at, whole - terminal.started_at


def make_long_run(folder: Path, metrics: Sequence[str], count: int = EVENTS) -> RunDirectory:
    """Write the journal of a finished run that reported its metrics many times."""
    run = create_run("long", folder)
    write_whole(run.config, 'dataset = "digits"\nmodel = "cnn"\nbatch_size = 32\nepochs = 100\n')
    beat = {"pid": 0, "created": 0.0, "host": socket.gethostname()}
    write_whole(run.heartbeat, json.dumps(beat))
    began = time.time() - count * 0.1
    with run.journal.open("wb") as file:
        file.writelines(encode(event, began + number * 0.1) for number, event in enumerate(_events(metrics, count)))
    return run


def _events(metrics: Sequence[str], count: int) -> Iterator[events.Event]:
    steps = EVENTS // _EPOCHS
    host = socket.gethostname()
    yield events.RunStarted("long", "host", os.getpid(), host, {"dataset": "digits", "model": "cnn"})
    replica = events.Replica(0, "/device:CPU:0", "CPU", host)
    yield events.AcceleratorReady("cpu", "asked for", "one device", (replica,), {"keras": "3"})
    yield events.DataReady(1_437, 360, (8, 8, 1), 10)
    yield events.FitStarted(_EPOCHS, steps, 32, 32, 1, "asked for", "val_accuracy")
    yield events.PhaseStarted(events.Phase.TRAINING)  # in any other one, a spinner turns
    for step in range(1, count + 1):
        yield progress(step, metrics)
        if step % steps == 0:
            logs = _logs(step, metrics)
            logs |= {f"val_{name}": value + 0.1 for name, value in logs.items()}
            times = step * 0.1, steps * 0.1, 0.0, 1.0, 1.0, 32e3, 1e-3
            yield events.EpochEnded(step // steps, step, steps, *times, logs)
    yield events.RunFinished("completed", "all epochs are done", {})


def progress(step: int, metrics: Sequence[str]) -> events.Progress:
    """Return what a run of these metrics reports after a step."""
    steps = EVENTS // _EPOCHS
    return events.Progress((step - 1) // steps + 1, (step - 1) % steps + 1, step, step * 0.1, _logs(step, metrics))


def _logs(step: int, metrics: Sequence[str]) -> dict[str, float]:
    # The mean since the epoch began: the noise of one step counts less the more steps there are.
    done = (step - 1) % (EVENTS // _EPOCHS) + 1
    value = 100 / (step + 150) + 0.2 + math.sin(step * 12.9898) * 0.1 / done
    return {name: value / (number + 1) for number, name in enumerate(metrics)}


def open_run(bench: Bench, run: RunDirectory) -> tuple[float, list[float]]:
    """Open the run in a terminal; return how long that took, and then key presses to repaints."""
    seconds = []
    with bench.open(bench.console("attach", run.run_id)) as terminal:
        whole = terminal.wait_for(b"Finished") - terminal.started_at
        terminal.settle(limit_s=1.0)
        for key, shown in ((b"x", b"epoch"), (b"x", b"time"), (b"x", b"step")):
            before, pressed_at = terminal.send(key)
            seconds.append(terminal.wait_for(shown, before) - pressed_at)
            terminal.settle(limit_s=1.0)
    return whole, seconds


async def redraw(run: RunDirectory, state: RunState, metrics: Sequence[str]) -> dict[str, list[float]]:
    """Give the charts one more point again and again, then zoom, pan and move the cursor; return seconds per chart."""
    from tpu_console.tui.app import ConsoleApp

    app = ConsoleApp(run=run)
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        screen = await read_screen(pilot)

        def drawn(change: Callable[..., object], *arguments: object) -> float:
            began = time.perf_counter()
            change(*arguments)
            for pane in screen.grid.on_page:
                pane.refresh()
                pane.render_lines(pane.size.region)
            return (time.perf_counter() - began) / len(screen.grid.on_page)

        state, looks = replace(state, end=None), {"redraw": list[float]()}
        for number in range(1, _REDRAWS + 1):
            state = reduce(state, progress(EVENTS + number, metrics), time.time())
            looks["redraw"].append(drawn(lambda state=state: screen.grid.show(curves_of(state))))
        screen.action_follow()
        for action in ("zoom_x", "pan", "cursor"):
            change = getattr(screen, f"action_{action}")
            looks[action] = [drawn(change, (-1) ** number) for number in range(_REDRAWS)]
        return looks


async def read_screen(pilot: Pilot[int]) -> LiveScreen:
    """Wait until the live screen has read its whole run."""
    from tpu_console.tui.screens.live import LiveScreen

    screen = pilot.app.screen
    assert isinstance(screen, LiveScreen)
    while not screen.is_over:
        await pilot.pause(0.02)
    await pilot.pause()
    return screen


_TWENTY = ("loss", "accuracy", *(f"head_{number}_loss" for number in range(1, 19)))
_PICTURE_S, _SHARE_PERCENT = 3.0, 3.0
_WATCHED_S = 20.0
_CURSOR_PRESSES = 100
_READING = b" ep "  # with 20 metrics, the reading is written short
_RIGHT, _LEFT = b"\x1b[C", b"\x1b[D"


def many_curves(bench: Bench) -> Section:
    """Open the run in a terminal, draw its charts without one, then move the cursor while it reports."""
    run = make_long_run(bench.folder / "home" / "runs", _TWENTY)
    rows, state = opening(bench, run, 3)
    looks = asyncio.run(redraw(run, state, _TWENTY))
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
            _ms_row("redraw after one more point, per chart", median(looks["redraw"]), _REDRAW_MS),
            _ms_row("zoom, per chart", median(looks["zoom_x"]), _REDRAW_MS),
            _ms_row("pan, per chart", median(looks["pan"]), _REDRAW_MS),
            _ms_row("arrow key to repaint, median", median(cursor)),
            _ms_row("arrow key to repaint, 95th percentile", quantiles(cursor, n=20)[-1], _CURSOR_MS),
            limit_row("the watching console, of one core", share * 100, _SHARE_PERCENT, "%", 1),
        ),
    )


async def _first_pictures(state: RunState) -> float:
    """Return the seconds in which every metric's chart is drawn for the first time."""
    charts = [MetricChart(title) for title in _TWENTY]
    async with _Charts(charts).run_test(size=(COLUMNS, ROWS)) as pilot:
        await pilot.pause()
        began = time.perf_counter()
        for chart in charts:
            chart.show(curves_of(state)[chart.title])
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
    with _training(run, _TWENTY), bench.open(bench.console("attach", run.run_id)) as terminal:
        terminal.wait_for(b"ms/step", limit_s=60.0)
        console = psutil.Process(terminal.process.pid)
        whole = run.journal.stat().st_size
        wait_until(lambda: console.io_counters().read_chars > whole)
        terminal.settle(quiet_s=1.0, limit_s=2 * _PICTURE_S)
        before_s, began = sum(console.cpu_times()[:2]), time.perf_counter()
        time.sleep(3.0 if bench.is_quick else _WATCHED_S)
        share = (sum(console.cpu_times()[:2]) - before_s) / (time.perf_counter() - began)
        for number in bench.rounds(_CURSOR_PRESSES, 20):
            before, pressed_at = terminal.send(_LEFT if number < _CURSOR_PRESSES / 2 else _RIGHT)
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
