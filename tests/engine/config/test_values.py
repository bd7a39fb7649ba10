import tomllib
from typing import Any

import pytest

from tests.helpers import small_config
from tpu_console.engine.config.options import CALLBACKS, LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from tpu_console.engine.config.reading import parse_assignment, parse_config, with_changes
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.config.values import (
    AcceleratorKind,
    RequestedAccelerator,
    budget_seconds,
    parse_accelerator,
    parse_piece,
    piece_from_table,
    split_pieces,
)
from tpu_console.engine.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", RequestedAccelerator(AcceleratorKind.AUTO)),
        ("cpu", RequestedAccelerator(AcceleratorKind.CPU)),
        ("gpu", RequestedAccelerator(AcceleratorKind.GPU)),
        ("tpu", RequestedAccelerator(AcceleratorKind.TPU)),
        ("tpu:10.0.0.2:8470", RequestedAccelerator(AcceleratorKind.TPU, address="10.0.0.2:8470")),
        ("sim:8", RequestedAccelerator(AcceleratorKind.SIMULATED, simulated=8)),
    ],
)
def test_an_accelerator_is_parsed_into_kind_address_and_replicas(text: str, expected: RequestedAccelerator) -> None:
    assert small_config(accelerator=text).requested == parse_accelerator(text) == expected
    assert expected.is_tpu == text.startswith("tpu")


def test_other_texts_are_not_accelerators() -> None:
    for text in ("", "tpus", "tpu:", "tpu:a b", "cpu:1", "sim", "sim:0", "sim:08", "sim:100", "8"):
        with pytest.raises(ValueError, match="is not an accelerator"):
            parse_accelerator(text)


def test_steps_follow_from_the_global_batch_unless_they_are_set() -> None:
    config = small_config(batch_size=16)
    assert (config.steps_in_epoch(1000, 8), config.steps_in_epoch(None, 8)) == (7, None)
    assert config.model_copy(update={"steps_per_epoch": 50}).steps_in_epoch(None, 8) == 50


def test_only_tensorflow_makes_the_step_of_a_hub_model_or_when_asked_to() -> None:
    assert small_config().tpu_backend == "jax"
    assert small_config(backend="tensorflow").tpu_backend == "tensorflow"
    assert small_config(model="hub", model_options={"path": "here"}).tpu_backend == "tensorflow"


def test_a_budget_is_a_duration_or_a_service() -> None:
    known = {"": None, "8h 30m": 30_600, "90m": 5_400, "45s": 45, "1d": 86_400, "colab": 43_200, "kaggle": 43_200}
    for budget, seconds in known.items():
        assert budget_seconds(small_config(budget=budget).budget) == seconds
    assert budget_seconds("kaggle", on_tpu=True) == 32_400
    for budget in ("0s", "soon", "8", "30m8h", "-1h", "1h1h", "9" * 40 + "h", "8h\n", "kagle"):
        with pytest.raises(ConfigError, match="is not a duration"):
            small_config(budget=budget)


def test_a_mirror_is_a_folder_or_a_bucket_and_so_no_secret_can_be_in_it() -> None:
    for mirror in ("", "/mnt/drive/My runs", "~/runs", "gs://bucket", "gs://my-bucket/a/b_c.d/"):
        assert small_config(mirror=mirror).mirror == mirror
    wrong = ("runs", "./runs", "~you/runs", "s3://bucket/runs", "gs://", "gs://user:secret@bucket/runs", " /mnt")
    for mirror in (*wrong, "gs://b/r?token=1", "file:///mnt"):
        with pytest.raises(ConfigError, match="must be a bucket"):
            small_config(mirror=mirror)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("auc", "auc", {}),
        ("auc()", "auc", {}),
        ("f1_score(average=micro, threshold=0.5)", "f1_score", {"average": "micro", "threshold": 0.5}),
        ("mine.py:f(a=[1, 2], b={c = 1}, d='x, y', e=True, f=None)", "mine.py:f",
         {"a": [1, 2], "b": {"c": 1}, "d": "x, y", "e": True, "f": None}),
    ],
)  # fmt: skip
def test_a_piece_is_a_name_with_options(text: str, name: str, options: dict[str, Any]) -> None:
    piece = parse_piece(text)
    assert (piece.name, dict(piece.options)) == (name, options)


def test_a_table_is_written_as_the_piece_that_it_means() -> None:
    text = piece_from_table({"name": "mine.py:f", "a": [1, {"b": "é"}, True]})
    assert text == 'mine.py:f(a=[1, {"b"="é"}, true])'
    assert parse_piece(text).options == {"a": [1, {"b": "é"}, True]}


def test_commas_in_brackets_and_quotes_belong_to_a_piece() -> None:
    pieces = ["accuracy", "auc(curve=PR, name='a, b')", "m.py:f(x=[1,2])"]
    assert split_pieces(",  ".join(pieces) + " ,") == pieces


