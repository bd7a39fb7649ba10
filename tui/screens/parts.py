"""Parts shared by several screens: the title line and common keys."""

from __future__ import annotations

from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

HELP = Binding("f1,question_mark", "app.help", "Help", tooltip="Explain keys and figures.")
HELP_F1 = Binding("f1", "app.help", "Help", tooltip="Explain keys and figures.")
"""The same on a screen with text fields, which take the letters."""

QUIT = Binding("ctrl+q", "app.quit", "Quit", tooltip="Quit; runs keep training.", priority=True)


def back(keys: str = "escape,b") -> Binding:
    """Return the binding that closes a screen."""
    return Binding(keys, "dismiss", "Back", tooltip="Go back.")


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
