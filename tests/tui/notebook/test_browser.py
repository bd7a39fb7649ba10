"""A run that moves in a cell of JupyterLab, in a real browser."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import nbformat
import pytest

from tests.browser import chromium, needs_chromium
from tests.helpers import LIMIT_S, ROOT, the, wait_until
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.run_directory import list_runs

_TRAINING = """
import math, time
from tpu_console import Run

with Run("moving", epochs=1000, steps_per_epoch=20, batch_size=32) as run:
    step = 0
    while not run.should_stop:
        for _ in range(20):
            step += 1
            run.log(step, loss=2 / step**0.5, accuracy=1 - 0.9 / step**0.5)
            time.sleep(0.02)
        run.end_epoch(val_loss=2.2 / step**0.5 + step / 2000, val_accuracy=0.95 - 0.8 / step**0.5)
"""
_IS_READY = """
const lab = window.jupyterapp, panel = lab?.shell?.currentWidget;
return !!(panel?.content?.activeCell && panel.sessionContext?.session?.kernel?.status === 'idle');
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a notebook in a real JupyterLab, whose only cell watches the newest run."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("from tpu_console import watch\nwatch()")])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "watch.ipynb")
    settings = tmp_path / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    news = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(news))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The buttons need the part of ipywidgets for JupyterLab, which is where that package is installed.
    shared = Path(ipywidgets.__file__).parents[4] / "share" / "jupyter"
    options = {
        "ServerApp.port": port,
        "IdentityProvider.token": "secret",
        "ServerApp.root_dir": tmp_path,
        "LabApp.user_settings_dir": tmp_path / "settings",
        "LabApp.workspaces_dir": tmp_path / "workspaces",
        "LabApp.expose_app_in_browser": True,
    }
    with (tmp_path / "lab.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
             *(f"--{name}={value}" for name, value in options.items())],
            cwd=tmp_path,
            env=os.environ | {"JUPYTER_PATH": str(shared), "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _answers(f"{address}/api?token=secret"), "JupyterLab")
        yield f"{address}/lab/tree/watch.ipynb?token=secret"
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address):
            return True
    except OSError:
        return False


@pytest.fixture
def training() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", _TRAINING], cwd=ROOT)
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
@needs_chromium
def test_the_curves_move_while_the_cell_runs_and_the_button_stops_the_run(
    lab: str, training: subprocess.Popen[bytes]
) -> None:
    with chromium() as browser:
        browser.get(lab)
        wait_until(lambda: browser.execute_script(_IS_READY), "the notebook")
        browser.execute_script("jupyterapp.commands.execute('notebook:run-all-cells')")
        pictures: list[str] = []

        def has_moved() -> bool:
            found = [hashlib.sha256(src.encode()).hexdigest() for src in _sources(browser)]
            pictures.extend(src for src in found if src not in pictures)
            return len(pictures) >= 3

        wait_until(has_moved, "three pictures")
        assert len(_sources(browser)) == 1
        wait_until(lambda: len(_buttons(browser)) == 2, "the buttons")
        stop, detach = _buttons(browser)
        assert (stop.text, detach.text) == ("Stop", "Detach")
        stop.click()
        assert training.wait(LIMIT_S) == 0
        wait_until(lambda: "Stopped on request" in _output(browser), "the end of the run")
        wait_until(lambda: not _buttons(browser), "the buttons to go")
        assert "best val_loss" in _output(browser)
    (run,) = list_runs()
    assert the(run, RunFinished).reason == "requested in a notebook"


def _sources(browser: Any) -> list[str]:
    script = "return [...document.querySelectorAll('.jp-OutputArea-output img')].map((image) => image.src)"
    return list(browser.execute_script(script))


def _buttons(browser: Any) -> list[Any]:
    return list(browser.find_elements("css selector", ".jp-OutputArea-output button"))


def _output(browser: Any) -> str:
    return str(browser.execute_script("return document.querySelector('.jp-Cell-outputArea').innerText"))
