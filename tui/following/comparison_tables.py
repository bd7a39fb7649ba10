"""Writes a comparison of runs as text, JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpu_console.engine.runs.state import lower_is_better

from ..text.numbers import NONE, count, duration, listed
from ..text.numbers import metric as number
from ..text.tables import Column, fields, paragraphs, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .comparison import ComparedRun, Comparison, Score

_BEST = "★"
_MOST_NAMES = 6
_FORMULA = re.compile(r"[=+\-@\t\r]")
_MARKDOWN = re.compile(r"([\\`*\[\]<>|~&#!])")


@dataclass(frozen=True, slots=True)
class Result(Column):
    """One column of the table of results."""

    key: str = field(kw_only=True)  # its name in JSON and CSV
    value: Callable[[ComparedRun], Any] = field(kw_only=True)  # the plain value of a run
    text: Callable[[Any], str] = field(kw_only=True, default=str)  # writes that value; None is written as a dash

    def written(self, run: ComparedRun) -> str:
        """Return the text of a run's cell."""
        value = self.value(run)
        return NONE if value is None or value == "" else self.text(value)


def columns_of(comparison: Comparison) -> list[Result]:
    """Return the columns of the table of results; a metric that all share is in the heading of its column."""
    return [column for column in results_of(comparison) if column.key != "metric" or not comparison.metric]


def results_of(comparison: Comparison) -> list[Result]:
    """Return all columns of results."""
    metric = comparison.metric

    def scored(pick: Callable[[Score], Any]) -> Callable[[ComparedRun], Any]:
        def value(run: ComparedRun) -> Any:
            score = comparison.score_of(run)
            return None if score is None else pick(score)

        return value

    return [
        Result("", 12, key="mark", value=lambda run: run.mark),
        Result("run", 11, key="run", value=lambda run: run.overview.run.run_id),
        Result("metric", 8, key="metric", value=comparison.metric_of),
        Result(f"best {metric}".strip(), 10, True, key="best", value=scored(lambda score: score.best), text=number),
        Result("epoch", 5, True, key="best_epoch", value=scored(lambda score: score.epoch)),
        Result("final", 6, True, key="final", value=scored(lambda score: score.final), text=number),
        Result("time", 9, True, key="seconds", value=lambda run: run.overview.seconds(), text=duration),
        Result("1st epoch", 3, True, key="first_epoch_s", value=lambda run: run.first_epoch_s, text=duration),
        Result("later", 2, True, key="later_epoch_s", value=lambda run: run.later_epoch_s, text=duration),
        Result("examples/s", 8, True, key="examples_per_s", value=lambda run: run.examples_per_s, text=count),
        Result("on", 7, key="accelerator", value=lambda run: run.accelerator),
        Result("replicas", 1, True, key="replicas", value=lambda run: run.replicas),
        Result("batch", 4, True, key="global_batch", value=lambda run: run.global_batch, text=count),
        Result("epochs", 4, True, key="epochs_done", value=lambda run: run.overview.epochs_done),
        Result("state", 5, key="state", value=lambda run: run.overview.status.value),
    ]


def notes_of(comparison: Comparison) -> list[str]:
    """Say what the tables leave out: metrics that only some runs have, runs that cannot be read."""
    notes = []
    if not comparison.metric and any(run.state.epochs for run in comparison.runs):
        notes.append("These runs share no metric; each shows its own.")
    for name, runs in comparison.partial_metrics.items():
        notes.append(f"Only {_marks(runs)} {'has' if len(runs) == 1 else 'have'} {name}.")
    if runs := comparison.without_settings:
        notes.append(f"{_marks(runs)} {'has' if len(runs) == 1 else 'have'} no configuration to compare.")
    return [*notes[:_MOST_NAMES], *(run.overview.problem for run in comparison.runs if run.overview.problem)]


def _marks(runs: Sequence[ComparedRun]) -> str:
    return listed([run.mark for run in runs], _MOST_NAMES)


def setting_text(value: Any) -> str:
    """Write a setting's value; a dash if the run does not have it."""
    return NONE if value is None else str(value)


