"""One field of the run form: its name and values, its control, one line of help, and its error."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from textual import on
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Checkbox, Input, Select

from ..text.keys import bind

if TYPE_CHECKING:
    from textual.events import Click
    from textual.geometry import Size

    from tpu_console.engine.errors import Problem


class ControlKind(StrEnum):
    """The kind of control of a field."""

    TEXT = "text"
    NUMBER = "number"
    LIST = "list"
    NAMES = "names"
    SWITCH = "switch"
    CHOICE = "choice"
    OPEN_CHOICE = "open choice"
    KEYWORDS = "keywords"


class OwnValue(Struct, frozen=True):
    """A custom value that an open choice accepts besides its listed values."""

    label: str  # its name in the list
    asks: str  # the name of its text field
    prefix: str  # written before the text, such as ``sim:``
    example: str  # a value that shows the form
    first: str = ""  # what the text field holds at first

    def value(self, text: str) -> str:
        """Return the value of a text; a text with its own prefix, such as ``tpu:ADDRESS``, is already complete."""
        return text if ":" in text else self.prefix + text


class FieldSpec(Struct, frozen=True):
    """One field."""

    key: str  # dotted key in the configuration
    group: str  # its heading
    label: str  # its name
    help: str  # one line of help
    kind: ControlKind
    choices: tuple[str, ...] = ()  # the listed values of a choice
    own: OwnValue | None = None  # the custom value of an open choice
    default: str = ""  # the default as text; empty if there is none
    empty_is_default: bool = True  # whether an empty text means the default rather than an empty list
    is_essential: bool = False  # whether it is shown by default


def field_of(problem: Problem, fields: tuple[FieldSpec, ...]) -> FieldSpec | None:
    """Return the field that a problem is about; its key may include an item of a list."""
    about = [spec for spec in fields if f"{problem.key}.".startswith(f"{spec.key}.")]
    return max(about, key=lambda spec: len(spec.key), default=None)


_OWN = "\0own"
_LABEL, _VALUE = 22, 28  # columns of the label and, if the help is beside it, of the value; as in the style sheet
_BESIDE = 96  # columns from which on the help is beside the value
_LEAST = 20  # columns for a text under the value
_HELP = "$foreground 60%"


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


class FieldRow(Widget):
    """One field. It draws its label, its help and its error itself: a widget takes some milliseconds to mount."""

    DEFAULT_CSS = """
    FieldRow {
        layout: vertical;
        height: auto;
        & > * { margin: 0 0 0 22; max-width: 44; height: 1; padding: 0 1; background: $surface-lighten-1; }
        .own { display: none; }
        &.-asks-own .own { display: block; }
        &.-beside > * { max-width: 28; }
        & > Input.-textual-compact { padding: 0 1; background: $surface-lighten-1; }
        & > Input.-textual-compact:focus, & > Checkbox:focus { background: $primary 30%; }
        & > Checkbox { width: 1fr; padding: 0 1 0 0; }
        &.-invalid > Input.-textual-compact, &.-invalid > Choice { background: $error 25%; }
    }
    """

    @dataclass
    class Typed(Message):
        """The field's text may have changed."""

        row: FieldRow

    problem = reactive("", layout=True)  # what is wrong with the value; empty for nothing
    is_changed = reactive(False)  # whether the value differs from the preset's
    shows_help = reactive(False, layout=True)  # beside the value if there is room, and under it otherwise

    def __init__(self, spec: FieldSpec, text: str, labels: Mapping[str, str] | None = None) -> None:
        self.spec = spec
        self._labels = dict(labels or {})  # the display texts of the listed values that have one
        self._control = self._new_control(text)
        super().__init__(self._control)

    def _new_control(self, text: str) -> TickBox | Choice | Input:
        spec = self.spec
        match spec.kind:
            case ControlKind.SWITCH:
                return TickBox("", text == "true", compact=True, classes="control")
            case ControlKind.CHOICE | ControlKind.OPEN_CHOICE:
                return Choice(self._options(), self._listed(text))
        is_plain = spec.kind in {ControlKind.TEXT, ControlKind.NUMBER}
        empty, names = spec.default or ("" if is_plain else "none"), NameSuggester(spec.choices)
        return Input(text, placeholder=empty, compact=True, classes="control", suggester=names)

    @cached_property
    def _own(self) -> Input:
        """The text field of a custom value."""
        return Input(placeholder=self.spec.own.example if self.spec.own else "", compact=True, classes="own")

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.size.width))

    def _lines(self, width: int) -> list[Content]:
        sign, style = ("✗", "bold $text-error") if self.problem else ("•" if self.is_changed else "", "$foreground 80%")
        leads = [Content.styled(f"{self.spec.label} {sign}".rstrip(), style)]
        if self.has_class("-asks-own") and self.spec.own is not None:
            leads.append(Content.styled(f"{self.spec.own.asks:>{_LABEL - 1}}", style))
        under = [(f"✗ {self.problem}", "$text-error")] if self.problem else []
        if self.shows_help and width >= _BESIDE:
            at = _LABEL + _VALUE + 2
            beside = textwrap.wrap(self.spec.help, width - at)
            leads += [Content("")] * (len(beside) - len(leads))
            for number, line in enumerate(beside):
                leads[number] = Content.assemble(leads[number].pad_right(at - leads[number].cell_length), (line, _HELP))
        elif self.shows_help:
            under.append((self.spec.help, _HELP))
        room = max(_LEAST, width - _LABEL)
        return leads + [
            Content.assemble(" " * _LABEL, (line, style)) for text, style in under for line in textwrap.wrap(text, room)
        ]

    @property
    def text(self) -> str:
        """The field's text."""
        value = self._control.value
        if isinstance(value, bool):
            return "true" if value else "false"
        return self.spec.own.value(self._own.value) if value == _OWN and self.spec.own is not None else value

    @text.setter
    def text(self, text: str) -> None:
        if text == self.text:
            return
        match self._control:
            case Checkbox() as box:
                box.value = text == "true"
            case Input() as line:
                line.value = text
            case choice:
                choice.value = self._listed(text)
        self._follow()

    def label_choices(self, labels: Mapping[str, str]) -> None:
        """Show listed values with more descriptive texts, by value."""
        self._labels = dict(labels)
        if isinstance(self._control, Choice):
            self._control.labels = self._options()

    def watch_problem(self) -> None:
        self.set_class(bool(self.problem), "-invalid")

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _BESIDE, "-beside")

    def focus_control(self) -> None:
        """Focus the control in which the value is typed."""
        asks_own = self.has_class("-asks-own") and self.has_class("-invalid")
        (self._own if asks_own else self._control).focus()

    def on_choice_changed(self, event: Choice.Changed) -> None:
        was_own = self.has_class("-asks-own")
        self._report(event)
        if self.has_class("-asks-own") and not was_own and self.has_focus_within:
            # The text field is not laid out yet, and the list takes the focus back as it closes.
            self.call_after_refresh(self._own.focus)

    @on(Input.Changed)
    @on(Checkbox.Changed)
    def _report(self, event: Message) -> None:
        event.stop()
        self._follow()
        self.post_message(self.Typed(self))

    def _follow(self) -> None:
        """Update what depends on the value: the text field of a custom choice, the word of a switch."""
        if isinstance(self._control, Checkbox):
            self._control.label = "on" if self._control.value else "off"
        elif self.spec.own is not None:
            asks_own = self._control.value == _OWN
            self.set_class(asks_own, "-asks-own")
            if asks_own and not self._own.is_attached:
                self._own.value = self._own.value or self.spec.own.first
                self.mount(self._own)

    on_mount = _follow

    def _options(self) -> dict[str, str]:
        """Return the display texts by value."""
        own = {} if self.spec.own is None else {_OWN: self.spec.own.label}
        return {value: self._labels.get(value, value) for value in self.spec.choices} | own

    def _listed(self, text: str) -> str:
        """Return the listed value of a text; a custom one goes into its text field."""
        if self.spec.own is None or text in self.spec.choices:
            return text
        self._own.value = text.removeprefix(self.spec.own.prefix)
        return _OWN


