"""Above the curves: what the run is and does, how far it is, the most urgent notice, and how it ended."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace
from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from tpu_console.engine.monitoring.alerts import current_alerts
from tpu_console.engine.runs import events
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.journal import VERSION
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.runs.timing import Pace, pace

from ..text.hosts import account_of
from ..text.numbers import bar_cells, clock, count, milliseconds, plural, waiting_text
from ..text.outcome import Ending
from ..text.run_lines import STOP_PENDING, WHY_SILENT, budget_clock, is_busy, mirror_text, silent_text, stall_text
from ..text.tables import BAR, BAR_LEFT, DONE, FAILED, NOW, SPINNER, STOPPED, WARNING, clipped, end_of
from .basics import Overflow

_FAINT = "dim"
_SHORTEST_BAR = 10  # cells
_ORIGINS: dict[str, str] = {
    events.RunSource.NOTEBOOK: "from your code",
    events.RunSource.IN_PROCESS: "inside this console",
}
_ENDINGS: dict[str, str] = {events.RunOutcome.EARLY: "stopped early", events.RunOutcome.STOPPED: "stopped"}


class HeaderView(Struct, frozen=True):
    """Everything that the header's rows depend on."""

    run_id: str  # name of the run's folder
    snapshot: Snapshot = field(default_factory=Snapshot)  # the latest snapshot of the run
    now: float = 0.0  # Unix time in seconds
    opened_at: float = 0.0  # Unix time of the run's folder, for the time before the first event
    spin: int = 0  # number of the spinner's frame
    is_stopping: bool = False  # whether this console has asked the run to stop
    pace: Pace = field(default_factory=Pace)  # speed and remaining time

    @property
    def state(self) -> RunState:
        """The run's state, folded from its journal."""
        return self.snapshot.state

    @property
    def is_unreadable(self) -> bool:
        """Whether nothing of the journal can be read."""
        return bool(self.snapshot.trouble) and self.state.started is None

    @property
    def is_stuck(self) -> bool:
        """Whether the run does not respond or has stalled, so that the remaining time is unknown."""
        return self.snapshot.is_silent or self.snapshot.stall is not None or self.snapshot.is_resuming

    @property
    def is_moving(self) -> bool:
        """Whether something without a progress bar is in progress, so that only a spinner shows activity."""
        if self.snapshot.is_reading:
            return True
        if self.snapshot.is_over or self.is_stuck or self.is_unreadable:
            return False
        return self.is_stopping or self.state.stop is not None or self.state.phase != events.Phase.TRAINING


def header_rows(view: HeaderView, width: int) -> list[Content]:
    """Return the header's rows, each at most `width` cells wide: two, or one when the run is over."""
    if view.snapshot.is_over and not view.snapshot.is_reading:
        return [_title_row(view, width, has_facts=True)]
    if view.state.progress is None:
        return [_title_row(view, width), facts_row(view, width)]
    return [_title_row(view, width, has_facts=True), _progress_row(view, view.state.progress, width)]


def _spread(left: Content, right: Content, width: int) -> Content:
    """Put one part at each end of a row; the left one is cut off if both do not fit."""
    right = right.truncate(width, ellipsis=True)
    left = left.truncate(max(0, width - right.cell_length - 2), ellipsis=True)
    return Content.assemble(left, " " * max(0, width - left.cell_length - right.cell_length), right)


