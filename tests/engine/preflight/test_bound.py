"""Bytes that a program moves, read from its text, and the bound that follows."""

from __future__ import annotations

import pytest

from tests.helpers import small_config
from tpu_console.engine.preflight.hlo import bound_of
from tpu_console.engine.preflight.program import HloProgram, arrays_in, exchanged_bytes, hbm_bytes
from tpu_console.engine.preflight.topologies import find_topology

# As libtpu 0.0.51 writes a program, shortened.
PROGRAM = """\
HloModule jit_train_step, is_scheduled=true

%fused_computation (param_0: f32[1000]) -> f32[1000] {
  %param_0 = f32[1000]{0:T(1024)} parameter(0)
  ROOT %negate.1 = f32[1000]{0:T(1024)} negate(%param_0)
}

ENTRY %main.1_spmd (param.1: f32[1000], param.2: bf16[128,64]) -> (f32[1000]) {
  %param.1 = f32[1000]{0:T(1024)} parameter(0), metadata={op_name="state[0][0]"}
  %param.2 = bf16[128,64]{1,0:T(8,128)(2,1)} parameter(1)
  %copy-start.1 = (bf16[128,64]{1,0:T(8,128)(2,1)S(1)}, bf16[128,64]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(%param.2), backend_config={}
  %copy-done.1 = bf16[128,64]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start.1)
  %fusion.1 = f32[500]{0:T(1024)S(1)} fusion(%copy-done.1), kind=kLoop, calls=%fused_computation
  %all-reduce.1 = (f32[1000]{0:T(1024)}, f32[24]{0:T(128)}) all-reduce(%param.1, /*index=1*/%fusion.1), channel_id=1, to_apply=%region_1
  %get-tuple-element.1 = f32[1000]{0:T(1024)} get-tuple-element(%all-reduce.1), index=0
  %fusion.2 = f32[1000]{0:T(1024)} fusion(%get-tuple-element.1, %fusion.1), kind=kLoop, calls=%fused_computation
  ROOT %tuple.1 = (f32[1000]{0:T(1024)}) tuple(%fusion.2)
}
"""  # noqa: E501

IN_THE_BACKGROUND = "%body (p: f16[128]) -> f16[128] {\n" + "\n".join(
    f'  %all-gather.{n} = f16[128,8,8,32]{{3,0,2,1:T(8,128)}} all-gather(%p.{n}), channel_id=5, a={{chain_id="1"}}'
    for n in range(4)
)


def test_arrays_of_a_type() -> None:
    arrays = arrays_in("(bf16[128,64]{1,0:T(8,128)(2,1)S(1)}, pred[10]{0}, s4[16]{0}, f32[])")
    assert [(array.size, array.is_in_hbm) for array in arrays] == [(16_384, False), (10, True), (8, True), (4, True)]


def test_a_ring_sends_twice_what_is_reduced() -> None:
    assert exchanged_bytes(HloProgram(PROGRAM), 8) == pytest.approx(2 * 7 / 8 * 4 * 1024)
    assert exchanged_bytes(HloProgram(PROGRAM), 2) == pytest.approx(4 * 1024)
    assert exchanged_bytes(HloProgram(PROGRAM), 1) == 0


def test_an_exchange_in_the_background_counts_once() -> None:
    assert exchanged_bytes(HloProgram(IN_THE_BACKGROUND), 8) == pytest.approx(7 / 8 * 128 * 8 * 8 * 32 * 2)


def test_fast_memory_is_no_traffic() -> None:
    # The copy reads the batch; the all-reduce reads 4,000 bytes and writes 4,096; the last fusion moves 4,000 twice.
    assert hbm_bytes(HloProgram(PROGRAM)) == pytest.approx(128 * 64 * 2 + 4 + 4000 + 4096 + 4000 + 4000, abs=8)


def test_the_bound_is_the_slowest_of_three() -> None:
    config = small_config(dataset="digits", batch_size=16, epochs=10)
    v5e = find_topology("v5e-8")
    bound = bound_of(config, v5e, 197e12, 1e3, HloProgram(PROGRAM))
    assert (bound.limited_by, bound.step_s, bound.compute_s) == ("compute", 1.0, 1.0)
    assert bound.hbm_bytes == 1e3
    assert bound.images_per_s == 128
    # 1,437 examples are 11 steps of 128.
    assert bound.epoch_s == pytest.approx(11.0)
    assert bound.run_s == pytest.approx(110.0)
    assert bound_of(config, v5e, 1.0, 1e9, HloProgram(PROGRAM)).limited_by == "memory"
