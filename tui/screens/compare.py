"""The screen that compares runs: their curves, a table of results, and the settings that differ."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from rich.text import Text as RichText
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.style import Style
from textual.widgets import DataTable, Static

from tpu_console.engine.runs.run_directory import RunDirectory

from ..charts.chart import MetricChart
from ..charts.curve import Axis, Curve, Window
from ..charts.scene import Marker, style_of
from ..following import comparison as compared
from ..text.keys import bind
from ..text.numbers import plural
from ..text.tables import BEST
from ..widgets.basics import PaneTabs, ScrollingText, call_back
from ..widgets.chart_grid import ChartGrid, ComparedChart, compared_curves, compared_reading, run_pen
from ..widgets.record_table import RecordTable
from .live_charts import CHART_KEYS, CURSOR_KEYS, ChartedScreen
from .parts import HELP, QUIT, KeysFooter, Title, console_of

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

    def reading_at(self, x: float, width: int) -> RichText:
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
