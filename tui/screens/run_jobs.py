"""Jobs on a run that is over, in a dialog that shows how far they are: exports, and predictions of new data."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from textual import work
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.worker import get_current_worker

from tpu_console.engine.config.reading import load_config
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.storage.paths import user_path

from ..jobs.job_process import JobProcess, JobProgress, Step
from ..text.keys import bind
from ..text.numbers import plural
from ..text.outcome import has_model
from .dialogs import Confirmation, QuestionBox, ValueDialog, ask_user, show_error
from .find import PathSuggester
from .parts import HELP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.app import App, ComposeResult

    from tpu_console.engine.runs.run_directory import RunDirectory

JobOutcome: TypeAlias = "dict[str, Any] | ConsoleError | None"
"""The result of a job, why it has none, or None if it was cancelled before that."""

_CODE = {"notebook": ("a notebook of plain Keras", ".ipynb"), "script": ("a script of plain Keras", ".py")}
_FORMATS = {
    "savedmodel": ("a SavedModel of TensorFlow", "-savedmodel"),
    "tflite": ("a TFLite model", ".tflite"),
    "onnx": ("an ONNX model", ".onnx"),
}
"""The forms of `tpu-console export`: what each is called, and how the names of its files end."""
_GRACE_S = 5.0  # how long a cancelled job may take to save what it has finished


def export(app: App[Any], run: RunDirectory) -> None:
    """Ask for a form, and write the run, or its model, in it into the current folder."""
    forms = _CODE | (_FORMATS if has_model(run) else {})

    def start(form: str) -> None:
        out = _free(run.run_id, forms[form][1])
        name = "export" if form in _CODE else "convert"
        _start(app, name, {"run": str(run.path), "out": str(out), "form": form}, f"Writing {forms[form][0]}")

    what = f"Will be saved to {user_path(Path.cwd())}."
    ways = {form: f"{label[0].upper()}{label[1:]}" for form, (label, _) in forms.items()}
    ask_user(app, Confirmation("Export as what?", what, yes=ways, no="Cancel"), start)


def predict(app: App[Any], run: RunDirectory) -> None:
    """Ask for new data, and write what the run's model predicts into the current folder."""
    from tpu_console.engine.data.kinds.table import new_data, read_record

    out = _free(f"{run.run_id}-predictions", ".csv")

    def problem(data: str) -> str:
        path = data.partition(".py:")[0] + ".py" if ".py:" in data else data
        return "" if "://" in data or Path(path).expanduser().exists() else f"There is no {path}."

    def start(data: str) -> None:
        # An absolute path, which the name of a function may follow.
        whole = data if "://" in data else str(Path(data).expanduser().absolute())
        _start(app, "predict", {"run": str(run.path), "data": [whole], "out": str(out)}, f"Predicting {data}")

    try:
        config = load_config(run.config)
        wanted = new_data(config, read_record(run.inputs, config.dataset))
    except ConsoleError as error:
        show_error(app, error)
        return
    what = f"Takes {wanted}. → completes its path.\n\nWill be saved to\n{user_path(out)}"
    example = "a file or folder, or mine.py:function"
    ask_user(app, ValueDialog("Predict what?", what, example, problem, PathSuggester()), start)


def _free(stem: str, suffix: str) -> Path:
    names = (f"{stem}{f'-{number}' if number > 1 else ''}{suffix}" for number in count(1))
    return next(path for name in names if not (path := Path.cwd() / name).exists())


def _start(app: App[Any], name: str, options: Mapping[str, Any], doing: str) -> None:
    """Run a job in a dialog; then say what it saved, or why it could not."""
    out = user_path(Path(options["out"]))

    def end(outcome: JobOutcome) -> None:
        if isinstance(outcome, ConsoleError):
            show_error(app, outcome, lambda: _start(app, name, {**options, "trust": True}, doing))
        elif outcome is None:
            app.notify("Cancelled; nothing was saved.", markup=False)
        else:
            rows = f": {plural(outcome['rows'], 'row')}" if "rows" in outcome else ""
            cancelled = "" if outcome.get("is_whole", True) else "Cancelled. "
            marks = "".join(f"\nDiffers: {mark}" for mark in outcome.get("marks", ()))
            app.notify(f"{cancelled}Saved to {out}{rows}{marks}", markup=False)

    app.push_screen(JobDialog(doing, f"Will be saved to {out}.", [(name, options)], grace_s=_GRACE_S), end)


class JobDialog(ModalScreen[JobOutcome]):
    """Runs jobs one after the other; escape or leaving the console cancels, and what a job has finished is kept.

    Returns the outcome of the last one, or None if it was cancelled before that began. `jobs` are their names and
    options, and `limits` what else each `JobProcess` takes.
    """

    DEFAULT_CSS = "JobDialog { align: center middle; }"
    BINDINGS = [bind("back", "cancel"), HELP]

    def __init__(
        self, doing: str, explanation: str, jobs: Sequence[tuple[str, Mapping[str, Any]]], **limits: Any
    ) -> None:
        super().__init__()
        self._doing, self._explanation = doing, explanation
        self._jobs, self._limits = jobs, limits
        self._is_cancelled = False

    def compose(self) -> ComposeResult:
        progress = Static("starting …", classes="progress", markup=False)
        yield QuestionBox(self._doing, self._explanation, progress, keys="escape: cancel")

    def on_mount(self) -> None:
        self._follow()

    @work(thread=True, name="job")
    def _follow(self) -> None:  # noqa: C901  one loop and its ends
        worker = get_current_worker()
        outcome: JobOutcome = None

        def is_cancelled() -> bool:
            return self._is_cancelled or worker.is_cancelled

        try:
            for name, options in self._jobs:
                if is_cancelled():
                    outcome = None
                    break
                progress = JobProgress()
                with JobProcess(name, options, **self._limits) as job:
                    for record in job.records():
                        if is_cancelled() and not job.was_asked_to_end:
                            job.ask_to_end()
                        if record.get("kind") == "progress":
                            progress.feed(Step.of(record))
                        if progress.step is not None and not is_cancelled():
                            self.app.call_from_thread(self._say, progress.running())
                    outcome = job.result()
        except ConsoleError as error:
            outcome = error
        except KeyboardInterrupt:
            outcome = None
        if not worker.is_cancelled:
            self.app.call_from_thread(self._end, outcome)

    def _say(self, text: str) -> None:
        self.query_one(".progress", Static).update(text)

    def _end(self, outcome: JobOutcome) -> None:
        while self.app.screen is not self and self in self.app.screen_stack:  # its help is open
            self.app.pop_screen()
        self.dismiss(outcome)

    def action_cancel(self) -> None:
        self._is_cancelled = True
        self._say("cancelling …")
