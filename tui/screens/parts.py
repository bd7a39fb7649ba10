"""Parts shared by several screens: the title line, the footer, and common keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Footer, Static

if TYPE_CHECKING:
    from textual.app import ComposeResult

HELP = Binding("f1,question_mark", "app.help", "Help", tooltip="Explain keys and figures.")
QUIT = Binding("ctrl+q", "app.quit", "Quit", tooltip="Quit; runs keep training.", priority=True)
BACK = Binding("escape,b", "dismiss", "Back", tooltip="Go back.")

_ROOMY = 130  # columns; 120 are too few for the keys of the live screen with wide gaps


class KeysFooter(Footer):
    """The footer of every screen: close together in little room, with the palette's key if there is more.

    Keys for which there is no room are left out, except help, which explains them all.
    """

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)
        self._composed_for = 0
        self._shown: object = None
        # Not assigned: a footer that changes after it was composed is composed again.
        self.set_reactive(Footer.compact, not self._is_roomy)
        self.set_reactive(Footer.show_command_palette, self._is_roomy)

    @property
    def _is_roomy(self) -> bool:
        return self.app.size.width >= _ROOMY

    def compose(self) -> ComposeResult:
        """Show as many keys as fit whole."""
        self._composed_for = self.app.size.width
        room = self._composed_for - (0 if self.compact else 2)  # the border of the palette's key
        keys: list[Any] = [*super().compose()]  # without groups, all are keys
        always = {HELP.action, "command_palette", "app.command_palette"}
        room -= sum(self._width_of(key) for key in keys if key.action in always)
        self._shown = self._to_show if keys else None
        for key in keys:
            room -= 0 if key.action in always else self._width_of(key)
            if key.action in always or room >= 0:
                yield key

    @property
    def _to_show(self) -> object:
        """Everything that the footer depends on."""
        shown = [entry[1:] for entry in self.screen.active_bindings.values() if entry.binding.show]
        # The first key of each action, in any order: that depends on what has the focus.
        keys = {binding.action: (binding, *more) for binding, *more in reversed(shown)}
        return keys, self.app.size.width, self.compact, self.show_command_palette

    async def recompose(self) -> None:
        """Make the keys again if others would be shown: not every change of bindings changes the footer."""
        if self.is_attached and self._shown != self._to_show:
            await super().recompose()

    def _width_of(self, key: Any) -> int:
        return cell_len(key.key_display) + cell_len(key.description) + (2 if self.compact else 3)

    def on_resize(self) -> None:
        """Use the room."""
        # New keys may have composed it for the new width before, but in the old style.
        if self._composed_for != self.app.size.width or self.compact == self._is_roomy:
            self.compact = not self._is_roomy
            self.show_command_palette = self._is_roomy
            self.refresh(recompose=True)


class Title(Static):
    """The first line of a screen: the program's name and what the screen shows."""

    DEFAULT_CSS = """
    Title { height: 1; background: $panel; padding: 0 1; color: $text-muted; }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(id="title")
        self.show(text)

    def show(self, text: str) -> None:
        """Show what the screen is about."""
        self.update(Content.assemble(("tpu-console", "bold $text-primary"), f"  {text}"))
