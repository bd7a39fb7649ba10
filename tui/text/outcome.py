"""How a run ended, in words: what happened, why, what to do next, and where things are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tpu_console.engine.runs.class_report import Mistake
from tpu_console.engine.runs.events import RunFailed, RunFinished
from tpu_console.engine.runs.state import best_epoch
from tpu_console.engine.storage.paths import user_path

from .confusion import taken_text
from .live_numbers import Glyphs, clock, plain, score

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from tpu_console.engine.runs.follower import Snapshot
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

_LOG_LINES = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a run.

    Attributes:
        kind: ``good``, ``stopped`` or ``bad``.
        headline: What happened, in one sentence.
        facts: Pairs of a label and what belongs to it.
        log: The log's last lines, when they are the best clue there is.
    """

    kind: Literal["good", "stopped", "bad"]
    headline: str
    facts: tuple[tuple[str, str], ...] = ()
    log: tuple[str, ...] = ()


def verdict_on(run: RunDirectory, snapshot: Snapshot) -> Verdict | None:
    """Return how the run ended, or None while it goes on."""
    match snapshot.state.end:
        case RunFinished() as end:
            return _finished(run, snapshot.state, end)
        case RunFailed() as end:
            log = run.path / end.log if end.log else run.log
            facts = (("why", end.why), ("what to do", end.remedy), ("log", user_path(log)))
            return Verdict("bad", end.what, _filled(facts))
    if not snapshot.crashed:
        return None
    if snapshot.waiting is not None:
        return _disk_was_full(run, snapshot.state)
    facts = (
        ("why", "It was killed, or out of memory, or the machine was restarted; it had no time to say."),
        ("what to do", _crash_remedy(snapshot.state)),
        ("log", user_path(run.log)),
    )
    return Verdict("bad", "The training process ended without a word.", _filled(facts), snapshot.log[-_LOG_LINES:])


def _disk_was_full(run: RunDirectory, state: RunState) -> Verdict:
    kept = f" The best model so far is in {state.checkpoint.path}." if state.checkpoint is not None else ""
    facts = (("what to do", f"Free space for {user_path(run.path.parent)}; n starts again.{kept}"),)
    return Verdict("bad", "The disk was full when the training process ended; its last event is missing.", facts)


def _crash_remedy(state: RunState) -> str:
    kept = f" The best model so far is in {state.checkpoint.path}." if state.checkpoint is not None else ""
    return f"Read the log's end; if memory ran out, use a smaller batch. n starts anew.{kept}"


def _filled(facts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in facts if text)


def _finished(run: RunDirectory, state: RunState, end: RunFinished) -> Verdict:
    epochs = len(state.epochs)
    took = clock(max(0.0, state.last_at - state.started_at))
    counted = f"{epochs:,} epoch{'s' if epochs != 1 else ''} in {took}"
    headline = {
        "early": f"Stopped early after {counted}.",
        "stopped": f"Stopped after {counted}, as asked.",
    }.get(end.outcome, f"Finished: {counted}.")
    why = end.reason if end.outcome in {"early", "stopped"} else ""
    facts = (
        ("best", best_score(state)),
        ("why", why),
        ("classes", _classes(end)),
        ("efficiency", _efficiency(end)),
        ("model", _model_path(run, state)),
    )
    return Verdict("stopped" if end.outcome == "stopped" else "good", headline, _filled(facts))


def has_classes(state: RunState) -> bool:
    """Tell whether the run left scores of its classes."""
    return isinstance(state.end, RunFinished) and isinstance(state.end.summary.get("classes"), dict)


def _classes(end: RunFinished) -> str:
    """Say in a sentence how evenly the classes are told, and which is mistaken most; empty where it is not known."""
    try:
        scores = end.summary["classes"]
        text = f"balanced accuracy {scores['balanced_accuracy']:.4f}"
        if scores["mistakes"]:
            text += f"; {taken_text(Mistake(**scores['mistakes'][0]))}"
    except (KeyError, TypeError, ValueError):
        return ""
    return f"{text}; c shows all"


def _efficiency(end: RunFinished) -> str:
    """Say what a run on a TPU reached of its best case; empty where that is not known."""
    try:
        best, measured = end.summary["best_case"], float(end.summary["median_step_ms"])
        share = f"{100 * best['reached']:.0f} % of what a {best['tpu']} could do"
        return f"{measured:.3g} ms/step measured, {best['step_ms']:.3g} at best: {share}"
    except (KeyError, TypeError, ValueError):
        return ""


def best_score(state: RunState) -> str:
    """Return the best epoch's score in words; empty when there is none."""
    monitor = state.monitor
    best = best_epoch(state.epochs, monitor)
    return f"{monitor} {score(best.logs[monitor])} in epoch {best.epoch}" if best is not None else ""


def _model_path(run: RunDirectory, state: RunState) -> str:
    """Where the saved model is, or else the best checkpoint."""
    if run.model.exists():
        return user_path(run.model)
    kept = run.path / state.checkpoint.path if state.checkpoint is not None else None
    return user_path(kept) if kept is not None and kept.exists() else ""


class VerdictBox(VerticalScroll):
    """Shows a verdict; takes no room while there is none, and scrolls where there is too little."""

    DEFAULT_CSS = """
    VerdictBox {
        display: none;
        height: auto;
        max-height: 14;
        padding: 0 1;
        border-left: thick $success;
        background: $success 8%;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $foreground 25%;
        .facts { height: auto; }
        .log { display: none; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; height: auto; }
        &.-with-log .log { display: block; }
        &.-shown { display: block; }
        &.-stopped { border-left: thick $warning; background: $warning 8%; }
        &.-bad { border-left: thick $error; background: $error 10%; }
        &:ansi { background: ansi_default; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="verdict")
        self._drawn: tuple[Verdict | None, Glyphs] | None = None

    def compose(self) -> ComposeResult:
        """Lay out the facts, and under them the log's last lines, each cut at the box's end."""
        yield Static(classes="facts")
        yield Static(classes="log")

    def allow_focus(self) -> bool:
        """Take part in the tab order only while there is something to scroll to."""
        return self.max_scroll_y > 0

    def show(self, verdict: Verdict | None, glyphs: Glyphs) -> None:
        """Show a verdict, or nothing."""
        if (verdict, glyphs) == self._drawn:
            return
        self._drawn = (verdict, glyphs)
        self.set_class(verdict is not None, "-shown")
        if verdict is None:
            return
        self.set_class(verdict.kind == "stopped", "-stopped")
        self.set_class(verdict.kind == "bad", "-bad")
        self.query_one(".facts", Static).update(_content(verdict, glyphs))
        self.set_class(bool(verdict.log), "-with-log")
        self.query_one(".log", Static).update(Content("\n".join(plain(line, glyphs) for line in verdict.log)))


def _content(verdict: Verdict, glyphs: Glyphs) -> Content:
    mark, color = {
        "good": (glyphs.done, "$text-success"),
        "stopped": (glyphs.stopped, "$text-warning"),
        "bad": (glyphs.failed, "$text-error"),
    }[verdict.kind]
    lines = [Content.assemble((f"{mark} {plain(verdict.headline, glyphs)}", f"bold {color}"))]
    for label, text in verdict.facts:
        lines.append(Content.assemble((f"{label}: ", "dim"), plain(text, glyphs)))
    return Content("\n").join(lines)
