import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.engine.strategies import configurations
from tpu_console.engine.config.reading import (
    load_config,
    parse_assignment,
    parse_config,
    run_command,
    valid_keys,
    with_changes,
)
from tpu_console.engine.config.run_config import RunConfig, to_toml
from tpu_console.engine.errors import ConfigError
from tpu_console.engine.sanitize import DEEPEST

REQUIRED = {"dataset": "digits", "model": "cnn", "batch_size": 32, "epochs": 3}


HUB = {"model": "hub", "model_options": {"path": "x", "trainable": False}}


def problems(values: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(values)
    return {problem.key: problem.message for problem in caught.value.problems}


def set_deep(values: dict[str, Any], dotted: str, value: object) -> dict[str, Any]:
    head, _, rest = dotted.partition(".")
    return values | {head: set_deep(values.get(head, {}), rest, value) if rest else value}


@given(configurations())
def test_every_configuration_survives_toml_and_needs_no_defaults(config: RunConfig) -> None:
    assert parse_config(tomllib.loads(to_toml(config))) == config
    assert parse_config(config.model_dump(mode="json", exclude_defaults=True)) == config


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"dataset = 'digits'\nmodel = \nepochs = 3\n", r"mine\.toml: is not valid TOML: .*line 2"),
        ("name = 'é'".encode("latin-1"), "is not UTF-8"),
        (None, "cannot be read: No such file"),
        (b"x = " + b"[" * 10_000, "nested brackets"),
        (b".".join([b"a"] * 1002) + b" = 1", "more than 1,000 parts"),
    ],
)
def test_a_file_is_read_back_equal_or_refused(tmp_path: Path, content: bytes | None, what: str) -> None:
    config = parse_config(REQUIRED | {"optimizer": {"learning_rate": 3e-4}, "model": "../é/mine.py:build"})
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config
    with pytest.raises(ValueError, match="frozen"):
        config.epochs = 4  # type: ignore[misc]
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError, match=what):
        load_config(path)


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
    keys = "dataset batch_size epoch epochs metrics.0 model_options.filter optimizer.learning_rate optimizer.schedle"
    assert found.keys() == {*keys.split()}
    lines = str(caught.value).splitlines()
    assert len(lines) == len(found)
    assert all(line.startswith(f"{path}: ") for line in lines)


@pytest.mark.parametrize(
    ("key", "value", "nearest"),
    [
        ("epoch", 1, "did you mean 'epochs'?"),
        ("learning_rate", 1, "'optimizer.learning_rate'"),
        ("early_stopping.patient", 1, "'early_stopping.patience'"),
        ("training.epochs", 1, "did you mean 'epochs'?"),
        ("optimiser.learning_rate", 1, "did you mean 'optimizer.learning_rate'?"),
        ("model_options.filter", 1, "'model_options.filters'"),
        (
            "optimizer.x",
            1,
            "unknown key; valid: optimizer.learning_rate, optimizer.name, optimizer.scale_with_replicas",
        ),
        ("early_stopping.latience", 1, "'early_stopping.patience'"),
        ("zzz", 1, "unknown key; docs/configuration.md lists all keys, and / in the console finds them"),
        ("dataset", "fashion_mnist", "'fashion-mnist'"),
        ("model", "ccn", "'cnn'"),
        ("loss", "crossentropy", "crossentropy"),
        ("optimizer.name", "adamm", "'adam'"),
        ("dataset", "xyzzy", "valid: cifar10, cifar100, digits, fashion-mnist, hf, image-csv"),
        ("dataset", "xyzzy", "package.module:function"),
    ],
)
def test_an_unknown_key_or_name_suggests_the_nearest_one(key: str, value: object, nearest: str) -> None:
    assert nearest in problems(set_deep(REQUIRED, key, value))[key]


