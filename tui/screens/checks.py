"""The screens that check a configuration with the TPU compiler, and this machine."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import on, work
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Checkbox, DataTable, Input, Static

from tpu_console.engine.data.cached_facts import known_batch
from tpu_console.engine.doctor import Report, examine
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem
from tpu_console.engine.machine.environment import Environment, look_around
from tpu_console.engine.preflight.topologies import TOPOLOGIES

from ..forms.field_row import NameSuggester, TickBox
from ..jobs import checks
from ..text.checks import GROUP, SCREEN_COLUMNS, advice_lines, choice_text, detail_lines, report_lines
from ..text.keys import bind
from ..text.tables import NAME_CELLS
from ..widgets.basics import ScrollingText, call_back
from ..widgets.record_table import RecordTable
from .parts import BACK, HELP, QUIT, KeysFooter, Title, close
from .run_actions import JobDialog, JobOutcome

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from tpu_console.engine.config.run_config import RunConfig

    from ..jobs.job_process import Start

_FAINT = "$foreground 60%"
_LABELS = {
    **dict.fromkeys(("unknown", "compiler", "memory", "filled by", "step", "quota"), _FAINT),
    **dict.fromkeys(("at best", "likely", "largest", "input", "note"), _FAINT),
    "fits": "$text-success",
    "change": "$text-success",
    "too large": "$text-error",
    "refused": "$text-error",
    "error": "bold $text-error",
    "warning": "bold $text-warning",
}
_TPUS, _BATCHES = "TPUs", "Batches"
_WAITING = "enter: check with the TPU compiler (needs no TPU)"
_AFTERWARDS = (
    "The check shows for each TPU, batch and precision whether it fits, how much memory it takes and how long a step "
    "is likely to be. Enter on one of them puts its batch and precision into the form."
)


class VerdictTable(RecordTable):
    """The table of verdicts; enter applies the choice under the cursor."""

    BINDINGS = [bind("enter", "select_cursor", "Use this")]


class PreflightScreen(Screen["tuple[int, str] | None"]):
    """Checks a configuration with the TPU compiler; returns the chosen batch and precision, or None.

    The name is that of the preset or file for `tpu-console inspect`; `start` starts the job's process.
    """

    CSS = """
    PreflightScreen {
        #choices {
            height: auto; padding: 0 1;
            Horizontal { height: 1; }
            .label { width: 10; color: $text-muted; }
            Input { width: 1fr; background: $surface-lighten-1; margin: 0 2 0 0; }
            Input:focus { background: $primary 30%; }
            Checkbox { width: auto; background: transparent; margin: 0 2 0 0; }
            Checkbox:focus { background: $primary 30%; }
        }
        #choice-problem { height: auto; color: $text-error; &.-empty { display: none; } }
        #status { height: 1; padding: 0 1; color: $text-accent; text-wrap: nowrap; text-overflow: ellipsis; }
        #status.-bad { color: $text-error; }
        #verdicts { height: auto; max-height: 50%; margin: 1 0 0 0; }
        #verdicts.-empty { display: none; }
        #detail { height: 1fr; padding: 0 1; border-top: solid $foreground 20%; }
        #detail:focus { border-top: solid $primary; }
    }
    """
    AUTO_FOCUS = "#tpus"
    BINDINGS = [
        bind("start", "judge", "Check", priority=True),
        bind("back", "dismiss(None)", about="Go back."),
        HELP,
        QUIT,
    ]

    def __init__(self, config: RunConfig, name: str, start: Start | None = None) -> None:
        super().__init__()
        self._config = config.model_copy(update={"batch_size": known_batch(config)})
        self._preset = name
        self._start = start

    def compose(self) -> ComposeResult:
        yield Title(f"preflight: {self._config.name}")
        with Vertical(id="choices"):
            with Horizontal():
                yield Static(_TPUS, classes="label")
                hint, names = f"{checks.DEFAULT_TPU}, v3-8, v6e-8 …", NameSuggester(tuple(TOPOLOGIES))
                yield Input(checks.DEFAULT_TPU, placeholder=hint, suggester=names, compact=True, id="tpus")
                yield Static(_BATCHES, classes="label")
                batch = str(self._config.batch_size)
                yield Input(batch, placeholder="32, 128 … per replica", compact=True, id="batches")
            with Horizontal():
                yield Static("Precision", classes="label")
                for name in checks.PRECISIONS:
                    yield TickBox(name, name == self._config.precision, compact=True, id=name)
                yield TickBox("find the largest batch", compact=True, id="search")
            yield Static("", id="choice-problem", classes="-empty", markup=False)
        yield Static(_WAITING, id="status", markup=False)
        yield VerdictTable(SCREEN_COLUMNS, "verdicts").add_class("-empty")
        yield ScrollingText(Static("", id="words"), id="detail")
        yield KeysFooter()

    def on_mount(self) -> None:
        self.call_after_refresh(self._show_words)

    @on(Input.Changed)
    @on(Checkbox.Changed)
    def _check(self) -> None:
        """Show problems of the choices while they are typed."""
        if self._choices() is not None and self.query_one(VerdictTable).record is None:
            self._show_words()

    def _choices(self) -> checks.Choices | None:
        """Return what is to be checked; None if something is wrong with it, which is shown."""
        batches = [word.strip() for word in self.query_one("#batches", Input).value.split(",") if word.strip()]
        ticked = {str(box.id) for box in self.query(Checkbox) if box.value}
        problem, choices = "", None
        try:
            tpus = checks.known_tpus([self.query_one("#tpus", Input).value], _TPUS)
            if not batches or not all(word.isdecimal() and int(word) for word in batches):
                raise ConfigError([Problem(_BATCHES, "need positive whole numbers, such as 32, 128")])
        except ConfigError as error:
            problem = str(error)
        else:
            precisions = tuple(name for name in checks.PRECISIONS if name in ticked) or (self._config.precision,)
            choices = checks.Choices(
                tpus, tuple(dict.fromkeys(map(int, batches))), precisions, search="search" in ticked
            )
        line = self.query_one("#choice-problem", Static)
        line.update(problem)
        line.set_class(not problem, "-empty")
        return choices

    @on(Input.Submitted)
    def action_judge(self) -> None:
        if (choices := self._choices()) is None:
            return
        if (known := checks.remembered(self._config, choices)) is not None:
            self._end(known)
            return

        def end(outcome: JobOutcome) -> None:
            self.call_after_refresh(self._end, outcome)  # while the dialog was open, layouts were delayed

        explanation = "Finished choices are kept."
        jobs = choices.jobs(self._config, checks.missing_compiler())
        limits = {"limit_s": choices.stuck_s, "grace_s": checks.GRACE_S}
        dialog = JobDialog("Checking with the TPU compiler", explanation, jobs, start=self._start, **limits)
        self.app.push_screen(dialog, end)

    def _end(self, outcome: JobOutcome) -> None:
        if outcome is None:
            self._say("cancelled; results so far are kept")
        elif isinstance(outcome, ConsoleError):
            self._say(" ".join(part for part in (outcome.what, outcome.why) if part), is_bad=True)
            self._show_words(outcome)
        else:
            verdicts = checks.read_verdicts(self._config, outcome)
            self._say("likely times; in parentheses what the TPU can do at best")
            table = self.query_one(VerdictTable)
            table.show({str(number): verdict for number, verdict in enumerate(verdicts)})
            table.set_class(not verdicts, "-empty")
            table.focus()
            self._show_words()

    def _say(self, text: str, *, is_bad: bool = False) -> None:
        status = self.query_one("#status", Static)
        status.update(text)
        status.set_class(is_bad, "-bad")

    @on(Resize)
    @on(DataTable.RowHighlighted)
    def _follow(self) -> None:
        self.call_after_refresh(self._show_words)

    def _show_words(self, error: ConsoleError | None = None) -> None:
        """Show the details of the selected verdict, or the advice if there is none."""
        room = max(40, self.query_one("#detail").content_size.width - 1)
        verdict = self.query_one(VerdictTable).record
        if verdict is not None and error is None:
            title, lines = choice_text(verdict), detail_lines(self._config, verdict, self._preset, room)
        else:
            title = "" if error is None else "\n".join(part for part in (error.what, error.why, error.remedy) if part)
            lines = []
            if (choices := self._choices()) is not None:
                chosen = {"batch_size": choices.batches[0], "precision": choices.precisions[0]}
                lines += advice_lines(checks.advice_for(self._config.model_copy(update=chosen), choices.tpus), room)
            lines += ["", *textwrap.wrap(_AFTERWARDS, room)] if error is None else []
        parts = [Content.styled(title, "bold")] if title else []
        for line in lines:
            name = line[:NAME_CELLS]  # with which a line may begin
            style = _LABELS.get(name.rstrip(), "") if len(line) > NAME_CELLS else ""
            parts.append(Content.assemble((name, style), line[NAME_CELLS:]))
        self.query_one("#words", Static).update(Content("\n").join(parts))

    @on(DataTable.RowSelected)
    def _use(self) -> None:
        """Go back and put the batch and precision under the cursor into the form."""
        if (verdict := self.query_one(VerdictTable).record) is not None:
            close(self, (verdict.replica_batch, verdict.precision))


_STYLES = {
    "ok": "$text-success",
    "note": "$text-accent",
    "warning": "bold $text-warning",
    "problem": "bold $text-error",
    "could not tell": "$foreground 60%",
    GROUP: "bold $text-accent",
}


class DoctorScreen(Screen[None]):
    """Checks the machine in a thread with what `look` gathers, and shows the same report as `tpu-console doctor`."""

    CSS = """
    DoctorScreen {
        #report { padding: 1 1 0 1; background: $background; }
        #report > Static { height: auto; }
    }
    """
    AUTO_FOCUS = "#report"
    BINDINGS = [bind("reload", "look_again", "Check again"), BACK, HELP, QUIT]

    def __init__(self, look: Callable[[], Environment] = look_around) -> None:
        super().__init__()
        self._look = look
        self._report: Report | None = None

    def compose(self) -> ComposeResult:
        yield Title()
        yield ScrollingText(Static(), id="report")
        yield KeysFooter()

    def on_mount(self) -> None:
        self.action_look_again()

    @work(thread=True, exclusive=True, name="doctor")
    def action_look_again(self) -> None:
        call_back(self, self._say, "checking …")
        self._report = examine(self._look())
        call_back(self, self._draw)

    def _say(self, text: str) -> None:
        self.query_one(Title).show(f"doctor: {text}")

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        if self._report is None:
            return
        self._say(self._report.summary)
        box = self.query_one("#report", ScrollingText)
        lines = report_lines(self._report, max(40, box.content_size.width - 1))[:-2]  # the title has the summary
        colored = []
        for line in lines:
            look = _STYLES.get(line.look, "")
            colored.append(Content.assemble((line.label, look), (line.text, "" if line.label else look)))
        box.query_one(Static).update(Content("\n").join(colored))