class TickBox(Checkbox):
    """A checkbox with a mark when it is on and none when it is off; Textual's shows it in both, in other colors."""

    def render(self) -> Content:
        self.BUTTON_INNER = "X" if self.value else " "
        return super().render()


class Choice(Widget, can_focus=True):
    """Shows the label of the chosen value, and opens Textual's `Select` in its place.

    A closed `Select` mounts six widgets and all its options, and takes the arrow keys, which belong to the form.
    """

    BINDINGS = [bind("enter", "open", show=False)]
    DEFAULT_CSS = """
    Choice {
        height: 1;
        background: $surface-lighten-1;
        &:focus { background: $primary 30%; background-tint: $foreground 5%; }
        Select > SelectCurrent { background: $surface-lighten-1; }
        Select:focus > SelectCurrent { background: $primary 30%; }
        SelectCurrent Static#label { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """
    ALLOW_SELECT = False

    labels: reactive[Mapping[str, str]] = reactive({})
    value = reactive("", init=False)

    class Changed(Message):
        """Another value was chosen."""

    def __init__(self, labels: Mapping[str, str], value: str) -> None:
        super().__init__(classes="control")
        self.set_reactive(Choice.labels, labels)
        self.set_reactive(Choice.value, value)

    def render(self) -> Content:
        label = Content(self.labels[self.value]).truncate(max(0, self.size.width - 2), ellipsis=True, pad=True)
        return Content.assemble(label, (" ▼", "$foreground 50%"))

    def watch_value(self) -> None:
        self.post_message(self.Changed())

    async def on_click(self, event: Click) -> None:
        if event.widget is self:
            await self.action_open()

    async def action_open(self) -> None:
        """Open the list, unless it is open."""
        if self.query(Select):
            return
        # As content: a string would be parsed as markup, and device names may have brackets.
        options = [(Content(label), value) for value, label in self.labels.items()]
        select = Select(options, value=self.value, allow_blank=False, compact=True)
        await self.mount(select)
        select.action_show_overlay()

        def close() -> None:
            self.call_later(self._close, select)  # when the list has done what it does then

        self.watch(select, "expanded", close, init=False)

    def _close(self, select: Select[str]) -> None:
        """Take over the value and the focus."""
        self.value = str(select.value)
        if self.has_focus_within:
            self.focus()
        self.app.call_later(select.remove)