@pytest.mark.parametrize(
    ("key", "values"),
    {
        "model": ["mine:", ":make", "a b:make", "mine.py:not a name", "1x:make"],
        "sinks": [["wandbb"], ["wandb(name=1)"], ['tensorboard(project="x")'], ["wandb(project=3)"], ["a.py:b"]],
        "batch_size": [0, -8, 1.5, True, "32"],
        "epochs": [0, "many"],
        "steps_per_epoch": [0, "some"],
        "steps_per_execution": [-1, "AUTO"],
        "validation_freq": [0],
        "seed": [-1],
        "precision": ["float16"],
        "accelerator": ["tpus", "sim:0", "sim:100"],
        "name": ["a/b", "", "../../etc", "a b", "😀", "n" * 65],
        "data.validation_fraction": [0.0, 1.0],
        "data.cache": ["yes"],
        "data.options": [3],
        "model_options": [3],
        "model_options.filters": [[], [32, 0]],
        "model_options.dropout": [1.0],
        "optimizer.learning_rate": [0.0, -1e-3, float("nan"), float("inf"), "1e-3"],
        "optimizer.schedule": ["linear(final_fraction=0)", "linear(final_fraction=1.5)", "cosine(end=0.5)"],
        "data.options.columns": [["user", "item"]],
        "augmentation.rotation": [181.0],
        "tensorboard": [True],
    }.items(),
)
def test_an_invalid_value_is_reported_with_its_key(key: str, values: list[object]) -> None:
    for value in values:
        found = problems(set_deep(REQUIRED, key, value))
        assert [one for one in found if one == key or one.startswith(f"{key}.")], found
        assert all(message and "\n" not in message and "^[" not in message for message in found.values())


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
        ({"model": "recommender", "model_options": {"kind": "factors", "hidden": [8]}}, {"model": "recommender"}),
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


def nested(levels: int) -> dict[str, Any]:
    """A configuration with lists in lists, the outermost one in its third table."""
    value: list[Any] = []
    for _ in range(levels - 4):
        value = [value]
    return REQUIRED | {"dataset": "mine.py:data", "data": {"options": {"a": value}}}


def test_what_is_wrong_is_said_with_its_value_and_limit() -> None:
    assert problems({}) == dict.fromkeys(REQUIRED, "is required")
    assert problems(REQUIRED | {"epochs": 0})["epochs"].startswith("input should be greater than 0 (got 0")
    assert problems(REQUIRED | {"hosts": {"count": 2, "index": 2}})["hosts.index"].endswith("0 to 1")
    assert problems(nested(DEEPEST + 1)).popitem()[1].endswith("too deeply")
    parse_config(nested(DEEPEST))


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


def test_an_assignment_without_key_or_value_is_refused() -> None:
    for text in ("epochs", "=5", "", "--epochs"):
        with pytest.raises(ConfigError, match="is not key=value"):
            parse_assignment(text)


def test_changes_are_checked_together_with_the_rest() -> None:
    config = parse_config(REQUIRED)
    changed = with_changes(config, [("epochs", 7), ("optimizer.name", "sgd"), ("epochs", 9)])
    assert (changed.epochs, changed.optimizer.name) == (9, "sgd")
    assert config.epochs == 3
    with pytest.raises(ConfigError) as caught:
        with_changes(config, [("epochs", 0), ("optimizer.nam", "sgd"), ("batch_size.x", 1)], "--set")
    assert str(caught.value).startswith("--set: batch_size.x: ")
    with pytest.raises(ConfigError) as caught:
        with_changes(config, [("epochs", 0), ("optimizer.nam", "sgd")], "--set")
    assert [problem.key for problem in caught.value.problems] == ["epochs", "optimizer.nam"]


