"""Compares runs: their results, and what differs in their configurations; as text, JSON, CSV and Markdown."""

import json
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from pathlib import PurePath
from statistics import median
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.metrics import MetricKind, loss_beside
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.runs.state import RunState

from ..text import tables
from ..text.names import setting_text, to_text
from ..text.numbers import NONE, count, duration
from ..text.numbers import metric as number
from ..text.run_lines import change_text
from ..text.tables import BEST, Column, fields, in_markdown, paragraphs
from .overview import Overview, RunReader

MARKS = "ABCDEFGHIJKLMNOPQRST"
"""Each run of a comparison has a letter, by which its curve can be recognized without color, too."""

MOST_RUNS = len(MARKS)
_MOST_NOTES = 6
_MOST_NAMED = 2  # settings in the label of a run
_LIKELY = 0.05  # a difference that chance gives more often says nothing
_PLACES = ("data.options.path", "data.options.validation_path")  # a copy elsewhere has the same name
_DATA = ("dataset", "data.options.name", "data.options.config", "data.options.label", *_PLACES)

STEERED = "changed in training"  # stands among the settings that differ


class Score(Struct, frozen=True):
    """How good a run is by one metric."""

    best: float | None = None  # the best value; None if no value is finite
    epoch: int | None = None  # the epoch that has it
    final: float | None = None  # the value of the last epoch that measured it; None if no epoch did
    loss: float = math.inf  # the loss of the best epoch, which decides between equal values; infinite if unknown


class ComparedRun(Struct, frozen=True):
    """One run of a comparison."""

    mark: str  # its letter
    overview: Overview
    # The values of its configuration by dotted key, without secrets; empty if it has none.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its title, or else its name without the date."""
        return self.overview.name

    @property
    def state(self) -> RunState:
        """Its state, folded from its whole journal; empty if that cannot be read."""
        return self.overview.state

    @property
    def metrics(self) -> list[str]:
        """The metrics of its epochs, in the order in which they were first reported."""
        return list(dict.fromkeys(name for epoch in self.state.epochs for name in epoch.logs))

    def score(self, metric: str) -> Score:
        """Return its score by a metric."""
        values = [epoch.logs[metric] for epoch in self.state.epochs if metric in epoch.logs]
        if not values or (best := self.state.best_epoch(metric)) is None:
            return Score(final=values[-1] if values else None)
        loss = best.logs.get(loss_beside(metric), math.inf)
        return Score(best.logs[metric], best.epoch, values[-1], math.inf if math.isnan(loss) else loss)

    @property
    def changes(self) -> str:
        """What was changed while it trained, such as ``learning rate 0.01 → 0.001``; empty for nothing."""
        return ", ".join(change_text(event) for event in self.state.steered if event.after is not None)

    @property
    def first_epoch_s(self) -> float | None:
        """Seconds of the first epoch, compilation included."""
        first = self.state.epochs[0] if self.state.epochs else None
        return first.seconds if first is not None and first.epoch == 1 else None

    @property
    def later_epoch_s(self) -> float | None:
        """Median of the seconds of the other epochs."""
        later = [epoch.seconds for epoch in self.state.epochs if epoch.epoch > 1]
        return median(later) if later else None


