"""Small screens that ask how to steer a run: when to stop, or for a new value."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Button, Input, Static

from .dialogs import Asking
from .parts import HELP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.app import ComposeResult
    from textual.binding import BindingType

STEP, EPOCH, KILL = "step", "epoch", "kill"
_KEYS = {STEP: "y", EPOCH: "e", KILL: "x"}
_TOOLTIPS = {
    STEP: "Stop after this step, if that is offered.",
    EPOCH: "Stop after this epoch, if that is offered.",
    KILL: "Kill the run, if that is offered; unsaved work is lost.",
}


class StopDialog(Asking[str]):
    """Asks when to stop; returns `STEP`, `EPOCH` or `KILL`, or an empty text to keep training.

    `choices` are the ones on offer, each with the label of its button.
    """

    AUTO_FOCUS = "#keep"  # where an accidental enter does no harm
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"choose('{name}')", show=False, tooltip=_TOOLTIPS[name]) for name, key in _KEYS.items()),
        Binding("n,escape", "choose('')", "No", tooltip="Leave everything as it is."),
        Binding("left,up", "app.focus_previous", "Choose", show=False),
        Binding("right,down", "app.focus_next", "Choose", show=False),
        HELP,
    ]
    CSS = "StopDialog Horizontal { margin-top: 1; }"

    def __init__(self, question: str, explanation: str, choices: Mapping[str, str]) -> None:
        super().__init__(question, explanation)
        self._choices = choices

    def answers(self) -> ComposeResult:
        """Make the buttons, the harmless one first."""
        buttons = [Button(f"{'Keep training' if STEP in self._choices else 'Wait'} (n)", id="keep", compact=True)]
        for name, label in self._choices.items():
            button = Button(f"{label} ({_KEYS[name]})", id=name, compact=True)
            button.variant = "error" if name == KILL else "warning"
            buttons.append(button)
        for at in range(0, len(buttons), 2):
            yield Horizontal(*buttons[at : at + 2])

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        self.dismiss(event.button.id if event.button.id in self._choices else "")

    def action_choose(self, name: str) -> None:
        """Answer with a key."""
        if not name or name in self._choices:
            self.dismiss(name)


class ValueDialog(Asking[str]):
    """Asks for a value; returns it, or an empty text to change nothing.

    The example is shown until a value is typed; `check` returns what is wrong with one, or an empty text.
    """

    HINT = "enter: change · escape: cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss('')", "Cancel", tooltip="Leave everything as it is."),
        HELP,
    ]
    CSS = """
    ValueDialog .problem { color: $text-error; height: auto; margin-top: 1; }
    ValueDialog Input { background: $boost; }
    """

    def __init__(self, title: str, explanation: str, example: str, check: Callable[[str], str]) -> None:
        super().__init__(title, explanation)
        self._example, self._check = example, check

    def answers(self) -> ComposeResult:
        """Make the field."""
        yield Input(placeholder=self._example, compact=True)
        yield Static(classes="problem")

    @on(Input.Submitted)
    def _submit(self, message: Input.Submitted) -> None:
        """Return the value, or say what is wrong with it."""
        value = message.value.strip()
        if problem := self._check(value):
            self.query_one(".problem", Static).update(Content(problem))
        else:
            self.dismiss(value)
