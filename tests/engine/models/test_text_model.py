"""The text classifier: its size, what it refuses, and that it reads words and not places."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.data.test_text_files import config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.build import build_model


def signature(length: int, vocabulary: int = 20_000, classes: int = 2) -> Signature:
    return Signature(Task.CLASSES, {"text": Input((length,), "int32")}, classes, {"vocabulary": vocabulary})


def built(length: int, **options: Any) -> Any:
    return build_model(config("text-csv", "x", model_options=options), signature(length))


def test_it_is_the_model_of_the_keras_example() -> None:
    model = built(500)
    # Embedding 20,000 × 128, two convolutions of 128 over 7 words, dense 128; a softmax of 2 where that has a sigmoid.
    assert model.count_params() == 20_000 * 128 + 2 * (7 * 128 * 128 + 128) + (128 * 128 + 128) + (128 * 2 + 2)
    assert model.output_shape == (None, 2)


@pytest.mark.parametrize(("stride", "least"), [(3, 25), (1, 13)])
def test_texts_too_short_for_the_convolutions_are_refused_with_the_length_they_need(stride: int, least: int) -> None:
    assert built(least, stride=stride).get_layer(index=-5).output.shape[1] == 1
    with pytest.raises(
        DataError, match=rf"Texts of {least - 1} words are too short.*data\.options\.length to at least {least}"
    ):
        built(least - 1, stride=stride)
