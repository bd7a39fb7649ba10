"""What several widgets and screens share: texts that wrap or scroll, tabs, panes of rows, and late results."""

import textwrap
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Generic, TypeAlias, TypeVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from ..text.keys import bind
from ..text.plan_text import PlanLine, laid_out

SCROLL_KEYS = [bind("up", "scroll_up"), bind("down", "scroll_down")]


class FactLines(Static):
    """Entries that are wrapped for the width; a container that scrolls keeps a column free for its bar."""

    DEFAULT_CSS = "FactLines { height: auto; width: 1fr; }"
    entries: Sequence[PlanLine] = ()

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id, classes=classes, markup=False)

    def show(self, entries: Sequence[PlanLine]) -> None:
        """Show other entries."""
        self.entries = entries
        around = self.parent.scrollable_content_region if isinstance(self.parent, Widget) else self.size
        self.update(laid_out(entries, max(16, self.size.width or around.width)))

    def on_resize(self) -> None:
        """Wrap the entries again, once all is laid out: another height is not seen before."""
        self.call_after_refresh(lambda: self.show(self.entries))


class Overflow(VerticalScroll):
    """Parts of a screen that take focus only if there is something to scroll."""

    DEFAULT_CSS = "Overflow { scrollbar-size-vertical: 1; }"

    def allow_focus(self) -> bool:
        """Whether there is something to scroll."""
        return self.max_scroll_y > 0


class ScrollingText(VerticalScroll):
    """A text that scrolls."""

    DEFAULT_CSS = """
    ScrollingText { scrollbar-size: 1 1; scrollbar-background: $background; scrollbar-color: $foreground 25%; }
    """
    BINDINGS = [*SCROLL_KEYS]


def call_back(widget: Widget, then: Callable[..., object], *arguments: object) -> None:
    """Call something in the app's thread from another thread, unless the widget's screen was closed meanwhile."""
    widget.app.call_from_thread(lambda: None if is_closing(widget) else then(*arguments))


def is_closing(widget: Widget) -> bool:
    """Return whether the screen of a widget is closed or being closed; its other widgets go first."""
    return not (widget.is_attached and widget.screen.display)


def mark_pane(screen: Widget, name: str, css_class: str) -> None:
    """Give a class to the widget with a name as its id and to the containers around it, and to no others."""
    marked = {node for pane in screen.query(f"#{name}") for node in pane.ancestors_with_self} if name else set()
    for widget in screen.query("*"):
        widget.set_class(widget in marked, css_class)


