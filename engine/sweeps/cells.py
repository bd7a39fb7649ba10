"""The runs of a sweep: the keys that it changes, and the combinations of their values or the trials of a search."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..config.reading import ALL_KEYS, EARLIER_KEYS, parse_assignment, valid_keys, with_changes
from ..config.values import split_pieces
from ..errors import ConfigError, ConsoleError, Problem, did_you_mean
from ..machine.install import install_line
from ..runs.events import EpochEnded, RunFinished, RunOutcome
from ..runs.metrics import metric_called
from .folder import PRUNED, Definition, Sweep

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.state import RunState

MOST_RUNS = 200
OPTION = "--over"
LR_FIND = "optimizer.learning_rate=1e-5..1:log:11"  # what finds a learning rate: one short run for each
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_NUMBER = rf"[-+]?{_DIGITS}(?:\.(?:{_DIGITS})?)?(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(:log)?(?::([1-9][0-9]*))?")
_OPEN = ("model_options.", "data.options.")  # also keyword arguments of the user's functions


class SweptKey(Struct, frozen=True):
    """A key and its values."""

    key: str  # the dotted key
    values: tuple[Any, ...]  # its values; empty for a range from which a search takes any
    low: float = 0.0  # the lowest value of a range
    high: float = 0.0  # its highest value
    is_log: bool = False  # whether the range is logarithmic

    @property
    def name(self) -> str:
        """The last part of the key, as in the heading of a column."""
        return self.key.rpartition(".")[2]

    @property
    def is_whole(self) -> bool:
        """Whether a range has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Cell(Struct, frozen=True):
    """One run of a sweep."""

    number: int  # its number in the sweep, from 1
    values: tuple[Any, ...]  # a value for each axis, in the order of the axes
    config: RunConfig | None  # what to train; None if the values do not fit together
    repeat: int = 1  # which of several equal runs it is, from 1
    refused: str = ""  # why it cannot be trained; empty if nothing is known against it


def parse_axes(texts: Sequence[str]) -> list[SweptKey]:
    """Parse ``--over`` options; raise `ConfigError` with every problem found."""
    axes: list[SweptKey] = []
    problems: list[Problem] = []
    for text in texts:
        name, _, rest = (part.strip() for part in text.partition("="))
        if not name or not rest:
            problems.append(Problem(text, f"is not KEY=VALUE,VALUE; for example {OPTION} batch_size=32,128"))
            continue
        try:
            key = full_key(name)
            if match := _RANGE.fullmatch(rest):
                axes.append(_range(key, rest, match))
            else:
                values = [parse_assignment(f"{key}={part}")[1] for part in split_pieces(rest)]
                different = [value for place, value in enumerate(values) if value not in values[:place]]
                axes.append(SweptKey(key, tuple(different)))
        except ConfigError as error:
            problems += error.problems
    for key, count in Counter(axis.key for axis in axes).items():
        if count > 1:
            problems.append(Problem(OPTION, f"{key} is given twice; write all of its values after one {OPTION}"))
    if problems or not axes:
        raise ConfigError(problems or [Problem(OPTION, "is missing; for example --over batch_size=32,128")])
    return axes


def full_key(name: str) -> str:
    """Return the dotted key that is or ends with a name, of several the optimizer's; raise `ConfigError` for none."""
    keys = [key for key in (*valid_keys(), *EARLIER_KEYS) if key != "name"]
    longer = [key for key in keys if key.endswith(f".{name}")]
    if name in keys or name.startswith(_OPEN):
        return name
    meant = longer if len(longer) == 1 else [key for key in longer if key.startswith("optimizer.")]
    if meant and name != "name":  # the name of the preset
        return meant[0]
    raise ConfigError([Problem(name, f"unknown key; {did_you_mean(name, longer or keys, ALL_KEYS)}")])


def _range(key: str, text: str, match: re.Match[str]) -> SweptKey:
    low, high = (float(side) if set(side) & set(".eE") else int(side) for side in match.group(1, 2))
    is_log, count = bool(match[3]), int(match[4] or 0)
    if not low < high or (is_log and low <= 0) or count == 1 or count > MOST_RUNS:
        rule = f"LOW..HIGH[:log][:N] with LOW < HIGH, above 0 for log, and N from 2 to {MOST_RUNS}"
        raise ConfigError([Problem(key, f"{text} is not a range; write {rule}, as in 1e-4..1e-1:log:4")])
    axis = SweptKey(key, (), low, high, is_log)
    if not count:
        return axis
    steps = [place / (count - 1) for place in range(count)]
    values = [low * (high / low) ** step if is_log else low + (high - low) * step for step in steps]
    exact = [round(value) if axis.is_whole else float(f"{value:.4g}") for value in values]
    return SweptKey(key, tuple(dict.fromkeys(exact)))


