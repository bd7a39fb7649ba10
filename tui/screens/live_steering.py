"""What the live screen asks of its run: to stop, pause, save, and train longer or at another learning rate."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import RunSource, Steering, StopAfter

from ..text.numbers import learning_rate, whole_duration
from ..text.steering import busy_text, change_text, epochs_problem, rate_problem, schedule_of, silent_text
from .dialogs import Confirmation, ValueDialog, ask_user

if TYPE_CHECKING:
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
