"""What is cached beside the runs, for the plan to show: what the user's functions gave, and measured input speeds.

A plan does not call a dataset function, because a call may load or download data. Every run, `tpu-console inspect` and
a preflight that has to call it record what it returned in ``examples.json``. `tpu-console inspect --speed` measures the
speeds of input pipelines, in ``speeds.json``. Building a model records what it gives, in ``outputs.json``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..config.catalog import is_user_reference
from ..config.user_code import source_mark
from ..config.values import USUAL_BATCH
from ..storage.keyed_store import KeyedStore, key_of
from .examples import in_words, nested_from

if TYPE_CHECKING:
    from ..config.run_config import RunConfig


class FunctionRecord(Struct, frozen=True):
    """What a dataset function returned."""

    train: tuple[Any, ...]  # of a training example: nested inputs, then labels and sample weights if there are any
    validation: tuple[Any, ...]  # likewise of a validation example; empty without validation
    classes: int  # number of classes; 0 if its labels are not classes
    train_count: int | None  # training examples; None if unknown
    validation_count: int | None  # validation examples; None if unknown, 0 without validation
    day: str  # the date of the call, such as ``2026-03-01``
    whole_labels: bool | None = None  # whether labels are whole numbers; None if unknown or not numbers
    batch: int = 0  # examples in its first training batch; 0 if it returned single examples
    batches: int | None = None  # number of its training batches; None if unknown
    has_one_size: bool = True  # whether other batches can be made of its examples

    @property
    def structure(self) -> str:
        """What an example holds, such as ``inputs age (float32), city (string); label 3 (float32)``."""
        return in_words(self.train) + (f"; in batches of {self.batch:,}" if self.batch else "")

    def keeps_batches(self, batch_size: int) -> bool:
        """Return whether its batches stay as they are, with a batch size that is asked for, or 0."""
        return bool(self.batch) and not (batch_size and self.has_one_size)


_OUTPUTS = KeyedStore[str]("outputs.json", str)  # what a model function's model gave: probabilities or logits
_RECORDS = KeyedStore[FunctionRecord]("examples.json", FunctionRecord)


def save_function_record(config: RunConfig, record: FunctionRecord) -> None:
    """Record what a configuration's dataset function returned."""
    if function_record_of(config) != record:  # `put` compares plain values, which differ from structs
        _RECORDS.put(_key(config), record)


def function_record_of(config: RunConfig) -> FunctionRecord | None:
    """Return what a configuration's dataset function returned; None if there is none, or its code has changed since."""
    if not is_user_reference(config.dataset) or (record := _RECORDS.get(_key(config))) is None:
        return None
    try:
        train, validation = (tuple(map(nested_from, element)) for element in (record.train, record.validation))
    except ValueError:
        return None
    return replace(record, train=train, validation=validation)


def known_batch(config: RunConfig) -> int:
    """Return the examples of a batch: those asked for, those that a dataset function last batched, or Keras's 32."""
    if config.batch_size:
        return config.batch_size
    seen = function_record_of(config)
    return (seen.batch if seen is not None else 0) or USUAL_BATCH


def note_outputs(config: RunConfig, what: str) -> None:
    """Record what the model of a configuration's function gives: ``probabilities`` or ``logits``."""
    _OUTPUTS.put(_model_key(config), what)


def noted_outputs(config: RunConfig) -> str | None:
    """Return what the model gave when it was last built here; None if the function's code has changed since."""
    return _OUTPUTS.get(_model_key(config))


def _model_key(config: RunConfig) -> str:
    return key_of([source_mark(config.model), config.model_options])


def _key(config: RunConfig) -> str:
    """Return a key of the function, its code and its options."""
    return key_of([source_mark(config.dataset), config.data.options])


class Speed(Struct, frozen=True):
    """How fast a pipeline was."""

    first: float  # examples a second in the first epoch, which reads and decodes
    later: float | None  # examples a second in later epochs; None if not measured


_SPEEDS = KeyedStore[Speed]("speeds.json", Speed)


def save_input_speed(config: RunConfig, parts: list[dict[str, Any]]) -> None:
    """Record measured speeds, the ``parts`` of `engine.jobs.inspect.measure`."""
    rates = {part["name"]: part["per_s"] for part in parts}
    _SPEEDS.put(_speed_key(config), Speed(rates["first"], rates.get("later")))


def input_speed_of(config: RunConfig) -> Speed | None:
    """Return the measured speed of a configuration's pipeline on this machine; None if there is none."""
    speed = _SPEEDS.get(_speed_key(config))
    if speed is None or not all(0 < rate < math.inf for rate in (speed.first, speed.later) if rate is not None):
        return None
    return speed


def _speed_key(config: RunConfig) -> str:
    """Return a key of everything that the speed depends on; the batch matters little and is left out."""
    data = config.data.model_dump(mode="json", exclude={"train_limit", "validation_fraction"})
    return key_of([config.dataset, data, config.augmentation.model_dump(mode="json")])