def difference_lines(comparison: Comparison, width: int | None) -> list[str]:
    """Write the settings that differ: one column per run, or else each value with its runs, if that is too wide."""
    rows = [[key, *map(setting_text, values)] for key, values in comparison.differences.items()]
    if not rows:
        return ["The configurations are the same."] if any(run.settings for run in comparison.runs) else []
    lines = table([Column("setting", 1), *(Column(run.mark, 0) for run in comparison.runs)], rows, None)
    if width is None or all(len(line) <= width for line in lines):
        return lines
    return fields([(key, _by_value(comparison, values)) for key, *values in rows], indent="")


def _by_value(comparison: Comparison, values: Sequence[str]) -> str:
    """Write each value with the marks of the runs that have it, such as ``32: A C``, one on each line."""
    runs: dict[str, list[str]] = {}
    for run, value in zip(comparison.runs, values, strict=True):
        runs.setdefault(value, []).append(run.mark)
    return "\n".join(f"{value}: {' '.join(marks)}" for value, marks in runs.items())


def as_text(comparison: Comparison, width: int | None) -> list[str]:
    """Write both tables as lines of so many cells; None for no limit, as in a pipe."""
    columns = columns_of(comparison)
    rows = [[_named(column, run, width) for column in columns] + [_star(comparison, run)] for run in comparison.runs]
    results = table([*columns, Column("", 12)], rows, width)
    return paragraphs([results, difference_lines(comparison, width), notes_of(comparison)])


def _named(column: Result, run: ComparedRun, width: int | None) -> str:
    """Write a cell; a terminal has no room for the date in a name."""
    return run.name if column.key == "run" and width is not None else column.written(run)


def _star(comparison: Comparison, run: ComparedRun) -> str:
    return _BEST if run is comparison.best else ""


def as_json(comparison: Comparison) -> str:
    """Write a comparison as one JSON object."""
    columns, best = results_of(comparison), comparison.best
    names = [run.overview.run.run_id for run in comparison.runs]
    content = {
        "metric": comparison.metric or None,
        "lower_is_better": lower_is_better(comparison.metric) if comparison.metric else None,
        "best": best.overview.run.run_id if best is not None else None,
        "runs": [_run_dict(run, columns) for run in comparison.runs],
        "differences": {key: dict(zip(names, values, strict=True)) for key, values in comparison.differences.items()},
        "notes": notes_of(comparison),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _run_dict(run: ComparedRun, columns: Sequence[Result]) -> dict[str, Any]:
    scores = {name: score for name in run.metrics if (score := run.score(name)) is not None}
    return {
        "preset": run.overview.label,
        **{column.key: _plain(column.value(run)) for column in columns},
        "metrics": {
            name: {"best": score.best, "best_epoch": score.epoch, "final": _plain(score.final)}
            for name, score in scores.items()
        },
    }


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: a number that is not finite becomes text, as in the journal."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_csv(comparison: Comparison) -> str:
    """Write one row per run: the results, then the settings that differ."""
    columns, differences = results_of(comparison), comparison.differences
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([*(column.key for column in columns), *(f"config.{key}" for key in differences)])
    for place, run in enumerate(comparison.runs):
        settings = [values[place] for values in differences.values()]
        writer.writerow([csv_cell(value) for value in [*(column.value(run) for column in columns), *settings]])
    return output.getvalue().removesuffix("\n")


def csv_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    return f"'{text}" if _FORMULA.match(text) else text


def as_markdown(comparison: Comparison) -> list[str]:
    """Write both tables as Markdown."""
    columns = columns_of(comparison)
    rows = [[column.written(run) for column in columns] for run in comparison.runs]
    for row, run in zip(rows, comparison.runs, strict=True):
        row[0] += f" {_BEST}" if run is comparison.best else ""
    lines = markdown_table([column.title for column in columns], rows, [column.right for column in columns])
    if differences := comparison.differences:
        titles = ["setting", *(run.mark for run in comparison.runs)]
        rows = [[key, *map(setting_text, values)] for key, values in differences.items()]
        lines += ["", *markdown_table(titles, rows, [False] * len(titles))]
    return [*lines, *(line for note in notes_of(comparison) for line in ("", in_markdown(note)))]


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Write a table as Markdown; `right` says which columns are aligned to the right."""
    head = ["---:" if is_right else "---" for is_right in right]
    body = [[in_markdown(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [[in_markdown(title) for title in titles], head, *body]]


def in_markdown(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", text)
