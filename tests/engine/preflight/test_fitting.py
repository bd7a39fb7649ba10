"""What fills the memory, which changes are worth a compile, and the search for the largest batch."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import known, only_shapes, small_config
from tpu_console.engine.preflight import fitting
from tpu_console.engine.preflight.result import BatchFigures, Memory
from tpu_console.engine.preflight.topologies import find_topology

GIB = 2**30
V5E = find_topology("v5e-8")


def memory(parameters: float, temporaries: float) -> Memory:
    """Weights with two slots each, and the rest, in GiB, on a v5e."""
    sizes = [int(size * GIB) for size in (parameters, 2 * parameters, 0.0, temporaries)]
    return Memory(*sizes, sum(sizes), V5E.usable_hbm_bytes)  # type: ignore[call-arg, arg-type]


def proposed(found: Memory, gradient: int = 0, **settings: Any) -> list[tuple[str, int, str]]:
    """The changes: the TPU, the batch per device there, and another precision or optimizer."""
    tried = fitting.changes(small_config(batch_size=1024, **settings), found, V5E, gradient)
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
    first, second, third = fitting.what_fills(model, 1024, found)
    assert (first.layer, first.what.rpartition(" and ")[2]) == ("table", "optimizer slots")
    assert first.size == pytest.approx(3 * 4 * 25_600_000, rel=0.02)
    assert (second.layer, second.what, second.size) == ("table", "gradient", 4 * 25_600_000)
    assert (third.layer, third.what, third.size) == ("table", "result", 1024 * 50 * 256 * 4)
    first, *_ = fitting.what_fills(model, 1024, Memory(4 * 25_600_000, 0, 1000, 10**9, int(1.4e9), 10**9))
    assert (first.what, first.size) == ("weights", 4 * 25_600_000)


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
        first, *_ = fitting.what_fills(model, 4, Memory(0, 0, 0, 10**6, 10**6, 10**5), module, devices=4)
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
    reason, remedy = fitting.why_no_batch_fits(memory(6, 4))
    assert "18.0 GiB" in reason
    assert "nor more chips" in reason
    assert not remedy
    assert fitting.why_no_batch_fits(memory(5, 4)) == ("", "")


def test_a_large_table_needs_its_gradient_with_any_batch() -> None:
    with only_shapes():  # a table of 5 GB
        table = keras.layers.Embedding(2_600_000, 512)
        model = keras.Sequential([keras.Input((20,), dtype="int32"), table, keras.layers.Dense(4)])
    gradient = fitting.table_gradient(model)
    assert gradient == 4 * 2_600_000 * 512
    found = memory(gradient / GIB, gradient / GIB)
    assert [one for one in proposed(found) if one[0] == "v5e-8" and one[1] < 1024]
    assert not [one for one in proposed(found, gradient) if one[0] == "v5e-8" and one[1] < 1024]
    reason, remedy = fitting.why_no_batch_fits(found, gradient)
    assert "gradient alone need 19.8" in reason
    assert "fewer rows" in remedy
    assert fitting.why_no_batch_fits(memory(6, 4), GIB) == fitting.why_no_batch_fits(memory(6, 4))
    assert fitting.table_gradient(keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])) == 0


def test_every_other_kind_of_tpu_with_enough_memory_is_named() -> None:
    found = memory(20, 4)
    kinds = [one for one in fitting.changes(small_config(), found, V5E) if one.topology is not V5E]
    assert {one.topology.generation.name for one in kinds} == {"v5p", "tpu7x"}
    for one in kinds:
        assert one.config.batch_size * one.topology.devices == 8 * small_config().batch_size
        assert one.topology.usable_hbm_bytes > found.parameters + found.optimizer
    odd = [one.text for one in fitting.changes(small_config(batch_size=1), memory(10, 1), find_topology("v5e-1"))]
    assert "on v5p-8" in odd


def test_fewer_trained_weights_are_proposed_if_slots_fill_the_memory(tmp_path: Path) -> None:
    own = small_config(model=f"{tmp_path}/mine.py:build", model_options={})
    found = {one.text: one.adapt for one in fitting.changes(own, memory(6, 0.1), V5E) if one.adapt is not None}
    lora, frozen = found
    assert "LoRA" in lora
    assert not [one for one in fitting.changes(own, memory(0.1, 40), V5E) if one.adapt is not None]
    for text, trained in ((lora, {"lora_kernel_a", "lora_kernel_b", "bias"}), (frozen, {"kernel", "bias"})):
        x = keras.Input((5, 4))
        y = keras.layers.Dense(64, use_bias=False)(keras.layers.MultiHeadAttention(2, 8)(x, x))
        model = keras.Model(x, keras.layers.Dense(3)(y))
        known(found[text])(model)
        assert {weight.name for weight in model.trainable_weights} == trained
        # Six layers with LoRA, four of them inside of the attention; or the last layer alone.
        assert sum("kernel" in weight.name for weight in model.trainable_weights) == (12 if text == lora else 1)
    keras.utils.clear_session()  # LoRA's weights have only shapes


def test_a_pretrained_base_is_frozen_by_its_setting() -> None:
    config = small_config(model="application", model_options={"name": "ResNet50", "trainable": "all"})
    assert "model_options.trainable" in [one.key for one in fitting.changes(config, memory(6, 0.1), V5E)]


LIMIT = 16 * 2**30
GROWTHS: dict[str, Callable[[int], float]] = {
    # The memory of a batch, in examples of a straight line.
    "straight": float,
    "bent down": lambda batch: batch**0.85,
    "bent up": lambda batch: batch**1.15,
    "by tiles of 8": lambda batch: -(-batch // 8) * 8 * (0.99 if batch % 128 == 0 else 1.0),
    "with a knee": lambda batch: min(batch, 200) + 0.2 * max(0, batch - 200),
    "uneven": lambda batch: batch * (1 + 0.03 * math.sin(batch)),
    "by powers of two": lambda batch: 2.0 ** math.ceil(math.log2(batch)),
    "hardly beyond the limit": lambda batch: batch if batch <= 131_000 else 250_000 + 0.02 * batch,
}


class Compiler:
    """Compiles for a device where each batch needs what is said here; the results are in the order of the tries."""

    def __init__(self, fixed: int, an_example: float, growth: str = "straight", overhead: int = 0) -> None:
        self.results = {0: BatchFigures(0, fixed, 0.0)}
        self._fixed, self._an_example, self._growth = fixed + overhead, an_example, GROWTHS[growth]

    def compile(self, batch: int) -> None:
        assert batch not in self.results
        needs = int(self._fixed + self._an_example * self._growth(batch))
        self.results[batch] = BatchFigures(batch, needs, 0.0, fits=needs <= LIMIT)

    def search(self, first: int = 64, largest: int = 16_384) -> tuple[int, int]:
        """Return the largest batch that fits and how many were compiled after the first."""
        self.compile(first)
        while (batch := fitting.next_batch(self.results, LIMIT, largest)) is not None:
            assert 0 < batch <= largest
            self.compile(batch)
        return fitting.largest_fitting(self.results), len(self.results) - 2


@given(
    growth=st.sampled_from(sorted(GROWTHS)),
    fixed=st.integers(2**20, 8 * 2**30),
    an_example=st.floats(1e4, 2e8),
    overhead=st.integers(0, 2**29),
    first=st.integers(1, 2048),
    largest=st.sampled_from([2048, 16_384, 500_000]),
)
def test_what_is_found_fits_and_little_more_does_not(
    growth: str, fixed: int, an_example: float, overhead: int, first: int, largest: int
) -> None:
    compiler = Compiler(fixed, an_example, growth, overhead)
    found, compiles = compiler.search(first, largest)
    assert compiles <= (15 if growth == "by powers of two" else 12)
    assert compiler.results[found].fits
    assert found <= largest
    if found < largest and compiles < 15:
        assert known(fitting.smallest_too_large(compiler.results)) - found <= max(8, found / 32)


@pytest.mark.parametrize(
    ("growth", "most"),
    [
        ("straight", 2),
        ("by tiles of 8", 2.5),
        ("with a knee", 3),
        ("uneven", 3.5),
        ("bent down", 4.5),
        ("bent up", 4.5),
    ],
)
def test_few_compiles_are_needed(growth: str, most: float) -> None:
    searches = [
        Compiler(2**30, 10 ** (power / 10), growth).search(first)[1]
        for power in range(50, 85)
        for first in (8, 32, 128)
    ]
    assert sum(searches) / len(searches) <= most


def test_a_line_that_always_misses_on_the_same_side_is_left() -> None:
    """Following it alone would try one multiple after the other, each below the one before."""
    found, compiles = Compiler(2**30, 65_000, "hardly beyond the limit").search(86_408, 1_000_000)
    assert 128_000 <= found <= 131_000
    assert compiles <= 12


def test_a_multiple_of_128_may_fit_above_a_batch_that_does_not() -> None:
    found, compiles = Compiler(0, LIMIT / 1014.5, "by tiles of 8").search()
    assert (found, compiles <= 5) == (1024, True)


def test_what_always_fits_takes_one_compile() -> None:
    assert Compiler(2**20, 1e3).search(largest=179) == (179, 1)
    assert Compiler(17 * 2**30, 1e6).search() == (0, 0)  # and what never fits is not compiled again
    assert Compiler(2**30, 5e9).search(first=64)[0] == 3  # batches below a multiple count
    for few in (1, 2, 7, 8, 9):
        assert Compiler(2**20, 1e3).search(first=1, largest=few)[0] == few


def test_a_search_goes_on_from_the_results_of_an_earlier_one() -> None:
    whole = Compiler(2**30, 1e6, "bent up")
    expected, _ = whole.search()
    tries = list(whole.results.items())
    for done in range(2, len(tries)):
        rest = dict(tries[:done])
        while (batch := fitting.next_batch(rest, LIMIT)) is not None:
            rest[batch] = whole.results[batch]
        assert fitting.largest_fitting(rest) == expected


@pytest.mark.parametrize(
    ("largest", "wanted", "batches"),
    [
        (1152, 64, [1152, 64]),
        (1150, 64, [1150, 1024, 64]),
        (1150, 4096, [1150, 1024, 512]),
        (179, 179, [179, 128, 64]),
        (5, 32, [5, 2]),
        (1, 1, [1]),
        (0, 32, []),
    ],
)
def test_three_batches_are_worth_choosing(largest: int, wanted: int, batches: list[int]) -> None:
    assert fitting.worth_choosing(largest, wanted) == batches
