"""The form with the choices of a preflight: TPUs, batches, precisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Checkbox, Input, Static

from tpu_console.engine.errors import ConfigError, Problem
from tpu_console.engine.preflight.topologies import TOPOLOGIES

from ..jobs.preflights import DEFAULT_TPU, PRECISIONS, Choices, known_tpus
from .choice import TickBox

if TYPE_CHECKING:
    from textual.app import ComposeResult

_TPUS, _BATCHES = "TPUs", "Batches"


class TpuSuggester(Suggester):
    """Completes the TPU name that is being typed."""

    def __init__(self) -> None:
        super().__init__(case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """Return the text with its last name completed; None if no name begins like it."""
        before, comma, begun = value.rpartition(",")
        name = begun.strip()
        gap = begun[: len(begun) - len(begun.lstrip())]
        return next((f"{before}{comma}{gap}{tpu}" for tpu in TOPOLOGIES if name and tpu.startswith(name)), None)


class ChoiceForm(Vertical):
    """The form. Enter in a field requests the verdicts.

    Args:
        batch: Examples per replica in the run form.
        precision: The precision in the run form.
    """

    DEFAULT_CSS = """
    ChoiceForm {
        height: auto; padding: 0 1;
        Horizontal { height: 1; }
        .label { width: 10; color: $text-muted; }
        Input { width: 1fr; background: $surface-lighten-1; margin: 0 2 0 0; }
        Input:focus { background: $primary 30%; }
        Checkbox { width: auto; background: transparent; margin: 0 2 0 0; }
        Checkbox:focus { background: $primary 30%; }
        #choice-problem { height: auto; color: $text-error; display: none; }
        &.-invalid #choice-problem { display: block; }
    }
    """

    @dataclass
    class Edited(Message):
        """The choices changed."""

    @dataclass
    class Confirmed(Message):
        """The verdicts were requested."""

    def __init__(self, batch: int, precision: str) -> None:
        super().__init__()
        self._batch = batch
        self._precision = precision

    def compose(self) -> ComposeResult:
        """Lay out the fields in two lines."""
        with Horizontal():
            yield Static(_TPUS, classes="label")
            hint = f"{DEFAULT_TPU}, v3-8, v6e-8 …"
            yield Input(DEFAULT_TPU, placeholder=hint, suggester=TpuSuggester(), compact=True, id="tpus")
            yield Static(_BATCHES, classes="label")
            yield Input(str(self._batch), placeholder="32, 128 … per replica", compact=True, id="batches")
        with Horizontal():
            yield Static("Precision", classes="label")
            for name in PRECISIONS:
                yield TickBox(name, name == self._precision, compact=True, id=name)
            yield TickBox("find the largest batch", compact=True, id="search")
        yield Static("", id="choice-problem", markup=False)

    def choices(self) -> Choices:
        """Return the choices.

        Raises:
            ConfigError: A choice is invalid.
        """
        tpus = known_tpus([self.query_one("#tpus", Input).value], _TPUS)
        batches = _batches(self.query_one("#batches", Input).value)
        precisions = tuple(name for name in PRECISIONS if self.query_one(f"#{name}", Checkbox).value)
        is_searched = self.query_one("#search", Checkbox).value
        return Choices(tpus, batches, precisions or (self._precision,), search=is_searched)

    def show_problem(self, error: ConfigError | None) -> None:
        """Show what is wrong with the choices, or nothing."""
        self.set_class(error is not None, "-invalid")
        if error is not None:
            self.query_one("#choice-problem", Static).update(str(error))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Report that a text changed."""
        event.stop()
        self.post_message(self.Edited())

    def on_checkbox_changed(self, event: Checkbox.Changed) -> None:
        """Report that a checkbox changed."""
        event.stop()
        self.post_message(self.Edited())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Request the verdicts."""
        event.stop()
        self.post_message(self.Confirmed())


def _batches(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if not word.isdecimal() or int(word) < 1]
    if wrong or not words:
        message = f"'{wrong[0]}' is not a positive whole number" if wrong else "is empty"
        raise ConfigError([Problem(_BATCHES, f"{message}; try 32, 128")])
    return tuple(dict.fromkeys(int(word) for word in words))
