"""What a user's dataset function returned when it was last called on this machine.

A plan and a preflight do not call it, because a call may load or download data. Every run and `tpu-console inspect`
record what it returned in ``examples.json``, beside the runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..config.user_code import source_mark
from ..storage.keyed_store import KeyedStore, key_of
from .examples import Input  # noqa: TC001  pydantic needs it when records are checked

if TYPE_CHECKING:
    from ..config.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """What a dataset function returned."""

    example: Input  # shape and number format of an example, without a batch
    label: Input  # likewise of a label
    classes: int  # number of classes; 0 if its labels are not classes
    train_count: int | None  # training examples; None if unknown
    validation_count: int | None  # validation examples; None if unknown, 0 without validation
    day: str  # the date of the call, such as ``2026-03-01``
    weight: tuple[int | None, ...] | None = None  # shape of an example's weight in training; None without weights
    validation_weight: tuple[int | None, ...] | None = None  # likewise in validation
    structure: str = ""  # what an example holds, in words
    is_nested: bool = False  # whether it has several inputs, several labels or none
    whole_labels: bool | None = None  # whether labels are whole numbers; None if unknown or not numbers


_OUTPUTS = KeyedStore[str]("outputs.json", str)  # what a model function's model gave: probabilities or logits
_RECORDS = KeyedStore[FunctionRecord]("examples.json", FunctionRecord)


def save_function_record(config: RunConfig, record: FunctionRecord) -> None:
    """Record what a configuration's dataset function returned."""
    _RECORDS.put(_key(config), record)


def function_record_of(config: RunConfig) -> FunctionRecord | None:
    """Return what a configuration's dataset function returned; None if the function's code has changed since."""
    return _RECORDS.get(_key(config))


def note_outputs(config: RunConfig, what: str) -> None:
    """Record what the model of a configuration's function gives: ``probabilities`` or ``logits``."""
    if noted_outputs(config) != what:
        _OUTPUTS.put(_model_key(config), what)


def noted_outputs(config: RunConfig) -> str | None:
    """Return what the model gave when it was last built here; None if the function's code has changed since."""
    return _OUTPUTS.get(_model_key(config))


def _model_key(config: RunConfig) -> str:
    return key_of([source_mark(config.model), config.model_options])


def _key(config: RunConfig) -> str:
    """Return a key of the function, its code and its options."""
    return key_of([source_mark(config.dataset), config.data.options])
