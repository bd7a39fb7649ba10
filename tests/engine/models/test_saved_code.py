"""Code in saved models: what counts as code, who may run it, and files made to harm whoever predicts with them."""

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests import hostile_models, saved_models
from tests.engine.jobs.predicting import Job, train
from tests.helpers import small_config
from tpu_console.engine.data.kinds.table import read_record
from tpu_console.engine.errors import ConsoleError, DataError, UntrustedCodeError
from tpu_console.engine.jobs.predict import open_trained
from tpu_console.engine.models.saved_code import Architecture, find_code, has_graph, read_architecture
from tpu_console.engine.runs.class_report import read_report
from tpu_console.engine.runs.run_directory import RunDirectory

OWN_MODEL = """
import keras

def build(input_shape, classes):
    layers = [keras.layers.Lambda(lambda x: x / 2), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")]
    return keras.Sequential([keras.Input(input_shape), *layers])
"""


@pytest.fixture
def digit_images(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.zeros((2, 8, 8)))
    return tmp_path / "x.npy"


def code_of(*layers: Any) -> tuple[str, ...]:
    """The code in a model that has some layers, as they stand in ``config.json``."""
    config = {"class_name": "Sequential", "module": "keras", "config": {"layers": list(layers)}}
    return find_code(Architecture(Path("model.keras"), config, has_pickled_weights=False))


def layer(class_name: str, module: str = "keras.layers", **config: Any) -> dict[str, Any]:
    return {"class_name": class_name, "module": module, "config": {"name": "a", **config}, "registered_name": None}


def function(name: str, module: str) -> dict[str, Any]:
    return {"class_name": "function", "config": name, "module": module, "registered_name": name}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (layer("Lambda", function="relu"), "Lambda layer 'a' in model.keras"),
        (layer("Lambda", "keras.src.layers.core.lambda_layer", function="relu"), "Lambda layer 'a'"),
        (layer("TFSMLayer", filepath="gs://x/y"), "TFSMLayer 'a' in model.keras .* gs://x"),
        (layer("TorchModuleWrapper"), "TorchModuleWrapper 'a' in model.keras"),
        (layer("Evil", "evil.things"), "evil.things.Evil, which is not part of Keras"),
        (layer("Dense", "keras.utils"), "not part of Keras"),
        (layer("Dense", "keras.nothing.layers"), "not part of Keras"),
        (layer("x" * 300, "m"), rf"class m\.{'x' * 200},"),
        (layer("get_file", "keras.utils"), "not part of Keras"),
        (layer("Dense") | {"registered_name": "other>Dense"}, "not part of Keras"),
        ({"class_name": "Dense", "config": {"name": "a"}}, r"\(no module\)\.Dense"),
        ({"class_name": ["x"], "module": ["y"], "config": 5}, "not part of Keras"),
        (layer("StringLookup", vocabulary="/etc/passwd"), "StringLookup layer 'a' in .* reads the file /etc/passwd"),
        (layer("Wrapped", "x\x1b[2J"), "class x\ufffd\\[2J\\.Wrapped"),
        (layer("Dense", activation={"class_name": "__lambda__", "config": {}}), "Layer 'a' .* holds Python code"),
        (layer("Dense", activation=function("get_file", "keras.utils")), "function keras.utils.get_file"),
        (layer("Dense", activation=function("exec", "builtins")), r"function builtins\.exec"),
        (layer("Dense", dtype=layer("enable_unsafe_deserialization", "keras.config")), "not part of Keras"),
    ],
)
def test_what_counts_as_code(part: dict[str, Any], said: str) -> None:
    (found,) = code_of(layer("Dense", units=3), part)
    assert re.search(said, found)


def test_functions_that_only_compute_do_not_count_as_code() -> None:
    relu = function("relu", "builtins")
    assert code_of(layer("Dense", units=3, activation=relu), layer("StringLookup", vocabulary=["a", "b"])) == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lambda", "hub", "saved model"])
def test_foreign_code_runs_only_with_trust(job: Job, digit_images: Path, tmp_path: Path, kind: str) -> None:
    marker, said = tmp_path / "marker", r"Lambda layer .innocent..* --trust "
    if kind == "saved model":
        run = hostile_models.saved_model_run(tmp_path / "run", tmp_path / "saved", marker)
        said = r"TFSMLayer 'features' in .* program in .*/saved"
    else:
        options: dict[str, Any] = {"model": "hub", "model_options": {"path": "x"}} if kind == "hub" else {}
        run = hostile_models.lambda_run(tmp_path / "run", marker, **options)
        saved_models.silent(run.hub)
    with pytest.raises(UntrustedCodeError, match=said):
        job(run, digit_images)
    assert not marker.exists()
    assert not job.out.exists()
    assert len(job(run, digit_images, trust=True)) == 2
    assert marker.exists()


