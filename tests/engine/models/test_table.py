"""What every built-in model does: it is built for the data that it is for, and refuses other data in a sentence."""

from __future__ import annotations

import keras
import pytest

from tests.helpers import small_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.export.keras_code import sequential_code
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


@pytest.mark.parametrize("name", [name for name in MODELS if name != "hub"])  # its layer comes from a file
def test_a_model_is_built_for_its_data_and_refuses_other_data(name: str) -> None:
    model, built = MODELS[name], {}
    assert model.title
    assert {*model.sizes} <= {*model.Options.model_fields}
    config = model.without_weights(small_config(model=name, model_options={}))
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        for what, signature in SIGNATURES.items():
            try:
                built[what] = model.build(config, signature, None)
            except DataError as error:
                assert error.remedy  # noqa: PT017
    finally:
        keras.config.set_dtype_policy("float32")
    assert built
    for made in built.values():
        assert all(tensor.dtype == "float32" for tensor in made.outputs)
        if model.has_code and isinstance(made, keras.Sequential):
            assert sequential_code(made, [])
