"""`watch`: shows a run in a notebook's cell and keeps it up to date.

The outputs are displayed once and then replaced by their ``display_id``, which every notebook front end understands, so
that the saved notebook holds the last picture. Drawing takes a few hundredths of one core at most.

The curves are a PNG with the console's own samples, ranges, ticks and values. It is drawn with matplotlib's objects,
never pyplot, and states everything that it draws: the user's backend, figure and style stay as they are, and do not
change the picture. The background is transparent and every color can be read on white and on black, because a kernel
does not know the theme of its page.
"""

import atexit
import contextvars
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from io import BytesIO
from itertools import islice
from typing import IO, Any
from urllib.parse import urlsplit

import numpy as np

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.machine.install import install_line
from tpu_console.engine.monitoring.alerts import overfitting
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import RunSource, Steering
from tpu_console.engine.runs.follower import RunFollower, Snapshot
from tpu_console.engine.runs.run_directory import RunDirectory, find_run
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.runs.timing import pace
from tpu_console.engine.storage.paths import user_path

from ..charts.curve import Axis, Curve, Extent, Series, extent_of
from ..charts.frame import Entry, header_line, legends_of
from ..charts.scale import x_scale, x_ticks, y_scale, y_ticks
from ..charts.scene import DrawnCurve, Pen, View, build_scene, pen_for
from ..text.outcome import best_text, outcome_of
from ..text.run_lines import metrics_in_order
from ..text.tables import BAR, BAR_LEFT, BEST, Column, as_html, table
from ..widgets.chart_grid import curves_of
from ..widgets.epoch_table import columns_for
from ..widgets.host_panes import table_of
from ..widgets.run_header import HeaderView, facts_row, header_rows, status

REDRAW_S, _SLOWEST_S = 2.0, 8.0  # shortest and longest time between two redraws
_SHARE = 0.05  # of one core for drawing, which may make that time longer
_LAST_PICTURE_S = 10.0

_NOTHING: dict[str, Any] = {"text/html": "", "text/plain": ""}
_PLAIN = {"--detach", "--json", "--help", "-h"}  # options of `run` and `attach` with which there is nothing to draw


def watch(run: str | os.PathLike[str] | None = None, *, block: bool = True) -> None:
    """Show a run in the output of this cell until it ends: curves, epochs, replicas and what it is doing.

    Interrupting the cell detaches from the run and never stops it.

    Args:
        run: A run's name, a part of it, or its folder; by default the newest run.
        block: Whether the cell ends with the run. If not, it ends now and its output goes on changing.

    Raises:
        RunNotFoundError: There is no such run.
        ConsoleError: This is no notebook, or matplotlib is not installed.
    """
    _need_notebook()
    found = find_run(None if run is None else str(run))
    view = CellView(found, is_kernel_free=not block)
    if not block:
        view.start()
        return
    try:
        view.follow()
    except KeyboardInterrupt:
        view.interrupted()


def watch_beside_training(run: RunDirectory) -> Callable[[], None]:
    """Show a run that this process trains, as `watch` does; return what draws the last picture and ends it."""
    _need_notebook()
    view = CellView(run, is_kernel_free=False)
    view.start()
    return view.leave


def _need_notebook() -> None:
    if kernel() is None:
        remedy = "In a terminal: tpu-console attach"
        raise ConsoleError("Curves can only be drawn in a notebook's cell, and this is not one.", remedy=remedy)
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except ImportError:
        remedy = install_line("matplotlib")
        raise ConsoleError("Curves in a notebook need matplotlib, which is not installed.", remedy=remedy) from None


def kernel() -> Any:
    """Return the kernel of this notebook; None in a terminal or script."""
    ipython = sys.modules.get("IPython")  # a notebook has imported it
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


