"""The header of the live screen: the run, its devices, phase, progress and remaining time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget

from tpu_console.engine.runs.events import (
    OF_EPOCHS,
    Bottleneck,
    Phase,
    Progress,
    RunFailed,
    RunFinished,
    RunOutcome,
    RunSource,
    StopAfter,
)
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.timing import Pace, pace

from ..text.cells import BAR, BAR_LEFT, DONE, FAILED, NOW, SPINNER, STOPPED, WARNING
from ..text.hosts import account_of
from ..text.numbers import bar_cells, clock, count, milliseconds, plural
from ..text.steering import budget_clock, is_busy, silent_text, stall_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

_FAINT = "dim"
_SHORTEST_BAR = 10  # cells
_ORIGINS: dict[str, str] = {RunSource.NOTEBOOK: "from your code", RunSource.IN_PROCESS: "inside this console"}
_ENDINGS: dict[str, str] = {RunOutcome.EARLY: "stopped early", RunOutcome.STOPPED: "stopped"}


@dataclass(frozen=True, slots=True)
class HeaderView:
    """Everything that the header's rows depend on."""

    run_id: str  # name of the run's folder
    snapshot: Snapshot = field(default_factory=Snapshot)  # the latest snapshot of the run
    now: float = 0.0  # Unix time in seconds
    opened_at: float = 0.0  # Unix time of the run's folder, for the time before the first event
    spin: int = 0  # number of the spinner's frame
    is_stopping: bool = False  # whether this console has asked the run to stop
    is_reading: bool = False  # whether the journal is still being read
    is_unreadable: bool = False  # whether nothing of the journal can be read
    pace: Pace = field(default_factory=Pace)  # speed and remaining time

    @property
    def state(self) -> RunState:
        """The run's state, folded from its journal."""
        return self.snapshot.state

    @property
    def is_stuck(self) -> bool:
        """Whether the run does not respond or has stalled, so that the remaining time is unknown."""
        return self.snapshot.is_silent or self.snapshot.stall is not None or self.snapshot.is_resuming

    @property
    def is_input_bound(self) -> bool:
        """Whether waiting for data limits the run's speed."""
        return self.state.input is not None and self.state.input.limit == Bottleneck.INPUT

    @property
    def is_moving(self) -> bool:
        """Whether something without a progress bar is in progress, so that only a spinner shows activity."""
        if (self.snapshot.is_over or self.is_stuck or self.is_unreadable) and not self.is_reading:
            return False
        return self.is_reading or self.is_stopping or self.state.stop is not None or self.state.phase != Phase.TRAINING


def header_rows(view: HeaderView, width: int) -> list[Content]:
    """Return the header's rows, each at most `width` cells wide: two, or one when the run is over."""
    if view.snapshot.is_over and not view.is_reading:
        return [_title_row(view, width, has_facts=True)]
    if view.state.progress is None:
        return [_title_row(view, width), facts_row(view, width)]
    return [_title_row(view, width, has_facts=True), _progress_row(view, view.state.progress, width)]


def _spread(left: Content, right: Content, width: int) -> Content:
    """Put one part at each end of a row; the left one is cut off if both do not fit."""
    room = max(0, width - right.cell_length - 2)
    left = left.truncate(room, ellipsis=True)
    gap = max(0, width - left.cell_length - right.cell_length)
    return Content.assemble(left, " " * gap, right)


def _title_row(view: HeaderView, width: int, *, has_facts: bool = False) -> Content:
    """Name the run, and at the right what it is doing; between them what else is wanted, as long as there is room."""
    started = view.state.started
    name, doing = Content.styled(view.run_id, "bold"), status(view).truncate(width, ellipsis=True)
    if started is not None and started.source != RunSource.PROCESS:
        name = Content.assemble(name, (f"  {_ORIGINS.get(started.source, started.source)}", _FAINT))
    room = width - doing.cell_length - 2
    if view.state.budget is not None and not view.snapshot.is_over and not view.is_reading:
        text = budget_clock(view.state.budget, view.now)
        name = _with_first(name, [(text, _FAINT), (text.partition(",")[0], _FAINT)], room)
    if has_facts:
        limit = _limit(view)
        fit = view.state.fit
        is_first = view.is_input_bound or (fit is not None and fit.best_step_ms is not None)
        name = _with_first(name, limit if is_first else [], room)
        facts = _workload(view)
        name = _with_first(name, [(" · ".join(facts[:n]), "") for n in range(len(facts), 0, -1)], room)
        name = _with_first(name, [] if is_first else limit, room)
    return _spread(name, doing, width)


def _with_first(row: Content, choices: Sequence[tuple[str, str]], width: int) -> Content:
    """Add the first of some texts, each with its look, for which there is room; none if all are too long."""
    room = width - row.cell_length - 2
    shown = next((choice for choice in choices if len(choice[0]) <= room), None)
    return Content.assemble(row, "  ", shown) if shown is not None else row