@pytest.mark.parametrize("value", ["accuracy,auc", '["accuracy", "auc"]', '["Accuracy", {name = "AUC"}]'])
def test_metrics_are_set_as_text_list_or_tables(value: str) -> None:
    assert with_changes(small_config(), [parse_assignment(f"metrics={value}")]).metrics == ("accuracy", "auc")


OWN: dict[str, Any] = {"model": "mine.py:build", "model_options": {}}


@pytest.mark.parametrize(
    "value",
    [
        "price=mae,kind=Sparse_Categorical_Crossentropy(ignore_class=0)",
        '{price = "mae", kind = {name = "sparse_categorical_crossentropy", ignore_class = 0}}',
    ],
)
def test_outputs_have_a_loss_each_as_text_or_table(value: str) -> None:
    config = with_changes(small_config(**OWN), [parse_assignment(f"loss={value}")])
    assert {name: parse_piece(text) for name, text in config.losses.items()} == {
        "price": parse_piece("mean_absolute_error"),
        "kind": parse_piece("sparse_categorical_crossentropy(ignore_class=0)"),
    }
    assert (config.loss_name, config.takes_shares, config.takes_probabilities) == ("", False, True)
    assert parse_config(tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize(
    "value", ["price=mse, kind=accuracy, kind=auc(curve=PR)", '{price = "mse", kind = ["accuracy", "auc(curve=PR)"]}']
)
def test_outputs_have_metrics_each_as_text_or_table(value: str) -> None:
    config = with_changes(small_config(**OWN), [parse_assignment(f"metrics={value}")])
    assert config.metrics == ("price=mean_squared_error", "kind=accuracy", "kind=auc(curve=PR)")
    assert config.metric_names == ("price_mean_squared_error", "kind_accuracy", "kind_auc")


def test_a_configuration_with_pieces_is_written_and_read_back() -> None:
    config = small_config(
        loss={"name": "Huber", "delta": 2.0},
        metrics=["mine.py:mine(x=1)", {"name": "F1Score", "average": "micro"}],
        optimizer={"name": "SGD(nesterov=true)", "schedule": "PiecewiseConstantDecay(boundaries=[9], values=[1, 2])"},
        callbacks="CSVLogger(filename=x.csv), mine.py:Own",
        custom_objects=["mine.py:Layer"],
    )
    assert config.loss == "huber(delta=2.0)"
    assert config.metric_names == ("mine", "f1_score")
    assert config.optimizer.name == "sgd(nesterov=true)"
    assert config.callbacks == ("csv_logger(filename=x.csv)", "mine.py:Own")
    assert parse_config(tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metrics": "acuracy"}, "metrics.0: unknown name 'acuracy'; did you mean 'accuracy'?"),
        ({"metrics": "auc(curve=PR"}, "has no closing bracket"),
        ({"metrics": "auc(PR)"}, "'PR' in 'auc(PR)' is not key=value"),
        ({"metrics": [{"curve": "PR"}]}, "a table needs a name"),
        ({"loss": "mae, mse"}, "loss: name each output once, as in price=mean_absolute_error"),
        ({"loss": "a=mae, a=mse"}, "loss: name each output once"),
        ({"loss": "a=mae, b=mse", "label_smoothing": 0.1, **OWN}, "works only with crossentropy losses"),
        ({"loss": "a=mae, b=mse", "augmentation": {"mixup": 0.2}, **OWN}, "mixup and cutmix work only with one loss"),
        ({"loss": "a=mae, b=mse", "loss_weights": {"c": 1}, **OWN}, "loss_weights: 'c' has no loss"),
        ({"loss": "a=mae, b=mse"}, "loss: names the output 'a', but mlp has a single one"),
        ({"metrics": "accuracy, b=mse"}, "metrics: names the output 'b'"),
        (
            {"metrics": "sparse_categorical_accuracy", "label_smoothing": 0.1},
            "are then shares; use 'categorical_accuracy'",
        ),
        ({"loss": "mine.py"}, "unknown name 'mine.py'"),
        ({"callbacks": ["EarlyStopping(patience=3)"]}, "the table [early_stopping], such as early_stopping.patience=3"),
        ({"loss": "mine.py:3"}, "is not package.module:function"),
        ({"custom_objects": ["Layer"]}, "is not package.module:function"),
        ({"optimizer": {"name": "adm"}}, "did you mean 'adam'?"),
        ({"callbacks": "reduce_lr_on_plateau", "optimizer": {"schedule": "cosine"}}, "needs a constant learning rate"),
    ],
)
def test_a_piece_that_is_wrong_is_explained(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        small_config(**changes)
    assert says in str(refused.value)


def test_every_name_is_a_class_of_keras() -> None:
    import keras

    for names, module in (
        (LOSSES, keras.losses),
        (METRICS, keras.metrics),
        (OPTIMIZERS, keras.optimizers),
        (SCHEDULES, keras.optimizers.schedules),
        (CALLBACKS, keras.callbacks),
    ):
        assert [name for name in names.values() if name and not hasattr(module, name)] == []
