"""The class report of a run: confusion matrix, scores, most frequent mistakes, and pictures of some."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from ..text.confusion import headline
from ..text.keys import bind
from ..widgets.class_panes import MatrixPane, MistakesPane, PicturesPane, ScoresPane
from ..widgets.pane_tabs import PaneTabs
from .parts import BACK, HELP, QUIT, KeysFooter

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import DescendantFocus

    from tpu_console.engine.runs.class_report import ClassReport

_PANES = ("matrix", "classes", "mistakes", "pictures")
_WIDTHS = [(0, "-narrow"), (130, "-wide")]


class ReportScreen(Screen[None]):
    """Shows the class report of a run; escape goes back to the run."""

    AUTO_FOCUS = "#matrix"
    HORIZONTAL_BREAKPOINTS = _WIDTHS
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        bind("pane", "pane"),
        bind("host", "output", "Output"),
        *(bind(f"number {number}", f"choose('{name}')") for number, name in enumerate(_PANES, 1)),
        HELP,
        QUIT,
    ]
    DEFAULT_CSS = """
    ReportScreen {
        layout: vertical;
        background: $background;
        #title { height: auto; padding: 0 1; }
        #panes { height: 1fr; layout: grid; }
        .pane {
            border: round $foreground 25%; background: $background;
            border-title-color: $text-muted; border-title-style: bold; border-subtitle-color: $text-muted;
            scrollbar-size: 1 1;
            scrollbar-background: $background; scrollbar-color: $foreground 25%; scrollbar-corner-color: $background;
            &:focus { border: heavy $accent; border-title-color: $text-accent; }
        }
        &.-narrow .pane { display: none; }
        &.-narrow .pane.-current { display: block; }
        &.-wide #tabs { display: none; }
        &.-wide #panes { grid-size: 2 2; grid-columns: 3fr 2fr; grid-rows: 2fr 1fr; }
        &.-wide #matrix { row-span: 2; }
        &.-wide.-has-pictures {
            #panes { grid-columns: 1fr 1fr; grid-rows: 1fr 1fr; }
            #matrix { row-span: 1; }
        }
    }
    """

    def __init__(self, name: str, report: ClassReport) -> None:
        super().__init__()
        self._run_name = name
        self._report = report
        self._panes = _PANES if report.pictures else _PANES[:-1]
        self.set_class(bool(report.pictures), "-has-pictures")

    def compose(self) -> ComposeResult:
        """Lay out the panes; in little space, one is visible at a time."""
        text = f"\n{headline(self._report)}"
        yield Static(Content.assemble((self._run_name, "bold $text-accent"), text), id="title")
        yield PaneTabs({name: f"{number} {name}" for number, name in enumerate(self._panes, 1)})
        with Container(id="panes"):
            yield MatrixPane(self._report)
            yield ScoresPane(self._report)
            yield MistakesPane(self._report)
            if self._report.pictures:
                yield PicturesPane(self._report)
        yield KeysFooter()

    def action_pane(self) -> None:
        """Go to the next pane."""
        self.query_one(PaneTabs).choose_next()

    def action_output(self) -> None:
        """Go to the next of several outputs."""
        first, *others = self._report.of_outputs
        self.app.switch_screen(ReportScreen(self._run_name, replace(others[0], others=(*others[1:], first))))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  Textual's signature
        """Offer the next output if there are several."""
        return action != "output" or bool(self._report.others)

    def action_choose(self, name: str) -> None:
        """Show a pane and enter it."""
        if name in self._panes:
            self.query_one(PaneTabs).choose(name)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Keep the focused pane in view when the terminal becomes narrow."""
        if (name := str(event.widget.id)) in self._panes:
            self.query_one(PaneTabs).current = name
