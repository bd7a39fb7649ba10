"""Parts shared by several screens: the title line, the footer, common keys, and messages to the app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from ..text.keys import bind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.binding import Binding
    from textual.events import MouseDown, MouseMove
    from textual.screen import Screen

    from tpu_console.engine.runs.run_directory import RunDirectory

    from ..charts.raster import Marker


HELP = bind("help", "app.help")
QUIT = bind("quit", "app.quit", priority=True)
BACK = bind("back", "dismiss")

_ROOMY = 130  # columns; 120 are too few for the keys of the live screen with wide gaps


class KeysFooter(Widget):
    """The keys of a screen, in one line at its bottom; on a wide terminal with more space, and with the palette's key.

    Keys for which there is no room are left out, except help, which explains them all. Textual's own footer has one
    widget per key; making them takes longer than making the rest of a screen.
    """

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeysFooter { dock: bottom; height: 1; background: $footer-background; }
    """

    pointed: reactive[Binding | None] = reactive(None, init=False)
    """The key under the pointer."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: Mapping[str, Binding] = {}
        self._places: list[tuple[int, int, Binding]] = []

    def on_mount(self) -> None:
        """Follow the keys of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, self._follow)

    def on_unmount(self) -> None:
        """Stop following them."""
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _follow(self, screen: Screen[object]) -> None:
        if screen.app.app_focus:
            self.refresh()

    def render(self) -> Content:
        """As many keys as fit."""
        is_roomy = self.app.size.width >= _ROOMY
        palette = self.screen.active_bindings.get(self.app.COMMAND_PALETTE_BINDING) if is_roomy else None
        right = self._written(palette.binding, " ") if palette is not None else Content()
        room = self.size.width - right.cell_length - (2 if right else 0)  # the line before the palette's key
        pad = " " if is_roomy else ""
        written = {binding: self._written(binding, pad) for binding in self._shown()}
        left = room - sum(text.cell_length for binding, text in written.items() if binding.action == HELP.action)
        self._places, parts, at = [], [], 0
        for binding, text in written.items():
            left -= 0 if binding.action == HELP.action else text.cell_length
            if left >= 0 or binding.action == HELP.action:
                self._places.append((at, at + text.cell_length, binding))
                parts.append(text)
                at += text.cell_length
        if palette is not None:
            parts += [Content(" " * (room - at)), Content.styled("▏", "$foreground 20%"), right]
            self._places.append((room + 1, self.size.width, palette.binding))
        return Content.assemble(*parts)

    def _shown(self) -> Iterable[Binding]:
        """Return the first key of each action. The focus changes their order, so it stays while the keys do."""
        shown: dict[str, Binding] = {}
        for active in self.screen.active_bindings.values():
            if active.binding.show:
                shown.setdefault(active.binding.action, active.binding)
        if shown != self._keys:
            self._keys = shown
        return self._keys.values()

    def _written(self, binding: Binding, pad: str) -> Content:
        is_pointed, display = binding == self.pointed, self.app.get_key_display(binding)
        key, text = "bold $footer-key-foreground", "$footer-description-foreground"
        if is_pointed:
            key, text = f"{key} on $block-hover-background", "$footer-key-foreground on $block-hover-background"
        return Content.assemble((f"{pad}{display} ", key), (f"{binding.description} ", text))

    def _at(self, x: int) -> Binding | None:
        return next((binding for begin, end, binding in self._places if begin <= x < end), None)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Mark the key under the pointer, and explain it."""
        self.pointed = self._at(event.x)
        self.tooltip = self.pointed.tooltip or None if self.pointed is not None else None

    def on_leave(self) -> None:
        """Mark no key."""
        self.pointed = None

    def on_mouse_down(self, event: MouseDown) -> None:
        """Press the key."""
        if (binding := self._at(event.x)) is not None:
            self.app.simulate_key(binding.key)


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


@dataclass
class OpenRun(Message):
    """Asks the app to open a run."""

    run: RunDirectory


@dataclass
class ResumeRun(Message):
    """Asks the app to resume a run that is over."""

    run: RunDirectory
    is_finished: bool = False  # whether it did all that it was asked to


@dataclass
class NewRunLike(Message):
    """Asks the app for the form, filled in as a run was."""

    run: RunDirectory
    is_trusted: bool = False  # whether it may run even if the user did not start it


@dataclass
class CompareRuns(Message):
    """Asks the app to compare runs."""

    runs: Sequence[RunDirectory]  # the runs, 2 to 20


@dataclass
class MarkerChosen(Message):
    """Asks the app to draw all charts with a marker that the user chose."""

    marker: Marker


_T = TypeVar("_T")


def after(values: tuple[_T, ...], value: _T) -> _T:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]
