"""Runs as plain Keras: the script trains as the run did, reads well, and passes the linter."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import nbformat
import pytest

from tests.engine.jobs.predicting import train
from tests.helpers import all_of, run_forked, run_host, small_config, write_metadata
from tests.images import write_image_folder
from tests.words import write_text_folder
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.code import Imports, assigned, write
from tpu_console.engine.data.images.files import image_folder
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import ConsoleError, DataError
from tpu_console.engine.export.export import export_run
from tpu_console.engine.export.keras_code import object_code
from tpu_console.engine.export.script import Script, data_code, script_of
from tpu_console.engine.messages import Reporter
from tpu_console.engine.runs.events import AcceleratorReady, DataReady, EpochEnded, FitStarted, Replica
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.state import RunState
from tpu_console.presets.catalog import find_preset

_SHOW_LOSSES = "\nimport json\nprint()\nprint(json.dumps(history.history['loss']))"

_MINE = """
import keras
import numpy as np
import tensorflow as tf

def data(n=200):
    x = np.random.default_rng(1).normal(size=(n, 4)).astype("float32")
    examples = tf.data.Dataset.from_tensor_slices((x, (x.sum(axis=1) > 0).astype("int32")))
    return examples.take(160), examples.skip(160)

def build(shape, classes, units=4):
    hidden = keras.layers.Dense(units, activation="relu")
    return keras.Sequential([keras.Input(shape), hidden, keras.layers.Dense(classes)])

def batched():
    train, validation = data()
    return [train.batch(24), validation.batch(7)]

def table():
    import pandas as pd
    return pd.DataFrame({"a": [1.0] * 40}), np.arange(40) % 2

def doubled(y_true, y_pred, times=1):
    return times * keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(_MINE)
    return path


def exported(run: RunDirectory, folder: Path, form: str = "script") -> Path:
    out = folder / f"exported.{form}"
    with (folder / "messages").open("w") as messages:
        export_run(Reporter(messages), str(run.path), str(out), form)
    return out


def code_cells(text: str) -> str:
    notebook = nbformat.reads(text, 4)
    nbformat.validate(notebook)
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def assert_linted(path: Path) -> None:
    ruff = [sys.executable, "-m", "ruff"]
    check = [*ruff, "check", "--isolated", "--select", "E,F,I,W,B,UP", "--ignore", "B905,E501", "--line-length", "88"]
    for command in (check, [*ruff, "format", "--isolated", "--diff"]):
        folder = path if path.is_dir() else path.parent
        done = subprocess.run([*command, str(path)], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def assert_same_losses(run: RunDirectory, script: Path, epochs: int) -> None:
    backend = load_config(run.config).backend.replace("auto", "tensorflow")
    text = script.read_text().replace(f"EPOCHS = {load_config(run.config).epochs}", f"EPOCHS = {epochs}")
    assert "tpu_console" not in text
    said = run_forked(text + _SHOW_LOSSES, cwd=script.parent, env={"KERAS_BACKEND": backend})
    losses = [epoch.logs["loss"] for epoch in all_of(run, EpochEnded)]
    assert json.loads(said.splitlines()[-1]) == pytest.approx(losses[:epochs], rel=1e-4)


@pytest.mark.slow
def test_the_notebook_of_the_digits_preset_trains_as_the_run_did(digits: RunDirectory, tmp_path: Path) -> None:
    script = exported(digits, tmp_path)
    assert_linted(script)
    # The cells of the notebook are plain Python, and those of the script: what runs as one runs as the other.
    cells = tmp_path / "cells.py"
    cells.write_text(code_cells(exported(digits, tmp_path, "notebook").read_text()))
    assert_same_losses(digits, cells, 1)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["data", "batched"])
def test_the_script_of_own_code_trains_as_the_run_did(data: str, mine: Path, tmp_path: Path) -> None:
    own = {"dataset": f"{mine}:{data}", "model": f"{mine}:build", "model_options": {}, "epochs": 2}
    if data == "data":
        settings = {"loss": f"{mine}:doubled(times=2)", "accelerator": "sim:2", "backend": "jax", "batch_size": 16}
        run = run_host(small_config(**own | settings | {"model_options": {"units": 8}}), tmp_path / "runs")
    else:
        run = train(small_config(**own, batch_size=0), tmp_path)
    script = exported(run, tmp_path)
    assert ("return doubled(y_true, y_pred, times=2)" in script.read_text()) == (data == "data")
    assert_linted(script)
    assert_same_losses(run, script, 2)


