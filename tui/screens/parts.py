"""Parts shared by several screens: the title line, the footer, common keys, and what screens ask of the app."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Footer, Static

from ..text.keys import bind
from ..widgets.basics import is_closing

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.screen import Screen

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.runs.run_directory import RunDirectory

    from ..charts.legend import Marker

HELP = bind("help", "app.help")
QUIT = bind("quit", "app.quit", priority=True)
BACK = bind("back", "dismiss", about="Go back.")

_ROOMY = 130  # columns; 120 are too few for the keys of the live screen and that of the palette


class KeysFooter(Footer):
    """The keys of a screen, as many as there is room for; on a wide terminal also that of the palette."""

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._composed: object = None  # what decides which keys are shown

    def compose(self) -> ComposeResult:
        """Yield the keys for which there is room, so that none is cut."""
        room, keys = self.app.size.width + 1, cast("Iterable[Any]", super().compose())  # Textual names no type for them
        for key in keys:
            room -= cell_len(f"{key.key_display} {key.description} ")
            if room >= 0:
                yield key

    async def recompose(self) -> None:
        """Compose again if there are other keys or another width: Textual asks for it whenever the focus moves."""
        if is_closing(self):
            return  # the screen is being left, and some of its widgets may be gone
        active = self.screen.active_bindings.values()
        keys = {(one.binding.key, one.binding.description, one.enabled) for one in active if one.binding.show}
        if (wanted := (keys, self.app.size.width)) != self._composed:
            self._composed = wanted
            self.show_command_palette = self.app.size.width >= _ROOMY
            await super().recompose()

    def on_resize(self) -> None:
        self.call_after_refresh(self.recompose)


class Title(Static):
    """The first line of a screen: the program's name and what the screen shows."""

    DEFAULT_CSS = """
    Title { height: 1; background: $panel; padding: 0 1; color: $text-muted; }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(id="title")
        self.show(text)

    def show(self, text: str) -> None:
        self.update(Content.assemble(("tpu-console", "bold $text-primary"), f"  {text}"))


class Console(Protocol):
    """What screens ask of the app."""

    def open_run(self, run: RunDirectory) -> None: ...
    def resume_run(self, run: RunDirectory, *, is_finished: bool) -> None: ...  # finished: it did what it was asked to
    def new_run_like(self, run: RunDirectory, changes: Sequence[str] = ()) -> None: ...  # ``precision=float32``
    def compare_runs(self, runs: Sequence[RunDirectory]) -> None: ...  # at least two, or it says so
    def start_run(self, config: RunConfig) -> None: ...
    def warm_up(self, config: RunConfig, hardware: Hardware) -> None: ...  # imports what a likely run needs
    def draw_with(self, marker: Marker) -> None: ...


def console_of(screen: Screen[Any]) -> Console:
    """Return the app of a screen."""
    return cast("Console", screen.app)


_T = TypeVar("_T")


def after(values: tuple[_T, ...], value: _T) -> _T:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]
