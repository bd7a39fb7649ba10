"""A choice of one of several values, whose list is there only while it is open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Checkbox, Select

from ..text.keys import bind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.binding import BindingType
    from textual.events import Click


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
