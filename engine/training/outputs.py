"""What a run decides and leaves at the end of an epoch: when to stop, its model, TensorBoard files, translations."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..accelerators.backend import is_installed, loaded_framework
from ..config.run_config import RunConfig, compared_values
from ..data.vocabulary import PADDING, START, Vocabulary
from ..errors import ConsoleError, one_line
from ..machine.install import install_line
from ..models.build import bytes_of
from ..models.compile import metrics_of
from ..models.saved_code import remember_own
from ..runs.events import CheckpointSaved, Phase, Sample, Translated
from ..runs.metrics import best_of, loss_beside, metric_called
from ..runs.recorder import Recorder
from ..storage.files import disk_full, inside, is_disk_full, whole_file
from ..storage.paths import user_path


def save_model(model: Any, path: Path) -> str:
    """Save a model whole or not at all, and mark code in it as the user's own; its folder must exist.

    Returns why only its weights were saved, in a ``.weights.h5`` file beside `path`; empty if the whole model was
    saved. Raises `ConsoleError` if the disk is full or the folder cannot be written.
    """
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)  # under one, computations while saving would wait for all hosts
    try:
        try:
            with whole_file(path) as draft:
                model.save(draft)
                remember_own(draft)
            return ""
        except (NotImplementedError, TypeError, ValueError) as error:  # of Keras, for a model that it cannot describe
            weights = path.with_suffix(".weights.h5")
            with whole_file(weights) as draft:
                model.save_weights(draft)
            return (
                f"Only the weights of the model are saved, in {weights.name}, because Keras cannot save its code: "
                f"{one_line(error, 200)} `predict` loads them into a new model from your function. To save the whole "
                "model, implement get_config."
            )
    except Exception as error:
        if is_disk_full(error):
            optimizer = getattr(model, "optimizer", None)
            size = bytes_of([*model.variables, *(optimizer.variables if optimizer is not None else ())])
            raise disk_full(path.parent, path.name, size, "Free space on that disk.") from error
        if not isinstance(error, OSError):
            raise
        what = f"{user_path(path)} cannot be written: {error.strerror or error}."
        raise ConsoleError(what, remedy="Check the folder's permissions.") from error
    finally:
        keras.distribution.set_distribution(distribution)


class _EpochCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Saves models of epochs; a failure, such as a full disk, is reported once and does not end the run."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._is_failing = False

    def _save(self, name: str, what: str) -> Path | None:
        """Save the model among the run's checkpoints; return its file, or None after a failure."""
        path, was_failing = self._recorder.run.checkpoints / name, self._is_failing
        try:
            with suppress(OSError):  # then the model cannot be saved either, and that error says why
                path.parent.mkdir(mode=0o700, exist_ok=True)
            partly, self._is_failing = save_model(self.model, path), False
        except ConsoleError as error:
            self._is_failing = True
            if not was_failing:
                self._recorder.notice(f"{what} was not saved. {error}")
            return None
        return path.with_suffix(".weights.h5") if partly else path


