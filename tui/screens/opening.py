"""What is drawn while the modules of the first screen are still being loaded: its panes, presets and main fields.

The form needs Pydantic, a plan and dozens of fields, and a run needs NumPy and its journal, which take as long as
Textual itself or longer. Nothing of that is loaded here.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from tpu_console.engine.config.catalog import OFFLINE_PRESETS
from tpu_console.presets.files import BUILTIN, preset_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.app import ComposeResult
    from textual.geometry import Size

FIELDS = ("dataset", "model", "batch_size", "epochs", "optimizer.learning_rate", "accelerator")
"""The essential fields, which the form shows first."""

_DEFAULTS = {"optimizer.learning_rate": "0.001", "accelerator": "auto"}
_LABEL_WIDTH = 23


class FormFrame(Screen[None]):
    """The panes of the form for a new run, as they lie at each size of the terminal.

    If the size is known, Textual need not lay everything out once more for its classes.
    """

    # Plain assignments, as the base class declares them: as class variables they would not fit its types.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (150, "-wide"), (190, "-roomy")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]  # noqa: RUF012
    # Textual loads the CSS of a screen that is pushed, but not of the one an app opens with.
    DEFAULT_CSS = Path(__file__).with_name("frame.tcss").read_text(encoding="utf-8")

    def __init__(self, size: Size | None = None) -> None:
        points = (
            ()
            if size is None
            else ((size.width, self.HORIZONTAL_BREAKPOINTS), (size.height, self.VERTICAL_BREAKPOINTS))
        )
        super().__init__(classes=" ".join(max(p for p in some if p[0] <= length)[1] for length, some in points))


class OpeningScreen(Screen[None]):
    """The first picture of a screen, until its modules are loaded."""

    class Drawn(Message):
        """The first frame was drawn; the screen that follows gets the keys pressed until then."""

        def __init__(self, keys: list[events.Key]) -> None:
            super().__init__()
            self.keys = keys

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._keys: list[events.Key] = []

    def on_mount(self) -> None:
        """Report the first frame."""
        self.call_after_refresh(self.post_message, self.Drawn(self._keys))

    def on_key(self, event: events.Key) -> None:
        """Keep a key for the screen that follows."""
        event.stop()
        self._keys.append(events.Key(event.key, event.character))


class OpeningRun(OpeningScreen):
    """The first picture of a run, of several that are compared, or of a sweep."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names

    def compose(self) -> ComposeResult:
        """Lay out the line with the names."""
        yield Static(Content.assemble(("  ".join(self._names), "bold"), "  reading…"))


class OpeningForm(FormFrame, OpeningScreen):
    """The first picture of the form; `files` are preset files besides those of the package and the user."""

    def __init__(self, files: Sequence[Path], size: Size) -> None:
        super().__init__(size)
        self._files = files

    def compose(self) -> ComposeResult:
        """Lay out the panes with the presets, and the main fields of the chosen one."""
        files, chosen = preset_files(self._files), OFFLINE_PRESETS[0]
        presets = {name: _read(path) for name, path in files.items()}
        values = presets[chosen]
        yield Static(Content.assemble(("tpu-console", "bold $text-primary"), "  set up a run"), id="title")
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield _pane("presets", "Presets", (f"  {name}\n  {_title(read)}" for name, read in presets.items()))
                yield _pane("detail", chosen)
            with Vertical(id="right"):
                yield _pane("form", f"Run: {chosen}", (*(_field(key, values) for key in FIELDS), "", ""))
                yield _pane("plan", "Plan")
        yield Static("", id="keys")


def _pane(name: str, title: str, lines: Iterable[str] = ()) -> Static:
    pane = Static("\n".join(lines), id=name, markup=False)
    pane.border_title = Content(title).markup
    return pane


def _read(path: Path) -> dict[str, Any]:
    """Read a preset of the package; only the form can read any file safely."""
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.parent == BUILTIN else {}


def _title(values: dict[str, Any]) -> str:
    return str(values["preset"]["title"]) if values else ""


def _field(key: str, values: Any) -> str:
    *sections, name = key.split(".")
    for section in sections:
        values = values.get(section, {})
    value = values.get(name, _DEFAULTS.get(key, ""))
    return f"{name.replace('_', ' ').capitalize():<{_LABEL_WIDTH}}{value}"
