"""The class report of a run: the confusion matrix as a heat map, scores per class, mistakes, and their pictures."""

from msgspec.structs import replace
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.events import DescendantFocus
from textual.filter import Monochrome, NoColor
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Static

from tpu_console.engine.runs.class_report import ClassReport

from ..terminal.display import AsciiOnly
from ..text.confusion import MISTAKES, READING, SCORE_COLUMNS, headline, layout_of, mistake_text, worst_first
from ..text.inspection import Depth, gallery
from ..text.keys import bind
from ..text.numbers import bar_cells
from ..text.plan_text import PlanLine
from ..text.tables import BAR, Column
from ..widgets.basics import FactLines, PaneTabs, Row, RowsPane, ScrollingText
from ..widgets.record_table import RecordTable
from .parts import BACK, HELP, QUIT, KeysFooter

_PANES = ("matrix", "classes", "mistakes", "pictures")
_FIGURES = (
    ("matrix", "Each row is a true class; its cells say what its examples were predicted as. Right ones are green."),
    ("precision", "Of the examples predicted as a class, the share that belongs to it."),
    ("recall", "Of the examples of a class, the share predicted as it."),
    ("F1", "The harmonic mean of precision and recall; 1.0 is the best."),
    ("balanced", "The mean of the recalls: every class counts the same, however many examples it has."),
)


class ReportScreen(Screen[None]):
    """Shows the class report of a run; escape goes back to the run."""

    AUTO_FOCUS = "#matrix"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]
    BINDINGS = [
        BACK,
        bind("pane"),
        bind("host", "output", "Output", about="Show the next of several outputs of the model."),
        *(
            bind(f"number {number}", f"choose('{name}')", about="Go to the pane with this number.")
            for number, name in enumerate(_PANES, 1)
        ),
        HELP,
        QUIT,
    ]
    FIGURES = _FIGURES
    """What the help explains besides the keys."""

    DEFAULT_CSS = """
    ReportScreen {
        #title { padding: 0 1; }
        #panes { height: 1fr; layout: grid; }
        #classes { height: 1fr; }
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
        &.-wide #panes { grid-size: 2 2; grid-columns: 1fr 1fr; grid-rows: 2fr 1fr; }
        &.-wide #matrix { row-span: 2; }
        &.-wide.-has-pictures {
            #panes { grid-rows: 1fr 1fr; }
            #matrix { row-span: 1; }
        }
    }
    """

    def __init__(self, name: str, report: ClassReport) -> None:
        super().__init__()
        self._run_name, self._report = name, report
        self._panes = _PANES if report.pictures else _PANES[:-1]
        self.set_class(bool(report.pictures), "-has-pictures")

    def compose(self) -> ComposeResult:
        yield FactLines(id="title")
        yield PaneTabs({name: f"{number} {name}" for number, name in enumerate(self._panes, 1)})
        with Container(id="panes"):
            yield MatrixPane(self._report)
            scores = RecordTable((SCORE_COLUMNS[0], _BAR, *SCORE_COLUMNS[1:]), "classes")
            scores.border_title, scores.cursor_type = "classes, worst first", "none"
            yield scores.add_class("pane")
            with ScrollingText(id="mistakes", classes="pane") as mistakes:
                mistakes.border_title = MISTAKES
                yield Static("\n".join(map(mistake_text, self._report.mistakes)) or "none", markup=False)
            if self._report.pictures:
                yield PicturesPane(self._report)
        yield KeysFooter()

    def on_mount(self) -> None:
        name = PlanLine("", self._run_name, text_style="bold $text-accent")
        self.query_one(FactLines).show([name, PlanLine("", headline(self._report))])
        scores = {str(number): one for number, one in enumerate(worst_first(self._report))}
        self.query_one(RecordTable).show(scores)

    def action_pane(self) -> None:
        self.query_one(PaneTabs).choose_next()

    def action_output(self) -> None:
        first, *others = self._report.of_outputs
        self.app.switch_screen(ReportScreen(self._run_name, replace(others[0], others=(*others[1:], first))))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "output" or bool(self._report.others)

    def action_choose(self, name: str) -> None:
        if name in self._panes:
            self.query_one(PaneTabs).choose(name)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        if (name := str(event.widget.id)) in self._panes:
            self.query_one(PaneTabs).current = name


