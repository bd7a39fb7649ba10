"""Runs drawn in the cells of real kernels: the picture, the words around it, and what leaves the user's style alone."""

import io
import json
import math
import os
import re
import socket
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import nbformat
import psutil
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from PIL import Image

from tests.helpers import LIMIT_S, ROOT, BeatingProcess, epoch_ended, replace, run_python
from tests.tui.live_fakes import FakeEngine
from tpu_console import Run
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import Noticed, Progress, Steering
from tpu_console.engine.runs.follower import RunFollower, Snapshot
from tpu_console.engine.runs.run_directory import create_run, list_runs
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.runs.timing import pace
from tpu_console.tui.notebook.watching import draw, figure_of, head, run_line, size_of, tables
from tpu_console.tui.widgets.run_header import HeaderView

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


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_an_interrupt_detaches_from_a_run_and_a_cell_that_does_not_block_goes_on_changing() -> None:
    beating = BeatingProcess(create_run("beating"))
    manager, client = start_new_kernel(kernel_name="python3", env=dict(os.environ))

    def update_with(text: str) -> Any:
        while True:
            message = client.get_iopub_msg(timeout=LIMIT_S)
            if message["msg_type"] == "update_display_data" and text in message["content"]["data"]["text/plain"]:
                return message

    def status_of(asked: str) -> Any:
        while (reply := client.get_shell_msg(timeout=LIMIT_S))["parent_header"]["msg_id"] != asked:
            pass
        return reply["content"]["status"]

    try:
        asked = client.execute("%load_ext tpu_console\n%tpu_console run digits-cnn")
        update_with("waiting for the first step")
        manager.interrupt_kernel()
        update_with("Detached; the run continues. To stop it: tpu-console stop 2")
        assert status_of(asked) == "ok"
        (run,) = (run for run in list_runs() if "digits" in run.run_id)
        trainer = psutil.Process(json.loads(run.heartbeat.read_text())["pid"])
        assert trainer.is_running()
        trainer.kill()

        asked = client.execute(f"from tpu_console import watch; watch({str(beating.run.path)!r}, block=False)")
        assert status_of(asked) == "ok"
        client.execute("print('another cell')")
        ask(beating.run, Steering.STOP, "requested in a test")
        assert update_with("Stopped on request")["parent_header"]["msg_id"] == asked
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        beating.kill()


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
        state = reduce(state, epoch_ended(epoch, logs, steps=20), 0.0)
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
    state = reduce(state, epoch_ended(5, {bad: 1.0}, steps=20), 0.0)
    html = shown(engine, Snapshot(state))["text/html"] + tables(state)["text/html"]
    assert "&lt;img" in html
    assert {*re.findall(r"</?([a-z]+)", html)} <= {"div", "b", "br", "progress", "table", "tr", "th", "td"}


@pytest.fixture
def state(engine: FakeEngine) -> RunState:
    for epoch in (5, 6):
        engine.train(epoch)
    return RunFollower(engine.run).catch_up().state


def texts_of(state: RunState) -> list[list[str]]:
    return [[text.get_text() for text in axes.texts] for axes in figure_of(state).axes]


def test_every_metric_has_its_newest_and_best_values_as_on_the_console(state: RunState) -> None:
    loss, accuracy = texts_of(state)
    assert {"loss", "─ train 0.3333", "● val 0.4333 ★ 0.4333 (6)", "epoch"} <= {*loss}
    assert {"accuracy", "─ train 0.7500", "● val 0.7300 ★ 0.8800 (3)"} <= {*accuracy}


def test_the_picture_is_twice_its_size_and_transparent(state: RunState) -> None:
    image = Image.open(io.BytesIO(draw(state)))
    assert image.size == tuple(2 * side for side in size_of(state))
    assert image.convert("RGBA").getpixel((0, 0))[3] == 0  # type: ignore[index]


def test_the_style_of_the_user_changes_nothing(state: RunState) -> None:
    expected = draw(state)
    style = {
        "text.usetex": True,
        "figure.facecolor": "red",
        "axes.grid": True,
        "font.family": "no such font",
        "lines.linestyle": "--",
        "lines.marker": "s",
        "path.sketch": (5, 50, 5),
        "savefig.dpi": 10,
        "figure.autolayout": True,
    }
    with mpl.rc_context(style):
        before = dict(mpl.rcParams)
        assert draw(state) == expected
        assert dict(mpl.rcParams) == before


def test_names_and_values_of_any_kind_can_be_drawn(state: RunState) -> None:
    state = reduce(state, Progress(7, 4, 124, 1.3, {"loss": math.nan, "ゼロ$x^{$": 0.0, "huge": 1e300}), 0.0)
    ended = epoch_ended(7, {"loss": math.inf, "val_ゼロ$x^{$": 0.0}, steps=20, learning_rate=None, step_ms=None)
    state = reduce(state, ended, 0.0)
    assert draw(state)
    assert "??$x^{$" in [text for chart in texts_of(state) for text in chart]
    assert draw(reduce(RunState(), replace(ended, epoch=1), 0.0))


def test_drawing_leaves_pyplot_and_its_backend_alone(tmp_path: Path) -> None:
    run_python(
        "import sys\n"
        "from tpu_console.engine.runs.events import Progress\n"
        "from tpu_console.engine.runs.state import RunState, reduce\n"
        "from tpu_console.tui.notebook.watching import draw\n"
        "assert 'matplotlib' not in sys.modules\n"
        "draw(reduce(RunState(), Progress(1, 1, 1, 1.0, {'loss': 1.0}), 0.0))\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'IPython' not in sys.modules",
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