def _limit(view: HeaderView) -> list[tuple[str, str]]:
    """Say where the run's time goes, at length and in a word."""
    if not (said := account_of(view.state, is_short=True)):
        return []
    look, mark = ("bold $text-warning", f"{WARNING} ") if view.is_input_bound else (_FAINT, "")
    brief = [text.partition(" of ")[0].partition(" (")[0] for text in said]
    return [(mark + " · ".join(texts), look) for texts in (said, brief, brief[:1])]


def status(view: HeaderView) -> Content:
    """Return what the run is doing, and the time since it started, without the gap before each resume."""
    state = view.state
    spinner = SPINNER[view.spin % len(SPINNER)]
    if view.is_reading:
        return Content.styled(f"{spinner} reading {len(state.train):,} events…", "$text-warning")
    if view.is_unreadable:
        return Content.styled(f"{WARNING} cannot be read", "bold $text-warning")
    if isinstance(state.end, RunFinished):
        word = _ENDINGS.get(state.end.outcome, "finished")
        is_stopped = state.end.outcome == RunOutcome.STOPPED
        if state.is_nan and not is_stopped:
            return Content.styled(f"{FAILED} loss NaN", "bold $text-error")
        mark, color = (STOPPED, "$text-warning") if is_stopped else (DONE, "$text-success")
        return Content.styled(f"{mark} {word}", f"bold {color}")
    if isinstance(state.end, RunFailed):
        return Content.styled(f"{FAILED} failed", "bold $text-error")
    if view.snapshot.crashed:
        return Content.styled(f"{FAILED} {'removed' if view.snapshot.is_removed else 'crashed'}", "bold $text-error")
    if view.snapshot.is_silent:
        return Content.styled(f"{WARNING} {silent_text(view.snapshot.silent_s)}", "bold $text-warning")
    if view.snapshot.stall is not None:
        return Content.styled(f"{WARNING} {stall_text(view.snapshot.stall)}", "bold $text-warning")
    if view.is_stopping or state.stop is not None:
        return _stopping(view, spinner)
    phase = phase_of(view)[0]
    mark = NOW if phase == Phase.TRAINING else spinner
    return Content.assemble((f"{mark} {phase} ", "bold $text-accent"), (_elapsed(view), _FAINT))


def _elapsed(view: HeaderView) -> str:
    """Write the time since the run started, without the gap before each resume."""
    started_at = view.state.started_at if view.state.started is not None else view.opened_at or view.now
    now = view.state.last_at if view.snapshot.is_resuming else view.now
    return clock(now - started_at - view.state.away_s)


def _stopping(view: HeaderView, spinner: str) -> Content:
    """Say what the run does before it stops."""
    state = view.state
    doing = f" after {state.phase}" if is_busy(state) else "…"
    if state.stop is not None and state.stop.after == StopAfter.EPOCH and not view.is_stopping:
        doing = " after this epoch…"
    return Content.assemble((f"{spinner} stopping{doing} ", "bold $text-warning"), (_elapsed(view), _FAINT))


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
    """Say what trains on what, and at the right what limits its speed."""
    reason = _accelerator(view)[1]
    row = Content.assemble(" · ".join(_workload(view)), (f"  {reason}", _FAINT) if reason else "")
    text, look = next(iter(_limit(view)), ("", ""))
    if not text:
        return row.truncate(width, ellipsis=True)
    return _spread(row, Content.styled(text, look).truncate(width, ellipsis=True), width)


def _workload(view: HeaderView) -> list[str]:
    """Say on what the run trains what."""
    state = view.state
    config = state.started.config if state.started is not None else {}
    data, model, fit = state.data, state.model, state.fit
    dataset = str(config.get("dataset", ""))
    if data is not None and data.train_examples is not None:
        held_out = f" + {data.validation_examples:,}" if data.validation_examples else ""
        unit = "images" if len(data.input_shape) == 3 else "examples"
        dataset = f"{dataset or 'data'} {data.train_examples:,}{held_out} {unit}"
    name = str(config.get("model", "")) or (model.name if model is not None else "")
    if model is not None:
        name += f" {model.parameters:,} parameters"
    batch = ""
    if fit is not None and fit.global_batch:
        batch = f"batch {fit.global_batch:,}"
        if fit.replica_batch and fit.replica_batch != fit.global_batch:
            batch += f" = {fit.global_batch // fit.replica_batch} × {fit.replica_batch:,}"
    precision = str(config.get("precision", ""))
    facts = (_accelerator(view)[0], dataset, name, batch, precision if precision != "float32" else "")
    return [fact for fact in facts if fact]


