"""What padding costs by the shapes of a model's layers, and the products that layers compute."""

from typing import Any

import keras
import pytest

from tpu_console.engine.preflight.layers import Product, find_waste, products
from tpu_console.engine.preflight.result import Waste
from tpu_console.engine.preflight.verdict import changing_shapes

layers = keras.layers


def wastes(stack: list[Any], batch: int = 128, precision: str = "float32") -> list[Waste]:
    return list(find_waste(keras.Sequential(stack), batch, precision))


@pytest.mark.parametrize(("shape", "batch"), [((128,), 128), ((4, 128), 32)])
def test_a_dense_layer_of_100_is_computed_as_128(shape: tuple[int, ...], batch: int) -> None:
    (waste,) = wastes([keras.Input(shape), layers.Dense(100, name="odd")], batch)
    assert (waste.layer, waste.dimension, waste.size, waste.padded, waste.nearest) == ("odd", "features", 100, 128, 128)
    # By hand: forward and the weights' gradient in rows of 104, the input's gradient in sums of 128, over 128 × 128.
    assert waste.flops == 2 * 128 * 128 * (104 + 104 + 128)
    assert waste.share == pytest.approx(1 - 3 * 100 / (104 + 104 + 128))


def test_a_batch_of_8_leaves_most_of_a_sum_over_it_empty() -> None:
    (waste,) = wastes([keras.Input((128,)), layers.Dense(128)], batch=8)
    assert (waste.dimension, waste.size, waste.padded, waste.nearest) == ("batch", 8, 128, 128)
    assert waste.share == pytest.approx(1 - 3 * 8 / (8 + 128 + 8))
    (halved,) = wastes([keras.Input((128,)), layers.Dense(128)], batch=8, precision="mixed_bfloat16")
    assert halved.share == pytest.approx(1 - 3 * 8 / (16 + 128 + 16))


def test_the_worst_comes_first_and_inner_models_are_looked_into() -> None:
    inner = keras.Sequential([keras.Input((8, 8, 128)), layers.Conv2D(100, 1, name="inside")], name="inner")
    found = wastes([keras.Input((8, 8, 128)), inner, layers.GlobalAveragePooling2D(), layers.Dense(3, name="head")])
    assert found[0].layer == "inside"
    lost = [waste.flops * waste.share for waste in found]
    assert lost == sorted(lost, reverse=True)
    assert {waste.layer for waste in found} == {"inside", "head"}


def test_each_kind_of_layer_has_its_own_size() -> None:
    sequence = keras.Input((16, 128))
    attended = layers.MultiHeadAttention(4, 32, name="attention")(sequence, sequence)
    wrapped = layers.TimeDistributed(layers.Dense(100, name="each"))(attended)
    recurrent = layers.LSTM(100, name="lstm")(wrapped)
    model = keras.Model(sequence, recurrent)
    found = {(waste.layer, waste.size) for waste in find_waste(model, 128, "float32")}
    assert {("attention", 32), ("each", 100), ("lstm", 100)} <= found


def test_depthwise_convolutions_and_embeddings_waste_too() -> None:
    (depthwise,) = wastes([keras.Input((8, 8, 20)), layers.DepthwiseConv2D(3, name="deep")])
    assert (depthwise.layer, depthwise.size, depthwise.padded) == ("deep", 20, 128)
    assert depthwise.share == pytest.approx(1 - 20 / 24)
    (row,) = wastes([keras.Input((8, 20)), layers.DepthwiseConv1D(3)])
    assert row.share == pytest.approx(1 - 20 / 24)
    assert row.flops == 6 * 3 * 6 * 24 * 128
    embedding = layers.Embedding(1000, 50, name="words")
    (words,) = wastes([keras.Input((10,), dtype="int32"), embedding])
    assert words.share == pytest.approx(1 - 50 / 128)
    assert (words.flops, words.nearest) == (0.0, 128)
    (wide,) = wastes([keras.Input((10,), dtype="int32"), layers.Embedding(1000, 200)])
    assert wide.nearest == 256


