"""The trials of a search, which Optuna chooses and keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..config.reading import with_changes
from ..errors import ConfigError, ConsoleError
from ..machine.install import install_line
from ..runs.events import EpochEnded, RunFinished, RunOutcome
from ..runs.metrics import metric_called
from .axes import Cell, SweptKey, check_values
from .folder import PRUNED, Definition, Sweep

if TYPE_CHECKING:
    from ..runs.state import RunState

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