def _title_row(view: HeaderView, width: int, *, has_facts: bool = False) -> Content:
    """Name the run, and at the right what it is doing; between them, other facts that fit."""
    state, row, doing = view.state, Content.styled(view.run_id, "bold"), status(view)
    room = width - doing.cell_length - 2
    extras: list[list[tuple[str, str]]] = []  # the texts that may be shown, from the longest to the shortest
    if state.started is not None and state.started.source != events.RunSource.PROCESS:
        extras.append([(_ORIGINS.get(state.started.source, state.started.source), _FAINT)])
    if state.budget is not None and not view.snapshot.is_over and not view.snapshot.is_reading:
        extras.append([(budget_clock(state.budget, view.now), _FAINT)])
    if has_facts:
        facts = _workload(view)
        said = [[(" · ".join(facts[:n]), "") for n in range(len(facts), 0, -1)], _limit(view)]
        is_urgent = _is_input_bound(state) or (state.fit is not None and state.fit.best_step_ms is not None)
        extras += said[::-1] if is_urgent else said
    for choices in extras:
        left = room - row.cell_length - 2
        if shown := next((choice for choice in choices if len(choice[0]) <= left), None):
            row = Content.assemble(row, "  ", shown)
    return _spread(row, doing, width)


def _limit(view: HeaderView) -> list[tuple[str, str]]:
    """Return what limits the run's speed, with its look: at length, and in fewer words."""
    if not (said := account_of(view.state, is_short=True)):
        return []
    look, mark = ("bold $text-warning", f"{WARNING} ") if _is_input_bound(view.state) else (_FAINT, "")
    brief = [text.partition(" of ")[0].partition(" (")[0] for text in said]
    return [(mark + " · ".join(texts), look) for texts in (said, brief, brief[:1])]


def _is_input_bound(state: RunState) -> bool:
    return state.input is not None and state.input.limit == events.Bottleneck.INPUT


def status(view: HeaderView) -> Content:
    """Return what the run is doing, and the time since it started, without the gap before each resume."""
    state, snapshot = view.state, view.snapshot
    spinner, crashed = SPINNER[view.spin % len(SPINNER)], "removed" if snapshot.is_removed else "crashed"
    if snapshot.is_reading:
        return Content.styled(f"{spinner} reading {len(state.train):,} events…", "$text-warning")
    if view.is_unreadable:
        return Content.styled(f"{WARNING} cannot be read", "bold $text-warning")
    if isinstance(state.end, events.RunFinished):
        is_stopped = state.end.outcome == events.RunOutcome.STOPPED
        if state.is_nan and not is_stopped:
            return Content.styled(f"{FAILED} loss NaN", "bold $text-error")
        mark, color = (STOPPED, "$text-warning") if is_stopped else (DONE, "$text-success")
        return Content.styled(f"{mark} {_ENDINGS.get(state.end.outcome, 'finished')}", f"bold {color}")
    if isinstance(state.end, events.RunFailed) or snapshot.crashed:
        return Content.styled(f"{FAILED} {crashed if snapshot.crashed else 'failed'}", "bold $text-error")
    if snapshot.is_silent or snapshot.stall is not None:
        text = silent_text(snapshot.silent_s) if snapshot.stall is None else stall_text(snapshot.stall)
        return Content.styled(f"{WARNING} {text}", "bold $text-warning")
    doing, look = phase_of(view)[0], "bold $text-accent"
    mark = NOW if doing == events.Phase.TRAINING else spinner
    if view.is_stopping or state.stop is not None:
        mark, look, doing = spinner, "bold $text-warning", f"stopping after {doing}" if is_busy(state) else "stopping…"
        if state.stop is not None and state.stop.after == events.StopAfter.EPOCH and not view.is_stopping:
            doing = "stopping after this epoch…"
    started_at = state.started_at if state.started is not None else view.opened_at or view.now
    now = state.last_at if snapshot.is_resuming else view.now
    return Content.assemble((f"{mark} {doing} ", look), (clock(now - started_at - state.away_s), _FAINT))


def phase_of(view: HeaderView) -> tuple[str, float]:
    """Return what a run that goes on is doing, and for how many seconds in all."""
    state = view.state
    if view.snapshot.is_resuming:
        return "starting", view.now - state.last_at
    if not state.phase:
        since = state.last_at or view.opened_at or view.now
        return ("starting" if state.started is None else "waiting"), view.now - since
    return state.phase, state.phase_s.get(state.phase, 0.0) + max(0.0, view.now - state.phase_since)