def test_the_places_of_a_depthwise_convolution_count() -> None:
    (waste,) = wastes([keras.Input((8, 8, 20)), layers.DepthwiseConv2D(3)], batch=8)
    # On tiles of 8 × 128, the examples along the longer side or the channels.
    assert waste.flops == 6 * 9 * 36 * min(128 * 8, 24 * 128)
    assert waste.nearest == 128


@pytest.mark.parametrize(("units", "nearest"), [(60, 128), (100, 128), (129, 128), (130, 128), (192, 256), (200, 256)])
def test_the_nearest_clean_size_is_clean(units: int, nearest: int) -> None:
    (waste,) = wastes([keras.Input((128,)), layers.Dense(units)])
    assert waste.nearest == nearest
    assert wastes([keras.Input((128,)), layers.Dense(nearest), layers.Dense(384)]) == []


def test_a_model_for_any_length_compiles_and_is_not_said_to_waste() -> None:
    words = keras.Input((None,), dtype="int32")
    inner = keras.Model(words, keras.layers.Dense(100)(keras.layers.Embedding(1000, 128)(words)))
    x = keras.Input((64,), dtype="int32")
    outer = keras.Model(x, keras.layers.Dense(128)(keras.layers.Flatten()(inner(x))))
    assert changing_shapes(inner) == changing_shapes(outer) == ()
    assert find_waste(outer, 128, "float32") == ()


def _called(layer: Any, *shapes: tuple[int | None, ...]) -> Any:
    inputs = [keras.Input(shape) for shape in shapes]
    layer(*inputs)
    return layer


def _built(layer: Any, shape: tuple[int | None, ...]) -> Any:
    layer.build(shape)
    return layer


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (_called(layers.Dense(6), (5, 8)), [Product(5, 8, 6, 6)]),
        (_built(layers.Dense(6), (None, 8)), [Product(1, 8, 6, 6)]),
        (_called(layers.Dense(6), (None, 8)), [Product(1, 8, 6, 6)]),  # a length that is not known counts as 1
        (_called(layers.EinsumDense("abc,cd->abd", (5, 6)), (5, 8)), [Product(5, 8, 6, 6)]),
        (_built(layers.EinsumDense("abc,cd->abd", (5, 6)), (None, 5, 8)), [Product(1, 8, 6, 6)]),
        (_called(layers.Conv2D(6, 3, groups=2), (5, 5, 8)), [Product(9, 36, 3, 6, 9, 2)]),
        (_called(layers.Conv2DTranspose(6, 3), (4, 4, 8)), [Product(16, 8, 54, 6)]),
        (_built(layers.Conv2DTranspose(6, 3), (None, 4, 4, 8)), [Product(1, 8, 54, 6)]),
        (_called(layers.GRU(6), (5, 8)), [Product(5, 8, 18, 6), Product(5, 6, 18, 6)]),
        (
            _called(layers.MultiHeadAttention(2, 4, value_dim=3), (7, 16), (5, 16)),
            [
                *(Product(7, 16, 8, 8), Product(5, 16, 8, 8), Product(5, 16, 6, 6), Product(7, 6, 16, 16)),
                *(Product(7, 5, 4, 4, repeats=2, is_alone=True), Product(7, 5, 3, 3, repeats=2, is_alone=True)),
            ],
        ),
        (
            _called(layers.GroupQueryAttention(4, 2, 1), (7, 16), (5, 16)),
            [
                *(Product(7, 16, 8, 8), Product(5, 16, 4, 4), Product(5, 16, 4, 4), Product(7, 8, 16, 16)),
                *(Product(7, 5, 4, 4, repeats=2, is_alone=True),) * 2,
            ],
        ),
        (_called(layers.DepthwiseConv2D(3), (5, 5, 8)), []),
    ],
)
def test_a_layer_multiplies_what_its_class_says(layer: Any, expected: list[Product]) -> None:
    assert products(layer) == expected
