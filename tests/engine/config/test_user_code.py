import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import small_config
from tpu_console.engine.config.options import CALLBACKS
from tpu_console.engine.config.reading import valid_keys
from tpu_console.engine.config.user_code import (
    call_model_function,
    call_user_function,
    check_started,
    is_own_source,
    missing_import,
    note_start,
    reached,
    reference_problem,
    source_file,
)
from tpu_console.engine.errors import UntrustedCodeError, UserCodeError

MINE = """
import neighbor_of_mine

SIZE = 3

def make(scale, *, extra=0):
    return neighbor_of_mine.BASE * scale + extra

def fail(*arguments):
    limit = 4
    raise ValueError("no such size")  # here

def fail_deep(*arguments):
    return int("x")  # there
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A person's folder, which is the current one; nothing of it stays imported."""
    path, modules = list(sys.path), {*sys.modules}
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "neighbor_of_mine.py").write_text("BASE = 10\n", encoding="utf-8")
    package = tmp_path / "package_of_mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text("def make():\n    return 'made'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        del sys.modules[name]


def failure(reference: str, *arguments: object, **options: object) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        call_user_function(reference, *arguments, **options)
    return caught.value


def test_a_function_of_a_file_or_package_is_called_and_may_import_its_neighbors(folder: Path) -> None:
    assert call_user_function("mine.py:make", 2, extra=1) == 21
    assert call_user_function(f"{folder}/mine.py:make", 2) == 20
    assert call_user_function("package_of_mine.models:make") == "made"


@pytest.mark.parametrize(("name", "line"), [("fail", "raise ValueError"), ("fail_deep", 'return int("x")')])
def test_a_function_that_raises_shows_its_line(folder: Path, name: str, line: str) -> None:
    error = failure(f"mine.py:{name}", 1)
    assert f"mine.py:{name} raised ValueError: " in error.what
    number = next(i for i, text in enumerate(MINE.splitlines(), 1) if line in text)
    assert error.why.startswith(f"File {folder}/mine.py, line {number}: {line}")
    assert error.remedy


def test_a_model_function_may_take_only_options(folder: Path) -> None:
    (folder / "nets.py").write_text(
        "def plain():\n    return 'plain'\ndef wide(units=8):\n    return units\ndef both(shape, classes, units=8):\n"
        "    return shape, classes, units\n",
        encoding="utf-8",
    )
    made = [
        call_model_function(f"nets.py:{name}", (4,), 3, options)
        for name, options in (("plain", {}), ("wide", {}), ("wide", {"units": 2}), ("both", {"units": 2}))
    ]
    assert made == ["plain", 8, 2, ((4,), 3, 2)]
    with pytest.raises(UserCodeError, match="unexpected keyword argument 'depth'"):
        call_model_function("nets.py:both", (4,), 3, {"depth": 2})


def test_a_missing_option_or_function_is_named(folder: Path) -> None:
    error = failure("mine.py:make", 1, size=2)
    assert "'size'" in error.what
    assert error.why == f"File {folder}/mine.py, line 6"
    for reference, what in {
        "mine.py:mak": "did you mean 'make'?",
        "mine.py:SIZE": "not a function",
        "absent.py:make": f"There is no file {folder}/absent.py.",
        "absent_package:make": "cannot be imported: ModuleNotFoundError",
        "package_of_mine:make": "it defines no function",
    }.items():
        assert what in failure(reference).what


@pytest.mark.parametrize(
    ("content", "kind", "number", "line"),
    [
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError", 2, "y = 1 / 0"),
        ("import absent_of_mine\n", "ModuleNotFoundError", 1, "import absent_of_mine"),
        ("def make(:\n    pass\n", "SyntaxError", 1, "def make(:"),
    ],
)
@pytest.mark.parametrize("reference", ["broken.py:make", "broken:make"])
def test_a_file_that_cannot_be_imported_shows_the_line(
    folder: Path, reference: str, content: str, kind: str, number: int, line: str
) -> None:
    (folder / "broken.py").write_text(content, encoding="utf-8")
    error = failure(reference)
    assert f"cannot be imported: {kind}" in error.what
    assert error.why == f"File {folder}/broken.py, line {number}: {line}"


