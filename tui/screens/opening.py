"""What is drawn while the modules of the first screen are still being loaded: its panes, presets and main fields.

The form needs Pydantic, a plan and dozens of fields, and a run needs NumPy and its journal, which take as long as
Textual itself or longer. Nothing of that is loaded here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from tpu_console.engine.config.catalog import OFFLINE_PRESETS
from tpu_console.presets.files import preset_files

from ..text.plan_text import laid_out
from .kept_form import find_form, new_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.app import ComposeResult
    from textual.geometry import Size

    from ..text.plan_text import Entry
    from .kept_form import KeptForm


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
        self.is_filled = False

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Do not style all widgets again until the form is filled: each was styled when it was mounted."""
        event.refresh_styles = self.is_filled


class FormTitle(Widget):
    """The first line of the form: the program, its purpose if there is room, and the accelerators of the machine."""

    machine = reactive("")

    def __init__(self, machine: str) -> None:
        super().__init__(id="title")
        self.set_reactive(FormTitle.machine, machine)

    def render(self) -> Content:
        """The line, with the accelerators at its end."""
        name, machine = Content.styled("tpu-console", "bold $text-primary"), Content(self.machine)
        room = max(1, self.size.width - name.cell_length - machine.cell_length)
        purpose = "" if self.screen.has_class("-narrow") else "  set up a run"
        return Content.assemble(name, purpose.ljust(room) if len(purpose) < room else " " * room, machine)


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
    """The first picture of a run, of several that are compared, or of a sweep; `ending` says how a run ended."""

    def __init__(self, names: Sequence[str], ending: Sequence[str] = ()) -> None:
        super().__init__()
        self._names = names
        self._ending = ending

    def compose(self) -> ComposeResult:
        """Lay out the line with the names, and how the run ended."""
        yield Static(Content.assemble(("  ".join(self._names), "bold"), "  reading…"))
        yield Static("\n".join(self._ending), markup=False)


class OpeningForm(FormFrame, OpeningScreen):
    """The first picture of the form; `files` are preset files besides those of the package and the user."""

    def __init__(self, files: Sequence[Path], size: Size) -> None:
        super().__init__(size)
        self._files = preset_files(files)
        self._chosen = OFFLINE_PRESETS[0]
        self.kept = find_form(self._files[self._chosen]) or new_form()

    def compose(self) -> ComposeResult:
        """Lay out the panes with the presets, and the main fields of the chosen one."""
        files, chosen, kept, width = self._files, self._chosen, self.kept, self.app.size.width
        yield FormTitle(kept.machine)
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield _pane("presets", "Presets", (f"  {name}\n  {kept.titles.get(name, '')}" for name in files))
                yield _Entries("detail", chosen, kept.about)
            with Vertical(id="right"):
                below = [kept.more] if len(kept.more) > width - 31 else [kept.more, ""]  # two lines
                yield _pane("form", f"Run: {chosen}", (*kept.fields, *below))
                yield _KeptPlan(kept)
        yield Static("", id="keys")


class _Entries(Widget):
    """Facts, laid out as the form does."""

    def __init__(self, name: str, title: str, entries: Sequence[Entry]) -> None:
        super().__init__(id=name)
        self.border_title = title
        self._entries = entries

    @property
    def room(self) -> int:
        """The columns of a line; one is reserved for the scroll bar."""
        return max(16, self.content_size.width - 1)

    def render(self) -> Content:
        """The facts."""
        return laid_out(self._entries, self.room)


class _KeptPlan(_Entries):
    """The plan as `PlanPanel` shows it."""

    def __init__(self, kept: KeptForm) -> None:
        super().__init__("plan", "Plan", kept.figures)
        self.border_subtitle = kept.counts
        self._kept = kept

    def render(self) -> Content:
        """The figures, the command and the advice; nothing if they are not known yet."""
        if not self._kept.command:
            return Content()
        gap = "" if self.screen.has_class("-short") else "\n"
        title = ("Equivalent command (ctrl+y copies it)\n", "$foreground 60%")
        command = (f" {self._kept.command}".ljust(self.room), "$text-success on $surface-lighten-1")
        advice = laid_out(self._kept.advice, self.room)
        return Content.assemble(super().render(), "\n", gap, title, command, "\n", gap, advice)


def _pane(name: str, title: str, lines: Iterable[str] = ()) -> Static:
    pane = Static("\n".join(lines), id=name, markup=False)
    pane.border_title = Content(title).markup
    return pane