class PaneTabs(Widget):
    """The labels of panes by their ids; the current pane has the class ``-current``.

    Its label is reversed if no other pane is visible.
    """

    DEFAULT_CSS = "PaneTabs { height: 1; padding: 0 1; }"

    class Chosen(Message):
        """The user chose a pane."""

    panes: reactive[Mapping[str, str]] = reactive(dict, layout=True)
    current: reactive[str] = reactive("", init=False)
    is_alone: reactive[bool] = reactive(True)  # whether only one pane is visible

    def __init__(self, panes: Mapping[str, str]) -> None:
        super().__init__(id="tabs")
        self.set_reactive(PaneTabs.panes, panes)
        self.set_reactive(PaneTabs.current, next(iter(panes)))

    def on_mount(self) -> None:
        self.screen.call_later(self.watch_current)
        self.screen.screen_layout_refresh_signal.subscribe(self, self._look)

    def _look(self, _screen: Widget) -> None:
        self.is_alone = len(self.shown) == 1

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of the visible panes."""
        panes = self.screen.query(", ".join(f"#{name}" for name in self.panes))
        visible = {pane.id for pane in panes if pane.display}
        return tuple(name for name in self.panes if name in visible)

    def watch_current(self) -> None:
        mark_pane(self.screen, self.current, "-current")

    def choose(self, name: str) -> None:
        """Show a pane and enter it."""
        self.current = name
        self.screen.query_one(f"#{name}").focus()
        self.post_message(self.Chosen())

    def choose_next(self) -> None:
        """Show and enter the next pane."""
        names = [*self.panes]
        self.choose(names[(names.index(self.current) + 1) % len(names)])

    def render(self) -> Content:
        """Render the labels; the current one is reversed, because people would read brackets as markup."""
        marked = self.current if self.is_alone else ""
        looks = {name: "bold reverse" if name == marked else "dim" for name in self.panes}
        return Content.assemble(*((f" {label} ", looks[name]) for name, label in self.panes.items()))

    def on_click(self, event: Click) -> None:
        if (position := event.get_content_offset(self)) is None:
            return
        end = 0
        for name, label in self.panes.items():
            end += len(label) + 2
            if position.x < end:
                self.choose(name)
                return


Row: TypeAlias = "Sequence[tuple[str, str]]"  # pieces of text, each with its look: empty, or one of `_LOOKS`
Shown = TypeVar("Shown")
_LOOKS = {
    "head": "color: $text-muted; text-style: bold;",
    "faint": "color: $text-muted;",
    "best": "color: $text-success; text-style: bold;",
    "now": "color: $text-accent;",
    "bad": "color: $text-error; text-style: bold;",
    "warn": "color: $text-warning; text-style: bold;",
    "match": "text-style: reverse;",
    "cool": "color: $text-success;",
    "warm": "color: $text-warning;",
    "hot": "color: $text-error;",
}


class RowsPane(ScrollView, can_focus=True):
    """Rows under a fixed head, which a subclass defines; it calls `rows_changed`. No text is markup."""

    follows_newest: ClassVar[bool] = False  # until the user scrolls up
    is_as_high_as_rows: ClassVar[bool] = False

    BINDINGS = [*SCROLL_KEYS]
    COMPONENT_CLASSES = {f"rows--{look}" for look in _LOOKS}
    DEFAULT_CSS = f"""
    RowsPane {{
        scrollbar-size: 0 1; overflow-x: auto; overflow-y: auto; padding: 0 1;
        {" ".join(f".rows--{look} {{ {style} }}" for look, style in _LOOKS.items())}
    }}
    """

    def __init__(self, pane_id: str) -> None:
        self._looks: dict[str, Style] = {}
        super().__init__(id=pane_id, classes="pane")
        self._is_following = self.follows_newest

    def head(self) -> Sequence[Row]:
        """The rows that stay at the top."""
        return []

    @abstractmethod
    def row_count(self) -> int:
        """How many rows there are under the head."""

    @abstractmethod
    def row(self, index: int) -> Row:
        """Return one row; called only for visible rows."""

    def widest(self) -> int:
        """Return the width of the widest row in cells, which decides whether the pane scrolls sideways."""
        return 0

    @property
    def room(self) -> int:
        """The width of a row in cells, always without the scroll bar."""
        return max(0, self.size.width - self.styles.scrollbar_size_vertical)

    @property
    def max_scroll_y(self) -> int:
        """The row at the top when the last one is at the bottom.

        Textual computes it from a size measured before the border is known, which would hide the last rows.
        """
        return max(0, self.virtual_size.height - (self.size.height - self.scrollbar_size_horizontal))

    def rows_changed(self) -> None:
        """Redraw, at the newest row unless the user has scrolled away from it."""
        height = len(self.head()) + self.row_count()
        is_other_height = self.is_as_high_as_rows and height != self.virtual_size.height
        self.virtual_size = Size(self.widest(), height)
        if self._is_following:
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)
        self.refresh(layout=is_other_height)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.follows_newest:
            self._is_following = new_value >= self.max_scroll_y

    def action_scroll_home(self) -> None:
        """Go to the first row at once: a layout in the middle of an animation would go back to the newest."""
        self.scroll_to(y=0, animate=False, immediate=True)

    def watch_show_vertical_scrollbar(self, is_shown: bool) -> None:
        """Set the position of a scroll bar that appears: Textual updates only a bar that is already visible."""
        if is_shown:
            self.vertical_scrollbar.position = self.scroll_y

    def on_resize(self, event: Resize) -> None:
        """Lay out again, because rows may depend on the width, and keep the newest row visible."""
        event.prevent_default()
        self.rows_changed()

    def render_line(self, y: int) -> Strip:
        scroll_x = round(self.scroll_offset.x)
        return self.line_at(y).crop_extend(scroll_x, scroll_x + self.size.width, self._style(""))

    def line_at(self, y: int) -> Strip:
        """Return a whole line, even if it is wider than the pane."""
        head = self.head()
        index = round(self.scroll_offset.y) + y - len(head)
        row = head[y] if y < len(head) else self.row(index) if index < self.row_count() else []
        # Neighbors with the same look become one: fewer segments are faster to crop and to write.
        pieces = groupby(row, key=itemgetter(1))
        return Strip([Segment("".join(text for text, _ in group), self._style(look)) for look, group in pieces])

    def notify_style_update(self) -> None:
        """Forget styles that a theme, a class or the focus may have changed."""
        self._looks.clear()
        super().notify_style_update()

    def _style(self, look: str) -> Style:
        """Return a cached style: computing one goes through every parent, for each piece of each line."""
        if look not in self._looks:
            self._looks[look] = self.get_component_rich_style(f"rows--{look}") if look else self.rich_style
        return self._looks[look]


class LinesPane(RowsPane, Generic[Shown]):
    """Lays out all its rows again when their content or the size changes."""

    shown: Shown | None = None
    _rows: Sequence[Row] = ()

    def show(self, shown: Shown) -> None:
        """Show something."""
        self.shown = shown
        self.rows_changed()

    @abstractmethod
    def laid_out(self, shown: Shown) -> Sequence[Row]:
        """Return the rows for the pane's size."""

    def rows_changed(self) -> None:
        """Lay the rows out."""
        self._rows = [] if self.shown is None else self.laid_out(self.shown)
        super().rows_changed()

    def row_count(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Row:
        return self._rows[index]


def wrapped(text: str, cells: int, indent: str = "") -> list[str]:
    """Wrap a text, also in a language without spaces; lines after the first one are indented."""
    lines = []
    for line in textwrap.wrap(text, cells, subsequent_indent=indent, break_on_hyphens=False):
        rest = line  # as many characters as fit, of which each may take two cells
        while cell_len(rest) > cells:
            first = chop_cells(rest, cells)[0]
            lines.append(first)
            rest = indent + rest[len(first) :]
        lines.append(rest)
    return lines