def cells_of(config: RunConfig, axes: Sequence[SweptKey], repeat: int = 1) -> list[Cell]:
    """Return every combination, then its repetitions with other seeds; raise `ConfigError` if none is possible."""
    check_values(axes, "a range needs --search, or a number of values")
    count = math.prod(len(axis.values) for axis in axes) * repeat
    if count > MOST_RUNS:
        raise ConfigError([Problem(OPTION, f"{count:,} runs are too many for a sweep; {MOST_RUNS} are the most")])
    cells: list[Cell] = []
    wrong: dict[tuple[str, str], list[Problem | None]] = {}
    for turn, values in product(range(1, repeat + 1), product(*(axis.values for axis in axes))):
        pairs = [(axis.key, value) for axis, value in zip(axes, values, strict=True)]
        seed = [("seed", config.seed + turn - 1)] if turn > 1 and all(axis.key != "seed" for axis in axes) else []
        problems: Sequence[Problem] = ()
        try:
            cells.append(Cell(len(cells) + 1, values, with_changes(config, pairs + seed), turn))
        except ConfigError as error:
            problems = error.problems
            cells.append(Cell(len(cells) + 1, values, None, turn, str(error).replace("\n", "; ")))
        for key, value in pairs:
            own = next((problem for problem in problems if problem.key.startswith(key)), None)
            wrong.setdefault((key, repr(value)), []).append(own)
    if never := [found[0] for found in wrong.values() if found[0] is not None and None not in found]:
        raise ConfigError(never)
    return cells


def check_values(axes: Sequence[SweptKey], needed: str) -> None:
    """Raise `ConfigError` that says what is needed, for each range without a number of values."""
    ranges = [axis for axis in axes if not axis.values]
    if ranges:
        raise ConfigError([Problem(axis.key, f"{needed}, as in {axis.low}..{axis.high}:5") for axis in ranges])


def combination(axes: Sequence[SweptKey], values: Sequence[Any]) -> str:
    """Write a combination, such as ``accelerator=cpu batch_size=32``."""
    return " ".join(f"{axis.name}={shown(value)}" for axis, value in zip(axes, values, strict=True))