class Comparison(Struct, frozen=True):
    """Runs side by side."""

    runs: tuple[ComparedRun, ...]
    metric: str = ""  # the metric that all are judged by; empty if they share none, then each is judged by its own

    def metric_of(self, run: ComparedRun) -> str:
        """Return the metric that a run is judged by."""
        return self.metric or run.state.monitor

    @property
    def lower_is_better(self) -> bool:
        """Whether smaller values of the metric are better, as the first run that has it says."""
        having = (run.state for run in self.runs if self.metric in run.metrics)
        return next(having, RunState()).metric(self.metric).lower_is_better

    @property
    def ranked(self) -> list[ComparedRun]:
        """The runs, the best first, as `best_of` decides; those that cannot be judged come last."""
        sign = 1.0 if self.lower_is_better else -1.0

        def place(run: ComparedRun) -> tuple[float, float]:
            score = run.score(self.metric)
            return math.inf if score.best is None else sign * score.best, score.loss

        return sorted(self.runs, key=place)

    @property
    def best(self) -> ComparedRun | None:
        """The best run; None if the runs cannot be judged by one metric."""
        first = next(iter(self.ranked), None)
        return None if first is None or first.score(self.metric).best is None else first

    @property
    def differences(self) -> dict[str, list[Any]]:
        """The settings in which runs differ, by key: a value or None per run; the last is what changed in training."""
        known = [run.settings for run in self.runs if run.settings]
        rows: dict[str, list[Any]] = {
            key: [run.settings.get(key) for run in self.runs]
            for key in dict.fromkeys(key for settings in known for key in settings)
            if any(settings.get(key) != known[0].get(key) for settings in known)
        }
        changes = [run.changes or None for run in self.runs]
        return rows | ({STEERED: changes} if any(changes) else {})

    def label_of(self, run: ComparedRun) -> str:
        """Return a run's title, or else what differs in it, such as `learning_rate 0.001`, or else its name."""
        values = {key: row[self.runs.index(run)] for key, row in self.differences.items() if key != "name"}
        last = {key: key.rpartition(".")[2].replace("learning_rate", "lr") for key in values}
        named = [f"{last[key]} {to_text(value)}" for key, value in values.items() if value is not None]
        is_titled = run.overview.annotations.title or not named
        return run.name if is_titled else ", ".join(named[:_MOST_NAMED])

    @property
    def verdict(self) -> str:
        """Which run is best, by how much, and whether chance would do; empty if there is nothing to compare."""
        ranked = [(run, value) for run in self.ranked if (value := run.score(self.metric).best) is not None]
        if len(ranked) < 2:
            return ""
        (best, value), (second, other) = ranked[:2]
        if value == other:
            return f"{best.mark} and {second.mark} have the same best {self.metric}, {value:.4g}."
        text = f"{best.mark} is better than {second.mark}: {self.metric} {value:.4g} against {other:.4g}."
        if best.settings and second.settings and _data_of(best) != _data_of(second):
            return f"{text} Their data differ, so this need not be due to the model or its training."
        counted, counted_too = self._counted(best), self._counted(second)
        if not counted or not counted_too:
            return text
        # How likely two shares of one true share differ at least so much: a two-sided test of two proportions.
        pooled = (round(value * counted) + round(other * counted_too)) / (counted + counted_too)
        deviation = math.sqrt(pooled * (1.0 - pooled) * (1.0 / counted + 1.0 / counted_too))
        p = math.erfc(abs(value - other) / deviation / math.sqrt(2.0)) if deviation else 1.0
        often = "often" if p >= _LIKELY else "rarely"
        return f"{text} Chance alone {often} gives such a difference (p {f'= {p:.3f}' if p >= 0.001 else '< 0.001'})."

    def _counted(self, run: ComparedRun) -> int:
        """Return the number of validation examples that the metric is a share of; 0 if it is not a share."""
        metric, data = run.state.metric(self.metric.removeprefix("val_")), run.state.data
        is_share = self.metric.startswith("val_") and metric.kind == MetricKind.SHARE and metric.is_mean
        return data.validation_examples or 0 if is_share and data is not None else 0


def comparison_of(runs: Sequence[ComparedRun], metric: str = "") -> Comparison:
    """Compare runs by a metric, by default one that most are judged by and that all with an epoch have."""
    trained = [run for run in runs if run.state.epochs]
    known = [{*run.metrics} for run in trained]
    shared = [name for name in _all_metrics(trained) if all(name in names for names in known)]
    monitors = [name for name, _ in Counter(run.state.monitor for run in trained).most_common()]
    validation = [name for name in shared if name.startswith("val_")]
    chosen = metric or next((name for name in [*monitors, *validation, *shared] if name in shared), "")
    return Comparison(tuple(runs), chosen)


