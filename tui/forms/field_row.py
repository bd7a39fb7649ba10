"""One field of the run form: its label, its control, one line of help, and its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Checkbox, Input, Select, Static

from .fields import FieldSpec, Kind
from .tick_box import TickBox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

_OWN = "\0own"


class Choice(Select[str], inherit_bindings=False):
    """A select that leaves the arrow keys to the form until it is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "show_overlay", "Choose", show=False)]


class NameSuggester(Suggester):
    """Completes the last of several names with commas between."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(use_cache=False)
        self._names = names

    async def get_suggestion(self, value: str) -> str | None:
        """Return the text with its last name completed; None if no name begins so, or all of it is there."""
        before, comma, last = value.rpartition(",")
        begun = last.lstrip()
        start = before + comma + last[: len(last) - len(begun)]
        return next((start + name for name in self._names if begun and name.startswith(begun) and name != begun), None)


class FieldRow(Container):
    """One field.

    Args:
        spec: The field.
        text: Its text.
        labels: The display texts of the listed values that have one.
    """

    DEFAULT_CSS = """
    FieldRow {
        layout: grid;
        grid-size: 2;
        grid-columns: 23 1fr;
        grid-rows: auto;
        height: auto;

        .label, .asks { color: $text-muted; padding: 0 1 0 0; }
        .asks { text-align: right; }
        .hint { display: none; color: $text-disabled; padding: 0 0 0 2; height: 1;
                text-wrap: nowrap; text-overflow: ellipsis; }
        .problem { display: none; column-span: 2; color: $text-error; padding: 0 0 0 2; height: auto; }
        Choice > SelectCurrent Static#label { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        .own { display: none; }
        Input, Checkbox, Choice > SelectCurrent { background: $surface-lighten-1; }
        Input:focus, Choice:focus > SelectCurrent, Checkbox:focus { background: $primary 30%; }
        Checkbox { width: 1fr; background: transparent; }

        &.-changed .label { color: $foreground; }
        &.-asks-own .own { display: block; }
        &.-invalid {
            .label { color: $text-error; text-style: bold; }
            .problem { display: block; }
            Input, Choice > SelectCurrent { background: $error 25%; }
        }
    }
    """

    @dataclass
    class Edited(Message):
        """The field's text may have changed.

        Args:
            row: The field.
        """

        row: FieldRow

    def __init__(self, spec: FieldSpec, text: str, labels: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.spec = spec
        self._initial = text
        self._labels = dict(labels or {})
        self._shown = ("", "")
        self.set_class(spec.is_essential, "-essential")

    def compose(self) -> ComposeResult:
        """Lay out the label, the control, the help and the error."""
        spec = self.spec
        yield Static(spec.label, classes="label", markup=False)
        match spec.kind:
            case Kind.SWITCH:
                yield TickBox("", self._initial == "true", compact=True, classes="control")
            case Kind.CHOICE | Kind.OPEN_CHOICE:
                value = self._listed(self._initial)
                yield Choice(self._prompts(), value=value, allow_blank=False, compact=True, classes="control")
            case _:
                empty = spec.default or ("none" if spec.kind in {Kind.LIST, Kind.NAMES, Kind.KEYWORDS} else "")
                names = NameSuggester(spec.choices) if spec.choices else None
                yield Input(self._initial, placeholder=empty, compact=True, classes="control", suggester=names)
        yield Static(spec.help, classes="hint", markup=False)
        if spec.own is not None:
            yield Static(spec.own.asks, classes="asks own", markup=False)
            yield Input(self._own_text(self._initial), placeholder=spec.own.example, compact=True, classes="own")
        yield Static("", classes="problem", markup=False)

    def on_mount(self) -> None:
        """Update the parts that depend on the value."""
        self._follow()

    @property
    def text(self) -> str:
        """The field's text."""
        control = self.query_one(".control")
        if isinstance(control, Checkbox):
            return "true" if control.value else "false"
        if isinstance(control, Input):
            return control.value
        chosen = str(self.query_one(Choice).value)
        if chosen == _OWN and self.spec.own is not None:
            return self.spec.own.value(self.query_one("Input.own", Input).value)
        return chosen

    @text.setter
    def text(self, text: str) -> None:
        if text == self.text:
            return
        control = self.query_one(".control")
        if isinstance(control, Checkbox):
            control.value = text == "true"
        elif isinstance(control, Input):
            control.value = text
        else:
            if self.spec.own is not None and self._listed(text) == _OWN:
                self.query_one("Input.own", Input).value = self._own_text(text)
            self.query_one(Choice).value = self._listed(text)
        self._follow()

    def label_choices(self, labels: Mapping[str, str]) -> None:
        """Show listed values with more descriptive texts.

        Args:
            labels: The display texts by value.
        """
        self._labels = dict(labels)
        if not self.query("Choice #label"):
            self.call_after_refresh(self.label_choices, labels)  # still being mounted
            return
        choice = self.query_one(Choice)
        options = self._options()
        # A list that is still being mounted has no value yet.
        value = str(choice.value) if choice.value in {v for _, v in options} else self._listed(self._initial)
        with self.prevent(Select.Changed):
            choice.set_options(self._prompts())
            # A label is redrawn only when the value changes.
            choice.value = next(other for _, other in options if other != value)
            choice.value = value

    def mark(self, problem: str, *, is_changed: bool) -> None:
        """Show what is wrong with the value, and whether it differs from the preset's.

        Args:
            problem: The error; empty if there is none.
            is_changed: Whether it differs.
        """
        sign = "✗" if problem else "•" if is_changed else ""
        if self._shown == (sign, problem):
            return
        self._shown = (sign, problem)
        self.set_class(bool(problem), "-invalid")
        self.set_class(is_changed, "-changed")
        self.query_one(".label", Static).update(f"{self.spec.label} {sign}".rstrip())
        self.query_one(".problem", Static).update(problem)

    def focus_control(self) -> None:
        """Focus the control in which the value is typed."""
        own = self.has_class("-asks-own") and self.has_class("-invalid")
        self.query_one("Input.own" if own else ".control").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Report a new text."""
        self._report(event)

    def on_checkbox_changed(self, event: Checkbox.Changed) -> None:
        """Report a new state."""
        self._report(event)

    def on_select_changed(self, event: Select.Changed) -> None:
        """Report a new choice, and focus the text field that it needs."""
        was_own = self.has_class("-asks-own")
        self._report(event)
        focused = self.screen.focused
        is_chosen_here = focused is not None and self in focused.ancestors
        if self.has_class("-asks-own") and not was_own and is_chosen_here:
            # The text field is not laid out yet, and the list takes the focus back as it closes.
            self.call_after_refresh(self.query_one("Input.own").focus)

    def _report(self, event: Message) -> None:
        event.stop()
        self._follow()
        self.post_message(self.Edited(self))

    def _follow(self) -> None:
        """Update what depends on the value: the text field of a custom choice, the word of a switch."""
        if self.spec.kind is Kind.SWITCH:
            box = self.query_one(Checkbox)
            box.label = "on" if box.value else "off"
        elif self.spec.own is not None:
            self.set_class(self.query_one(Choice).value == _OWN, "-asks-own")

    def _options(self) -> list[tuple[str, str]]:
        options = [(self._labels.get(value, value), value) for value in self.spec.choices]
        return [*options, (self.spec.own.label, _OWN)] if self.spec.own is not None else options

    def _prompts(self) -> list[tuple[Content, str]]:
        """Return the options as content: a string would be parsed as markup, and device names may have brackets."""
        return [(Content(label), value) for label, value in self._options()]

    def _listed(self, text: str) -> str:
        return text if text in self.spec.choices or self.spec.own is None else _OWN

    def _own_text(self, text: str) -> str:
        if self.spec.own is None or text in self.spec.choices:
            return ""
        return text.removeprefix(self.spec.own.prefix)
