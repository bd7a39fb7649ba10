"""The screens of results: the comparison of several runs, and the class report of one."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.events import DescendantFocus
from textual.filter import Monochrome, NoColor
from textual.screen import Screen
from textual.strip import Strip
from textual.style import Style
from textual.widgets import DataTable, Static

from tpu_console.engine.runs.class_report import ClassReport
from tpu_console.engine.runs.run_directory import RunDirectory

from ..charts.chart import MetricChart
from ..charts.curve import Axis, Curve, Window
from ..charts.scene import Marker, style_of
from ..following import comparison as compared
from ..terminal.display import AsciiOnly
from ..text.confusion import MISTAKES, READING, SCORE_COLUMNS, headline, layout_of, mistake_text, worst_first
from ..text.inspection import Depth, gallery
from ..text.keys import bind
from ..text.numbers import bar_cells, plural
from ..text.plan_text import PlanLine
from ..text.tables import BAR, BEST, Column
from ..widgets.basics import FactLines, PaneTabs, Row, RowsPane, ScrollingText, call_back
from ..widgets.chart_grid import ChartGrid, ComparedChart, compared_curves, compared_reading, run_pen
from ..widgets.record_table import RecordTable
from .live_charts import CHART_KEYS, CURSOR_KEYS, ChartedScreen
from .parts import BACK, HELP, QUIT, KeysFooter, Title, console_of

_LOOK_S = 2.0  # between two looks at runs that still train
_FAINT = "$foreground 60%"
_MOST_CURVES = 6


class ResultTable(RecordTable):
    """The table of results, which is also the legend of the charts; these keys belong to the charts."""

    BINDINGS = [
        bind("first", "screen.cursor_end('first')"),
        bind("last", "screen.cursor_end('last')"),
        bind("page up", "screen.page(-1)"),
        bind("page down", "screen.page(1)"),
    ]


class CompareScreen(ChartedScreen):
    """Compares runs by a metric, by default one that all have; enter opens the run under the cursor."""

    CSS = """
    CompareScreen {
        #charts { min-height: 6; }
        #charts > MetricChart { padding: 0 1; }
        #verdict { height: auto; padding: 0 1; }
        &.-zoomed #verdict { display: none; }
        #tables { height: auto; max-height: 50%; }
        #results { width: 3fr; height: auto; max-height: 100%; }
        #differences { width: 2fr; height: auto; max-height: 100%; padding: 0 1; }
        #differences Static { width: auto; }
        &.-narrow {
            #results, #differences { display: none; width: 1fr; }
            #results.-current, #differences.-current { display: block; }
        }
        &.-wide #tabs { display: none; }
        &.-zoomed #tables { display: none; }
        MetricChart { background: $background; &:focus { outline-left: thick $accent; } }
    }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (150, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-medium")]
    AUTO_FOCUS = "ResultTable"
    BINDINGS = [
        *CURSOR_KEYS,
        bind("select", "hide", "Hide"),
        HELP,
        bind("pane"),
        bind("zoom", "zoom_chart"),
        bind("back"),
        *CHART_KEYS,
        *map(bind, ("relative", "reload")),
        QUIT,
    ]

    def __init__(self, runs: Sequence[RunDirectory], metric: str, marker: Marker) -> None:
        super().__init__(marker)
        self._runs, self._metric = tuple(runs), metric
        self._reader = compared.ComparedReader(self._runs)
        self.comparison: compared.Comparison | None = None
        self._hidden: set[str] | None = None  # the marks of the runs without curves; None before the first look
        self._is_reading = False
        self._is_relative = False
        self._labels: Mapping[str, str] = {}  # of the runs with curves, by letter

    def compose(self) -> ComposeResult:
        yield Title(f"comparing {len(self._runs)} runs")
        yield ChartGrid(self.apply_look, ComparedChart)
        yield Static("", id="verdict", markup=False)
        yield from self.bar({"results": "results", "differences": "differences"})  # no numbers: 1 and 2 zoom charts
        with Horizontal(id="tables"):
            yield ResultTable((), "results")
            yield ScrollingText(Static("", markup=False), id="differences")
        yield KeysFooter()

    def on_mount(self) -> None:
        self.call_after_refresh(self.action_reload)
        self.set_interval(_LOOK_S, self._look, name="look at runs to compare")

    def apply_look(self, chart: MetricChart) -> None:
        super().apply_look(chart)
        if isinstance(chart, ComparedChart):
            chart.labels, chart.is_relative = self._labels, self._is_relative

    @property
    def read_curves(self) -> list[Curve]:
        return [curve for chart in self.grid.on_page for curve in self.curves.get(chart.title, ())]

    def action_reload(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._read_runs()

    @work(thread=True, name="read runs to compare")
    def _read_runs(self) -> None:
        self.comparison, self._is_reading = compared.comparison_of(self._reader.read(), self._metric), False
        call_back(self, self._show)

    def _look(self) -> None:
        runs = self.comparison.runs if self.comparison is not None else ()
        if self.is_current and any(run.overview.status.is_live for run in runs):
            self.action_reload()

    def _show(self) -> None:
        if (comparison := self.comparison) is None:
            return
        if self._hidden is None:
            self._hidden = {run.mark for run in comparison.ranked[_MOST_CURVES:]}
        hidden = self._hidden
        shown = [run for run in comparison.runs if run.mark not in hidden]
        unseen = len(comparison.runs) - len(shown)
        more = f" {plural(unseen, 'run')} without curves; space shows one." if unseen else ""
        self.query_one("#verdict", Static).update((comparison.verdict + more).strip())
        self.curves = compared_curves(shown, comparison.metric, is_relative=self._is_relative)
        self._labels = {run.mark: comparison.label_of(run) for run in shown}
        for chart in self.grid.on_page:
            self.apply_look(chart)
        self.grid.show(self.curves)
        columns = compared.columns_of(comparison)

        def color(run: compared.ComparedRun) -> Style | str:
            pen = run_pen(run.mark, self.app.current_theme)
            return "dim" if run.mark in hidden else Style.from_rich_style(style_of(pen.color))

        columns[:2] = [
            replace(columns[0], value=lambda run: run.mark + (BEST if run is comparison.best else " "), look=color),
            replace(columns[1], value=comparison.label_of, look=lambda run: _FAINT * (run.mark in hidden)),
        ]
        self.query_one(ResultTable).show({run.mark: run for run in comparison.runs}, columns)
        width = self.size.width * 2 // 5 if self.has_class("-wide") else self.size.width
        # The verdict is above the tables.
        notes = [note for note in compared.notes_of(comparison) if note != comparison.verdict]
        lines = [*compared.difference_lines(comparison, width - 3), "", *notes]
        self.query_one("#differences Static", Static).update("\n".join(lines).strip("\n"))
        self.draw_bar()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def reading_at(self, x: float, width: int) -> Text:
        shown = {chart.title: self.curves.get(chart.title, ()) for chart in self.grid.on_page}
        return compared_reading(shown, self.axis, x, self.app.current_theme, width)

    def watch_axis(self, old: Axis, new: Axis) -> None:
        self.window, self.cursor = Window(), None

    def action_hide(self) -> None:
        self._hidden = (self._hidden or set()) ^ {self.query_one(ResultTable).chosen}
        self._show()

    def action_relative(self) -> None:
        self._is_relative = not self._is_relative
        self.window, self.cursor = Window(), None
        self._show()

    def action_pane(self) -> None:
        self.query_one(PaneTabs).choose_next()

    def watch_zoomed(self, name: str) -> None:
        super().watch_zoomed(name)
        if not name:
            self.query_one(ResultTable).focus()

    @on(DataTable.RowSelected)
    def _open(self) -> None:
        console_of(self).open_run(self.query_one(ResultTable).record.overview.run)


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
