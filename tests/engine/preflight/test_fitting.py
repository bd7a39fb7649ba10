"""What fills the memory, and which changes are worth a compile."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from tests.helpers import small_config
from tpu_console.engine.preflight.fitting import changes, what_fills, why_no_batch_fits
from tpu_console.engine.preflight.result import Memory
from tpu_console.engine.preflight.topologies import find_topology

GIB = 2**30
V5E = find_topology("v5e-8")


def memory(parameters: float, temporaries: float) -> Memory:
    """Weights with two slots each, and the rest, in GiB, on a v5e."""
    sizes = [int(size * GIB) for size in (parameters, 2 * parameters, 0.0, temporaries)]
    return Memory(*sizes, sum(sizes), V5E.usable_hbm_bytes)  # type: ignore[call-arg, arg-type]


def proposed(found: Memory, **settings: Any) -> list[str]:
    return [text for text, _, _ in changes(small_config(batch_size=1024, **settings), found, V5E)]


def test_a_large_table_is_named_with_its_slots() -> None:
    table = keras.layers.Embedding(100_000, 256, name="table")
    model = keras.Sequential([keras.Input((50,), dtype="int32"), table, keras.layers.Flatten(), keras.layers.Dense(4)])
    found = Memory(4 * 25_600_000, 2 * 4 * 25_600_000, 1000, 10**9, int(1.4e9), 10**9)
    first, second, *_ = what_fills(model, 1024, found)
    assert (first.layer, first.what) == ("table", "weights and optimizer slots")
    assert first.size == pytest.approx(3 * 4 * 25_600_000, rel=0.02)
    assert (second.layer, second.what, second.size) == ("table", "result", 1024 * 50 * 256 * 4)


def test_changes_begin_with_the_cheapest() -> None:
    assert proposed(memory(0.1, 40)) == ["precision=mixed_bfloat16", "batch_size=376", "batch_size=304", "--on tpu7x-8"]
    assert "precision=mixed_bfloat16" not in proposed(memory(0.1, 40), precision="mixed_bfloat16")


def test_another_optimizer_is_tried_only_if_its_slots_would_be_enough() -> None:
    assert "optimizer.name=lion" in proposed(memory(5, 2))
    assert "optimizer.name=lion" not in proposed(memory(1, 30))
    assert "optimizer.name=lion" not in proposed(memory(5, 2), optimizer={"name": "sgd"})


def test_no_batch_is_proposed_if_the_weights_alone_are_too_large() -> None:
    assert not [text for text in proposed(memory(6, 4)) if text.startswith("batch_size")]
    assert "alone need 18.0 GiB" in why_no_batch_fits(memory(6, 4))
    assert "nor more chips of this kind help" in why_no_batch_fits(memory(6, 4))
    assert why_no_batch_fits(memory(5, 4)) == ""


def test_the_larger_tpu_has_as_many_devices_and_enough_memory() -> None:
    *_, (text, _, topology) = changes(small_config(), memory(0.1, 20), V5E)
    assert text == f"--on {topology.name}"
    assert topology.devices == 8
    assert topology.usable_hbm_bytes > 20 * GIB
    assert not [text for text in proposed(memory(0.1, 500)) if text.startswith("--on")]
