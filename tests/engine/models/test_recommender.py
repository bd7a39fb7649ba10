"""The recommender: what it computes, and that it learns."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.engine.data.test_text_files import config
from tests.words import ratings
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.compile import compile_model

USERS, ITEMS, MEAN = 60, 40, 3.25
SIGNATURE = Signature(
    Task.RATINGS,
    {"user": Input((), "int32"), "item": Input((), "int32")},
    sizes={"users": USERS + 1, "items": ITEMS + 1},
    label_mean=MEAN,
)


def built(**changes: Any) -> Any:
    return build_model(config("ratings-csv", "x", **changes), SIGNATURE)


def inputs(count: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "user": random.integers(0, USERS + 1, count).astype(np.int32),
        "item": random.integers(0, ITEMS + 1, count).astype(np.int32),
    }


def test_factors_are_the_mean_two_biases_and_a_product() -> None:
    keras.utils.set_random_seed(1)
    model = built(model_options={"width": 3})
    for name in ("user_bias", "item_bias"):
        table = model.get_layer(name).embeddings
        table.assign(np.random.default_rng(2).normal(size=table.shape))
    given = inputs(50)
    tables = {name: model.get_layer(name).embeddings.numpy() for name in ("user_factors", "item_factors")}
    user, item = tables["user_factors"][given["user"]], tables["item_factors"][given["item"]]
    biases = sum(model.get_layer(f"{name}_bias").embeddings.numpy()[given[name], 0] for name in given)
    said = model.predict(given, verbose=0)
    assert said.shape == (50, 1)
    np.testing.assert_allclose(said[:, 0], MEAN + biases + (user * item).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("hidden", [[], [64, 32]])
def test_it_learns_what_users_like(hidden: list[int]) -> None:
    keras.utils.set_random_seed(3)
    rows = ratings(USERS, ITEMS, 2000)
    items = {item: number for number, item in enumerate(sorted({row[1] for row in rows}), 1)}
    x = {"user": np.array([row[0] for row in rows]), "item": np.array([items[row[1]] for row in rows])}
    y = np.array([row[2] for row in rows], np.float32)
    settings = config(
        "ratings-csv", "x", model_options={"hidden": hidden, "width": 8}, optimizer={"learning_rate": 0.02}
    )
    model = build_model(settings, SIGNATURE)
    compile_model(model, settings, SIGNATURE, 1, 25)
    train = slice(0, 1600), slice(1600, None)
    model.fit({name: part[train[0]] for name, part in x.items()}, y[train[0]], batch_size=64, epochs=15, verbose=0)
    said = model.predict({name: part[train[1]] for name, part in x.items()}, verbose=0)[:, 0]
    error = float(np.sqrt(np.mean((said - y[train[1]]) ** 2)))
    assert error < 0.6 * y[train[1]].std()


def test_the_penalty_counts_in_the_loss_and_not_in_the_error() -> None:
    settings = config("ratings-csv", "x", model_options={"regularisation": 1.0})
    model = build_model(settings, SIGNATURE)
    compile_model(model, settings, SIGNATURE, 1, 1)
    given, y = inputs(10), np.full(10, MEAN, np.float32)
    measured = model.evaluate(given, y, return_dict=True, verbose=0)
    squares = sum(float((weight.numpy() ** 2).sum()) for weight in model.weights if "factors" in weight.path)
    assert measured["loss"] == pytest.approx(squares + measured["root_mean_squared_error"] ** 2, rel=1e-4)
    assert not built(model_options={"regularisation": 0.0}).losses
