"""`watch`: shows a run in a notebook's cell and keeps it up to date.

The outputs are displayed once and then replaced by their ``display_id``, which every notebook front end understands, so
that the saved notebook holds the last picture. Drawing takes a few hundredths of one core at most.
"""

from __future__ import annotations

import atexit
import contextvars
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.machine.install import install_line
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import Steering
from tpu_console.engine.runs.follower import RunFollower, Snapshot
from tpu_console.engine.runs.run_directory import RunDirectory, find_run
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.runs.timing import pace
from tpu_console.engine.storage.paths import user_path

from ..widgets.run_header import HeaderView
from .picture import charts_of, draw, head, size_of, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