def test_the_script_takes_the_data_of_a_custom_function(mine: Path) -> None:
    config = small_config(dataset=f"{mine}:data")
    lines = {
        ("arrays",): "train = data()\ntrain = tf.data.Dataset.from_tensor_slices(train)",
        ("examples", None): "train, _ = data()",
        ("batches", "examples"): "train, validation = data()\ntrain = train.unbatch()",
    }
    written = (data_code(config, 0, {"returned": list(forms)}, Imports()).lines[1:] for forms in lines)
    assert ["\n".join(code) for code in written] == [*lines.values()]
    of_table = load_examples(small_config(dataset=f"{mine}:table"), lambda _: None)
    assert of_table.record["returned"] == [""]
    with pytest.raises(DataError, match="returned a generator, a PyDataset or a table"):
        data_code(config, 0, dict(of_table.record), Imports())


@pytest.mark.slow
def test_the_script_of_an_image_folder_trains_as_the_run_did(tmp_path: Path) -> None:
    path = write_image_folder(tmp_path / "flowers", per_class=12)
    (path / "rose" / "red").mkdir()
    (path / "rose" / "rose_3.jpg").rename(path / "rose" / "red" / "a.jpg")
    (path / "rose" / "bad.jpg").write_bytes(b"no image")
    (path / "daisy" / "._hidden.jpg").write_bytes(b"no image")
    config = small_config(
        dataset="image-folder",
        data={"options": {"path": str(path), "image_size": [16, 16], "skip_bad": True}},
        model_options={"hidden": [16]},
        batch_size=8,
        class_weight="balanced",
        label_smoothing=0.1,
        optimizer={"name": "adamw", "schedule": "cosine", "warmup_epochs": 1, "scale_with_replicas": True},
    )
    run = train(config, tmp_path)
    script = exported(run, tmp_path)
    assert_linted(script)
    assert_same_losses(run, script, 1)


def test_the_script_of_a_table_leaves_out_the_bad_images_of_the_run(tmp_path: Path) -> None:
    config = find_preset("plant-pathology-cnn").config
    folder = image_folder(config.data.options["path"], "images")
    record = {"classes": ["a", "b"], "label_columns": ["a", "b"], "id_column": "image"}
    code = data_code(config, 4, {**record, "left_out": {folder: ["Train_3"], "/elsewhere": ["Train_4"]}}, Imports())
    assert 'LEFT_OUT = ["Train_3"]' in code.lines
    assert not any("LEFT_OUT" in line for line in data_code(config, 4, record, Imports()).lines)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["text-csv", "text-folder"])
def test_the_script_of_texts_trains_as_the_run_did(dataset: str, tmp_path: Path) -> None:
    kinds = {"pos": "good", "neg": "Bad"}
    rows = [f"{word} film; it's <br />{word} — {n % 7},{kind}" for n in range(40) for kind, word in kinds.items()]
    (tmp_path / "reviews.csv").write_text("\n".join(rows), encoding="cp1252")  # without a header
    where = {"path": str(tmp_path / "reviews.csv"), "inputs": "column_1", "label": "column_2"}
    if dataset == "text-folder":
        folder, other = write_text_folder(tmp_path / "train", 20), write_text_folder(tmp_path / "test", 5)
        (folder / "good" / ".hidden.txt").write_text("no text")
        (folder / "good" / "a").mkdir()
        (folder / "good" / "5.txt").write_bytes("good film, niño".encode("cp1252"))
        (folder / "good" / "3.txt").rename(folder / "good" / "a" / "3.TXT")
        where = {"path": str(folder), "validation_path": str(other)}
    config = small_config(
        dataset=dataset,
        data={"options": {**where, "vocabulary": 12, "length": 8}},
        model="text",
        model_options={"width": 4, "filters": [4], "kernel_size": 3, "stride": 1, "hidden": 4},
        batch_size=8,
        metrics=["accuracy", "f1_score"],
    )
    run = train(config, tmp_path)
    script = exported(run, tmp_path)
    assert_linted(script)
    assert_same_losses(run, script, 1)


def known(config: RunConfig, replicas: int = 1, **changes: Any) -> RunState:
    """What a run of a configuration would have written before its first step."""
    shapes = {"cifar10": (32, 32, 3), "fashion-mnist": (28, 28, 1), "mnist": (28, 28, 1), "text-csv": (500,)}
    size = config.data.options.get("image_size", [8, 8])
    name = changes.pop("accelerator", "cpu")
    devices = tuple(Replica(number, f"cpu:{number}", "CPU", "here") for number in range(replicas))
    return RunState(
        accelerator=AcceleratorReady(name, "asked for", "", devices, {}, changes.pop("backend", "tensorflow")),
        data=DataReady(1000, 200, shapes.get(config.dataset, (*size, 3)), 4, **changes),
        fit=FitStarted(config.epochs, 30, 32, 32, 1, monitor="val_accuracy"),
    )


