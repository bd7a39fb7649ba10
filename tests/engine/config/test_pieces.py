import tomllib
from typing import Any

import pytest

from tests.helpers import small_config
from tpu_console.engine.config.options import CALLBACKS, LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from tpu_console.engine.config.pieces import parse_piece, piece_from_table, split_pieces
from tpu_console.engine.config.reading import parse_assignment, parse_config, with_changes
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.errors import ConfigError


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
