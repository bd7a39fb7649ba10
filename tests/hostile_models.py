"""Runs as a stranger might send them: their models leave a marker file behind when their code runs."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tests.helpers import small_config
from tpu_console.engine.runs.run_directory import RunDirectory

DIGITS = (8, 8, 1)


def run_with(model: Any, folder: Path, /, **config: Any) -> RunDirectory:
    """Make a run of digits of a model that no training saved."""
    from tpu_console.engine.config.run_config import to_toml

    folder.mkdir()
    run = RunDirectory(folder)
    run.config.write_text(to_toml(small_config(**config)))
    run.journal.write_text("")
    model.save(run.model)
    return run


def classifier(*layers: Any) -> Any:
    ends = [keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
    return keras.Sequential([keras.Input(DIGITS), *layers, *ends])


def lambda_run(folder: Path, marker: Path, **config: Any) -> RunDirectory:
    """A run whose `Lambda` layer touches the marker."""

    def touch(path: str) -> Callable[[Any], Any]:
        return lambda x: x if open(path, "w") else None  # noqa: PTH123  it has to do without imports

    layer = keras.layers.Lambda(touch(str(marker)), output_shape=DIGITS, name="innocent")
    run = run_with(classifier(layer), folder, **config)
    marker.unlink(missing_ok=True)
    return run


def saved_model_run(folder: Path, saved: Path, marker: Path) -> RunDirectory:
    """A run whose `TFSMLayer` runs a SavedModel somewhere else, which writes the marker."""

    class Writer(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
        @tf.function(input_signature=[tf.TensorSpec((None, *DIGITS), tf.float32)])  # type: ignore[untyped-decorator]
        def serve(self, images: Any) -> Any:
            tf.io.write_file(str(marker), "written")
            return tf.identity(images)

    tf.saved_model.save(Writer(), str(saved))
    return run_with(classifier(keras.layers.TFSMLayer(str(saved), call_endpoint="serve", name="features")), folder)


def rewrite_config(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a ``.keras`` file says of its model."""
    with zipfile.ZipFile(model) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(members["config.json"])
    change(config)
    with zipfile.ZipFile(model, "w") as archive:
        for name, content in (members | {"config.json": json.dumps(config).encode()}).items():
            archive.writestr(name, content)


def import_run(folder: Path, module: str) -> RunDirectory:
    """A run whose model names a class of a module, which Keras 3.7 imports."""
    run = run_with(classifier(keras.layers.Dropout(0.5, name="innocent")), folder)

    def change(config: dict[str, Any]) -> None:
        layer = next(layer for layer in config["config"]["layers"] if layer["config"]["name"] == "innocent")
        layer |= {"module": module, "class_name": "Layer", "registered_name": "Layer"}

    rewrite_config(run.model, change)
    return run