class _Output:
    """One output of the cell that makes it; its content is replaced when it changes.

    It is displayed at once, empty: ipykernel 6 puts what a thread displays later into the newest cell.
    """

    def __init__(self) -> None:
        from IPython.display import DisplayHandle

        self._handle, self._shown = DisplayHandle(), _NOTHING
        self._handle.display(_NOTHING, raw=True)

    def show(self, bundle: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        """Show a content by its MIME types."""
        if bundle != self._shown:
            self._shown = dict(bundle)
            self._handle.update(self._shown, raw=True, metadata=dict(metadata or {}))


class CellView:
    """A run in the output of the cell that makes it; while it is followed, the kernel may be free for other cells."""

    def __init__(self, run: RunDirectory, *, is_kernel_free: bool) -> None:
        self._run = run
        self._follower = RunFollower(run)
        self._left = threading.Event()
        self._note, self._redraws = "", 0
        self._drawn = RunState()
        self._buttons = _Buttons(self, is_kernel_free=is_kernel_free)
        self._head, self._picture, self._tables = _Output(), _Output(), _Output()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Follow the run in a thread, whose outputs belong to this cell."""
        run, name = contextvars.copy_context().run, f"tpu-console-cell-{self._run.run_id}"
        self._thread = threading.Thread(target=run, args=(self.follow,), name=name, daemon=True)
        self._thread.start()

    def follow(self) -> None:
        """Keep the output up to date until the run is over or left."""
        while True:
            began, is_last = time.thread_time(), self._left.is_set()
            try:
                snapshot = self._follower.catch_up()
            except OSError as error:
                self._note = f"{user_path(self._run.journal)} cannot be read: {error.strerror}."
                snapshot = self._follower.snapshot
            self._show(snapshot)
            if is_last or snapshot.is_over:
                break
            self._left.wait(min(max(REDRAW_S, (time.thread_time() - began) / _SHARE), _SLOWEST_S))
        self._buttons.close()

    def leave(self) -> None:
        """Draw once more and end; wait for that if a thread follows the run."""
        self._left.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST_PICTURE_S)

    def detach(self) -> None:
        """Leave a run that goes on."""
        self._note = f"Detached; the run continues. To stop it: tpu-console stop {self._run.run_id}"
        self._left.set()

    def interrupted(self) -> None:
        """Leave after an interrupt, which may have come in the middle of reading: what is shown stays."""
        self.detach()
        self._show_head(self._follower.snapshot)
        self._buttons.close()

    def ask_to_stop(self) -> None:
        """Ask the run to stop and save."""
        try:
            ask(self._run, Steering.STOP, "requested in a notebook")
        except OSError as error:
            self._note = f"Cannot ask the run to stop: {error.strerror}."

    def _show(self, snapshot: Snapshot) -> None:
        state = snapshot.state
        self._buttons.show_if_heard()
        self._show_head(snapshot)
        if not charts_of(state):
            self._picture.show({"text/plain": "waiting for the first step"})
        elif state.train is not self._drawn.train or state.validation is not self._drawn.validation:
            self._drawn = state
            width, height = size_of(state)
            shown = {"image/png": draw(state), "text/plain": f"Curves of {self._run.run_id}"}
            self._picture.show(shown, {"image/png": {"width": width, "height": height}})
        self._tables.show(tables(state))

    def _show_head(self, snapshot: Snapshot) -> None:
        self._redraws += 1
        view = HeaderView(self._run.run_id, snapshot, time.time(), spin=self._redraws, pace=pace(snapshot.state))
        self._head.show(head(self._run, view, self._note))


class _Buttons:
    """Stop and detach, if ipywidgets is installed. While a cell runs, most kernels do not hear them."""

    def __init__(self, view: CellView, *, is_kernel_free: bool) -> None:
        self._is_kernel_free, self._output = is_kernel_free, _Output()
        self._widgets: list[Any] = []
        try:
            from ipywidgets import Button, HBox
        except ImportError:
            return
        stop = Button(description="Stop", icon="stop", tooltip="Stop the run after its current steps, and save it")
        detach = Button(description="Detach", icon="sign-out", tooltip="Stop watching; the run continues")
        stop.on_click(lambda _: view.ask_to_stop())
        detach.on_click(lambda _: view.detach())
        self._widgets = [HBox([stop, detach]), stop, detach]
        for widget in self._widgets:
            # ipykernel 7.4 gives clicks to the thread that wrote last, the busy one; without this, to that of the page.
            getattr(widget.comm, "__dict__", {}).pop("_reply_subshell_id", None)

    def show_if_heard(self) -> None:
        """Show them once the kernel hears them.

        While a cell runs, it does if the page opened a thread for messages, as JupyterLab 4.4 and newer do in
        ipykernel 7.
        """
        manager = getattr(getattr(kernel(), "shell_channel_thread", None), "manager", None)
        if self._widgets and (self._is_kernel_free or (manager is not None and manager.list_subshell())):
            shown = {"version_major": 2, "version_minor": 0, "model_id": self._widgets[0].model_id}
            self._output.show({"application/vnd.jupyter.widget-view+json": shown, "text/plain": " "})

    def close(self) -> None:
        """Remove them: in a saved notebook, they would be dead."""
        self._output.show(_NOTHING)
        for widget in self._widgets:
            widget.close()


WIDTH = 860  # of the picture, in CSS pixels
_ROW = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 52, 34  # around the plot of a chart, in CSS pixels
_MOST_CHARTS = 6
_SHARP = 2  # image pixels per CSS pixel
_TRAIN, _VALIDATION, _ALARM = "#3a8fd6", "#e0781e", "#e5484d"
_TEXT, _GRID = "#808080", "#80808040"
_MOST_POINTS = 60
_LETTER = 6.6  # CSS pixels of a letter in the legend, on average
_CELLS_HIGH = 12  # rows of a chart in the console with about as many labels
_AXIS = Axis.EPOCH
_PLOT = "axes fraction"


def charts_of(state: RunState) -> dict[str, list[Curve]]:
    """Return the curves to draw, by metric, the loss first."""
    measured = {*state.train.metrics, *state.validation.metrics}
    curves = ((title, curves) for title, curves in curves_of(state).items() if title in measured)
    return dict(islice(curves, _MOST_CHARTS))


def size_of(state: RunState) -> tuple[int, int]:
    """Return the picture's width and height in CSS pixels."""
    return WIDTH, _ROW * -(-len(charts_of(state)) // 2)


def draw(state: RunState) -> bytes:
    """Return the picture of a run with samples as a PNG, two image pixels per CSS pixel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    png = BytesIO()
    FigureCanvasAgg(figure_of(state)).print_png(png)
    return png.getvalue()


def figure_of(state: RunState) -> Any:
    """Return the picture of a run with samples as a figure of matplotlib."""
    from matplotlib.figure import Figure

    charts, (width, height) = charts_of(state), size_of(state)
    figure = Figure((width / 72, height / 72), dpi=72 * _SHARP, facecolor="none")
    figure.set_layout_engine("none")
    cell = width / min(len(charts), 2)
    for number, (title, curves) in enumerate(charts.items()):
        row, column = divmod(number, 2)
        left, bottom = column * cell + _LEFT, height - (row + 1) * _ROW + _BOTTOM
        plot = (cell - _LEFT - _RIGHT, _ROW - _TOP - _BOTTOM)
        axes = figure.add_axes((left / width, bottom / height, plot[0] / width, plot[1] / height))
        axes.set_axis_off()
        _Chart(axes, state, title, curves, plot[0]).draw()
    return figure


class _Chart:
    """One metric: training, validation, and the best epoch, in so many CSS pixels of axes without decoration."""

    def __init__(self, axes: Any, state: RunState, title: str, curves: Sequence[Curve], width: float) -> None:
        self._axes, self._state, self._title, self._width = axes, state, title, width
        self._series = [Series(curve) for curve in curves]

    def draw(self) -> None:
        self._write(self._title, (0, 1), (0, 34), size=13, weight="bold")
        left, right = extent_of([series.curve for series in self._series], _AXIS) or (0.0, 1.0)
        ends, width = (left, max(right, left + 1e-9)), int(self._width / _LETTER)
        traces = [DrawnCurve.of(series, _pen(series), _AXIS, ends) for series in self._series]
        scene = build_scene(traces, View(width, _CELLS_HIGH + 2, _AXIS, is_log=False, marker="braille", ends=ends))
        scale = y_scale(0.0, 1.0, _CELLS_HIGH) if scene is None else scene.y
        low, high = scale.ends
        self._axes.set(xlim=ends, ylim=(low, high))
        for tick in y_ticks(scale):
            self._line(ends, (tick.value, tick.value), _GRID, 1)
            self._write(tick.label, (0, tick.value), (-8, 0), (_PLOT, "data"), ha="right", va="center")
        for tick in x_ticks(x_scale(*ends, width, _AXIS), _AXIS):
            if tick.value <= ends[1]:
                self._write(tick.label, (tick.value, 0), (0, -8), ("data", _PLOT), ha="center", va="top")
        self._write("epoch", (1, 0), (0, -22), ha="right", va="top")
        if (best := self._state.best_epoch()) is not None:
            self._line((best.epoch, best.epoch), (low, high), _TEXT, 1, linestyle=(0, (2, 3)))
        for series in self._series:
            self._draw_curve(series, ends, (low, high))
        # The newest and the best values in the console's words, as many as there is room for.
        started = [series for series in self._series if series.count]
        entries = [Entry.of(series, _pen(series), series.latest) for series in started]
        words = header_line("", legends_of(entries, self._title), (), width)
        for series, text in zip(started, words.plain.split("  "), strict=False):
            side, align = (1, "right") if series.curve.is_validation else (0, "left")
            self._write(text, (side, 1), (0, 12), color=_color(series), ha=align, size=11.5)

    def _draw_curve(self, series: Series, ends: Extent, y_range: Extent) -> None:
        line, curve = series.raw_line(_AXIS), series.curve
        color, y = _color(series), np.clip(line.y, *y_range)
        has_points = len(y) == 1 or (curve.is_validation and len(y) <= _MOST_POINTS)
        self._line(line.x, y, color, 1.6, zorder=3, **({"marker": "o", "markersize": 4} if has_points else {}))
        for outside, marker in ((line.y > y_range[1], "^"), (line.y < y_range[0], "v")):
            self._line(line.x[outside], y[outside], color, 0, marker=marker, markersize=7, zorder=4)
        lost = curve.along(_AXIS)[series.lost(_AXIS, ends)]
        self._line(lost, np.full(len(lost), y_range[0]), _ALARM, 0, marker="x", markersize=7, zorder=5)
        star = series.best_line(_AXIS)
        self._line(star.x, star.y, color, 0, marker="*", markersize=17, zorder=6)

    def _line(self, x: Any, y: Any, color: str, width: float, **look: Any) -> None:
        from matplotlib.lines import Line2D

        fixed: dict[str, Any] = {"markerfacecolor": color, "markeredgecolor": color, "antialiased": True}
        fixed |= {"markeredgewidth": 2.0 * (look.get("marker") == "x"), "solid_joinstyle": "round"}
        fixed |= {"marker": "None", "markersize": 1, "linestyle": "-", "zorder": 1}
        line = Line2D(x, y, linewidth=width, color=color, **(fixed | look))
        line.set(path_effects=[], sketch_params=None, clip_on=False)
        self._axes.add_line(line)

    def _write(
        self, text: str, at: tuple[float, float], away: tuple[float, float], of: Any = _PLOT, **look: Any
    ) -> None:
        """Write a text, some CSS pixels to the right and up from a point; `of` and `look` are options of `annotate`."""
        from matplotlib.font_manager import findfont, get_font

        look = {"size": 10.5, "color": _TEXT, "ha": "left", "va": "baseline", "weight": "normal"} | look
        fixed = {"family": "DejaVu Sans", "style": "normal", "usetex": False, "parse_math": False}
        units = {"xycoords": of, "textcoords": "offset points", "annotation_clip": False}
        # The font that comes with matplotlib has no glyph for some letters.
        known = get_font(findfont("DejaVu Sans")).get_charmap()
        text = "".join(letter if ord(letter) in known else "?" for letter in text)
        written = self._axes.annotate(text, at, away, **units, **fixed, **look)
        written.set(path_effects=[], sketch_params=None)


def _color(series: Series) -> str:
    return _VALIDATION if series.curve.is_validation else _TRAIN


def _pen(series: Series) -> Pen:
    return pen_for(0, "braille", "dark", is_validation=series.curve.is_validation)


_NEWEST = 10
_ALL, _PLAIN_CELLS = 1000, 120  # the first drops no column


def head(run: RunDirectory, view: HeaderView, note: str) -> dict[str, str]:
    """Return what is above the picture: what the console's header shows of the run, its end, and a note, if any."""
    state, doing = view.state, status(view).plain
    is_ours = state.started is not None and state.started.source != RunSource.NOTEBOOK
    facts = [facts_row(view, _ALL).plain] if is_ours else []
    outcome = outcome_of(run, view.snapshot)
    if outcome is not None:
        facts.append(outcome.headline)
        facts += [f"{label}: {text}" for label, text in outcome.facts if label != "best"]
    elif state.progress is not None:
        facts.append(re.sub(f"[{BAR}{BAR_LEFT}]", "", header_rows(view, _ALL)[-1].plain))  # the page has its own bar
    facts = [re.sub("  +", " · ", fact.strip()) for fact in facts]
    best = f"{BEST} best {best_text(state)}" if best_text(state) else ""
    overfits = " ".join((overfitting(state) or ("",))[: 1 if outcome is not None else 2])
    warnings = [text for text in (overfits, *state.notices[-1:], note) if text]
    lines = [*facts, *([best] if best else []), *warnings]
    html = f"<b>{escape(view.run_id)}</b> &nbsp; {escape(doing)}"
    if (total := state.steps_total) and state.progress is not None and outcome is None:
        html += f' &nbsp; <progress value="{min(state.progress.step, total)}" max="{total}"></progress>'
    html += "".join(f"<br>{escape(fact)}" for fact in facts)
    html += f"<br><b>{escape(best)}</b>" if best else ""
    html += "".join(f"<br>⚠ {escape(text)}" for text in warnings)
    return {
        "text/html": f'<div style="line-height:1.5">{html}</div>',
        "text/plain": "\n".join([f"{view.run_id}  {doing}", *(f"  {line}" for line in lines)]),
    }


def tables(state: RunState) -> dict[str, str]:
    """Return what is below the picture: the newest epochs, below the best one if it is older, and the replicas."""
    found: list[tuple[Sequence[Column], list[list[str]], int | None]] = []
    if state.epochs:
        best, newest = state.best_epoch(), list(state.epochs[-_NEWEST:])
        shown = newest if best is None or best in newest else [best, *newest]
        names = metrics_in_order(state, dict.fromkeys(name for epoch in shown for name in epoch.logs))
        columns = [one for one in columns_for(names, _ALL) if any(one.value(epoch) is not None for epoch in shown)]
        rows = [
            [f"{BEST if epoch is best else ' '} {epoch.epoch}", *(column.written(epoch, none="") for column in columns)]
            for epoch in shown
        ]
        at = next((number for number, epoch in enumerate(shown) if epoch is best), None)
        found.append(([Column("epoch", 100, right=True), *columns], rows, at))
    replicas = table_of(state, _ALL, 0)
    if rows := [[line.cells.get(column.title, "") for column in replicas.columns] for line in replicas.lines]:
        found.append((replicas.columns, rows, None))
    return {
        "text/html": "".join(as_html(*part) for part in found),
        "text/plain": "\n\n".join("\n".join(table(columns, rows, _PLAIN_CELLS)) for columns, rows, _ in found),
    }


def register(ipython: Any) -> None:
    """Add ``%tpu_console`` to a notebook."""
    ipython.register_magic_function(run_line, "line", "tpu_console")


def run_line(line: str) -> None:
    """Run a command, such as ``%tpu_console run digits-cnn --epochs 5``, and show its run in the cell."""
    command, *arguments = shlex.split(line) or ["--help"]
    is_drawn = not _PLAIN & {*arguments}
    if command == "run" and is_drawn:
        # In its own process, which goes on if the kernel ends.
        detached = [sys.executable, "-m", "tpu_console", "run", *arguments, "--detach", "--json"]
        started = subprocess.run(detached, capture_output=True, text=True, check=False)
        print(started.stderr, end="", file=sys.stderr)
        if started.returncode == 0:
            # It says nothing if `--resume-if-exists` found a run that trains or has finished.
            watch(json.loads(started.stdout)["path"] if started.stdout else None)
    elif command == "attach" and is_drawn and len(arguments) < 2:
        watch(*arguments)
    elif command == "web" and is_drawn:
        _serve(arguments)
    else:
        with _start([command, *arguments]) as process:
            for printed in process.stdout:
                print(printed, end="")


def _serve(arguments: Sequence[str]) -> None:
    """Open the console to a browser until the kernel ends, and show the link; in Colab, through its proxy."""
    # In a session of its own, so that interrupting a cell does not close it.
    process = _start(["web", *arguments], start_new_session=True)
    atexit.register(process.terminate)
    output: IO[str] = process.stdout
    said = output.readline()
    is_served = said.startswith("http://")
    if is_served and "google.colab" in sys.modules:
        from google.colab.output import serve_kernel_port_as_window

        address = urlsplit(said.strip())
        serve_kernel_port_as_window(address.port, path=address.path, anchor_text="Open the console")
    else:
        print(said if is_served else said + output.read(), end="")
    # A full pipe would block it.
    threading.Thread(target=output.read, name="tpu-console-web", daemon=True).start()


def _start(arguments: Sequence[str], **options: Any) -> Any:
    """Start a command, whose output can be read."""
    options |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # Not what C code set behind Python's back: readline sets COLUMNS to 80, and tables would be cut at it.
    return subprocess.Popen([sys.executable, "-m", "tpu_console", *arguments], env=os.environ, **options)