@pytest.mark.slow
def test_a_module_that_a_foreign_model_names_is_not_imported(
    job: Job, digit_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "hostile_module.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Layer: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    run = hostile_models.import_run(tmp_path / "run", "hostile_module")
    with pytest.raises(UntrustedCodeError, match=r"'innocent' .* hostile_module\.Layer"):
        job(run, digit_images)
    assert not marker.exists()


@pytest.mark.slow
@pytest.mark.parametrize("trust", [False, True])
def test_functions_that_a_foreign_configuration_names_are_not_imported(
    job: Job,
    digit_images: Path,
    small_digits: RunDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trust: bool,
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    monkeypatch.chdir(run.path)
    Path("mine.py").write_text("open('marker', 'w').close()\ndef build(*_, **__): raise AssertionError\n")
    shutil.copy(small_digits.model, run.model)
    text = 'dataset = "{}"\nmodel = "{}"\nbatch_size = 8\nepochs = 1\n'
    run.config.write_text(text.format("digits", "mine.py:build"))
    assert len(job(run, digit_images, trust=trust)) == 2
    run.config.write_text(text.format("mine.py:build", "mlp"))
    with pytest.raises(DataError, match=r"comes from your function mine\.py:build"):
        job(run, digit_images, trust=trust, force=True)
    assert not Path("marker").exists()


@pytest.mark.slow
def test_code_that_an_own_run_saved_runs_wherever_the_run_is_now(
    job: Job, digit_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(OWN_MODEL)
    config = small_config(model=f"{tmp_path}/mine.py:build", model_options={}, checkpoint={"monitor": "auto"})
    run = train(config, tmp_path)
    assert len(job(run, digit_images)) == 2
    run.path.rename(tmp_path / "moved")
    moved = RunDirectory(tmp_path / "moved")
    for checkpoint in ("last", "best"):
        assert len(job(moved, digit_images, checkpoint=checkpoint, force=True)) == 2
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "another user"))
    with pytest.raises(UntrustedCodeError, match="Lambda layer"):
        open_trained(str(moved.path), "last")


def zipped(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "is not a file"),
        (Path.mkdir, "is not a file"),
        (Path.touch, "not a zip"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(50)), "not a zip"),
        (lambda path: zipped(path, model__weights__h5=b""), r"no config\.json"),
        (lambda path: zipped(path, config__json=b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
        (lambda path: zipped(path, config__json=b"[]"), "not a JSON object"),
        (lambda path: zipped(path, config__json=bytes(65 << 20)), r"config\.json in it declares 68,157,440 bytes"),
        (lambda path: zipped(path, config__json=b"{}", model__weights__h5=bytes(65 << 20)), "declares 68,157,440"),
    ],
)
def test_files_that_are_no_models_are_refused_before_they_are_loaded(
    make: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    make(tmp_path / "model.keras")
    with pytest.raises(ConsoleError, match=said):
        read_architecture(tmp_path / "model.keras")


def test_large_weights_that_are_stored_as_they_are_belong_to_a_model_and_pickled_ones_are_code(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", bytes(65 << 20))
    assert read_architecture(tmp_path / "model.keras").config == {"compile_config": None}
    weights = io.BytesIO()
    np.savez(weights, x=np.zeros(1))
    zipped(tmp_path / "pickled.keras", config__json=b"{}", model__weights__npz=weights.getvalue())
    (found,) = find_code(read_architecture(tmp_path / "pickled.keras"))
    assert "are pickled" in found


@pytest.mark.parametrize(("name", "is_graph"), [("", False), ("saved_model.pb", True), ("model.pb", False)])
def test_a_folder_with_a_saved_model_has_a_graph(name: str, is_graph: bool, tmp_path: Path) -> None:
    if name:
        (tmp_path / name).write_bytes(b"graph")
    assert has_graph(tmp_path) is is_graph


def deeply_nested(path: Path) -> None:
    path.write_text("[" * 100_000 + "]" * 100_000)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, deeply_nested, huge, Path.touch])
def test_a_run_s_files_that_cannot_be_read_are_refused(make: Callable[[Path], object], tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.config.write_text('dataset = "digits"\nmodel = "mlp"\nbatch_size = 8\nepochs = 1\n')
    run.journal.touch()
    run.model.touch()
    make(run.inputs)
    with pytest.raises(DataError, match=r"inputs\.json (is|cannot)"):
        open_trained(str(run.path), "last")
    make(run.report)
    with pytest.raises(ConsoleError, match=r"report\.json .* cannot be read"):
        read_report(run)
    run.config.unlink()
    make(run.config)
    with pytest.raises(ConsoleError, match=r"config\.toml: |trained by a notebook"):
        open_trained(str(run.path), "last")


@pytest.mark.parametrize(
    ("dataset", "values", "said"),
    [
        ("image-csv", [], "inputs.json is damaged"),
        ("image-csv", {"id_column": {"a": []}}, "id_column"),
        ("text-csv", {}, "text_column"),
        ("text-csv", {"text_column": "a", "label_column": "b", "words": ["", "x"], "length": 10**12}, "length"),
        ("text-csv", {"text_column": "a", "label_column": "b", "words": "no list", "length": 5}, "words"),
        ("text-pairs", {"source": ["", "a", "b", "c"], "target": [1, 2, 3, 4], "length": 5}, r"target\.0"),
        ("ratings-csv", {"columns": {"user": 1}, "users": [], "items": []}, r"columns\.user"),
    ],
)
def test_what_inputs_json_says_is_checked(dataset: str, values: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match=said):
        read_record(tmp_path / "inputs.json", dataset)


@pytest.mark.slow
def test_a_model_that_does_not_fit_the_run_is_refused(job: Job, digit_images: Path, tmp_path: Path) -> None:
    other = keras.Sequential([keras.Input((3, 5)), keras.layers.Flatten(), keras.layers.Dense(10)])
    with pytest.raises(DataError, match="does not fit the run"):
        job(hostile_models.run_with(other, tmp_path / "run"), digit_images)
