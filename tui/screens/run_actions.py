"""What the screens ask of a run: to stop, pause, save or change while it trains; to export or predict afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from textual import work
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.worker import get_current_worker

from tpu_console.engine.config.reading import load_config
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import RunSource, Steering, StopAfter
from tpu_console.engine.storage.paths import user_path

from ..jobs.job_process import JobProcess, JobProgress, Step
from ..text.keys import bind
from ..text.numbers import learning_rate, plural, whole_duration
from ..text.outcome import has_model
from ..text.run_lines import busy_text, change_text, epochs_problem, rate_problem, schedule_of, silent_text
from .find import PathSuggester
from .parts import HELP, Confirmation, QuestionBox, ValueDialog, ask_user, close, show_error

if TYPE_CHECKING:
    from textual.app import App, ComposeResult

    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

    from .live import LiveScreen

_BY = "requested in the console"
_QUESTIONS = {
    Steering.PAUSE: (
        "Pause training?",
        "It waits after the current steps, and keeps its place on the accelerator.",
        "Pause",
        "Keep training",
    ),
    Steering.CONTINUE: ("Continue training?", "It goes on with the next step.", "Continue", "Stay paused"),
    Steering.CHECKPOINT: ("Write a checkpoint now?", "Training waits while it is written.", "Write", "Don't"),
    Steering.PROFILE: (
        "Trace a few steps?",
        "Training goes on; a few steps are slower. The result is shown below the charts.",
        "Trace",
        "Don't",
    ),
}
"""What is asked before a request without a value: the question, what happens then, and both answers."""


class RunControls:
    """Writes requests to the run that the live screen shows, after a question, and reports its answers."""

    def __init__(self, screen: LiveScreen) -> None:
        self._screen, self._run = screen, screen.run_directory
        self._notify = partial(screen.notify, markup=False)
        self._asked: set[str] = set()
        self.has_asked_to_stop = False

    @property
    def _state(self) -> RunState:
        return self._screen.snapshot.state

    @property
    def _source(self) -> str:
        return self._state.started.source if self._state.started is not None else RunSource.PROCESS

    def report_answers(self) -> None:
        """Show the run's answers to what was asked here."""
        for event in self._state.steered if self._asked else ():
            if event.request in self._asked:
                self._asked.discard(event.request)
                text = change_text(event)
                self._notify(f"{text[0].upper()}{text[1:]}.", severity="warning" if event.refused else "information")

    def _ask(self, action: Steering, value: str = "") -> None:
        try:
            self._asked.add(ask(self._run, action, _BY, value))
        except OSError as error:
            self._notify(f"Cannot write the request: {error.strerror}.", severity="error")
            return
        if action is Steering.STOP:
            self.has_asked_to_stop = True
            self._screen.draw()
        elif busy := busy_text(self._state, time.time()):
            self._notify(f"The run will carry this out between two executions; {busy}.")

    def _ask_first(self, dialog: Confirmation | ValueDialog, action: Steering) -> None:
        """Ask the user, then the run: for the value that was typed, or whether to do it at all."""

        def request(answer: str) -> None:
            if self._screen.is_over:
                self._notify("The run has ended; nothing was changed.", severity="warning")
            else:
                self._ask(action, answer if isinstance(dialog, ValueDialog) else "")

        if self._source == RunSource.NOTEBOOK:
            self._notify("This run trains in a notebook, so it can only be stopped after a step.", severity="warning")
        else:
            ask_user(self._screen.app, dialog, request)

    def steer(self, what: str) -> None:
        """Ask the user about one of the requests that `Steering` names, then the run."""
        action, state = Steering(what), self._state
        match action:
            case Steering.STOP:
                self._stop()
            case Steering.EPOCHS:
                now = f"The run has {state.fit.epochs:,} epochs. " if state.fit is not None else ""
                explanation = f"{now}Type another number, or +5 for five more. Finished epochs are kept."
                self._ask_first(ValueDialog("Number of epochs", explanation, "20 or +5", epochs_problem), action)
            case Steering.LEARNING_RATE if schedule := schedule_of(state):
                text = f"The learning rate follows a schedule ({schedule}), and only a constant one can be changed."
                self._notify(text, severity="warning")
            case Steering.LEARNING_RATE:
                rate = state.epochs[-1].learning_rate if state.epochs else None
                now = f"In epoch {state.epochs[-1].epoch} it was {learning_rate(rate)}. " if rate is not None else ""
                explanation = f"{now}A new one takes effect with the next execution, usually within a second."
                self._ask_first(ValueDialog("Learning rate", explanation, "0.0005", rate_problem), action)
            case _:
                title, explanation, yes, no = _QUESTIONS[action]
                self._ask_first(Confirmation(title, explanation, yes=yes, no=no), action)

    def _stop(self) -> None:
        state, source = self._state, self._source
        busy = busy_text(state, time.time())
        has_trained, is_user_code = state.progress is not None, source == RunSource.NOTEBOOK
        kill: dict[str, str] = {Steering.END_NOW: "Kill now"} if source == RunSource.PROCESS else {}
        loses = ""
        if kill and has_trained:
            loses = " Killing it loses all of its work: there is no checkpoint yet."
            with suppress(OSError, ValueError):  # there may be none
                saved_at = max(file.stat().st_mtime for file in self._run.checkpoints.glob("state-*.ckpt"))
                ago = whole_duration(time.time() - saved_at)
                loses = f" Killing it loses the work since its last checkpoint, {ago} ago."
        if state.stop is not None and state.stop.after != StopAfter.EPOCH:
            what = f"The run is stopping; {busy or 'its current steps finish and the model is saved'}.{loses}"
            title = "Kill training?" if kill else "Stopping"
            ask_user(self._screen.app, Confirmation(title, what, yes=kill, no="Wait", is_careful=True), self.stop_if)
            return
        said = [f"{busy.capitalize()}, and finishes that first."] if busy else []
        if (snapshot := self._screen.snapshot).is_silent:
            said = [f"It is {silent_text(snapshot.silent_s)}; it will stop once it responds."]
        if is_user_code:
            said.append("Training ends, and your code goes on. To train on later, run it again.")
        elif has_trained:
            said.append("The model is saved. To continue later, press R or run: tpu-console resume.")
        else:
            said.append("Nothing has been trained yet. To start it again later, press R.")
        choices: dict[str, str] = {Steering.STOP: "After this step" if has_trained else "As soon as it can"}
        if has_trained and not is_user_code:  # an epoch that has not begun cannot be finished
            choices[Steering.STOP_AFTER_EPOCH] = "After this epoch"
        question = Confirmation("Stop training?", " ".join(said) + loses, yes=choices | kill, no="Keep training")
        ask_user(self._screen.app, question, self.stop_if)

    def stop_if(self, choice: str) -> None:
        """Ask the run to stop as chosen.

        While a run is being resumed, its journal says for a moment that it is over; a stop is requested all the same.
        """
        if choice != Steering.STOP and self._screen.is_over:
            return
        if choice != Steering.END_NOW:
            self._ask(Steering(choice))
            return

        def kill() -> None:
            from tpu_console.engine.process.launch import end_now

            try:
                end_now(self._run, _BY, responds=not self._screen.snapshot.is_silent)
            except (ConsoleError, OSError) as error:
                self._screen.app.call_from_thread(self._notify, f"Cannot kill the run: {error}", severity="error")

        self._screen.run_worker(kill, name="kill", thread=True)  # it may take seconds to see whether it responds


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
            differences = "".join(f"\nDiffers: {one}" for one in outcome.get("differences", ()))
            app.notify(f"{cancelled}Saved to {out}{rows}{differences}", markup=False)

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
        close(self, outcome)

    def action_cancel(self) -> None:
        self._is_cancelled = True
        self._say("cancelling …")
