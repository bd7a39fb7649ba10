"""The words around a run's picture in a notebook's cell, as HTML and as plain text for viewers without HTML.

Everything in them is escaped: a run's folder may come from anybody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tpu_console.engine.monitoring.alerts import overfitting
from tpu_console.engine.runs.events import RunSource

from ..text.epochs import metrics_in_order
from ..text.marks import BEST
from ..text.numbers import clock, count, milliseconds
from ..text.outcome import best_text, outcome_of
from ..text.tables import Column, table
from ..widgets.epoch_table import columns_for
from ..widgets.replica_table import table_of
from ..widgets.run_header import facts_row, status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

    from ..widgets.run_header import HeaderView

_NEWEST = 10
_ALL = 1000  # cells: no column is dropped
_PLAIN = 120
_STYLE = "border-collapse:collapse;margin:.5em 0;font-variant-numeric:tabular-nums;text-align:right"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table, and the row of it that is set in bold."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]  # one text per column
    best: int | None = None  # the number of that row


def head(run: RunDirectory, view: HeaderView, note: str) -> dict[str, str]:
    """Return what is above the picture: the run, its status, its workload and replicas, how far it is, and its end.

    Args:
        run: The run.
        view: What the console's header shows of it.
        note: What else there is to say; may be empty.
    """
    state, doing = view.state, status(view).plain
    is_ours = state.started is not None and state.started.source != RunSource.NOTEBOOK
    facts = [re.sub("  +", " · ", facts_row(view, _ALL).plain.strip())] if is_ours else []
    outcome = outcome_of(run, view.snapshot)
    if outcome is not None:
        facts.append(outcome.headline)
        facts += [f"{label}: {text}" for label, text in outcome.facts if label != "best"]
    elif state.progress is not None:
        facts.append(_progress(view))
    best = f"{BEST} best {best_text(state)}" if best_text(state) else ""
    overfits = " ".join((overfitting(state) or ("",))[: 1 if outcome is not None else 2])
    warnings = [text for text in (overfits, *state.notices[-1:], note) if text]
    lines = [*facts, *([best] if best else []), *warnings]
    html = f"<b>{escape(view.run_id)}</b> &nbsp; {escape(doing)}{_bar(view)}"
    html += "".join(f"<br>{escape(fact)}" for fact in facts)
    html += f"<br><b>{escape(best)}</b>" if best else ""
    html += "".join(f"<br>⚠ {escape(text)}" for text in warnings)
    return {
        "text/html": f'<div style="line-height:1.5">{html}</div>',
        "text/plain": "\n".join([f"{view.run_id}  {doing}", *(f"  {line}" for line in lines)]),
    }


def tables(state: RunState) -> dict[str, str]:
    """Return what is below the picture: the newest epochs with the best one, and the replicas."""
    found = [part for part in (_epochs(state), _replicas(state)) if part is not None]
    return {
        "text/html": "".join(_html(part) for part in found),
        "text/plain": "\n\n".join("\n".join(table(part.columns, part.rows, _PLAIN)) for part in found),
    }


def _progress(view: HeaderView) -> str:
    """Say how far training is, how fast, and how long it will take."""
    state, pace = view.state, view.pace
    progress, fit = state.progress, state.fit
    if progress is None:
        return ""
    steps = fit.steps_per_epoch if fit is not None else None
    parts = [f"epoch {progress.epoch}" + (f"/{fit.epochs}" if fit is not None else "")]
    parts.append(f"step {progress.epoch_step:,}" + (f"/{steps:,}" if steps else ""))
    parts += [f"{milliseconds(pace.step_ms)} ms/step"] if pace.step_ms is not None else []
    parts += [f"{count(pace.examples_per_s)} examples/s"] if pace.examples_per_s is not None else []
    parts += [f"{clock(pace.run_left_s)} left"] if pace.run_left_s is not None and not view.is_stuck else []
    return " · ".join(parts)


def _bar(view: HeaderView) -> str:
    """Return a bar of the whole run while it trains."""
    total, progress = view.state.steps_total, view.state.progress
    if not total or progress is None or view.snapshot.is_over:
        return ""
    return f' &nbsp; <progress value="{min(progress.step, total)}" max="{total}"></progress>'


def _epochs(state: RunState) -> _Table | None:
    """Return the newest epochs, below the best one if it is older."""
    if not state.epochs:
        return None
    best = state.best_epoch()
    newest = list(state.epochs[-_NEWEST:])
    shown = newest if best is None or best in newest else [best, *newest]
    names = metrics_in_order(state, dict.fromkeys(name for epoch in shown for name in epoch.logs))
    columns = [column for column in columns_for(names, _ALL) if any(column.value(epoch) is not None for epoch in shown)]
    rows = [
        [f"{BEST if epoch is best else ' '} {epoch.epoch}", *(column.written(epoch, none="") for column in columns)]
        for epoch in shown
    ]
    at = next((number for number, epoch in enumerate(shown) if epoch is best), None)
    return _Table([Column("epoch", 100, right=True), *columns], rows, at)


def _replicas(state: RunState) -> _Table | None:
    found = table_of(state, _ALL, 0)
    if not found.items:
        return None
    rows = [[found.cell(column, number) for column in found.columns] for number in range(len(found.items))]
    return _Table(found.columns, rows)


def _html(part: _Table) -> str:
    def row(cells: Sequence[str], kind: str, *, is_best: bool = False) -> str:
        looks = [("" if column.right else "text-align:left;") + "font-weight:bold" * is_best for column in part.columns]
        marked = (f'<{kind} style="{look}">' if look else f"<{kind}>" for look in looks)
        return "<tr>" + "".join(f"{begin}{escape(cell)}" for begin, cell in zip(marked, cells, strict=True))

    body = "".join(row(cells, "td", is_best=number == part.best) for number, cells in enumerate(part.rows))
    return f'<table style="{_STYLE}">{row([column.title for column in part.columns], "th")}{body}</table>'