def _accelerator(view: HeaderView) -> tuple[str, str]:
    """Return the accelerator, and why it was chosen."""
    ready, started = view.state.accelerator, view.state.started
    connects = started is None or started.source in {RunSource.PROCESS, RunSource.IN_PROCESS}  # a script does not
    if ready is None and (view.snapshot.is_over or view.is_reading or not connects):
        return "", ""
    if ready is None:
        config = started.config if started is not None else {}
        wanted = str(config.get("accelerator", ""))
        return (f"accelerator: {wanted} (connecting)" if wanted else "accelerator: connecting"), ""
    name = ready.accelerator if ":" in ready.accelerator else ready.accelerator.upper()
    return f"{name}, {plural(len(ready.replicas), 'replica')}", f"({ready.reason.rstrip('.')})"


def _progress_row(view: HeaderView, progress: Progress, width: int) -> Content:
    """Show how far the run is, or its validation, and how fast."""
    if view.state.phase == Phase.VALIDATING:
        return _validation_row(view, progress, width)
    fit, total = view.state.fit, view.state.steps_total
    steps = fit.steps_per_epoch if fit is not None else None
    of = f"{progress.epoch}/{fit.epochs}" if fit is not None else str(progress.epoch)
    # The last execution of an epoch may run past its end.
    position = f"step {min(progress.epoch_step, steps):,}/{steps:,}" if steps else f"step {progress.epoch_step:,}"
    fraction = progress.step / total if total else None
    return _bar_row(view, width, "epoch", of, fraction, position)


def _validation_row(view: HeaderView, progress: Progress, width: int) -> Content:
    """Show how far validation is; before the first one has ended, its length follows from the number of examples."""
    state = view.state
    done = state.validating
    total = done.batches_total if done is not None else None
    examples = state.data.validation_examples if state.data is not None else None
    batch = state.fit.global_batch if state.fit is not None else None
    if not total and examples and batch:
        total = -(-examples // batch)
    before = [epoch.validation_s for epoch in state.epochs if epoch.validation_s > 0]
    fraction = max(0.0, view.now - state.phase_since) / before[-1] if before else None
    if done is not None and total:
        fraction = done.batches / total
    batches = f"batch {done.batches:,}" if done is not None else ""
    position = f"{batches}/{total:,}" if batches and total else batches
    of = f"{progress.epoch}/{state.fit.epochs}" if state.fit is not None else str(progress.epoch)
    return _bar_row(view, width, "val", of, fraction, position)


def _left(view: HeaderView) -> str:
    """Write the time that the run needs still; it counts down between two events, but only while an epoch goes on."""
    state, seconds = view.state, view.pace.run_left_s
    if seconds is None or view.is_stuck:
        return ""
    now = view.now if state.phase in OF_EPOCHS else state.phase_since
    return f"{clock(max(0.0, seconds - max(0.0, now - state.progress_at)) + 0.5)} left"


def _bar_row(view: HeaderView, width: int, label: str, of: str, fraction: float | None, position: str) -> Content:
    """Lay out the progress row, with less beside the bar if there is little room."""
    steps = view.state.fit.steps_per_epoch if view.state.fit is not None else None
    percent = f"{min(100.0, 100 * fraction):3.0f}%" if fraction is not None else ""
    step = f"{milliseconds(view.pace.step_ms)} ms/step" if view.pace.step_ms is not None else ""
    speed = f"{count(view.pace.examples_per_s)} examples/s" if view.pace.examples_per_s is not None else ""
    parts = [
        percent,
        f"{position:<{2 * len(f'{steps or 0:,}') + 6}}",
        f"{_left(view):>9}",
        f"{step:>12}",
        f"{speed:>16}",
    ]
    before = f"{label} {of} "
    for dropped in ("", parts[1], parts[4], parts[3]):
        parts = [part for part in parts if part != dropped]
        after = " " + "  ".join(part for part in parts if part.strip())
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

    def __init__(self, run: RunDirectory, opened_at: float) -> None:
        super().__init__(id="header")
        self.view = HeaderView(run_id=run.run_id, now=time.time(), opened_at=opened_at, is_reading=True)

    def show(
        self, snapshot: Snapshot, *, is_stopping: bool, is_reading: bool = False, is_unreadable: bool = False
    ) -> None:
        """Show a new snapshot."""
        self.view = replace(
            self.view,
            snapshot=snapshot,
            is_stopping=is_stopping,
            is_reading=is_reading,
            is_unreadable=is_unreadable,
            pace=self.view.pace if snapshot.state is self.view.state else pace(snapshot.state),
        )
        self.set_class(snapshot.is_over and not is_reading, "-over")
        self.refresh()

    def turn(self) -> None:
        """Advance the spinner and the clock; cheap."""
        self.view = replace(self.view, spin=self.view.spin + 1)
        self.refresh()

    def render(self) -> Content:
        """Render the header."""
        self.view = replace(self.view, now=time.time())
        return Content("\n").join(header_rows(self.view, self.content_size.width or 80))