def _data_of(run: ComparedRun) -> list[object]:
    """Return what names the data of a run, wherever it lies."""
    values = {key: run.settings.get(key) for key in _DATA}
    return [PurePath(str(value)).name if key in _PLACES and value else value for key, value in values.items()]


def _all_metrics(runs: Sequence[ComparedRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.metrics))


class ComparedReader:
    """Reads at most `MOST_RUNS` runs for a comparison, again and again while they grow."""

    def __init__(self, runs: Sequence[RunDirectory]) -> None:
        self._readers = [RunReader(run) for run in runs[:MOST_RUNS]]
        self._settings: dict[str, Mapping[str, Any]] = {}

    def read(self) -> list[ComparedRun]:
        """Read what is new of every run, and the settings that may be shown: a notebook's run has none."""
        from tpu_console.engine.config.reading import current_keys
        from tpu_console.engine.config.run_config import flat_values, without_secrets
        from tpu_console.engine.config.values import flattened

        runs = []
        for mark, reader in zip(MARKS, self._readers, strict=False):
            overview, run_id = reader.details(), reader.run.run_id
            if run_id not in self._settings or overview.status.is_live:  # `resume` may change them
                config, journal = overview.config(), overview.facts.config
                self._settings[run_id] = (
                    flattened(current_keys(journal)) if config is None else flat_values(without_secrets(config))
                )
            runs.append(ComparedRun(mark, overview, self._settings[run_id]))
        return runs


def read_comparison(runs: Sequence[RunDirectory], metric: str = "") -> Comparison:
    """Read at most `MOST_RUNS` runs and compare them by a metric, by default one that they share.

    Raise `ConsoleError` if no run has the metric.
    """
    compared = ComparedReader(runs).read()
    known = _all_metrics(compared)
    if metric and metric not in known:
        have = f"They have: {', '.join(known)}." if known else "No epoch has ended yet."
        raise ConsoleError(f"None of these runs has a metric '{metric}'.", remedy=have)
    return comparison_of(compared, metric)


def similar_runs(run: RunDirectory) -> list[RunDirectory]:
    """Return a run and the newest other runs of its preset, at most `MOST_RUNS`."""
    others = [other for other in list_runs(run.path.parent) if other.path != run.path]
    label = RunReader(run).overview().facts.label
    similar = (other for other in others if RunReader(other).overview().facts.label == label)
    return [run, *islice(similar, MOST_RUNS - 1)]


def columns_of(comparison: Comparison) -> list[Column]:
    """Return the columns of the table of results; a metric that all share is in the heading of its column."""
    return [column for column in results_of(comparison) if column.key != "metric" or not comparison.metric]


def starred_columns(comparison: Comparison) -> list[Column]:
    """Return the same with a star beside the letter of the best run."""
    mark, *others = columns_of(comparison)
    return [replace(mark, value=lambda run: run.mark + f" {BEST}" * (run is comparison.best)), *others]