def shown(value: Any) -> str:
    """Write a value as in a configuration; numbers without more digits than they need."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def parse_baseline(text: str, axes: Sequence[SweptKey]) -> dict[str, Any]:
    """Parse ``KEY=VALUE,KEY=VALUE``; by default, the first value of the first axis.

    Each row of the table is compared with the one that has these values, and its own for the other keys. Raises
    `ConfigError` if a key or a value is not part of the sweep.
    """
    if not text:
        return {axes[0].key: axes[0].values[0]} if axes[0].values else {}
    found: dict[str, Any] = {}
    for part in split_pieces(text):
        name, _, raw = (side.strip() for side in part.partition("="))
        axis = next((axis for axis in axes if name in {axis.key, axis.name}), axes[0])
        values = {text: value for value in axis.values for text in (str(value), shown(value))}
        if name not in {axis.key, axis.name} or raw not in values:
            choices = "; ".join(f"{axis.name}={','.join(map(shown, axis.values))}" for axis in axes)
            raise ConfigError([Problem("--baseline", f"{part} is not in the table; it has: {choices}")])
        found[axis.key] = values[raw]
    return found


_OURS = "tpu-console sweep"
_USUAL_FIRST = 5  # trials that are not pruned, as Optuna has it


def check_search(axes: Sequence[SweptKey], *, search: str) -> None:
    """Check that a search can use the axes; raise `ConfigError`, or `ConsoleError` if Optuna is not installed."""
    if search == "grid":
        check_values(axes, "a grid needs a number of values")
    _optuna()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        remedy = f"To install it: {install_line('optuna')}"
        raise ConsoleError("A search needs Optuna, which is not installed.", remedy=remedy) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Trials:
    """Gives the runs of a search, one after another, and reports to Optuna how they end."""

    def __init__(self, sweep: Sweep, definition: Definition, axes: Sequence[SweptKey]) -> None:
        self._optuna = _optuna()
        self._sweep, self._definition, self._axes = sweep, definition, axes
        self._attempted: set[int] = set()
        self._trial: Any = None
        place, storages = definition.storage or f"sqlite:///{sweep.path / 'study.db'}", self._optuna.storages
        if "://" in place:
            self._storage: Any = storages.RDBStorage(place)
        else:
            self._storage = storages.JournalStorage(storages.journal.JournalFileBackend(place))
        samplers, pruners, seed = self._optuna.samplers, self._optuna.pruners, definition.config.seed
        if definition.search == "grid":
            sampler = samplers.GridSampler({axis.key: [*_choices(axis)] for axis in axes}, seed=seed)
        else:
            kind = samplers.RandomSampler if definition.search == "random" else samplers.TPESampler
            sampler = kind(seed=None if definition.storage else seed)  # several machines would repeat each other
        first = max(1, min(_USUAL_FIRST, definition.trials // 4))
        self._study = self._optuna.create_study(
            storage=self._storage,
            study_name=definition.study or sweep.name,
            load_if_exists=True,
            direction="minimize" if metric_called(definition.metric).lower_is_better else "maximize",
            sampler=sampler,
            pruner=pruners.MedianPruner(first) if definition.prune else pruners.NopPruner(),
        )

    def next(self) -> Cell | None:
        """Return the next run: one that was interrupted, or a new one; None if there are enough."""
        for trial in self._study.get_trials(deepcopy=False, states=[self._optuna.trial.TrialState.RUNNING]):
            if trial.user_attrs.get(_OURS) == self._sweep.name and trial.number not in self._attempted:
                study = self._storage.get_study_id_from_name(self._study.study_name)
                number = self._storage.get_trial_id_from_study_id_trial_number(study, trial.number)
                return self._cell(self._optuna.trial.Trial(self._study, number))
        most = self._definition.trials
        if self._definition.search == "grid":
            most = min(most, math.prod(len(axis.values) for axis in self._axes))
        if len(self._study.get_trials(deepcopy=False)) >= most:
            return None
        asked = self._study.ask()
        asked.set_user_attr(_OURS, self._sweep.name)
        return self._cell(asked)

    def _cell(self, trial: Any) -> Cell:
        self._trial = trial
        self._attempted.add(trial.number)
        values: tuple[Any, ...] = ()
        for axis in self._axes:
            if axis.values:
                choices = _choices(axis)
                values += (choices[trial.suggest_categorical(axis.key, [*choices])],)
            else:
                suggest = trial.suggest_int if axis.is_whole else trial.suggest_float
                values += (suggest(axis.key, axis.low, axis.high, log=axis.is_log),)
        pairs = [(axis.key, value) for axis, value in zip(self._axes, values, strict=True)]
        try:
            return Cell(trial.number, values, with_changes(self._definition.config, pairs))
        except ConfigError as error:
            return Cell(trial.number, values, None, refused=str(error))

    def judge(self, epoch: EpochEnded) -> bool:
        """Report an epoch of the current run; return whether the run should be pruned."""
        value = epoch.logs.get(self._definition.metric, math.nan)
        self._trial.report(value, epoch.epoch)
        return bool(self._definition.prune and self._trial.should_prune())

    def ended(self, cell: Cell, state: RunState | None) -> None:
        """Report to Optuna how a run ended, or that it was refused; a run that was stopped has not ended."""
        states, value = self._optuna.trial.TrialState, None
        result = states.FAIL
        if state is not None and is_pruned(state):
            result = states.PRUNED
        elif state is not None and isinstance(state.end, RunFinished):
            if state.end.outcome == RunOutcome.STOPPED:
                return
            if (best := state.best_epoch(self._definition.metric)) is not None:
                value, result = best.logs[self._definition.metric], states.COMPLETE
        with suppress(RuntimeError):  # how the sampler of a grid says that this was the last one
            self._study.tell(cell.number, value, state=result, skip_if_finished=True)


def is_pruned(state: RunState) -> bool:
    """Return whether a run ended because the search pruned it."""
    is_stopped = isinstance(state.end, RunFinished) and state.end.outcome == RunOutcome.STOPPED
    return is_stopped and state.stop is not None and state.stop.reason == PRUNED


def _choices(axis: SweptKey) -> dict[Any, Any]:
    """Return the values of an axis by what Optuna stores for them: lists as JSON, which it does not support."""
    return {json.dumps(value) if isinstance(value, list | dict) else value: value for value in axis.values}
