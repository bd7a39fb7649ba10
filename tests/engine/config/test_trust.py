from pathlib import Path
from typing import Any

import pytest

from tests.helpers import small_config
from tpu_console.engine.config.options import CALLBACKS
from tpu_console.engine.config.reading import valid_keys
from tpu_console.engine.config.trust import check_started, is_own_source, note_start, reached
from tpu_console.engine.errors import UntrustedCodeError

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