def results_of(comparison: Comparison) -> list[Column]:
    """Return all columns of results."""

    def scored(figure: str) -> Callable[[ComparedRun], Any]:
        return lambda run: getattr(run.score(comparison.metric_of(run)), figure)

    def fact(title: str, importance: int, key: str, text: Callable[[Any], str] = str) -> Column:
        return Column(title, importance, True, key=key, value=attrgetter(f"overview.facts.{key}"), text=text)

    return [
        Column("", 12, key="mark", value=attrgetter("mark")),
        Column("run", 11, key="run", value=attrgetter("overview.run.run_id")),
        Column("metric", 8, key="metric", value=comparison.metric_of),
        Column(f"best {comparison.metric}".strip(), 10, True, key="best", value=scored("best"), text=number),
        Column("epoch", 5, True, key="best_epoch", value=scored("epoch")),
        Column("final", 6, True, key="final", value=scored("final"), text=number),
        Column("time", 9, True, key="seconds", value=lambda run: run.overview.seconds(), text=duration),
        Column("1st epoch", 3, True, key="first_epoch_s", value=attrgetter("first_epoch_s"), text=duration),
        Column("later", 2, True, key="later_epoch_s", value=attrgetter("later_epoch_s"), text=duration),
        fact("examples/s", 8, "examples_per_s", count),
        replace(fact("on", 7, "accelerator", lambda name: name or NONE), right=False),
        fact("replicas", 1, "replicas"),
        fact("batch", 4, "global_batch", count),
        fact("epochs", 4, "epochs_done"),
        Column("state", 5, key="state", value=attrgetter("overview.status.value")),
    ]


def notes_of(comparison: Comparison) -> list[str]:
    """Say which run is best, which metrics only some runs have, and which runs cannot be read."""
    notes = [comparison.verdict] if comparison.verdict else []
    trained = [run for run in comparison.runs if run.state.epochs]
    if trained and not comparison.metric:
        notes.append("These runs share no metric; each shows its own.")
    for name in _all_metrics(trained):
        having = [run.mark for run in trained if name in run.metrics]
        if len(having) < len(trained):
            notes.append(f"With {name}: only {' '.join(having)}.")
    if bare := [run.mark for run in comparison.runs if not run.settings]:
        notes.append(f"Without a configuration to compare: {' '.join(bare)}.")
    return [*notes[:_MOST_NOTES], *(run.overview.problem for run in comparison.runs if run.overview.problem)]


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
            runs.setdefault(setting_text(value, NONE), []).append(run.mark)
        pairs.append((key, "\n".join(f"{text}: {' '.join(marks)}" for text, marks in runs.items())))
    return fields(pairs, indent="")


def as_text(comparison: Comparison, width: int | None) -> list[str]:
    """Write both tables as lines of at most `width` cells, with short names; None for no limit, as in a pipe."""
    columns = columns_of(comparison)
    if width is not None:
        columns = [replace(one, value=lambda run: run.name) if one.key == "run" else one for one in columns]
    star = Column("", 12, value=lambda run: BEST * (run is comparison.best))
    results = tables.as_lines([*columns, star], comparison.runs, width)
    notes = [line for note in notes_of(comparison) for line in (textwrap.wrap(note, width) if width else [note])]
    return paragraphs([results, difference_lines(comparison, width), notes])


def as_json(comparison: Comparison) -> str:
    """Write a comparison as one JSON object."""
    columns, best = results_of(comparison), comparison.best
    names, runs = [run.overview.run.run_id for run in comparison.runs], []
    for run in comparison.runs:
        metrics = {
            name: {"best": score.best, "best_epoch": score.epoch, "final": tables.for_json(score.final)}
            for name, score in ((name, run.score(name)) for name in run.metrics)
        }
        results = {column.key: tables.for_json(column.of(run)) for column in columns}
        runs.append({"preset": run.overview.facts.label, **results, "metrics": metrics})
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

    def setting(key: str, values: Sequence[Any]) -> Column:
        return Column(key, 0, key=f"config.{key}", value=lambda run: values[comparison.runs.index(run)])

    settings = (setting(key, values) for key, values in comparison.differences.items())
    return tables.as_csv([*results_of(comparison), *settings], comparison.runs)


def as_markdown(comparison: Comparison) -> list[str]:
    """Write both tables as Markdown."""
    lines = tables.as_markdown(starred_columns(comparison), comparison.runs)
    if differences := comparison.differences:
        lines += ["", *tables.as_markdown(settings_of(comparison), differences.items())]
    return [*lines, *(line for note in notes_of(comparison) for line in ("", in_markdown(note)))]
