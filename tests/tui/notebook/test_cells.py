"""Runs drawn in the cells of real kernels, and the words around the picture."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import urllib.request
from types import ModuleType
from typing import TYPE_CHECKING, Any

import nbformat
import psutil
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

from tests.helpers import LIMIT_S, ROOT, BeatingProcess, replace
from tests.tui.live_fakes import FakeEngine
from tpu_console import Run
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import EpochEnded, Noticed, Progress, Steering
from tpu_console.engine.runs.follower import RunFollower, Snapshot
from tpu_console.engine.runs.run_directory import create_run, list_runs
from tpu_console.engine.runs.state import reduce
from tpu_console.engine.runs.timing import pace
from tpu_console.tui.notebook.watching import head, run_line, tables
from tpu_console.tui.widgets.run_header import HeaderView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FIT = """
import keras, numpy as np
from tpu_console import BridgeCallback
x, y = np.random.default_rng(0).normal(size=(64, 4)).astype("float32"), np.arange(64) % 3
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
shown = BridgeCallback("shown", display=True)
model.fit(x, y, epochs=3, validation_split=0.25, verbose=0, callbacks=[shown])
del model
"""
_WATCH = "from tpu_console import watch\nwatch('shown')"


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels find this code, and import only what they need."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def plain(cell: Any) -> list[str]:
    """The texts of a cell's displays, in order."""
    return [output.data["text/plain"] for output in cell.outputs if output.output_type == "display_data"]


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_a_saved_notebook_holds_one_picture_and_the_tables_of_every_run() -> None:
    cells = [_FIT, _WATCH, "watch('no such run')", "%load_ext tpu_console", "%tpu_console runs"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    NotebookClient(notebook, kernel_name="python3", timeout=3 * LIMIT_S, allow_errors=True).execute()
    fit, watched, missing, _, listed = notebook.cells
    for cell in (fit, watched):
        buttons, head, picture, tables = plain(cell)
        assert not buttons
        assert "Finished: 3 epochs" in head
        assert picture.startswith("Curves of ")
        assert re.search(r"\n *★? *3 .*\d\.\d{4}", tables)
        (png,) = [o.data["image/png"] for o in cell.outputs if "image/png" in o.get("data", {})]
        assert png.startswith("iVBOR")
    (error,) = missing.outputs
    assert "'no such run'" in error.traceback[0]
    assert len(error.traceback) == 2
    said = "".join(output.text for output in listed.outputs)
    assert all(found.run_id in said for found in list_runs())


class _Kernel:
    """A kernel whose messages a test reads."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=dict(os.environ))

    def wait_for(self, kind: str, condition: Callable[[Any], bool] = lambda _: True) -> Any:
        """Return the next message of a kind that fulfils a condition."""
        while True:
            message = self.client.get_iopub_msg(timeout=LIMIT_S)
            if message["msg_type"] == kind and condition(message["content"]):
                return message

    def status_of(self, asked: str) -> str:
        """Return how a cell ended."""
        while (reply := self.client.get_shell_msg(timeout=LIMIT_S))["parent_header"]["msg_id"] != asked:
            pass
        return str(reply["content"]["status"])

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(kernels: None) -> Iterator[_Kernel]:
    made = _Kernel()
    yield made
    made.close()


@pytest.fixture
def beating() -> Iterator[BeatingProcess]:
    made = BeatingProcess(create_run("beating"))
    yield made
    made.kill()


def says(text: str) -> Callable[[Any], bool]:
    return lambda content: text in content["data"]["text/plain"]


@pytest.mark.slow
def test_an_interrupt_detaches_from_a_run_and_a_cell_that_does_not_block_goes_on_changing(
    kernel: _Kernel, beating: BeatingProcess
) -> None:
    asked = kernel.client.execute("%load_ext tpu_console\n%tpu_console run digits-cnn")
    kernel.wait_for("update_display_data", says("waiting for the first step"))
    kernel.manager.interrupt_kernel()
    kernel.wait_for("update_display_data", says("Detached; the run continues. To stop it: tpu-console stop 2"))
    assert kernel.status_of(asked) == "ok"
    run = psutil.Process(
        json.loads(next(run for run in list_runs() if "digits" in run.run_id).heartbeat.read_text())["pid"]
    )
    assert run.is_running()
    run.kill()

    asked = kernel.client.execute(f"from tpu_console import watch; watch({str(beating.run.path)!r}, block=False)")
    assert kernel.status_of(asked) == "ok"
    kernel.client.execute("print('another cell')")
    ask(beating.run, Steering.STOP, "requested in a test")
    ended = kernel.wait_for("update_display_data", says("Stopped on request"))
    assert ended["parent_header"]["msg_id"] == asked


def test_outside_a_notebook_training_goes_on_without_a_display() -> None:
    with pytest.warns(UserWarning, match="Curves can only be drawn in a notebook"), Run("plain", display=True) as run:
        run.log(1, loss=0.5)
    assert len(list_runs()) == 1


def test_in_colab_the_link_to_the_console_goes_through_its_proxy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[tuple[int, str]] = []
    colab, output = ModuleType("google.colab"), ModuleType("google.colab.output")
    vars(output)["serve_kernel_port_as_window"] = lambda port, path, anchor_text: shown.append((port, path))
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    run_line("web --port 0")
    ((port, path),) = shown
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as page:
        assert b"tpu-console" in page.read()
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    (server,) = [child for child in running if "web" in child.cmdline()]
    server.terminate()
    assert server.wait(LIMIT_S) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run_line(f"web --port {taken.getsockname()[1]}")
    assert "cannot be used" in capsys.readouterr().out


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    engine = FakeEngine(tmp_path, replicas=2)
    engine.begin(4)
    return engine


def shown(engine: FakeEngine, snapshot: Snapshot | None = None) -> dict[str, str]:
    snapshot = snapshot or RunFollower(engine.run).catch_up()
    view = HeaderView(engine.run.run_id, snapshot, engine.clock, pace=pace(snapshot.state))
    return head(engine.run, view, "")


def test_a_run_that_trains_shows_its_phase_replicas_progress_and_best_epoch(engine: FakeEngine) -> None:
    engine.train(5, ends=False)
    page = shown(engine)
    for part in ("training", "CPU, 2 replicas", "digits 1,437 + 360", "epoch 5/10 · 44% · step 8/20", "ms/step"):
        assert part in page["text/html"], page
        assert part in page["text/plain"], page
    assert "0.8800 in epoch 3" in page["text/plain"]
    assert '<progress value="88" max="200">' in page["text/html"]


def test_a_run_that_ended_says_how_and_that_it_overfits(engine: FakeEngine) -> None:
    engine.finish("stopped", "asked in a test")
    snapshot = RunFollower(engine.run).catch_up()
    assert "after 4 epochs" in shown(engine)["text/plain"]
    assert "overfitting" not in shown(engine)["text/plain"]
    state = snapshot.state
    for epoch in range(5, 13):
        logs = {"loss": 0.5 / epoch, "val_loss": float(epoch)}
        state = reduce(state, EpochEnded(epoch, epoch * 20, 20, 1.0, 0.2, 0, 0, 1, 1, 0.1, logs), 0.0)
    assert "is overfitting" in shown(engine, replace(snapshot, state=state))["text/plain"]
    state = reduce(state, Progress(13, 4, 244, 1.3, {"loss": 0.1}), 0.0)
    assert "is overfitting" in shown(engine, replace(snapshot, state=state))["text/plain"]


def test_the_tables_have_the_newest_epochs_the_best_one_and_every_replica(engine: FakeEngine) -> None:
    for epoch in range(5, 17):
        engine.train(epoch)
    page = tables(RunFollower(engine.run).catch_up().state)
    rows = re.findall(r"<tr(.*?)(?=<tr|</table>)", page["text/html"])
    assert "★ 3" in rows[1]
    assert "font-weight:bold" in rows[1]
    assert [re.findall(r">([\d★ ]+)", row)[0].split()[-1] for row in rows[2:12]] == [str(n) for n in range(7, 17)]
    assert "CPU, simulated" in rows[-1]
    assert "CPU:1" in rows[-1]
    assert "★ 3" in page["text/plain"]
    assert "val_loss" in page["text/plain"]


def test_nothing_of_a_run_becomes_markup(engine: FakeEngine) -> None:
    bad = "<img src=x onerror=alert(1)>"
    state = RunFollower(engine.run).catch_up().state
    assert state.accelerator is not None
    assert state.started is not None
    started = replace(state.started, config={"dataset": bad, "model": bad})
    replicas = tuple(replace(replica, device=bad, kind=bad) for replica in state.accelerator.replicas)
    state = replace(state, accelerator=replace(state.accelerator, accelerator=bad, reason=bad, replicas=replicas))
    state = replace(state, started=started, phase=bad)
    state = reduce(state, Noticed(bad), 0.0)
    state = reduce(state, EpochEnded(5, 100, 20, 1.0, 0.2, 0, 0, 1, 1, 0.1, {bad: 1.0}), 0.0)
    html = shown(engine, Snapshot(state))["text/html"] + tables(state)["text/html"]
    assert "&lt;img" in html
    assert {*re.findall(r"</?([a-z]+)", html)} <= {"div", "b", "br", "progress", "table", "tr", "th", "td"}
