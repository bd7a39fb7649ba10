"""Splits training into one or two phases; the second also trains layers of a pretrained base, at a lower rate.

Both phases are one run: epochs, steps and time continue, and so do the best epoch and its checkpoint. Early stopping in
the first phase ends that phase; in the second it ends the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
from msgspec import Struct

from ..runs.metrics import metric_called
from .compile import metrics_of
from .pretrained import unfreeze_layers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config.run_config import RunConfig


class TrainingPhase(Struct, frozen=True):
    """One call of `fit`."""

    config: RunConfig  # the run's configuration with the optimizer and number of epochs of this phase
    last_epoch: int  # the run's epoch, counted from 1, that ends the phase
    is_fine_tuning: bool = False  # whether layers of the base are trained too


def training_phases(config: RunConfig, schedule_epochs: int = 0) -> list[TrainingPhase]:
    """Return the phases of a run, each with a whole learning-rate schedule, for `schedule_epochs` or all epochs."""
    config = config.model_copy(update={"epochs": schedule_epochs or config.epochs})
    first = config.fine_tuning.after_epochs
    if not first:
        return [TrainingPhase(config, config.epochs)]
    gentle = config.optimizer.model_copy(update={"learning_rate": config.fine_tuning.learning_rate})
    second = config.model_copy(update={"epochs": config.epochs - first, "optimizer": gentle})
    return [
        TrainingPhase(config.model_copy(update={"epochs": first}), first),
        TrainingPhase(second, config.epochs, is_fine_tuning=True),
    ]


def unfreeze(model: Any, config: RunConfig) -> str:
    """Make the base trainable from `fine_tuning.from_layer` on; return a sentence. The model must be compiled again."""
    base = _base(model, config.model)
    if isinstance(base, keras.Model):
        unfreeze_layers(base, config.fine_tuning.from_layer, "fine_tuning.from_layer")
        trained = sum(layer.trainable for layer in base.layers)
        what = f"{trained} of the {len(base.layers)} layers of {base.name} are"
    else:
        base.trainable = True
        what = f"the {len(base.trainable_weights)} weights of the SavedModel are"
    return f"Fine-tuning begins: {what} now trained too, at a learning rate of {config.fine_tuning.learning_rate:g}."


def _base(model: Any, name: str) -> Any:
    """Return the base: the model or SavedModel inside the model of that name."""
    inner = [layer for layer in model.layers if isinstance(layer, (keras.Model, keras.layers.TFSMLayer))]
    same = [layer for layer in inner if layer.name == name]  # behind augmentation layers
    return _base(same[0], name) if same else inner[0]


class Patience(keras.callbacks.EarlyStopping):  # type: ignore[misc]  # Keras is untyped
    """Keras's early stopping, but it remembers the best epoch from one `fit` to the next.

    Without that, a second phase that makes the model worse would restore its own best weights. Keras itself does not
    know the direction of the metrics of one of several outputs, and refuses them.
    """

    _KEPT = ("best", "best_weights", "best_epoch")
    _kept: Mapping[str, Any] = {}

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Reset the state, or restore it in a resumed run."""
        super().on_train_begin(logs)
        is_lower = metric_called(self.monitor, metrics_of(self.model)).lower_is_better
        self.mode = "min" if is_lower else "max"
        for name, value in self._kept.items():
            setattr(self, name, value)

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Keep the state that the next `fit` needs."""
        super().on_train_end(logs)
        self._kept = {name: getattr(self, name) for name in self._KEPT}

    @property
    def restored_epoch(self) -> int:
        """The epoch, from 1, whose weights the model has after `fit`; 0 if they are those of the last one."""
        return int(self.best_epoch) + 1 if self.restore_best_weights and self.best_weights is not None else 0

    def state(self) -> dict[str, float]:
        """Return the state for a checkpoint, without the best weights."""
        names = ("best", "best_epoch", "wait", "stopped_epoch")
        return {name: float(value) for name in names if (value := getattr(self, name, None)) is not None}

    def restore(self, state: Mapping[str, float], best_weights: Any) -> None:
        """Take over the state of a checkpoint, for the next `fit`."""
        epochs = {name: int(state.get(name, 0)) for name in ("best_epoch", "wait", "stopped_epoch")}
        if epochs["wait"] < self.patience:
            epochs["stopped_epoch"] = 0  # the run is resumed with more patience
        self._kept = {"best": state.get("best"), "best_weights": best_weights, **epochs}
        self.stopped_epoch = epochs["stopped_epoch"]