class BestCheckpoint(_EpochCheckpoint):
    """Saves the model of the epoch with the best monitored metric."""

    def __init__(self, recorder: Recorder, monitor: str) -> None:
        super().__init__(recorder)
        self._monitor = monitor
        self.value: float | None = None  # of the best epoch so far
        self.loss: float | None = None  # of that epoch

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Save the model if its epoch is the best so far, as `best_epoch` decides."""
        logs = logs or {}
        value, loss = (logs.get(name, math.nan) for name in (self._monitor, loss_beside(self._monitor)))
        lowest = metric_called(self._monitor, metrics_of(self.model)).lower_is_better
        is_broken = not math.isfinite(logs.get("loss", 0.0))
        if is_broken or best_of([self.value, value], [self.loss, loss], lowest=lowest) != 1:
            return
        self._recorder.enter(Phase.CHECKPOINTING)
        if path := self._save("best.keras", f"The best model so far (epoch {epoch + 1})"):
            self.value, self.loss = float(value), float(loss) if math.isfinite(loss) else None
            relative = str(path.relative_to(self._recorder.run.path))
            self._recorder.emit(CheckpointSaved(epoch + 1, relative, self._monitor, self.value))
        self._recorder.enter(Phase.TRAINING)


class NewestCheckpoint(_EpochCheckpoint):
    """Saves the newest epoch's model, for a run that may end without warning, such as one on several hosts."""

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Save the model, replacing that of the epoch before."""
        self._recorder.enter(Phase.CHECKPOINTING)
        self._save("last.keras", f"The model after epoch {epoch + 1}")
        self._recorder.enter(Phase.TRAINING)


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


class EpochSummaries(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Writes TensorBoard event files once an epoch, until that fails, under the tags of Keras's own callback.

    That one also acts on every batch, which slows small models. The HParams page compares runs by the `settings`.
    """

    def __init__(self, recorder: Recorder, settings: Mapping[str, str | float]) -> None:
        super().__init__()
        self._recorder, self._settings = recorder, settings
        self._folder = recorder.run.tensorboard
        self._failed = False
        self._writers: dict[str, Any] = {}

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Write the epoch's metrics."""
        if self._failed:
            return
        try:
            for name, value in (logs or {}).items():
                part, tag = ("validation", name[4:]) if name.startswith("val_") else ("train", name)
                if part not in self._writers:
                    self._folder.mkdir(mode=0o700, exist_ok=True)  # TensorFlow would also create the run's own folder
                    folder = inside(self._recorder.run.path, f"tensorboard/{part}/")
                    self._writers[part] = tf.summary.create_file_writer(str(folder))
                with self._writers[part].as_default(step=epoch):
                    tf.summary.scalar(f"epoch_{tag}", value)
            for writer in self._writers.values():
                writer.flush()
            if self._settings:
                from tensorboard.plugins.hparams import api

                with tf.summary.create_file_writer(str(self._folder)).as_default():
                    api.hparams(dict(self._settings), trial_id=self._recorder.run.run_id)
                self._settings = {}
        except Exception as error:  # noqa: BLE001  a run must not end because of its TensorBoard files
            self._failed = True
            why = str(disk_full(self._folder, "an epoch")) if is_disk_full(error) else one_line(error, 200)
            self._recorder.notice(f"TensorBoard files are no longer written. {why}")

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Close the files; another `fit` of the run opens new ones."""
        for writer in self._writers.values():
            with suppress(Exception):  # every epoch was flushed
                writer.close()
        self._writers.clear()


class Translator:
    """Translates with a model from ``source`` and ``target`` to chances of each next word: always the likeliest one."""

    def __init__(self, model: Any, record: Mapping[str, Any]) -> None:
        self._source, self._target = Vocabulary(record["source"]), Vocabulary(record["target"])
        self._length = int(record["length"])

        def likeliest(chances: Any, place: Any) -> Any:  # fetching a chance for each word would take much longer
            return keras.ops.argmax(keras.ops.take(chances, place, axis=1), axis=-1)

        self._next_words = loaded_framework().compiled(model, likeliest)  # once for all places

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Translate sentences as one batch, word by word; shapes stay the same."""
        source = self._source.encode(sentences, self._length)
        said = np.full((len(sentences), self._length + 1), PADDING, np.int32)
        said[:, 0] = START
        for place in range(self._length):
            said[:, place + 1] = self._next_words({"source": source, "target": said[:, :-1]}, np.int32(place))
        return [self._target.decode(numbers[1:]) for numbers in said]


class TranslationSamples(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Reports translations of the record's sentences after each epoch, until the model cannot translate them."""

    def __init__(self, recorder: Recorder, record: Mapping[str, Any]) -> None:
        super().__init__()
        self._recorder, self._record = recorder, record
        self._translator: Translator | None = None
        self._has_failed = False

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Translate the sentences."""
        if self._has_failed:
            return
        pairs = self._record["samples"]
        try:
            self._translator = self._translator or Translator(self.model, self._record)
            said = self._translator.translate([source for source, _ in pairs])
        except Exception as error:  # noqa: BLE001  whatever it is, a run does not end for its samples
            self._has_failed = True
            self._recorder.notice(f"Sample translations are turned off: {one_line(error, 200)}")
            return
        samples = tuple(Sample(source, expected, text) for (source, expected), text in zip(pairs, said, strict=True))
        self._recorder.emit(Translated(epoch + 1, samples))


def epoch_end_callbacks(
    recorder: Recorder,
    config: RunConfig,
    monitor: str,
    record: Mapping[str, Any],
    *,
    has_tensorboard: bool | None = None,
) -> list[Any]:
    """Return the callbacks that write files or report samples at an epoch's end."""
    if not recorder.is_leader:
        return []
    callbacks: list[Any] = [BestCheckpoint(recorder, monitor)] if config.checkpoint.monitor != "none" else []
    if "tensorboard" in config.sinks:
        if is_installed("tensorboard") if has_tensorboard is None else has_tensorboard:
            callbacks.append(EpochSummaries(recorder, compared_values(config)))
        else:
            line = install_line("tensorboard")
            recorder.notice(f"TensorBoard is not installed: no files for it. To install it: {line}")
    if recorder.team is not None:
        callbacks.append(NewestCheckpoint(recorder))
    if "samples" in record and recorder.team is not None:
        recorder.notice("There are no sample translations: one host alone cannot run a model spread over all hosts.")
    elif "samples" in record:
        callbacks.append(TranslationSamples(recorder, record))
    return callbacks
