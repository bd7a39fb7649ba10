"""How a model is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import tensorflow as tf

from tests.helpers import small_config, write_metadata
from tpu_console.engine.accelerators.table import FRAMEWORKS
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.input import augment
from tpu_console.engine.models.compile import compile_model

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_tensorflow_tpu_compiles_nothing_for_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    settings = (small_config(), Signature(Task.CLASSES, {"image": Input((4,))}, 3), 1, 8)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
    compile_model(model, *settings, allows_xla=FRAMEWORKS["tensorflow"].allows_xla(in_scope=False))
    assert model.jit_compile
    assert vars(augment._compiled(tf.identity))["_jit_compile"]
    write_metadata(tmp_path, "tensorflow-tpu", "2.20.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    compile_model(model, *settings, allows_xla=FRAMEWORKS["tensorflow"].allows_xla(in_scope=False))
    assert not model.jit_compile
    assert not vars(augment._compiled(tf.identity))["_jit_compile"]
