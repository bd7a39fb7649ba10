"""Parts shared by several screens: the title line, the footer, and common keys."""

from __future__ import annotations

from textual.binding import Binding
from textual.content import Content
from textual.widgets import Footer, Static

HELP = Binding("f1,question_mark", "app.help", "Help", tooltip="Explain keys and figures.")
QUIT = Binding("ctrl+q", "app.quit", "Quit", tooltip="Quit; runs keep training.", priority=True)
BACK = Binding("escape,b", "dismiss", "Back", tooltip="Go back.")

_ROOMY = 130  # columns; 120 are too few for the keys of the live screen with wide gaps


class KeysFooter(Footer):
    """The footer of every screen: close together in little room, with the palette's key if there is more."""

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)
        # Not assigned: a footer that changes after it was composed is composed again.
        self.set_reactive(Footer.compact, not self._is_roomy)
        self.set_reactive(Footer.show_command_palette, self._is_roomy)

    @property
    def _is_roomy(self) -> bool:
        return self.app.size.width >= _ROOMY

    def on_resize(self) -> None:
        """Use the room."""
        if self.show_command_palette != self._is_roomy:
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
