from textual.app import App, ComposeResult
from textual.widgets import Static


class Trivial(App[None]):
    """Shows one line."""

    def compose(self) -> ComposeResult:
        yield Static("A trivial app")


if __name__ == "__main__":
    Trivial().run()
