"""What fills the memory, and which changes are worth a compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import pytest

from tests.helpers import small_config
from tests.only_shapes import only_shapes
from tpu_console.engine.preflight.fitting import changes, table_gradient, what_fills, why_no_batch_fits
from tpu_console.engine.preflight.result import Memory
from tpu_console.engine.preflight.topologies import find_topology

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30
V5E = find_topology("v5e-8")


def memory(parameters: float, temporaries: float) -> Memory:
    """Weights with two slots each, and the rest, in GiB, on a v5e."""
    sizes = [int(size * GIB) for size in (parameters, 2 * parameters, 0.0, temporaries)]
    return Memory(*sizes, sum(sizes), V5E.usable_hbm_bytes)  # type: ignore[call-arg, arg-type]


def proposed(found: Memory, gradient: int = 0, **settings: Any) -> list[tuple[str, int, str]]:
    """The changes: the TPU, the batch per device there, and another precision or optimizer."""
    tried = changes(small_config(batch_size=1024, **settings), found, V5E, gradient)
    return [
        (
            one.topology.name,
            one.config.batch_size,
            {"precision": one.config.precision, "optimizer.name": one.config.optimizer.name}.get(one.key, ""),
        )
        for one in tried
    ]


def test_a_large_table_is_named_with_its_slots() -> None:
    table = keras.layers.Embedding(100_000, 256, name="table")
    model = keras.Sequential([keras.Input((50,), dtype="int32"), table, keras.layers.Flatten(), keras.layers.Dense(4)])
    found = Memory(4 * 25_600_000, 2 * 4 * 25_600_000, 1000, 10**9, int(1.4e9), 10**9)
    first, second, third = what_fills(model, 1024, found)
    assert (first.layer, first.what.rpartition(" and ")[2]) == ("table", "optimizer slots")
    assert first.size == pytest.approx(3 * 4 * 25_600_000, rel=0.02)
    assert (second.layer, second.what, second.size) == ("table", "gradient", 4 * 25_600_000)
    assert (third.layer, third.what, third.size) == ("table", "result", 1024 * 50 * 256 * 4)


SCORES = """
module {
  func.func @main(%a: tensor<16x8x64x32xf32>) -> tensor<16x8x64x64xf32> {
    %0 = stablehlo.dot_general %a, %a, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
      : (tensor<16x8x64x32xf32>, tensor<16x8x64x32xf32>) -> tensor<16x8x64x64xf32> loc("jit(step)/jvp(attends)/dot")
    %1 = stablehlo.add %0, %0 : tensor<16x8x64x64xf32> loc("jit(step)/jvp(attends)/add")
    return %1 : tensor<16x8x64x64xf32>
  }
}
"""


def test_a_tensor_inside_a_layer_that_is_larger_than_its_result_is_named() -> None:
    parse = pytest.importorskip("jax.interpreters.mlir", reason="the extra [tpu] is not installed")
    from jax.extend.mlir import ir

    x = keras.Input((64, 32))
    attends = keras.layers.MultiHeadAttention(8, 4, name="attends")
    model = keras.Model(x, attends(x, x))
    model.compile("sgd")
    with parse.make_ir_context():
        module = ir.Module.parse(SCORES)
        first, *_ = what_fills(model, 4, Memory(0, 0, 0, 10**6, 10**6, 10**5), module, devices=4)
    assert (first.layer, first.what) == ("attends", "tensor 4×8×64×64")
    assert first.size == 4 * 8 * 64 * 64 * 4


def test_changes_begin_with_the_cheapest() -> None:
    assert proposed(memory(0.1, 40)) == [
        ("v5e-8", 1024, "mixed_bfloat16"),
        ("v5e-8", 376, ""),
        ("v5e-8", 304, ""),
        ("v5e-32", 256, ""),  # the same 8,192 examples per step, here and below
        ("tpu7x-8", 1024, ""),
        ("v5p-8", 2048, ""),
        ("v4-32", 512, ""),
        ("v6e-16", 512, ""),
        ("v3-32", 256, ""),
        ("v2-64", 128, ""),
    ]
    half = proposed(memory(0.1, 40), precision="mixed_bfloat16")
    assert "mixed_bfloat16" not in [setting for *_, setting in half]


def test_other_optimizers_are_tried_only_if_fewer_slots_would_be_enough() -> None:
    def optimizers(found: Memory, name: str = "adam") -> set[str]:
        return {one for *_, one in proposed(found, precision="mixed_bfloat16", optimizer={"name": name}) if one}

    assert optimizers(memory(5, 2)) == optimizers(memory(5, 2), "adamw(beta_2=0.99)") == {"lion", "adafactor"}
    assert optimizers(memory(5.2, 9)) == {"adafactor"}
    assert optimizers(memory(5, 30)) == optimizers(memory(5, 2), "sgd") == set()


def test_no_batch_is_proposed_if_the_weights_alone_are_too_large() -> None:
    assert not [one for one in proposed(memory(6, 4)) if one[1] < 1024 and one[0].startswith("v5e")]
    reason, remedy = why_no_batch_fits(memory(6, 4))
    assert "18.0 GiB" in reason
    assert "nor more chips" in reason
    assert not remedy
    assert why_no_batch_fits(memory(5, 4)) == ("", "")


def test_a_large_table_needs_its_gradient_with_any_batch() -> None:
    with only_shapes():  # a table of 5 GB
        table = keras.layers.Embedding(2_600_000, 512)
        model = keras.Sequential([keras.Input((20,), dtype="int32"), table, keras.layers.Dense(4)])
    gradient = table_gradient(model)
    assert gradient == 4 * 2_600_000 * 512
    found = memory(gradient / GIB, gradient / GIB)
    assert [one for one in proposed(found) if one[0] == "v5e-8" and one[1] < 1024]
    assert not [one for one in proposed(found, gradient) if one[0] == "v5e-8" and one[1] < 1024]
    reason, remedy = why_no_batch_fits(found, gradient)
    assert "gradient alone need 19.8" in reason
    assert "fewer rows" in remedy
    assert why_no_batch_fits(memory(6, 4), GIB) == why_no_batch_fits(memory(6, 4))
    assert table_gradient(keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])) == 0


def test_every_other_kind_of_tpu_with_enough_memory_is_named() -> None:
    found = memory(20, 4)
    kinds = [one for one in changes(small_config(), found, V5E) if one.topology is not V5E]
    assert {one.topology.generation.name for one in kinds} == {"v5p", "tpu7x"}
    for one in kinds:
        assert one.config.batch_size * one.topology.devices == 8 * small_config().batch_size
        assert one.topology.usable_hbm_bytes > found.parameters + found.optimizer
    odd = [one.text for one in changes(small_config(batch_size=1), memory(10, 1), find_topology("v5e-1"))]
    assert "on v5p-8" in odd


def test_fewer_trained_weights_are_proposed_if_slots_fill_the_memory(tmp_path: Path) -> None:
    own = small_config(model=f"{tmp_path}/mine.py:build", model_options={})
    found = {one.text: one.adapt for one in changes(own, memory(6, 0.1), V5E) if one.adapt is not None}
    lora, frozen = found
    assert "LoRA" in lora
    assert not [one for one in changes(own, memory(0.1, 40), V5E) if one.adapt is not None]
    for text, trained in ((lora, {"lora_kernel_a", "lora_kernel_b", "bias"}), (frozen, {"kernel", "bias"})):
        x = keras.Input((5, 4))
        y = keras.layers.Dense(64, use_bias=False)(keras.layers.MultiHeadAttention(2, 8)(x, x))
        model = keras.Model(x, keras.layers.Dense(3)(y))
        adapt = found[text]
        assert adapt is not None
        adapt(model)
        assert {weight.name for weight in model.trainable_weights} == trained
        # Six layers with LoRA, four of them inside of the attention; or the last layer alone.
        assert sum("kernel" in weight.name for weight in model.trainable_weights) == (12 if text == lora else 1)
    keras.utils.clear_session()  # LoRA's weights have only shapes


def test_a_pretrained_base_is_frozen_by_its_setting() -> None:
    config = small_config(model="application", model_options={"name": "ResNet50", "trainable": "all"})
    assert "model_options.trainable" in [one.key for one in changes(config, memory(6, 0.1), V5E)]