def test_another_model_starts_from_its_own_options() -> None:
    config = parse_config(REQUIRED | {"model_options": {"filters": [4]}})
    assert with_changes(config, [("model", "mlp")]).model_options == {}
    assert with_changes(config, [("model", "mlp"), ("model_options.hidden", [5])]).model_options == {"hidden": [5]}
    assert with_changes(config, [("model", "cnn")]).model_options == {"filters": [4]}


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"optimizer": {"schedule": "constant", "warmup_epochs": 1.0}}, set()),
        ({"optimizer": {"schedule": "cosine", "warmup_epochs": 1.0}}, set()),
        ({"optimizer": {"schedule": "linear(final_fraction=1)", "warmup_epochs": 1.0}}, {"optimizer.warmup_epochs"}),
        ({"optimizer": {"schedule": "exponential", "warmup_epochs": 1.0}}, {"optimizer.warmup_epochs"}),
        ({"augmentation": {"mixup": 0.2, "crop": 0.1, "rotation": 10.0, "placement": "auto"}}, set()),
        (
            {"augmentation": {"mixup": 0.2, "crop": 0.1, "cutmix": 0.0, "rotation": 10.0, "placement": "model"}},
            {"augmentation.mixup", "augmentation.crop"},
        ),
        (
            {"early_stopping": {"monitor": "val_acuracy"}, "checkpoint": {"monitor": "val_auc"}},
            {"early_stopping.monitor", "checkpoint.monitor"},
        ),
        ({"early_stopping": {"monitor": "val_accuracy"}, "checkpoint": {"monitor": "none"}}, set()),
        ({"early_stopping": {"monitor": "mine"}, "model": "mine.py:build"}, set()),
        ({"label_smoothing": 0.1}, set()),
        ({"label_smoothing": 0.1, "loss": "mean_squared_error"}, {"label_smoothing"}),
        ({"label_smoothing": 0.1, "metrics": ["sparse_categorical_accuracy"]}, {"metrics"}),
        ({"augmentation": {"cutmix": 1.0}, "metrics": ["sparse_top_k_categorical_accuracy"]}, {"metrics"}),
        (HUB | {"fine_tuning": {"after_epochs": 1}}, set()),
        (HUB | {"fine_tuning": {"after_epochs": 1, "from_layer": 3}}, {"fine_tuning.from_layer"}),
        ({"hosts": {"count": 2, "index": 1}, "backend": "jax"}, set()),
        ({"hosts": {"count": 2, "index": 2}}, {"hosts.index"}),
        ({"hosts": {"count": 2}, "backend": "tensorflow"}, {"backend"}),
        ({"hosts": {"count": 2}, "accelerator": "sim:3"}, {"accelerator"}),
        ({"hosts": {"count": 2}, "accelerator": "sim:4"}, set()),
        (HUB | {"hosts": {"count": 2}}, {"hosts.count"}),
        (HUB | {"backend": "jax"}, {"backend"}),
        ({"backend": "jax", "accelerator": "tpu:10.0.0.1"}, {"backend"}),
    ],
)
def test_keys_that_do_not_fit_together_are_named(values: dict[str, Any], wrong: set[str]) -> None:
    if wrong:
        assert {*problems(REQUIRED | values)} == wrong
    else:
        parse_config(REQUIRED | values)


def test_options_are_dropped_with_their_dataset() -> None:
    found = problems(REQUIRED | {"data": {"options": {"path": "x"}}})
    assert {*found} == {"data.options.path"}
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


SHORT = {"--epochs": "epochs", "--batch-size": "batch_size", "--accelerator": "accelerator"}


def config(**changes: Any) -> RunConfig:
    return parse_config(REQUIRED | {"accelerator": "cpu"} | changes)


def run_again(command: str, base: RunConfig) -> RunConfig:
    """The configuration that a command trains, read as the command line reads it."""
    program, subcommand, _, *words = shlex.split(command)
    assert (program, subcommand) == ("tpu-console", "run")
    changes = []
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option == "--set":
            changes.append(parse_assignment(value))
        else:
            key = SHORT[option]
            changes.append((key, value if key == "accelerator" else int(value)))
    return with_changes(base, changes)


@settings(max_examples=40)
@given(configurations(), configurations())
def test_the_command_trains_the_same_configuration(base: RunConfig, wanted: RunConfig) -> None:
    assert run_again(run_command(wanted, base, "preset"), base) == wanted


def test_the_command_uses_the_short_options_and_quotes_for_the_shell() -> None:
    assert run_command(config(), config(), "digits-cnn") == "tpu-console run digits-cnn"
    changed = config(epochs=9, accelerator="sim:2", model_options={"filters": [8, 16]}, name="true")
    words = shlex.split(command := run_command(changed, config(), "a b"))
    assert words[:3] == ["tpu-console", "run", "a b"]
    given = {*zip(words[3::2], words[4::2], strict=True)}
    assert given > {("--epochs", "9"), ("--accelerator", "sim:2"), ("--set", 'name="true"')}
    assert run_again(command, config()) == changed


def test_a_removed_custom_option_is_removed_from_the_command() -> None:
    base = config(model="my net.py:build", model_options={"units": 3, "name": "a b"})
    fewer = base.model_copy(update={"model_options": {"units": 3}})
    assert run_again(run_command(fewer, base, "own"), base) == fewer


def test_the_command_does_not_empty_options_of_another_dataset() -> None:
    files = config(dataset="image-folder", data={"options": {"path": "photos", "skip_bad": True}})
    assert run_command(config(), files, "photos").split()[3:] == ["--set", "dataset=digits"]
    words = run_command(files, config(), "digits-cnn").split()
    assert words[4::2] == ["dataset=image-folder", "data.options.path=photos", "data.options.skip_bad=true"]
