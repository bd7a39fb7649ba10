"""Writes a comparison of runs as text, JSON, CSV and Markdown."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..text import tables
from ..text.names import to_text
from ..text.numbers import NONE, count, duration
from ..text.numbers import metric as number
from ..text.tables import Column, fields, in_markdown, paragraphs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .comparison import ComparedRun, Comparison, Score

_BEST = "★"
_MOST_NOTES = 6


def columns_of(comparison: Comparison) -> list[Column]:
    """Return the columns of the table of results; a metric that all share is in the heading of its column."""
    return [column for column in results_of(comparison) if column.key != "metric" or not comparison.metric]


def results_of(comparison: Comparison) -> list[Column]:
    """Return all columns of results."""
    metric = comparison.metric

    def scored(pick: Callable[[Score], Any]) -> Callable[[ComparedRun], Any]:
        def value(run: ComparedRun) -> Any:
            score = run.score(comparison.metric_of(run))
            return None if score is None else pick(score)

        return value

    return [
        Column("", 12, key="mark", value=lambda run: run.mark),
        Column("run", 11, key="run", value=lambda run: run.overview.run.run_id),
        Column("metric", 8, key="metric", value=comparison.metric_of),
        Column(f"best {metric}".strip(), 10, True, key="best", value=scored(lambda score: score.best), text=number),
        Column("epoch", 5, True, key="best_epoch", value=scored(lambda score: score.epoch)),
        Column("final", 6, True, key="final", value=scored(lambda score: score.final), text=number),
        Column("time", 9, True, key="seconds", value=lambda run: run.overview.seconds(), text=duration),
        Column("1st epoch", 3, True, key="first_epoch_s", value=lambda run: run.first_epoch_s, text=duration),
        Column("later", 2, True, key="later_epoch_s", value=lambda run: run.later_epoch_s, text=duration),
        Column(
            "examples/s", 8, True, key="examples_per_s", value=lambda run: run.overview.facts.examples_per_s, text=count
        ),
        Column(
            "on", 7, key="accelerator", value=lambda run: run.overview.facts.accelerator, text=lambda name: name or NONE
        ),
        Column("replicas", 1, True, key="replicas", value=lambda run: run.overview.facts.replicas),
        Column("batch", 4, True, key="global_batch", value=lambda run: run.overview.facts.global_batch, text=count),
        Column("epochs", 4, True, key="epochs_done", value=lambda run: run.overview.facts.epochs_done),
        Column("state", 5, key="state", value=lambda run: run.overview.status.value),
    ]


def notes_of(comparison: Comparison) -> list[str]:
    """Say which run is best, which metrics only some runs have, and which runs cannot be read."""
    notes = [comparison.verdict] if comparison.verdict else []
    if not comparison.metric and any(run.state.epochs for run in comparison.runs):
        notes.append("These runs share no metric; each shows its own.")
    trained = [run for run in comparison.runs if run.state.epochs]
    for name in dict.fromkeys(name for run in trained for name in run.metrics):
        having = [run.mark for run in trained if name in run.metrics]
        if len(having) < len(trained):
            notes.append(f"With {name}: only {' '.join(having)}.")
    if bare := [run.mark for run in comparison.runs if not run.settings]:
        notes.append(f"Without a configuration to compare: {' '.join(bare)}.")
    return [*notes[:_MOST_NOTES], *(run.overview.problem for run in comparison.runs if run.overview.problem)]


def setting_text(value: Any) -> str:
    """Write a setting's value; a dash if the run does not have it."""
    return NONE if value is None else to_text(value) or "none"


def settings_of(comparison: Comparison) -> list[Column]:
    """Return the columns of the settings that differ; a record is an item of `Comparison.differences`."""

    def of_run(place: int) -> Callable[[tuple[str, Sequence[Any]]], Any]:
        return lambda setting: setting[1][place]

    of_runs = (Column(run.mark, 0, value=of_run(place), text=setting_text) for place, run in enumerate(comparison.runs))
    return [Column("setting", 1, value=itemgetter(0)), *of_runs]


def difference_lines(comparison: Comparison, width: int | None) -> list[str]:
    """Write the settings that differ: one column per run, or else each value with its runs, if that is too wide."""
    if not (differences := comparison.differences):
        return ["The configurations are the same."] if any(run.settings for run in comparison.runs) else []
    lines = tables.as_lines(settings_of(comparison), differences.items(), None)
    if width is None or all(len(line) <= width for line in lines):
        return lines
    pairs = []
    for key, values in differences.items():
        runs: dict[str, list[str]] = {}
        for run, value in zip(comparison.runs, values, strict=True):
            runs.setdefault(setting_text(value), []).append(run.mark)
        pairs.append((key, "\n".join(f"{text}: {' '.join(marks)}" for text, marks in runs.items())))
    return fields(pairs, indent="")


def as_text(comparison: Comparison, width: int | None) -> list[str]:
    """Write both tables as lines of so many cells; None for no limit, as in a pipe.

    A terminal has no room for the date in a name.
    """
    columns = columns_of(comparison)
    if width is not None:
        columns = [replace(one, value=lambda run: run.name) if one.key == "run" else one for one in columns]
    star = Column("", 12, value=lambda run: _BEST if run is comparison.best else "")
    results = tables.as_lines([*columns, star], comparison.runs, width)
    notes = [line for note in notes_of(comparison) for line in (textwrap.wrap(note, width) if width else [note])]
    return paragraphs([results, difference_lines(comparison, width), notes])


def as_json(comparison: Comparison) -> str:
    """Write a comparison as one JSON object."""
    columns, best = results_of(comparison), comparison.best
    names = [run.overview.run.run_id for run in comparison.runs]
    runs = []
    for run in comparison.runs:
        scores = {name: score for name in run.metrics if (score := run.score(name)) is not None}
        metrics = {
            name: {"best": one.best, "best_epoch": one.epoch, "final": tables.for_json(one.final)}
            for name, one in scores.items()
        }
        runs.append({"preset": run.overview.facts.label, **tables.as_plain(columns, run), "metrics": metrics})
    content = {
        "metric": comparison.metric or None,
        "lower_is_better": comparison.lower_is_better if comparison.metric else None,
        "best": best.overview.run.run_id if best is not None else None,
        "runs": runs,
        "differences": {key: dict(zip(names, values, strict=True)) for key, values in comparison.differences.items()},
        "notes": notes_of(comparison),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def as_csv(comparison: Comparison) -> str:
    """Write one row per run: the results, then the settings that differ."""

    def setting(values: Sequence[Any]) -> Callable[[ComparedRun], Any]:
        return lambda run: values[comparison.runs.index(run)]

    settings = [
        Column(key, 0, key=f"config.{key}", value=setting(values)) for key, values in comparison.differences.items()
    ]
    return tables.as_csv([*results_of(comparison), *settings], comparison.runs)


def as_markdown(comparison: Comparison) -> list[str]:
    """Write both tables as Markdown."""
    columns = columns_of(comparison)
    stars = replace(columns[0], value=lambda run: run.mark + f" {_BEST}" * (run is comparison.best))
    lines = tables.as_markdown([stars, *columns[1:]], comparison.runs)
    if differences := comparison.differences:
        lines += ["", *tables.as_markdown(settings_of(comparison), differences.items())]
    return [*lines, *(line for note in notes_of(comparison) for line in ("", in_markdown(note)))]
