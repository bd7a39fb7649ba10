"""The list of presets with their names and titles, including files with errors."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ..text.keys import bind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from tpu_console.engine.errors import ConfigError
    from tpu_console.presets import Preset


class PresetList(OptionList):
    """The list. The highlighted entry is the chosen one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("down", "cursor_down"),
        bind("up", "cursor_up"),
        bind("right", "select"),
    ]

    @dataclass
    class Chosen(Message):
        """Another entry is highlighted."""

        entry: Preset | ConfigError  # a preset, or the errors of a file that is not a valid preset

    @dataclass
    class Confirmed(Message):
        """Enter was pressed on an entry."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id, markup=False)
        self.border_title = "Presets"
        self._entries: list[Preset | ConfigError] = []
        self._names: list[str] = []
        self._edited: frozenset[str] = frozenset()

    def show(self, presets: Sequence[Preset], broken: Sequence[ConfigError], chosen: str = "") -> None:
        """Show the valid presets and the errors of the other files; highlight the chosen one.

        By default it is the one that is highlighted already, or the first one.
        """
        if not chosen and self._names and self.highlighted is not None:
            chosen = self._names[self.highlighted]
        self._entries = [*presets, *broken]
        self._names = [*(preset.name for preset in presets), *map(file_name, broken)]
        self.set_options([Option(self._prompt(entry)) for entry in self._entries])
        if self._entries:
            self.highlighted = self._names.index(chosen) if chosen in self._names else 0

    def action_page_up(self) -> None:
        """Move up by a page; in a terminal too low to show a line, Textual finds none and fails."""
        with suppress(KeyError):
            super().action_page_up()  # type: ignore[no-untyped-call]  # untyped in Textual

    def action_page_down(self) -> None:
        """Move down by a page, likewise."""
        with suppress(KeyError):
            super().action_page_down()  # type: ignore[no-untyped-call]

    def mark_edited(self, name: str, *, is_edited: bool) -> None:
        """Mark a preset as edited in the form, or remove the mark."""
        edited = self._edited | {name} if is_edited else self._edited - {name}
        if edited == self._edited:
            return
        self._edited = edited
        for index, entry in enumerate(self._entries):
            if not isinstance(entry, Exception) and entry.name == name:
                self.replace_option_prompt_at_index(index, self._prompt(entry))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Report the highlighted entry."""
        event.stop()
        self.post_message(self.Chosen(self._entries[event.option_index]))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Report that the entry was confirmed."""
        event.stop()
        self.post_message(self.Confirmed())

    def _prompt(self, entry: Preset | ConfigError) -> Content:
        if isinstance(entry, Exception):
            return Content.assemble((f"✗ {file_name(entry)}", "bold"), "\n  has errors; see below")
        mark = "•" if entry.name in self._edited else " "
        return Content.assemble((f"{mark} {entry.name}", "bold"), f"\n  {entry.about.title}")


def file_name(error: ConfigError) -> str:
    """Return the name of a file that is not a valid preset."""
    return error.source.replace("\\", "/").rpartition("/")[2] or "a preset file"
