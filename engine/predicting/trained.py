"""A run that was trained: its model, and what it was told of its data."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from engine.catalog import IMAGE_DATASETS, is_user_reference
from engine.config import load_config
from engine.errors import ConfigError, ConsoleError, DataError, one_line
from engine.files import read_json
from engine.paths import user_path
from engine.rundir import find_run
from engine.scores import read_report

if TYPE_CHECKING:
    from pathlib import Path

    from engine.config import RunConfig
    from engine.rundir import RunDirectory

Checkpoint = Literal["last", "best"]

_LARGEST = 512 << 20  # bytes; it may hold a large vocabulary
_BY_HAND = "keras.models.load_model('{path}').predict(…), on data made as your function makes it."


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run with a saved model.

    Args:
        run: Its folder.
        config: Its configuration.
        record: Its ``inputs.json``; empty where it has none.
        model_path: The saved model.
    """

    run: RunDirectory
    config: RunConfig
    record: dict[str, Any]
    model_path: Path

    def load_model(self) -> Any:
        """Load the model.

        Raises:
            ConsoleError: It is damaged, or needs code that is not there.
        """
        import keras

        if self.config.model == "hub" and not self.run.hub.is_dir():
            raise ConsoleError(
                f"{user_path(self.run.hub)} is not there, the SavedModel that this run's model needs.",
                remedy="Move or copy a run's folder as a whole.",
            )
        try:
            if self.config.model == "hub":
                return _with_saved_model(self.model_path, self.run.hub)
            return keras.saving.load_model(self.model_path, compile=False)
        except Exception as error:
            own = is_user_reference(self.config.model)
            raise ConsoleError(
                f"{user_path(self.model_path)} cannot be loaded.",
                why=one_line(error, 300),
                remedy=(
                    "It has layers of your own: load it with keras.models.load_model(…, custom_objects=…)."
                    if own
                    else "Try the other one of --checkpoint last and best."
                ),
            ) from error

    def class_names(self, classes: int) -> tuple[str, ...]:
        """Return the names of the model's classes, as the data had them when it was trained.

        Args:
            classes: How many the model tells apart.

        Raises:
            DataError: What the run noted does not fit its model.
        """
        names = tuple(map(str, self.record.get("classes") or self.record.get("class_names") or ()))
        if not names:
            report = read_report(self.run)
            names = tuple(one.name for one in report.classes) if report is not None else ()
        if names and len(names) != classes:
            raise DataError(f"The run {self.run.run_id} has {len(names)} classes, but its model tells {classes} apart.")
        return names or tuple(map(str, range(classes)))

    def scale(self) -> float:
        """Return what pixels are multiplied by for the model."""
        if self.config.data.pixels == "raw":
            return 1.0
        return 1 / 16 if self.config.dataset == "digits" else 1 / 255


def open_trained(name: str | None, checkpoint: Checkpoint) -> TrainedRun:
    """Find a run and its model.

    Args:
        name: Its name, a part of it, or the path of its folder; None for the newest.
        checkpoint: ``last`` for the model at the end of training, ``best`` for that of the best epoch.

    Raises:
        ConsoleError: There is no such run, it has no model, or its data was made by a function of the person's own.
    """
    run = find_run(name)
    path = run.model if checkpoint == "last" else run.checkpoints / "best.keras"
    if not path.is_file():
        other = run.checkpoints / "best.keras" if checkpoint == "last" else run.model
        use = "best" if checkpoint == "last" else "last"
        raise ConsoleError(
            f"The run {run.run_id} has no {path.relative_to(run.path)}.",
            why="It trains still, or it failed before it could save." if checkpoint == "last" else "None was kept.",
            remedy=f"Use --checkpoint {use}." if other.is_file() else "`tpu-console show` says how it ended.",
        )
    config = _config(run, path)
    if is_user_reference(config.dataset):
        raise DataError(
            f"The data of {run.run_id} comes from your function {config.dataset}.",
            why="How it makes inputs of new data is not known here.",
            remedy=f"Predict by hand: {_BY_HAND.format(path=user_path(path))}",
        )
    return TrainedRun(run, config, _record(run, config), path)


def _with_saved_model(path: Path, folder: Path) -> Any:
    """Load a model whose SavedModel is in a folder, wherever it was when the model was saved.

    Keras notes the full path in the file, and would look there. It is told to trust the SavedModel, which the run's own
    training copied.

    Args:
        path: The ``.keras`` file.
        folder: The SavedModel.
    """
    import keras

    with zipfile.ZipFile(path) as file:
        config = json.loads(file.read("config.json"))
    config["compile_config"] = None
    _move_saved_model(config, str(folder))
    model = keras.saving.deserialize_keras_object(config, safe_mode=False)
    model.load_weights(path)
    return model


def _move_saved_model(config: Any, folder: str) -> None:
    """Write a folder into every part of a model's configuration that says where a SavedModel is."""
    if isinstance(config, dict):
        if config.get("class_name") == "TFSMLayer":
            config["config"]["filepath"] = folder
        config = list(config.values())
    if isinstance(config, list):
        for part in config:
            _move_saved_model(part, folder)


def _config(run: RunDirectory, model: Path) -> RunConfig:
    try:
        return load_config(run.config)
    except ConfigError as error:
        if run.config.exists():
            raise
        raise DataError(
            f"The run {run.run_id} was trained by a notebook or script.",
            why="How it makes inputs of new data is not known here.",
            remedy=f"Predict by hand: {_BY_HAND.format(path=user_path(model))}",
        ) from error


def _record(run: RunDirectory, config: RunConfig) -> dict[str, Any]:
    try:
        record = read_json(run.inputs, _LARGEST)
    except FileNotFoundError:
        if config.dataset in IMAGE_DATASETS:
            return {}  # the configuration says it all
        raise DataError(
            f"The run {run.run_id} has no {run.inputs.name}, which says how its words are numbered."
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{user_path(run.inputs)} is damaged or cannot be read.") from error
    if not isinstance(record, dict):
        raise DataError(f"{user_path(run.inputs)} is damaged: it is no JSON object.")
    return record