def facts_row(view: HeaderView, width: int) -> Content:
    """Return what the run trains, on what, and at the right what limits its speed."""
    ready = view.state.accelerator
    reason = f"  ({ready.reason.rstrip('.')})" if ready is not None else ""
    row = Content.assemble(" · ".join(_workload(view)), (reason, _FAINT))
    limit = next(iter(_limit(view)), None)
    return row.truncate(width, ellipsis=True) if limit is None else _spread(row, Content.styled(*limit), width)


def _workload(view: HeaderView) -> list[str]:
    """Return the accelerator, data, model, batch and precision of the run, those that are known."""
    state = view.state
    config = state.started.config if state.started is not None else {}
    dataset, name, precision = (str(config.get(key, "")) for key in ("dataset", "model", "precision"))
    ready, data, model, fit = state.accelerator, state.data, state.model, state.fit
    accelerator = batch = ""
    if ready is not None:
        kind = ready.accelerator if ":" in ready.accelerator else ready.accelerator.upper()
        accelerator = f"{kind}, {plural(len(ready.replicas), 'replica')}"
    elif not (view.snapshot.is_over or view.snapshot.is_reading) and (
        state.started is None or state.started.source in {events.RunSource.PROCESS, events.RunSource.IN_PROCESS}
    ):  # a script connects to nothing
        accelerator = f"accelerator: {config.get('accelerator', '')} (connecting)".replace("  ", " ")
    if data is not None and data.train_examples is not None:
        held_out = f" + {data.validation_examples:,}" if data.validation_examples else ""
        unit = "images" if len(data.input_shape) == 3 else "examples"
        dataset = f"{dataset or 'data'} {data.train_examples:,}{held_out} {unit}"
    if model is not None:
        name = f"{name or model.name} {model.parameters:,} parameters"
    if fit is not None and fit.global_batch:
        batch = f"batch {fit.global_batch:,}"
        if fit.replica_batch and fit.replica_batch != fit.global_batch:
            batch += f" = {fit.global_batch // fit.replica_batch} × {fit.replica_batch:,}"
    facts = (accelerator, dataset, name, batch, precision if precision != "float32" else "")
    return [fact for fact in facts if fact]