_LEVELS = (0.05, 0.2, 0.5, 0.8)  # shares of a row at which a cell of the matrix becomes a shade stronger

_POOR = 0.5
_BAR = Column(
    "",
    0,
    value=lambda one: BAR * bar_cells(one.f1 or 0.0, 10),
    look=lambda one: "$text-error" if one.f1 is not None and one.f1 < _POOR else "$text-accent",
)


class MatrixPane(RowsPane):
    """The confusion matrix: counts on colors that get stronger with their share of the row.

    The row names stay in place when it scrolls sideways.
    """

    COMPONENT_CLASSES = {f"rows--{kind}{level}" for kind in ("hit", "miss") for level in range(1, len(_LEVELS) + 2)}
    DEFAULT_CSS = """
    MatrixPane {
        .rows--hit1 { color: auto; background: $success 12%; }
        .rows--hit2 { color: auto; background: $success 24%; }
        .rows--hit3 { color: auto; background: $success 40%; }
        .rows--hit4 { color: auto; background: $success 60%; }
        .rows--hit5 { color: auto; background: $success 85%; text-style: bold; }
        .rows--miss1 { color: auto; background: $error 14%; }
        .rows--miss2 { color: auto; background: $error 32%; }
        .rows--miss3 { color: auto; background: $error 55%; text-style: bold; }
        .rows--miss4 { color: auto; background: $error 75%; text-style: bold; }
        .rows--miss5 { color: auto; background: $error 90%; text-style: bold; }
    }
    """

    def __init__(self, report: ClassReport) -> None:
        super().__init__("matrix")
        self.border_title, self.border_subtitle = "matrix", READING
        self._report = report
        self._plan = layout_of(report, 0)

    def rows_changed(self) -> None:
        """Choose the layout for the pane's width; if none fits, the tightest one with counts, which scrolls."""
        self._plan = layout_of(self._report, self.size.width)
        super().rows_changed()

    def widest(self) -> int:
        return self._plan.width

    def head(self) -> list[Row]:
        return [[(self._plan.head(), "head")]]

    def row_count(self) -> int:
        return len(self._report.matrix)

    def row(self, index: int) -> Row:
        plan = self._plan
        cells: list[tuple[str, str]] = [(plan.row_name(index), "head")]
        for column, (text, part) in enumerate(plan.cells(index)):
            if not part and column != index:
                cells.append((text, "faint"))
                continue
            level = 1 + sum(part >= limit for limit in _LEVELS)
            cells.append((text, f"{'hit' if column == index and part else 'miss'}{level}"))
        return cells

    def render_line(self, y: int) -> Strip:
        """Draw one line: the row names stay in place, the rest scrolls."""
        scroll_x = round(self.scroll_offset.x)
        if not scroll_x:
            return super().render_line(y)
        label, cell = self._plan.label, self._plan.cell
        first = label + -(-scroll_x // cell) * cell  # never cut a number in half
        whole = self.line_at(y)
        rest = whole.crop_extend(first, first + self.size.width - label, self._style(""))
        return Strip.join([whole.crop_extend(0, label, self._style("")), rest])


class PicturesPane(ScrollingText):
    """Examples that the model got wrong, those first that it was most sure of."""

    DEFAULT_CSS = "PicturesPane { padding: 0 1; Static { width: 1fr; height: auto; } }"

    def __init__(self, report: ClassReport) -> None:
        super().__init__(Static(), id="pictures", classes="pane")
        self.border_title = f"pictures of {MISTAKES}, the surest first"
        self._pictures = report.pictures

    def on_resize(self) -> None:
        has_colors = not any(isinstance(one, Monochrome | NoColor | AsciiOnly) for one in self.app.get_line_filters())
        depth, width = Depth.TRUE if has_colors else Depth.GREY, self.scrollable_content_region.width
        lines = gallery(self._pictures, width, depth, rows=len(self._pictures))
        self.query_one(Static).update(Content.from_rich_text(Text.from_ansi("\n".join(lines))))