def test_a_file_named_like_an_installed_module_hides_nothing(folder: Path) -> None:
    (folder / "json.py").write_text("def make():\n    return 'mine'\n", encoding="utf-8")
    assert call_user_function("json.py:make") == "mine"
    import json

    assert json.loads("1") == 1


def test_the_file_of_a_function_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "parcel_of_mine" / "inner"
    inner.mkdir(parents=True)
    for file in (inner.parent / "__init__.py", inner / "__init__.py", inner / "deep.py"):
        file.write_text("raise SystemExit('it was imported')\n", encoding="utf-8")
    assert source_file("parcel_of_mine.inner.deep:data") == inner / "deep.py"
    assert source_file("parcel_of_mine.inner:data") == inner / "__init__.py"
    assert source_file("parcel_of_mine/inner/deep.py:data") == inner / "deep.py"
    assert source_file("json.decoder:JSONDecoder") is not None
    for missing in ("parcel_of_mine.inner.gone:data", "json.decoder.gone:data", "gone:data", "gone.py:data"):
        assert source_file(missing) is None


def test_a_missing_file_function_or_package_is_found_without_importing(folder: Path) -> None:
    (folder / "odd.py").write_text(
        "raise SystemExit('it was imported')\nif True:\n    from json import dumps as write\nsize = 3\n",
        encoding="utf-8",
    )
    (folder / "broken.py").write_text("def make(:\n", encoding="utf-8")
    (folder / "open.py").write_text("from odd import *\n", encoding="utf-8")
    for there in ("mine.py:make", "odd.py:write", "odd:size", "open.py:any", "json:dumps", "keras.layers:Dense"):
        assert reference_problem(there) == ""
    assert "no file" in reference_problem("gone.py:make")
    assert reference_problem("mine.py:fial").endswith("'fail'?")
    assert "'gone_of_mine'" in reference_problem("gone_of_mine:make")
    assert "'package_of_mine.gone'" in reference_problem("package_of_mine.gone:make")
    assert "line 1 is" in reference_problem("broken.py:make")


def test_a_missing_package_of_a_file_is_found_without_importing(folder: Path) -> None:
    text = "import json, neighbor_of_mine\nfrom package_of_mine import x\nfrom . import y\n"
    (folder / "needy.py").write_text(text + "try:\n    import gone\nexcept ImportError:\n    pass\ndef make(): 1\n")
    assert missing_import("needy.py:make") == ""
    (folder / "needy.py").write_text(text + "import keras, gone_of_mine.inner\ndef make(): 1\n")
    assert missing_import("needy.py:make") == "gone_of_mine"
    assert missing_import("nothing.py:make") == ""


HOOK = "https://example.com/hook/a-secret"
REACHING: dict[str, dict[str, Any]] = {
    "dataset": {"dataset": "mine.py:data"},
    "model": {"model": "mine.py:build", "model_options": {"units": 3}},
    "loss": {"loss": "mine.py:loss"},
    "metrics": {"metrics": ["mine.py:score"]},
    "callbacks": {"callbacks": ["mine.py:Watch"]},
    "custom_objects": {"custom_objects": ["mine.py:Layer"]},
    "optimizer.name": {"optimizer": {"name": "mine.py:Optimizer"}},
    "optimizer.schedule": {"optimizer": {"schedule": "mine.py:schedule"}},
    "weights": {"weights": "w.weights.h5"},
    "mirror": {"mirror": "gs://bucket/runs"},
    "accelerator": {"accelerator": "tpu:10.0.0.1"},
    "hosts.coordinator": {"hosts": {"count": 2, "index": 0, "coordinator": "10.0.0.1:1"}},
    "alerts.webhook": {"alerts": {"webhook": HOOK}},
    "sinks": {"sinks": ["wandb"]},
    "data.options.path": {"dataset": "image-folder", "data": {"options": {"path": "photos"}}},
    "data.options.validation_path": {
        "dataset": "image-folder",
        "data": {"options": {"path": "photos", "validation_path": "more"}},
    },
    "data.options.images": {"dataset": "image-csv", "data": {"options": {"path": "t.csv", "images": "photos"}}},
    "data.options.target_path": {
        "dataset": "text-pairs",
        "model": "transformer",
        "model_options": {},
        "data": {"options": {"path": "a.txt", "target_path": "b.txt"}},
    },
    "data.options.name": {"dataset": "tfds", "data": {"options": {"name": "mnist"}}},
    "data.options.data_dir": {"dataset": "tfds", "data": {"options": {"name": "mnist", "data_dir": "gs://bucket"}}},
    "model_options.path": {"model": "hub", "model_options": {"path": "https://example.com/model"}},
    "model_options.weights": {"model": "application", "model_options": {"weights": "w.h5"}},
}
HARMLESS = """
name epochs steps_per_epoch outputs class_weight loss_weights backend precision steps_per_execution budget
augmentation.flip augmentation.placement early_stopping.monitor checkpoint.monitor hosts.count hosts.index alerts.nan
alerts.kinds data.pixels data.cache data.options data.options.inputs data.options.label data.options.classes
data.options.image_size data.options.resize data.options.columns data.options.split data.options.label_type
data.options.left_out data.options.categories data.options.config data.options.validation_split
model_options model_options.filters model_options.hidden model_options.padding model_options.name
model_options.signature model_options.image_scale profile.before
"""
"""Keys that choose what is computed: none of their values names a place."""