def _progress_row(view: HeaderView, progress: events.Progress, width: int) -> Content:
    """Show how far the run is, or its validation, and how fast, with less beside the bar if there is little room."""
    state, speed = view.state, view.pace
    fit, total, label = state.fit, state.steps_total, "epoch"
    steps = fit.steps_per_epoch if fit is not None else None
    # The last execution of an epoch may run past its end.
    position = f"step {min(progress.epoch_step, steps):,}/{steps:,}" if steps else f"step {progress.epoch_step:,}"
    fraction = progress.step / total if total else None
    if state.phase == events.Phase.VALIDATING:
        label, position, fraction = "val", "", None
        if (done := state.validating) is not None:
            # Before the first validation has ended, its length follows from the number of examples.
            batches, examples = done.batches_total, state.data.validation_examples if state.data is not None else None
            if not batches and examples and fit is not None and fit.global_batch:
                batches = -(-examples // fit.global_batch)
            position = f"batch {done.batches:,}" + (f"/{batches:,}" if batches else "")
            fraction = done.batches / batches if batches else None
    left = ""
    if speed.run_left_s is not None and not view.is_stuck:
        # It counts down between two events, but only while an epoch goes on.
        now = view.now if state.phase in events.OF_EPOCHS else state.phase_since
        left = f"{clock(max(0.0, speed.run_left_s - max(0.0, now - state.progress_at)) + 0.5)} left"
    parts = [
        f"{min(100.0, 100 * fraction):3.0f}%" if fraction is not None else "",
        f"{position:<{2 * len(f'{steps or 0:,}') + 6}}",
        f"{left:>9}",
        f"{milliseconds(speed.step_ms) + ' ms/step':>12}" if speed.step_ms is not None else "",
        f"{count(speed.examples_per_s) + ' examples/s':>16}" if speed.examples_per_s is not None else "",
    ]
    before = f"{label} {progress.epoch}{f'/{fit.epochs}' if fit is not None else ''} "
    for dropped in ("", parts[1], parts[4], parts[3]):
        parts = [part for part in parts if part.strip() and part != dropped]
        after = " " + "  ".join(parts)
        if (room := width - len(before) - len(after)) >= _SHORTEST_BAR:
            break
    cells = max(4, room)
    full = bar_cells(fraction, cells) if fraction is not None else 0
    bar = Content.assemble((BAR * full, "$text-accent"), (BAR_LEFT * (cells - full), _FAINT))
    return Content.assemble((before, ""), bar, (after, ""))[:width]


class RunHeader(Widget):
    """Draws the rows of `header_rows`, for every new snapshot and as time passes."""

    DEFAULT_CSS = """
    RunHeader { height: 2; padding: 0 1; text-wrap: nowrap; &.-over { height: 1; } }
    """

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(id="header")
        now = opened_at = time.time()
        with suppress(OSError):
            opened_at = run.config.stat().st_mtime
        self.view = HeaderView(run.run_id, Snapshot(is_reading=True), now, opened_at)

    def show(self, snapshot: Snapshot, *, is_stopping: bool) -> None:
        """Show a new snapshot."""
        known = self.view.pace if snapshot.state is self.view.state else pace(snapshot.state)
        self.view = replace(self.view, snapshot=snapshot, is_stopping=is_stopping, pace=known)
        self.set_class(snapshot.is_over and not snapshot.is_reading, "-over")
        self.refresh()

    def turn(self) -> None:
        """Advance the spinner and the clock; cheap."""
        self.view = replace(self.view, spin=self.view.spin + 1)
        self.refresh()

    def render(self) -> Content:
        self.view = replace(self.view, now=time.time())
        return Content("\n").join(header_rows(self.view, self.content_size.width or 80))


def notices_of(snapshot: Snapshot, *, is_stopping: bool = False, past_alerts: bool = True) -> tuple[str, ...]:
    """Return all notices, the most urgent first.

    `past_alerts` includes the alerts of a run that is over, without what to do about them.
    """
    notices = [snapshot.trouble] if snapshot.trouble else []
    if snapshot.is_silent or snapshot.stall is not None:
        if is_stopping or snapshot.stop_waits or snapshot.state.stop is not None:
            notices.append(f"{STOP_PENDING[0].upper()}{STOP_PENDING[1:]}.")
        if snapshot.is_silent:
            notices.append(WHY_SILENT)
    elif snapshot.state.stop is not None and is_busy(snapshot.state) and not snapshot.is_over:
        notices.append(f"The run stops when it is done {snapshot.state.phase}. To kill it instead, press K.")
    if snapshot.waiting is not None and not snapshot.is_over:
        notices.append(f"{waiting_text(snapshot.waiting).capitalize()}.")
    if newer := snapshot.newer_version:
        notices.append(
            f"This run was written by a newer tpu-console (journal version {newer}, this one reads {VERSION}); "
            "some of it may be missing here. Update tpu-console to see everything."
        )
    if snapshot.damaged:
        damaged = plural(snapshot.damaged, "record")
        notices.append(f"{damaged} of the journal could not be read; everything else is shown.")
    if snapshot.state.mirror is not None and snapshot.state.mirror.problem and not snapshot.is_over:
        notices.append(f"Mirror: {mirror_text(snapshot.state)}.")
    if past_alerts or not snapshot.is_over:
        notices.extend(current_alerts(snapshot.state, is_over=snapshot.is_over))
    return (*notices, *reversed(snapshot.state.notices))


def bar_text(notices: Sequence[str], width: int) -> str:
    """Return the first notice and the number of others; one that is too long is cut off, and the details have it."""
    first, *others = notices
    more = f"  (i: {len(others)} more)" if others else ""
    whole = f"{WARNING} {first}"
    if cell_len(whole + more) <= width:
        return whole + more
    more = more or "  (i: all of it)"
    return clipped(whole, max(2, width - len(more))) + more


class NoticeBar(Widget):
    """The first notice, and the number of others; takes no space if there is none."""

    DEFAULT_CSS = """
    NoticeBar { display: none; height: 1; padding: 0 1; color: $text-warning; &.-shown { display: block; } }
    """
    _notices: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(id="notices")

    def show(self, notices: tuple[str, ...]) -> None:
        """Show notices, or nothing."""
        self._notices = notices
        self.set_class(bool(notices), "-shown")
        self.refresh()

    def render(self) -> Content:
        return Content(bar_text(self._notices, self.size.width) if self._notices else "")


_SHORTEST_PATH = 20  # cells in which the end of a path says which file it is
_LOOKS = {"good": (DONE, "$text-success"), "stopped": (STOPPED, "$text-warning"), "bad": (FAILED, "$text-error")}


class OutcomeBox(Overflow):
    """Shows a run's outcome; hidden until there is one. It scrolls if it is too long."""

    DEFAULT_CSS = """
    OutcomeBox {
        display: none; height: auto; max-height: 14; padding: 0 1;
        border-left: thick $success; background: $success 8%;
        scrollbar-background: $background; scrollbar-color: $foreground 25%;
        .facts { height: auto; }
        &.-good .facts { max-height: 2; text-wrap: nowrap; text-overflow: ellipsis; }
        .log { display: none; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; height: auto; }
        &.-with-log .log { display: block; }
        &.-shown { display: block; }
        &.-stopped { border-left: thick $warning; background: $warning 8%; }
        &.-bad { border-left: thick $error; background: $error 10%; }
        &:ansi { background: ansi_default; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="outcome")
        self._drawn: Ending | None = None

    def compose(self) -> Iterable[Widget]:
        yield Static(classes="facts")
        yield Static(classes="log")

    def show(self, outcome: Ending | None) -> None:
        """Show an outcome, or nothing."""
        if outcome == self._drawn:
            return
        self._drawn = outcome
        self.set_class(outcome is not None, "-shown")
        if outcome is not None:
            for kind in _LOOKS:
                self.set_class(outcome.kind == kind, f"-{kind}")
            self.on_resize()
            self.set_class(bool(outcome.log), "-with-log")
            self.query_one(".log", Static).update(Content("\n".join(outcome.log)))

    def on_resize(self) -> None:
        if self._drawn is not None:
            # Before it is laid out for the first time it has no width, and gets that of the screen less its edges.
            width = self.size.width or self.app.size.width - 3
            self.query_one(".facts", Static).update(outcome_content(self._drawn, width))


def outcome_content(outcome: Ending, width: int) -> Content:
    """Write a good outcome in at most two lines, with the facts that fit, and any other outcome in full."""
    mark, color = _LOOKS[outcome.kind]
    lines, is_good = [Content.styled(f"{mark} {outcome.headline}", f"bold {color}")], outcome.kind == "good"
    for label, text in sorted(outcome.facts, key=lambda fact: is_good and fact[0] != "why"):
        lead, room = (f"{label}: ", "dim"), width - lines[-1].cell_length - len(label) - 4
        beside = _fitting(text, room) if room >= _SHORTEST_PATH else text
        below = _fitting(text, width - len(label) - 2)
        if is_good and cell_len(beside) <= room:
            lines[-1] = Content.assemble(lines[-1], "  ", lead, beside)
        elif not is_good or (len(lines) == 1 and cell_len(below) <= width - len(label) - 2):
            lines.append(Content.assemble(lead, below))
    return Content("\n").join(lines)


def _fitting(text: str, room: int) -> str:
    """Cut a path to its end, so that it fits into one line; the details show all of it."""
    is_path = text.startswith(("/", "~/")) and " " not in text
    return end_of(text, room) if is_path and room > 1 else text
