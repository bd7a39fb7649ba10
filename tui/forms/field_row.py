"""One field of the run form: its label, its control, one line of help, and its error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Checkbox, Input, Select, Static

from ..text.keys import bind
from .field import FieldSpec, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.binding import BindingType
    from textual.events import Click


_OWN = "\0own"


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

    Only its label and its control are there from the start, because each widget takes a millisecond to mount. The
    others are mounted when they are first seen.

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
        .own { display: none; }
        Input, Checkbox { background: $surface-lighten-1; }
        Input:focus, Checkbox:focus { background: $primary 30%; }
        Checkbox { width: 1fr; background: transparent; }

        &.-changed .label { color: $foreground; }
        &.-asks-own .own { display: block; }
        &.-invalid {
            .label { color: $text-error; text-style: bold; }
            .problem { display: block; }
            Input, Choice, Choice Select > SelectCurrent { background: $error 25%; }
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
        self.spec = spec
        self._labels = dict(labels or {})
        self._shown = ("", "")
        self._label = Static(spec.label, classes="label", markup=False)
        self._control = self._new_control(text)
        super().__init__(self._label, self._control, classes="-essential" if spec.is_essential else "")
        if self._control.value == _OWN:
            self._own.value = self._own_text(text)

    def _new_control(self, text: str) -> TickBox | Choice | Input:
        spec = self.spec
        match spec.kind:
            case Kind.SWITCH:
                return TickBox("", text == "true", compact=True, classes="control")
            case Kind.CHOICE | Kind.OPEN_CHOICE:
                return Choice(self._options(), self._listed(text), classes="control")
            case _:
                empty = spec.default or ("none" if spec.kind in {Kind.LIST, Kind.NAMES, Kind.KEYWORDS} else "")
                names = NameSuggester(spec.choices) if spec.choices else None
                return Input(text, placeholder=empty, compact=True, classes="control", suggester=names)

    @cached_property
    def _own(self) -> Input:
        """The text field of a custom value."""
        return Input(placeholder=self.spec.own.example if self.spec.own else "", compact=True, classes="own")

    def on_mount(self) -> None:
        """Add the parts that are seen at first."""
        self._follow()
        self.on_resize()

    def on_resize(self) -> None:
        """Show the help if there is room for it now."""
        has_room = self.screen.has_class("-wide") or self.screen.has_class("-roomy")
        if has_room and not self.query(".hint"):
            self.mount(Static(self.spec.help, classes="hint", markup=False), after=self._control)

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
                if self._listed(text) == _OWN:
                    self._own.value = self._own_text(text)
                choice.value = self._listed(text)
        self._follow()

    def label_choices(self, labels: Mapping[str, str]) -> None:
        """Show listed values with more descriptive texts.

        Args:
            labels: The display texts by value.
        """
        self._labels = dict(labels)
        if isinstance(self._control, Choice):
            self._control.labels = self._options()

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
        self._label.update(f"{self.spec.label} {sign}".rstrip())
        if problem and not self.query(".problem"):
            self.mount(Static("", classes="problem", markup=False))
        for line in self.query(".problem").results(Static):
            line.update(problem)

    def focus_control(self) -> None:
        """Focus the control in which the value is typed."""
        asks_own = self.has_class("-asks-own") and self.has_class("-invalid")
        (self._own if asks_own else self._control).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Report a new text."""
        self._report(event)

    def on_checkbox_changed(self, event: Checkbox.Changed) -> None:
        """Report a new state."""
        self._report(event)

    def on_choice_changed(self, event: Choice.Changed) -> None:
        """Report a new choice, and focus the text field that it needs."""
        was_own = self.has_class("-asks-own")
        self._report(event)
        if self.has_class("-asks-own") and not was_own and self.has_focus_within:
            # The text field is not laid out yet, and the list takes the focus back as it closes.
            self.call_after_refresh(self._own.focus)

    def _report(self, event: Message) -> None:
        event.stop()
        self._follow()
        self.post_message(self.Edited(self))

    def _follow(self) -> None:
        """Update what depends on the value: the text field of a custom choice, the word of a switch."""
        if isinstance(self._control, Checkbox):
            self._control.label = "on" if self._control.value else "off"
        elif self.spec.own is not None:
            asks_own = self._control.value == _OWN
            self.set_class(asks_own, "-asks-own")
            if asks_own and not self._own.is_attached:
                asks = Static(self.spec.own.asks, classes="asks own", markup=False)
                self.mount(asks, self._own, after=self.query(".control, .hint").last())

    def _options(self) -> dict[str, str]:
        """Return the display texts by value."""
        options = {value: self._labels.get(value, value) for value in self.spec.choices}
        return options | ({_OWN: self.spec.own.label} if self.spec.own is not None else {})

    def _listed(self, text: str) -> str:
        return text if text in self.spec.choices or self.spec.own is None else _OWN

    def _own_text(self, text: str) -> str:
        if self.spec.own is None or text in self.spec.choices:
            return ""
        return text.removeprefix(self.spec.own.prefix)


class TickBox(Checkbox):
    """A checkbox with a mark when it is on and none when it is off.

    Textual's checkbox shows the mark in both states, in different colours.
    """

    def render(self) -> Content:
        """The mark, if it is on, and the label."""
        self.BUTTON_INNER = "X" if self.value else " "
        return super().render()


class Choice(Widget, can_focus=True):
    """Shows the chosen value, and opens Textual's `Select` in its place.

    A closed `Select` has six widgets and all its options, which would be mounted with the form. It also takes the arrow
    keys, which belong to the form.

    Args:
        labels: The display texts by value.
        value: The chosen value.
    """

    BINDINGS: ClassVar[list[BindingType]] = [bind("enter", "open", show=False)]
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

    @dataclass
    class Changed(Message):
        """Another value was chosen."""

    def __init__(self, labels: Mapping[str, str], value: str, *, classes: str = "") -> None:
        super().__init__(classes=classes)
        self.set_reactive(Choice.labels, labels)
        self.set_reactive(Choice.value, value)

    def render(self) -> Content:
        """The value, and a mark that there are others."""
        label = Content(self.labels[self.value]).truncate(max(0, self.size.width - 3), ellipsis=True, pad=True)
        return Content.assemble(label, (" ▼ ", "$foreground 50%"))

    def watch_value(self) -> None:
        """Report the value."""
        self.post_message(self.Changed())

    async def on_click(self, event: Click) -> None:
        """Open the list."""
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
        self.watch(select, "expanded", partial(self._close_later, select), init=False)

    def _close_later(self, select: Select[str]) -> None:
        """Close the list when it has done what it does then."""
        self.call_later(self._close, select)

    def _close(self, select: Select[str]) -> None:
        """Take over the value and the focus."""
        self.value = str(select.value)
        if self.has_focus_within:
            self.focus()
        self.app.call_later(select.remove)