def test_every_key_that_can_name_something_outside_is_known() -> None:
    texts = {key for key, default in valid_keys().items() if not isinstance(default, bool | int | float)}
    assert texts == {*HARMLESS.split(), *REACHING}


@pytest.mark.parametrize("key", REACHING)
def test_a_run_that_reaches_more_than_what_was_started_needs_trust(key: str) -> None:
    config = small_config(**REACHING[key])
    with pytest.raises(UntrustedCodeError, match=key) as caught:
        check_started("RUN", config)
    assert "a-secret" not in str(caught.value)
    note_start(config)
    check_started("RUN", config)
    check_started("RUN", small_config(**REACHING[key], epochs=7, batch_size=8))


def test_built_in_parts_reach_nothing() -> None:
    assert reached(small_config()) == []
    callbacks = ["reduce_lr_on_plateau(monitor='loss')", "terminate_on_nan"]
    quiet = small_config(metrics=["f1_score(average='micro')"], callbacks=callbacks, optimizer={"name": "sgd"})
    assert reached(quiet) == []
    assert reached(small_config(dataset="cifar10", model="application", model_options={})) == []


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback_of_keras_that_writes_files_reaches_outside(name: str) -> None:
    is_writing = name in {"csv_logger", "model_checkpoint"}
    assert bool(reached(small_config(callbacks=[f"{name}(path='x')"]))) == is_writing


def test_an_option_that_keras_may_make_an_object_of_reaches_outside() -> None:
    made = "{module='os', class_name='system', config='id'}"
    assert [one.key for one in reached(small_config(loss=f"huber(dtype={made})"))] == ["loss"]


def test_another_function_or_option_of_known_code_needs_trust() -> None:
    note_start(small_config(model="mine.py:build", model_options={"units": 3}))
    assert is_own_source("mine.py:other")
    assert not is_own_source("theirs.py:build")
    for changes in ({"model": "mine.py:wipe"}, {"model": "mine.py:build", "model_options": {"units": 4}}):
        with pytest.raises(UntrustedCodeError):
            check_started("RUN", small_config(**changes))


@pytest.mark.parametrize("changes", [{"model": "mine.py:build", "model_options": {}}, {"weights": "mine.py"}])
def test_the_same_name_in_another_folder_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    config = small_config(**changes)
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").touch()
    monkeypatch.chdir(tmp_path / "mine")
    note_start(config)
    check_started("RUN", config)
    monkeypatch.chdir(tmp_path / "theirs")
    with pytest.raises(UntrustedCodeError, match=r"mine\.py"):
        check_started("RUN", config)


def test_what_the_user_has_just_named_needs_no_trust() -> None:
    config = small_config(mirror="gs://bucket/runs", sinks=["mlflow"])
    with pytest.raises(UntrustedCodeError) as caught:
        check_started("RUN", config, given=["mirror"])
    assert "mirror" not in caught.value.what
    assert "mlflow" in caught.value.what


def test_a_long_list_says_how_much_it_leaves_out() -> None:
    config = small_config(callbacks=[f"mine.py:C{number}(x='{'y' * 999}')" for number in range(50)])
    with pytest.raises(UntrustedCodeError, match="and 30 more") as caught:
        check_started("RUN", config)
    assert len(caught.value.what) < 10_000