def script(config: RunConfig, replicas: int = 1, **changes: Any) -> Script:
    record = {
        "words": ["", "[UNK]", "film"],
        "class_names": ["neg", "pos"],
        "classes": ["healthy", "rust"],
        "label_columns": ["healthy", "rust"],
        "id_column": "image_id",
        "suffix": ".jpg",
    }
    return script_of(config, known(config, replicas, **changes), record, "20261122-120000-a")


def test_scripts_of_presets_and_paths_of_any_length_pass_the_linter(tmp_path: Path) -> None:
    paths = "\n".join(assigned("TABLE", "/" + "x" * length) for length in range(70, 95)) + "\n"
    (tmp_path / "paths.py").write_text(paths)
    presets = "cifar10-cnn cifar10-vgg-augmented fashion-mnist-cnn imdb-text mnist-mlp plant-pathology-augmented"
    for preset in (*presets.split(), "plant-pathology-efficientnet"):
        (tmp_path / f"{preset}.py").write_text(script(find_preset(preset).config).text)
    assert_linted(tmp_path)


def test_what_cannot_be_exported_as_code_is_refused() -> None:
    for preset in ("movielens-recommender", "nmt-transformer"):
        with pytest.raises(ConsoleError, match=r"dataset=\S+ cannot be exported"):
            script(find_preset(preset).config)
    with pytest.raises(ConsoleError, match="has not begun to train"):
        script_of(small_config(), RunState(), {}, "a")


@pytest.mark.parametrize(
    ("replicas", "changes", "written", "absent"),
    [
        (1, {}, ('keras.config.set_dtype_policy("mixed_bfloat16")', "    jit_compile=False,\n)"), "Strategy"),
        (1, {}, ('layers.Dense(4, activation="softmax", dtype="float32")',), "set_visible_devices"),
        (1, {"backend": "jax"}, (), "jit_compile"),
        (1, {"accelerator": "gpu"}, (), "jit_compile"),
        (2, {"accelerator": "gpu"}, ("tf.distribute.MirroredStrategy()  # all GPUs", "with strategy.scope():"), "JAX"),
        (8, {"accelerator": "tpu"}, ("tf.distribute.TPUStrategy(resolver)",), "set_visible_devices"),
        (8, {"accelerator": "tpu", "backend": "jax"}, ("= 32 * 8", "keras.distribution.DataParallel("), "Strategy"),
        (8, {"accelerator": "tpu", "backend": "jax"}, ('os.environ["KERAS_BACKEND"] = "jax"',), "jit_compile"),
        (8, {"accelerator": "tpu", "backend": "jax"}, ('tf.config.set_visible_devices([], "TPU")',), "scope()"),
    ],
)
def test_each_accelerator_is_set_up_as_in_the_docs_of_keras_wherever_the_script_is_written(
    replicas: int,
    changes: dict[str, Any],
    written: tuple[str, ...],
    absent: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = small_config(precision="mixed_bfloat16")
    text = script(config, replicas, **changes).text
    assert [part for part in written if part not in text] == []
    assert absent not in text
    write_metadata(tmp_path, "tensorflow-tpu", "2.20.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert script(config, replicas, **changes).text == text


def test_a_custom_model_is_built_before_its_weights_are_loaded(mine: Path) -> None:
    weights = f"{mine.parent}/a.weights.h5"
    lines = script(small_config(model=f"{mine}:build", model_options={}, weights=weights)).text.splitlines()
    (built,) = [number for number, line in enumerate(lines) if line == "    model.build((None, 8, 8, 3))"]
    assert lines[built - 1].startswith("if not model.built:")
    assert lines[built + 1].startswith("model.load_weights(")
    assert "model.build(" not in script(small_config(weights=weights)).text


def test_differences_from_the_run_are_listed_at_the_top() -> None:
    config = small_config(augmentation={"flip": "horizontal", "mixup": 0.2}, loss="categorical_crossentropy")
    written = script(config)
    assert [one.partition(" ")[0] for one in written.differences] == ["augmentation.mixup", "Images"]
    assert "\n- augmentation.mixup " in written.text


def test_the_notebook_holds_the_code_of_the_script() -> None:
    written = script(find_preset("cifar10-cnn").config)
    code = code_cells(written.notebook)
    lines = [line for line in written.text.partition('"""\n')[2].splitlines() if line and not line.startswith("# ")]
    assert [line for line in code.splitlines() if line and not line.startswith("# ")] == lines


def test_only_arguments_that_differ_from_the_defaults_are_written() -> None:
    things = {
        'layers.Dense(8, activation="relu", kernel_initializer="he_normal")': keras.layers.Dense(
            8, activation="relu", kernel_initializer="he_normal", name="dense_3"
        ),
        "keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)": keras.optimizers.SGD(0.1, momentum=0.9),
        'keras.metrics.AUC(curve="PR", name="area")': keras.metrics.AUC(curve="PR", name="area"),
    }
    assert [write(object_code(thing)) for thing in things.values()] == [*things]
