"""What every built-in model does: it is built for its data, refuses other data in a sentence, and contains no code."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers import only_shapes, small_config
from tests.words import config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.export.keras_code import object_code
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.compile import compile_model
from tpu_console.engine.models.saved_code import Architecture, find_code
from tpu_console.engine.models.table import MODELS

WORDS = Input((40,), "int32")
SIGNATURES = {
    "images": Signature(Task.CLASSES, {"image": Input((32, 32, 3))}, 4),
    "rows": Signature(Task.CLASSES, {"row": Input((6,))}, 4),
    "texts": Signature(Task.CLASSES, {"text": WORDS}, 4, {"vocabulary": 50}),
    "ratings": Signature(
        Task.RATINGS, {"user": Input((), "int32"), "item": Input((), "int32")}, 0, {"users": 9, "items": 9}
    ),
    "pairs": Signature(
        Task.TRANSLATION,
        {"source": WORDS, "target": WORDS},
        0,
        {"source_vocabulary": 50, "target_vocabulary": 50, "length": 40},
    ),
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in MODELS if name != "hub"),  # its layer comes from a file
        *(("application", {"name": name}) for name in ("ConvNeXtTiny", "MobileNetV3Small")),  # with custom layers
    ],
)
def test_a_model_is_built_for_its_data_and_refuses_other_data(name: str, options: dict[str, Any]) -> None:
    model, built = MODELS[name], {}
    assert model.title
    assert {*model.sizes} <= {*model.model_fields}
    config = model.without_weights(small_config(model=name, model_options=options))
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        for what, signature in SIGNATURES.items():
            try:
                with only_shapes():
                    built[what] = model.model_validate(config.model_options).build(config, signature, None)
            except DataError as error:
                assert error.remedy  # noqa: PT017
    finally:
        keras.config.set_dtype_policy("float32")
    assert built
    for made in built.values():
        assert all(tensor.dtype == "float32" for tensor in made.outputs)
        saved = json.loads(json.dumps(keras.saving.serialize_keras_object(made)))
        assert find_code(Architecture(Path("model.keras"), saved, has_pickled_weights=False)) == ()
        if model.has_code and isinstance(made, keras.Sequential):
            assert all(map(object_code, made.layers))


def vgg(shape: tuple[int, ...] = (32, 32, 3), **options: Any) -> Any:
    signature = Signature(Task.CLASSES, {"image": Input(shape)}, 10)
    return build_model(small_config(model="vgg", model_options=options), signature)


def test_vgg_is_the_cnn_of_keras_cifar10_example() -> None:
    with only_shapes():
        model = vgg()
    assert model.count_params() == 1_250_858
    kinds = ["Conv2D", "Conv2D", "MaxPooling2D", "Dropout"] * 2 + ["Flatten", "Dense", "Dropout", "Dense"]
    assert [type(layer).__name__ for layer in model.layers] == kinds
    assert [layer.padding for layer in model.layers if hasattr(layer, "filters")] == ["same", "valid"] * 2
    activations = [layer.activation.__name__ for layer in model.layers if hasattr(layer, "activation")]
    assert activations == ["relu"] * 5 + ["softmax"]
    small = vgg(filters=[8], block_dropout=0.0, hidden=16, dropout=0.0)
    kinds = ["Conv2D", "Conv2D", "MaxPooling2D", "Flatten", "Dense", "Dense"]
    assert [type(layer).__name__ for layer in small.layers] == kinds
    with pytest.raises(DataError, match=r"\(8, 8, 1\).*fewer filters"):
        vgg((8, 8, 1), filters=[8, 8, 8])


def text(length: int, **options: Any) -> Any:
    signature = Signature(Task.CLASSES, {"text": Input((length,), "int32")}, 2, {"vocabulary": 20_000})
    return build_model(config("text-csv", "x", model_options=options), signature)


def test_text_is_the_model_of_the_keras_example() -> None:
    with only_shapes():
        model = text(500)
    # Embedding 20,000 × 128, two convolutions of 128 over 7 words, dense 128; a softmax of 2 where that has a sigmoid.
    assert model.count_params() == 20_000 * 128 + 2 * (7 * 128 * 128 + 128) + (128 * 128 + 128) + (128 * 2 + 2)
    for stride, least in ((3, 25), (1, 13)):
        assert text(least, stride=stride).get_layer(index=-5).output.shape[1] == 1
        with pytest.raises(DataError, match=rf"data\.options\.length to at least {least}"):
            text(least - 1, stride=stride)


USERS, ITEMS, MEAN = 60, 40, 3.25
RATINGS = Signature(
    Task.RATINGS,
    {"user": Input((), "int32"), "item": Input((), "int32")},
    sizes={"users": USERS + 1, "items": ITEMS + 1},
    label_mean=MEAN,
)


def recommender(**changes: Any) -> Any:
    return build_model(config("ratings-csv", "x", **changes), RATINGS)


def inputs(count: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "user": random.integers(0, USERS + 1, count).astype(np.int32),
        "item": random.integers(0, ITEMS + 1, count).astype(np.int32),
    }


def test_factors_are_the_mean_two_biases_and_a_product() -> None:
    keras.utils.set_random_seed(1)
    model = recommender(model_options={"width": 3})
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


def test_the_penalty_counts_in_the_loss_and_not_in_the_error() -> None:
    settings = config("ratings-csv", "x", model_options={"regularisation": 1.0})
    model = build_model(settings, RATINGS)
    compile_model(model, settings, RATINGS, 1, 1)
    given, y = inputs(10), np.full(10, MEAN, np.float32)
    measured = model.evaluate(given, y, return_dict=True, verbose=0)
    squares = sum(float((weight.numpy() ** 2).sum()) for weight in model.weights if "factors" in weight.path)
    assert measured["loss"] == pytest.approx(squares + measured["root_mean_squared_error"] ** 2, rel=1e-4)
    assert not recommender(model_options={"regularisation": 0.0}).losses
