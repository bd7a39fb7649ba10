"""The run configuration: TOML and back, and the errors of invalid ones."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from tests.engine.strategies import configurations
from tpu_console.engine.config.reading import load_config, parse_assignment, parse_config, valid_keys, with_changes
from tpu_console.engine.config.run_config import RunConfig, to_toml
from tpu_console.engine.errors import ConfigError
from tpu_console.engine.models.basic import CnnOptions, MlpOptions

if TYPE_CHECKING:
    from pathlib import Path

REQUIRED = {"dataset": "digits", "model": "cnn", "batch_size": 32, "epochs": 3}


def problems(values: dict[str, Any]) -> dict[str, str]:
    """What is wrong with plain values, by key."""
    with pytest.raises(ConfigError) as caught:
        parse_config(values)
    return {problem.key: problem.message for problem in caught.value.problems}


def set_deep(values: dict[str, Any], dotted: str, value: object) -> dict[str, Any]:
    """Plain values with one dotted key set."""
    head, _, rest = dotted.partition(".")
    return values | {head: set_deep(values.get(head, {}), rest, value) if rest else value}


@given(configurations())
def test_every_configuration_survives_toml(config: RunConfig) -> None:
    assert parse_config(tomllib.loads(to_toml(config))) == config


@given(configurations())
def test_a_configuration_without_its_defaults_is_the_same(config: RunConfig) -> None:
    assert parse_config(config.model_dump(mode="json", exclude_defaults=True)) == config


def test_a_file_is_read_back_equal(tmp_path: Path) -> None:
    config = parse_config(REQUIRED | {"optimizer": {"learning_rate": 3e-4}, "model": "../é/mine.py:build"})
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config


def test_a_configuration_cannot_be_changed() -> None:
    config = parse_config(REQUIRED)
    with pytest.raises(ValueError, match="frozen"):
        config.epochs = 4  # type: ignore[misc]


def test_every_problem_names_its_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "dataset = 'digit'\nmodel = 'cnn'\nbatch_size = 0\nepoch = 3\nmetrics = ['accurcy']\n"
        "[model_options]\nfilter = [3]\n[optimizer]\nlearning_rate = 'fast'\nschedle = 'cosine'\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    found = {problem.key: problem.message for problem in caught.value.problems}
    assert found.keys() == {
        "dataset",
        "batch_size",
        "epoch",
        "epochs",
        "metrics.0",
        "model_options.filter",
        "optimizer.learning_rate",
        "optimizer.schedle",
    }
    lines = str(caught.value).splitlines()
    assert len(lines) == len(found)
    assert all(line.startswith(f"{path}: ") for line in lines)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("epoch", "epochs"),
        ("batchsize", "batch_size"),
        ("learning_rate", "optimizer.learning_rate"),
        ("optimizer.learning_rat", "optimizer.learning_rate"),
        ("early_stopping.patient", "early_stopping.patience"),
        ("data.pixel", "data.pixels"),
        ("model_options.filter", "model_options.filters"),
    ],
)
def test_an_unknown_key_suggests_the_nearest_one(key: str, nearest: str) -> None:
    found = problems(set_deep(REQUIRED, key, 1))
    assert found[key] == f"unknown key; did you mean '{nearest}'?"


@pytest.mark.parametrize(
    ("key", "value", "nearest"),
    [
        ("dataset", "fashion_mnist", "'fashion-mnist'"),
        ("dataset", "digit", "'digits'"),
        ("model", "ccn", "'cnn'"),
        ("loss", "crossentropy", "crossentropy"),
        ("optimizer.name", "adamm", "'adam'"),
    ],
)
def test_an_unknown_name_suggests_a_valid_one(key: str, value: str, nearest: str) -> None:
    assert nearest in problems(set_deep(REQUIRED, key, value))[key]


def test_a_name_without_a_near_match_lists_all_names() -> None:
    message = problems(REQUIRED | {"dataset": "xyzzy"})["dataset"]
    assert "valid: " in message
    assert "fashion-mnist, hf, image-csv, image-folder" in message
    assert "package.module:function" in message


@pytest.mark.parametrize("reference", ["mine:", ":make", "a b:make", "mine.py:not a name", "1x:make"])
def test_an_invalid_function_reference_is_refused(reference: str) -> None:
    assert "is not package.module:function" in problems(REQUIRED | {"model": reference})["model"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -8),
        ("batch_size", 1.5),
        ("batch_size", True),
        ("batch_size", "32"),
        ("epochs", 0),
        ("epochs", "many"),
        ("steps_per_epoch", 0),
        ("steps_per_epoch", "some"),
        ("steps_per_execution", -1),
        ("steps_per_execution", "AUTO"),
        ("validation_freq", 0),
        ("seed", -1),
        ("precision", "float16"),
        ("accelerator", "tpus"),
        ("accelerator", "sim:0"),
        ("accelerator", "sim:100"),
        ("accelerator", "sim:x"),
        ("name", "a/b"),
        ("name", ""),
        ("data.validation_fraction", 0.0),
        ("data.validation_fraction", 1.0),
        ("data.cache", "yes"),
        ("data.train_limit", -1),
        ("data.options", 3),
        ("model_options", 3),
        ("model_options.filters", []),
        ("model_options.filters", [32, 0]),
        ("model_options.dropout", 1.0),
        ("optimizer.learning_rate", 0.0),
        ("optimizer.learning_rate", -1e-3),
        ("optimizer.learning_rate", float("nan")),
        ("optimizer.learning_rate", float("inf")),
        ("optimizer.learning_rate", "1e-3"),
        ("optimizer.schedule", "linear(final_fraction=0)"),
        ("optimizer.schedule", "cosine(end=0.5)"),
        ("data.options.columns", ["user", "item"]),
        ("augmentation.rotation", 181.0),
        ("early_stopping.patience", -1),
        ("tensorboard", True),
    ],
)
def test_an_invalid_value_is_reported_with_its_key(key: str, value: object) -> None:
    found = problems(set_deep(REQUIRED, key, value))
    assert [one for one in found if one == key or one.startswith(f"{key}.")], found
    assert all(message and "\n" not in message for message in found.values())


@pytest.mark.parametrize("name", ["../../etc", "a b", "😀", "n" * 65])
def test_a_name_that_no_folder_may_have_says_which_one_may(name: str) -> None:
    found = problems(set_deep(REQUIRED, "name", name))
    assert found["name"].startswith("use 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit")
    assert "^[" not in found["name"]


def test_a_whole_number_is_a_valid_learning_rate() -> None:
    assert parse_config(REQUIRED | {"optimizer": {"learning_rate": 1}}).optimizer.learning_rate == 1.0


def _of(dataset: str, **options: object) -> dict[str, Any]:
    return {"dataset": dataset, "data": {"options": {"path": "x", **options}}}


@pytest.mark.parametrize(
    ("earlier", "today"),
    [
        ({"tensorboard": {"enabled": False}}, {"sinks": []}),
        ({"tensorboard": {"enabled": True}, "sinks": ["wandb"]}, {"sinks": ["tensorboard", "wandb"]}),
        (
            {"tensorboard": {"enabled": False}, "sinks": ["mlflow"], "project": "pets"},
            {"sinks": ['mlflow(project="pets")']},
        ),
        ({"project": "tpu-console"}, {}),
        (
            {"alerts": {"spike": False, "disk": True, "bell": True, "webhook_per_minute": 10}},
            {"alerts": {"kinds": ["plateau", "overfitting", "slow_epoch", "input", "disk", "compilation"]}},
        ),
        ({"hosts": {"count": 2, "wait_s": 300}}, {"hosts": {"count": 2}}),
        (
            {"model": "application", "model_options": {"trainable": "from", "from_layer": -3}},
            {"model": "application", "model_options": {"trainable": -3}},
        ),
        (
            {"model": "application", "model_options": {"trainable": "none", "from_layer": 0, "pooling": "avg"}},
            {"model": "application", "model_options": {"trainable": "none"}},
        ),
        ({"checkpoint": {"enabled": False, "monitor": "val_loss"}}, {"checkpoint": {"monitor": "none"}}),
        ({"checkpoint": {"enabled": True, "monitor": "val_loss"}}, {"checkpoint": {"monitor": "val_loss"}}),
        (
            {"optimizer": {"name": "sgd(nesterov=true)", "momentum": 0.9, "clip_norm": 1.0, "final_fraction": 0.1}},
            {"optimizer": {"name": "sgd(nesterov=true, clipnorm=1.0, momentum=0.9)"}},
        ),
        (
            {"optimizer": {"name": "adam", "momentum": 0.9, "schedule": "cosine", "final_fraction": 0.1}},
            {"optimizer": {"schedule": "cosine(final_fraction=0.1)"}},
        ),
        (
            {"optimizer": {"schedule": "linear", "final_fraction": 0.01, "momentum": 0.0, "clip_norm": 0.0}},
            {"optimizer": {"schedule": "linear"}},
        ),
        (
            {"model": "recommender", "model_options": {"kind": "factors", "hidden": [8]}},
            {"model": "recommender"},
        ),
        (
            {"model": "recommender", "model_options": {"kind": "towers"}},
            {"model": "recommender", "model_options": {"hidden": [64, 32]}},
        ),
        (_of("text-csv", text_column="review", label_column="good"), _of("text-csv", inputs="review", label="good")),
        (_of("image-csv", id_column="name", label_columns=["a"]), _of("image-csv", inputs="name", label=["a"])),
        (_of("npz", inputs="x", labels="y"), _of("npz", inputs="x", label="y")),
        (
            _of("ratings-csv", item_column="book", split="random", time_column="when"),
            _of("ratings-csv", columns=["userId", "book", "rating"]),
        ),
        (_of("mine.py:data", label_column="mine"), _of("mine.py:data", label_column="mine")),
    ],
)
def test_keys_of_earlier_versions_are_read(earlier: dict[str, Any], today: dict[str, Any]) -> None:
    assert parse_config(REQUIRED | earlier) == parse_config(REQUIRED | today)


@pytest.mark.parametrize("sink", ["wandbb", "wandb(name=1)", 'tensorboard(project="x")', "wandb(project=3)", "a.py:b"])
def test_an_unknown_tracker_or_option_is_an_error(sink: str) -> None:
    assert set(problems(REQUIRED | {"sinks": [sink]})) == {"sinks.0"}


def test_missing_keys_are_required() -> None:
    assert problems({}) == dict.fromkeys(REQUIRED, "is required")


def test_a_syntax_error_names_its_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("dataset = 'digits'\nmodel = \nepochs = 3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.toml: is not valid TOML: .*line 2"):
        load_config(path)


def test_a_binary_or_missing_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes("name = 'é'".encode("latin-1"))
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("epochs=5", 5),
        ("optimizer.learning_rate=1e-3", 1e-3),
        ("early_stopping.restore_best_weights=false", False),
        ("steps_per_epoch=all", "all"),
        ("steps_per_epoch='all'", "all"),
        ("model_options.filters=[8, 16]", [8, 16]),
        ("model=some dir/mine.py:build", "some dir/mine.py:build"),
        ("data.options={a=1}", {"a": 1}),
        ("name=", ""),
        ("name=a=b", "a=b"),
        (" epochs = 5", 5),
    ],
)
def test_an_assignment_is_toml_or_plain_text(text: str, value: object) -> None:
    key, parsed = parse_assignment(text)
    assert (key, parsed) == (text.partition("=")[0].strip(), value)


@pytest.mark.parametrize("text", ["epochs", "=5", "", "--epochs"])
def test_an_assignment_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not key=value"):
        parse_assignment(text)


def test_changes_are_checked_together_with_the_rest() -> None:
    config = parse_config(REQUIRED)
    changed = with_changes(config, [("epochs", 7), ("optimizer.name", "sgd"), ("epochs", 9)])
    assert (changed.epochs, changed.optimizer.name) == (9, "sgd")
    assert config.epochs == 3
    with pytest.raises(ConfigError) as caught:
        with_changes(config, [("epochs", 0), ("optimizer.nam", "sgd"), ("batch_size.x", 1)], "--set")
    assert "--set: batch_size.x: 'batch_size' is not a table" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        with_changes(config, [("epochs", 0), ("optimizer.nam", "sgd")], "--set")
    assert [problem.key for problem in caught.value.problems] == ["epochs", "optimizer.nam"]


def test_another_model_starts_from_its_own_options() -> None:
    config = parse_config(REQUIRED | {"model_options": {"filters": [4]}})
    assert with_changes(config, [("model", "mlp")]).model_options == {}
    assert with_changes(config, [("model", "mlp"), ("model_options.hidden", [5])]).model_options == {"hidden": [5]}
    assert with_changes(config, [("model", "cnn")]).model_options == {"filters": [4]}


def test_each_model_has_its_own_options() -> None:
    assert CnnOptions.model_validate({"filters": [4], "batch_norm": True}).batch_norm
    assert MlpOptions.model_validate({"hidden": [4]}).hidden == (4,)
    assert "model_options.filters" in problems(REQUIRED | {"model": "mlp", "model_options": {"filters": [4]}})
    own = parse_config(REQUIRED | {"model": "mine.py:build", "model_options": {"anything": [1, {"a": "b"}]}})
    assert own.model_options == {"anything": [1, {"a": "b"}]}


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "exponential"])
def test_warm_up_works_only_with_constant_and_cosine(schedule: str) -> None:
    values = REQUIRED | {"optimizer": {"schedule": schedule, "warmup_epochs": 1.0}}
    if schedule in {"constant", "cosine"}:
        assert parse_config(values).optimizer.warmup_epochs == 1.0
    else:
        assert f"not {schedule}" in problems(values)["optimizer.warmup_epochs"]


def test_augmentation_without_a_layer_cannot_be_placed_in_the_model() -> None:
    changes = {"mixup": 0.2, "crop": 0.1, "cutmix": 0.0, "rotation": 10.0}
    values = {"dataset": "cifar10", "model": "cnn", "batch_size": 32, "epochs": 1}
    for placement in ("auto", "pipeline"):
        parse_config(values | {"augmentation": changes | {"placement": placement}})
    with pytest.raises(ConfigError) as caught:
        parse_config(values | {"augmentation": changes | {"placement": "model"}})
    messages = {problem.key: problem.message for problem in caught.value.problems}
    assert messages.keys() == {"augmentation.mixup", "augmentation.crop"}
    assert all(text.startswith("cannot be placed in the model: ") for text in messages.values())
    assert "set augmentation.placement to pipeline or auto" in messages["augmentation.crop"]


def test_only_metrics_of_the_run_can_be_monitored() -> None:
    found = problems(REQUIRED | {"early_stopping": {"monitor": "val_acuracy"}, "checkpoint": {"monitor": "val_auc"}})
    assert "did you mean 'val_accuracy'?" in found["early_stopping.monitor"]
    assert "is not a metric of this run" in found["checkpoint.monitor"]


def test_a_built_in_dataset_has_no_options() -> None:
    found = problems(REQUIRED | {"data": {"options": {"path": "x"}}})
    assert found == {"data.options.path": "digits has no options"}


def test_options_are_dropped_with_their_dataset() -> None:
    files = parse_config(REQUIRED | {"dataset": "image-folder", "data": {"options": {"path": "photos"}}})
    assert with_changes(files, [("dataset", "digits")]).data.options == {}
    changed = with_changes(files, [("dataset", "tfrecord"), ("data.options.path", "shards")])
    assert changed.data.options == {"path": "shards"}


def test_valid_keys_has_every_key_that_can_be_set() -> None:
    keys = valid_keys()
    assert {"epochs", "optimizer.learning_rate", "data.options", "model_options.filters"} <= keys.keys()
    assert keys["optimizer.learning_rate"] == 1e-3
    config = parse_config(REQUIRED | {"dataset": "mine.py:data"})
    for key, default in keys.items():
        if default is not None and not key.startswith(("model_options.", "data.options.")):
            plain = list(default) if isinstance(default, tuple) else default
            assert with_changes(config, [(key, plain)]).model_fields_set
