"""Jobs on a run that is over, in the background of a screen: its notebook, and predictions of new data."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.worker import get_current_worker

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.storage.paths import user_path

from .dialogs import error_dialog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import App

    from tpu_console.engine.runs.run_directory import RunDirectory


def write_notebook(app: App[Any], run: RunDirectory) -> None:
    """Write a run as a notebook of plain Keras into the current folder."""
    out = _free(f"{run.run_id}", ".ipynb")
    _start(app, "export", {"run": str(run.path), "out": str(out), "form": "notebook"}, "Writing the notebook …")


def predict(app: App[Any], run: RunDirectory) -> None:
    """Ask for new data, and write what the run's model predicts into the current folder."""
    from .live_steering import ValueDialog

    out = _free(f"{run.run_id}-predictions", ".csv")

    def start(data: str | None) -> None:
        if data:
            options = {"run": str(run.path), "data": [_given(data)], "out": str(out)}
            _start(app, "predict", options, f"Predicting {data} …")

    what = f"The predictions go to {user_path(out)}. New data is read as in training."
    app.push_screen(ValueDialog("Predict what?", what, "a file or folder, or mine.py:function", _problem), start)


def _free(stem: str, suffix: str) -> Path:
    """Return a file of the current folder that does not exist yet."""
    names = (f"{stem}{f'-{number}' if number > 1 else ''}{suffix}" for number in count(1))
    return next(path for name in names if not (path := Path.cwd() / name).exists())


def _given(data: str) -> str:
    """Return the whole path of new data, also before the name of a function in it."""
    return data if "://" in data else str(Path(data).expanduser().absolute())


def _problem(data: str) -> str:
    path = data.partition(".py:")[0] + ".py" if ".py:" in data else data
    return "" if "://" in data or Path(path).expanduser().exists() else f"There is no {path}."


def _start(app: App[Any], name: str, options: Mapping[str, Any], doing: str) -> None:
    """Run a job in a thread; say when it begins, and what it wrote or why it could not. It ends with the console."""
    from ..jobs.job_process import JobProcess

    def work() -> None:
        worker = get_current_worker()
        app.call_from_thread(app.notify, doing, markup=False)
        try:
            with JobProcess(name, options) as job:
                for _ in job.records():
                    if worker.is_cancelled:
                        return
                job.result()
            app.call_from_thread(app.notify, f"Written: {user_path(Path(options['out']))}", markup=False)
        except ConsoleError as error:
            app.call_from_thread(app.push_screen, error_dialog(error))

    app.run_worker(work, name=name, group=name, thread=True, exclusive=True)
