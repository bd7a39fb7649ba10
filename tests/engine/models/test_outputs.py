"""What a custom model gives to its loss, and whether its labels fit."""

import re
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers import small_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.compile import compile_model
from tpu_console.engine.models.outputs import (
    are_unknown,
    check_labels,
    class_outputs,
    for_outputs,
    logits_activation,
    outputs_by_name,
)

layers = keras.layers
X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
SIGNATURE = Signature(Task.OWN, {"example": Input((4,))}, 3)


def config(**changes: Any) -> Any:
    return small_config(model="mine.py:build", model_options={}, dataset="mine.py:data", **changes)


def sequential(*stack: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *stack])


def functional(last: Any) -> Any:
    inputs = keras.Input((4,))
    return keras.Model(inputs, last(layers.Dense(3)(inputs)))


def activation_of(model: Any, settings: Any, inputs: Any = X) -> Any:
    return logits_activation(model, settings, outputs_by_name(model, inputs))


class Subclassed(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """A model whose last layer Keras does not know."""

    def __init__(self, activation: str | None, units: int = 3) -> None:
        super().__init__()
        self.dense = layers.Dense(units, activation)

    def call(self, x: Any) -> Any:
        return self.dense(x) * 1.0


@pytest.mark.parametrize(
    ("model", "activation"),
    [
        (sequential(layers.Dense(3)), "softmax"),
        (sequential(layers.Dense(3, "softmax")), ""),
        (sequential(layers.Dense(3), layers.Softmax()), ""),
        (sequential(layers.Dense(3), layers.Activation("softmax", dtype="float32")), ""),
        (sequential(keras.Sequential([layers.Dense(3)])), "softmax"),
        (functional(keras.ops.softmax), ""),
        (functional(lambda x: x * 2), "softmax"),
        (Subclassed(None), "softmax"),
        (Subclassed("softmax"), ""),
    ],
)
def test_logits_are_found_by_the_last_layer_or_a_batch(model: Any, activation: str) -> None:
    assert activation_of(model, config()) == activation


def test_two_classes_need_a_sigmoid_and_a_key_overrides_the_detection() -> None:
    binary = config(loss="binary_crossentropy")
    assert activation_of(sequential(layers.Dense(1)), binary) == "sigmoid"
    assert activation_of(Subclassed("sigmoid", 1), binary) == ""
    assert activation_of(sequential(layers.Dense(3)), config(outputs="probabilities")) == ""
    assert activation_of(sequential(layers.Dense(3, "softmax")), config(outputs="logits")) == "softmax"
    assert activation_of(sequential(layers.Dense(3)), config(loss="mean_squared_error")) == ""


class OnLogits(keras.losses.Loss):  # type: ignore[misc]  # Keras is untyped
    """A loss that says what it takes, like those of Keras."""

    from_logits = True

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def never_called(y_true: Any, y_pred: Any) -> Any:
    raise AssertionError


CLASSES, ROWS, SIDES = np.arange(64) % 3, np.eye(3)[np.arange(64) % 3], np.arange(64) % 2


@pytest.mark.parametrize(
    ("loss", "outputs", "labels", "last", "activation", "is_class"),
    [
        (OnLogits(), "auto", CLASSES, layers.Dense(3), "softmax", True),
        (OnLogits(), "probabilities", CLASSES, layers.Dense(3, "softmax"), "", True),
        (never_called, "logits", ROWS, layers.Dense(3), "softmax", True),
        (never_called, "logits", SIDES, layers.Dense(1), "sigmoid", True),
        (never_called, "logits", SIDES[:, None], layers.Dense(1), "sigmoid", True),
        (never_called, "auto", CLASSES, layers.Dense(3, "softmax"), "", True),
        (never_called, "auto", CLASSES, layers.Dense(3), "", False),
        (never_called, "auto", SIDES, layers.Dense(1), "", False),
        (never_called, "auto", np.zeros((64, 2, 2)), layers.Dense(3, "softmax"), "", False),
    ],
)
def test_a_loss_of_the_user_is_not_called_to_find_whether_it_takes_logits(
    loss: Any, outputs: str, labels: Any, last: Any, activation: str, is_class: bool
) -> None:
    model, settings = sequential(last), config(loss="mine.py:loss", outputs=outputs)
    named = outputs_by_name(model, X)
    found = logits_activation(model, settings, named, {"": loss})
    assert found == activation
    classes = class_outputs(model, settings, named, found, labels)
    assert [(one.activation, one.values) for one in classes] == [(activation, last.units)] * is_class
    model.compile(loss=loss)
    assert logits_activation(model, config(outputs=outputs), named) == activation
    assert class_outputs(model, config(outputs=outputs), named, found, labels) == classes


@pytest.mark.parametrize(
    ("loss", "labels", "units", "is_class"),
    [
        ("binary_crossentropy", SIDES, 1, True),
        ("binary_crossentropy", np.linspace(0, 1, 64), 1, False),  # a share, such as a rating
        ("binary_crossentropy", np.ones((64, 3)), 3, False),  # several labels at a time
        ("categorical_crossentropy", ROWS, 3, True),
        ("sparse_categorical_crossentropy", CLASSES.astype("float32"), 3, True),
        ("mean_squared_error", CLASSES, 3, False),
    ],
)
def test_classes_are_what_one_crossentropy_compares(loss: str, labels: Any, units: int, is_class: bool) -> None:
    model = sequential(layers.Dense(units))
    assert len(class_outputs(model, config(loss=loss), outputs_by_name(model), "", labels)) == is_class
    assert len(class_outputs(model, config(loss=loss), {}, "", labels)) == is_class
    model.compile(loss=loss)
    assert len(class_outputs(model, config(), outputs_by_name(model), "", labels)) == is_class


def test_a_training_step_without_a_loss_says_nothing_about_its_outputs() -> None:
    class Similar(keras.Model):  # type: ignore[misc]  # Keras is untyped
        def train_step(self, data: Any) -> Any:
            return {"similarity": keras.ops.mean(self(data[0]))}

    class Guided(keras.Model):  # type: ignore[misc]  # Keras is untyped
        def train_step(self, data: Any) -> Any:
            return {"loss": self.compute_loss(*data, self(data[0]))}

    inputs = keras.Input((4,))
    for kind, activation in ((Similar, ""), (Guided, "softmax")):
        model = kind(inputs, layers.Dense(3)(inputs))
        outputs = outputs_by_name(model, X)
        assert logits_activation(model, config(), outputs) == activation
        assert len(class_outputs(model, config(), outputs, activation, CLASSES)) == bool(activation)


def test_logits_get_the_same_loss_and_metrics_as_their_probabilities() -> None:
    labels = (X[:, :1] > 0).astype("float32")
    settings = config(loss="binary_crossentropy", metrics=["accuracy", "auc"], label_smoothing=0.1)
    logits = sequential(layers.Dense(1))
    results = []
    for model, activation in ((logits, "sigmoid"), (sequential(logits, layers.Activation("sigmoid")), "")):
        compile_model(model, settings, SIGNATURE, 1, 2, activation=activation)
        results.append(model.test_on_batch(X, labels, return_dict=True))
    assert results[0] == pytest.approx(results[1], rel=1e-4)
    assert set(results[0]) == {"loss", *settings.metrics}


@pytest.mark.parametrize(
    ("loss", "units", "labels", "says"),
    [
        ("sparse_categorical_crossentropy", 3, np.array([0.5, 1.25]), "decimal.*loss=mean_squared_error"),
        ("sparse_categorical_crossentropy", 1, np.array([0, 1]), "1 value.*loss=binary_crossentropy"),
        ("sparse_categorical_crossentropy", 3, np.array([0, 3]), "to 3, .* 3 values"),
        ("sparse_categorical_crossentropy", 3, np.array([-1, 1]), "from -1 .* from 0"),
        ("sparse_categorical_crossentropy", 3, np.eye(3), "3 whole.*loss=categorical_crossentropy"),
        ("categorical_crossentropy", 3, np.array([0, 2]), "loss=sparse_categorical_crossentropy"),
        ("binary_crossentropy", 1, np.array([0, 2]), "to 2.*loss=sparse_categorical_crossentropy"),
        ("binary_crossentropy", 1, np.array([0.0, 7.5]), "to 7.5.*loss=mean_squared_error"),
        ("binary_crossentropy", 3, np.array([0, 1]), "3 values.*loss=sparse_categorical_crossentropy"),
        ("mean_squared_error", 3, np.array([0.5, 1.0]), "3 values"),
    ],
)
def test_labels_that_do_not_fit_name_the_loss_that_does(loss: str, units: int, labels: Any, says: str) -> None:
    for model in (sequential(layers.Dense(units)), Subclassed(None, units)):
        with pytest.raises(DataError) as refused:
            check_labels(config(loss=loss), model, outputs_by_name(model, X), labels)
        assert re.search(says, str(refused.value)), str(refused.value)


@pytest.mark.parametrize(
    ("loss", "units", "labels"),
    [
        ("sparse_categorical_crossentropy", 3, np.array([[0.0], [2.0]])),
        ("categorical_crossentropy", 3, np.eye(3)),
        ("categorical_crossentropy", 2, np.eye(2)),
        ("binary_crossentropy", 1, np.array([0.0, 1.0])),
        ("binary_crossentropy", 3, np.eye(3)),
        ("mean_squared_error", 1, np.array([3, 4])),
        ("mean_squared_error", 3, np.ones((2, 3))),
        ("poisson", 3, np.array([-0.5])),
    ],
)
def test_labels_that_fit_are_accepted(loss: str, units: int, labels: Any) -> None:
    model = sequential(layers.Dense(units))
    check_labels(config(loss=loss), model, outputs_by_name(model), labels)


def two_outputs(*, price: str | None = None, kind: str | None = None, as_list: bool = False) -> Any:
    inputs = keras.Input((4,))
    outputs = {
        "price": layers.Dense(1, price, name="price")(inputs),
        "kind": layers.Dense(3, kind, name="kind")(inputs),
    }
    return keras.Model(inputs, list(outputs.values()) if as_list else outputs)


class Both(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """Two outputs that only a batch can tell."""

    def __init__(self) -> None:
        super().__init__()
        self.price, self.kind = layers.Dense(1), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return {"price": self.price(x), "kind": self.kind(x) * 1.0}


LOSSES = "price=binary_crossentropy, kind=sparse_categorical_crossentropy"


@pytest.mark.parametrize(
    ("model", "loss", "activation"),
    [
        (two_outputs(), LOSSES, {"price": "sigmoid", "kind": "softmax"}),
        (two_outputs(as_list=True, kind="softmax"), LOSSES, {"price": "sigmoid", "kind": ""}),
        (Both(), LOSSES, {"price": "sigmoid", "kind": "softmax"}),
        (two_outputs(), LOSSES.replace("binary_crossentropy", "mse"), {"price": "", "kind": "softmax"}),
        (two_outputs(), LOSSES + "(from_logits=false)", {"price": "sigmoid", "kind": ""}),
    ],
)
def test_each_of_several_outputs_is_judged_separately(model: Any, loss: str, activation: Any) -> None:
    assert activation_of(model, config(loss=loss)) == activation


def test_a_compiled_loss_says_whether_its_output_is_logits() -> None:
    crossentropy = keras.losses.SparseCategoricalCrossentropy
    for as_list in (False, True):
        model = two_outputs(as_list=as_list)
        losses = {"price": "mse", "kind": crossentropy(from_logits=True)}
        model.compile(loss=list(losses.values()) if as_list else losses)
        assert logits_activation(model, config(), {}) == {"price": "", "kind": "softmax"}
    single = sequential(layers.Dense(3))
    single.compile(loss=crossentropy())  # taken at its word
    assert logits_activation(single, config(), {}) == ""
    stated = compiled(sequential(layers.Dense(3)), config(loss="sparse_categorical_crossentropy(from_logits=false)"))
    assert stated.loss.get_config()["from_logits"] is False


def compiled(model: Any, settings: Any) -> Any:
    compile_model(model, settings, SIGNATURE, 1, 2, activation=activation_of(model, settings))
    return model


@pytest.mark.parametrize("as_list", [False, True])
def test_outputs_train_with_a_loss_weight_and_metrics_each(as_list: bool) -> None:
    model = two_outputs(as_list=as_list)
    settings = config(loss={"price": "mae", "kind": "sparse_categorical_crossentropy"}, loss_weights={"kind": 0.5})
    settings = for_outputs(settings.model_copy(update={"metrics": ("accuracy", "price=r2_score")}), ("price", "kind"))
    assert settings.metric_names == ("kind_accuracy", "price_r2_score")
    labels = {"price": X[:, :1], "kind": np.arange(64) % 3}
    check_labels(settings, model, outputs_by_name(model), labels)
    fitted = compiled(model, settings).fit(X, labels, verbose=0)
    found = {name: values[0] for name, values in fitted.history.items()}
    assert found["loss"] == pytest.approx(found["price_loss"] + 0.5 * found["kind_loss"], rel=1e-4)
    assert {*settings.metric_names} <= {*found}


def test_an_output_without_a_loss_needs_no_label() -> None:
    model, settings = two_outputs(), for_outputs(config(loss="price=mae"), ("price", "kind"))
    labels = {"price": X[:, :1]}
    check_labels(settings, model, outputs_by_name(model), labels)
    assert compiled(model, settings).fit(X, labels, verbose=0).history["loss"][0] > 0


@pytest.mark.parametrize(
    ("settings", "labels", "says"),
    [
        ({}, {"price": np.ones(4) / 2, "kind": np.arange(4)}, "Output price: .*decimal.*price=mean_squared_error"),
        ({}, np.arange(4), r"An example has 1 label, but the model gives 2 outputs \(price, kind\)"),
        ({}, {"price": 1, "sort": 2}, r"2 labels \(price, sort\), but"),
        ({"loss": "prize=mae, kind=dice"}, {}, "no output 'prize'.*Its outputs are price, kind"),
        ({"metrics": "prize=mae"}, {}, "no output 'prize'"),
        ({"loss_weights": {"prize": 2.0}}, {}, "no output 'prize'"),
    ],
)
def test_labels_and_names_that_fit_no_output_are_refused(settings: Any, labels: Any, says: str) -> None:
    model = two_outputs()
    with pytest.raises(DataError) as refused:
        check_labels(for_outputs(config(**settings), ("price", "kind")), model, outputs_by_name(model), labels)
    assert re.search(says, str(refused.value).replace("\n", " ")), str(refused.value)


def test_outputs_without_names_are_refused_and_unknown_ones_are_said() -> None:
    class Pair(Subclassed):
        def call(self, x: Any) -> Any:
            return self.dense(x), self.dense(x)

    with pytest.raises(DataError, match="2 outputs without names"):
        outputs_by_name(Pair(None), X)
    assert are_unknown(config(), outputs_by_name(Pair(None)))
    assert not are_unknown(config(), outputs_by_name(sequential(layers.Dense(3))))
    assert not are_unknown(config(outputs="logits"), {})
