"""Operations and bytes of compiled programs, the bound that follows, and what is found in them.

The programs are training steps for one v5e chip, as libtpu 0.0.42 wrote them, without its notes on each instruction.
"""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import keras
import pytest

from tests.helpers import small_config
from tpu_console.engine.preflight import hlo
from tpu_console.engine.preflight.program import HloProgram, arrays_in, exchanged_bytes, flops_of, hbm_bytes, moves
from tpu_console.engine.preflight.topologies import find_topology

PROGRAMS = Path(__file__).parent / "programs"
layers = keras.layers


def program_text(name: str) -> str:
    return gzip.decompress((PROGRAMS / f"{name}.hlo.gz").read_bytes()).decode()


@cache
def program(name: str) -> HloProgram:
    return HloProgram(program_text(name))


# The compiler's own count, in which a loop goes round once.
COUNTED = {"lstm": 69_941_808, "gru_long": 159_258_416, "unknown_loop": 114_824_232}


@pytest.mark.parametrize("name", COUNTED)
def test_a_program_without_its_loops_is_counted_as_the_compiler_does(name: str) -> None:
    found = program(name)
    once = sum(flops_of(found.computations[inner]) for inner in found.times)
    assert once == pytest.approx(COUNTED[name], rel=0.0002)


def test_a_recurrent_layer_counts_every_step_of_its_sequence() -> None:
    """LSTM(256) on 32 steps of 96 numbers, 32 examples: by hand, and the layers around it."""
    found = program("lstm")
    assert {found.times[name] for name in found.control} == {1, 32}
    assert not found.has_unknown_loops
    total = COUNTED["lstm"] + found.repeated_flops
    forward = 2 * 32 * 32 * (96 + 256) * 4 * 256
    backward = forward + 2 * 32 * 32 * 256 * 4 * 256  # of the weights, and of the state
    assert total == pytest.approx(forward + backward, rel=0.05)


def test_the_least_time_of_each_layer_adds_up_to_that_of_the_step() -> None:
    step, topology = program("lstm"), find_topology("v5e-1")
    best = hlo.best_by_layer(step, frozenset({"lstm", "dense", "adam"}), "adam", topology)
    assert next(iter(best)) == "lstm"
    assert best.keys() >= {"dense", "adam"}
    step_s = max(step.flops / topology.peak_flops, hbm_bytes(step) / topology.hbm_bytes_per_s)
    assert step_s * 0.999 <= sum(best.values()) < 2 * step_s
    again = HloProgram(
        program_text("lstm").replace("(lstm)", "(lstm_7)")
    )  # as TensorFlow names what it has named before
    assert hlo.best_by_layer(again, frozenset({"lstm", "dense", "adam"}), "adam", topology) == best
    assert hlo.moved_by(again, frozenset({"lstm"})).by_layer == hlo.moved_by(step, frozenset({"lstm"})).by_layer


def test_both_directions_of_a_bidirectional_layer_are_counted() -> None:
    found = program("gru_long")
    assert sorted(found.times[name] for name in found.control if name != "main").count(96) == 8


def test_a_loop_that_ends_at_a_value_counts_once_and_is_called_a_lower_bound() -> None:
    bound = hlo.bound_of(small_config(), find_topology("v5e-1"), 1e6, 1e9, program("unknown_loop"))
    assert (bound.is_partial, bound.flops) == (True, 1e6)
    assert not hlo.bound_of(small_config(), find_topology("v5e-1"), 1e6, 1e9, program("lstm")).is_partial


COUNTING = """\
%body (p: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %p = (s32[], f32[8,128]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8,128] get-tuple-element(%p), index=1
  %step = s32[] constant(STEP)
  %next = s32[] add(%i, %step)
  %double = f32[8,128] add(%x, %x)
  ROOT %out = (s32[], f32[8,128]) tuple(%next, %double)
}

%test (q: (s32[], f32[8,128])) -> pred[] {
  %q = (s32[], f32[8,128]) parameter(0)
  %at = s32[] get-tuple-element(%q), index=0
  %end = s32[] constant(10)
  ROOT %lt = pred[] compare(%at, %end), direction=LT
}

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128] parameter(0)
  %begin = s32[] constant(1)
  %given = (s32[], f32[8,128]) tuple(%begin, %x)
  %loop = (s32[], f32[8,128]) while(%given), condition=%test, body=%body
  ROOT %out = f32[8,128] get-tuple-element(%loop), index=1
}
"""


@pytest.mark.parametrize(("step", "rounds"), [(1, 9), (2, 5), (4, 3)])
def test_a_loop_is_followed_from_its_first_number_in_its_steps(step: int, rounds: int) -> None:
    found = HloProgram(COUNTING.replace("STEP", str(step)))
    assert found.times["body"] == rounds
    # Each round reads what it doubles, and writes it; `compare` and the counter move a few bytes.
    assert hbm_bytes(found) == pytest.approx(rounds * 2 * 8 * 128 * 4, rel=0.01)


def test_a_trip_count_that_the_compiler_notes_is_taken() -> None:
    noted = 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
    assert HloProgram(COUNTING.replace("STEP", "1").replace("body=%body", noted)).times["body"] == 7


def test_parts_of_an_array_are_not_the_whole_array() -> None:
    # Five carried arrays of 32 steps are in fast memory; the weights are read once, in four parts each.
    step = program("lstm")
    assert hbm_bytes(step) == pytest.approx(9.13e6, rel=0.01)
    assert max(move.size for move in moves(step)) < 1.1e6


def test_memory_that_is_only_named_is_not_moved() -> None:
    text = """ENTRY %main (x: f32[8,128]) -> f32[16,128] {
  %x = f32[8,128] parameter(0)
  %space = f32[1024,128] custom-call(), custom_call_target="AllocateBuffer"
  ROOT %both = f32[16,128] custom-call(%x, %x), custom_call_target="ConcatBitcast"
}
"""
    assert hbm_bytes(HloProgram(text)) == 0


def test_numbers_that_are_gathered_one_by_one_are_counted() -> None:
    # A rotation and a zoom of 32 images, 32 × 32 × 3: eight neighbors of each number.
    assert sum(move.singles for move in moves(program("rotzoom"))) == 2 * 8 * 32 * 32 * 32 * 3
    assert sum(move.singles for move in moves(program("lstm"))) == 0


@pytest.mark.parametrize(
    ("name", "batch", "stack", "expected"),
    [
        (
            "rotzoom",
            32,
            [(32, 32, 3), layers.RandomRotation(0.1, name="rot"), layers.RandomZoom(0.1, name="zoo")],
            [("warning", "rot", "augmentation.rotation"), ("warning", "zoo", "augmentation.zoom")],
        ),
        ("printed", 8, [(8, 8, 3), layers.Identity(name="talker")], [("warning", "talker", "")]),
        ("clean", 8, [(8, 8, 3), layers.Conv2D(128, 3, name="conv")], []),
        (
            "shuffled",
            8,
            [(111, 96, 200), layers.Permute((3, 1, 2), name="turned"), layers.Reshape((37, -1), name="cut")],
            [("info", "turned", "")],
        ),
    ],
)
def test_what_is_found_in_a_program_names_the_layer_and_the_setting_that_replaces_it(
    name: str, batch: int, stack: list[Any], expected: list[tuple[str, str, str]]
) -> None:
    model = keras.Sequential([keras.Input(stack[0]), *stack[1:]])
    found = hlo.program_findings(program(name), model, batch)
    assert [(one.severity, one.layer, one.key) for one in found] == expected
    assert all(one.remedy and one.key in one.remedy for one in found)
    # What the layers move adds up to what the step moves: there is one account of bytes.
    moved = hlo.moved_by(program(name), frozenset(layer.name for layer in model.layers))
    assert sum(moved.by_layer.values()) == pytest.approx(hbm_bytes(program(name)), rel=0.001)


MOVING = """ENTRY %main (x: f32[MOVED]) -> f32[REST] {
  %x = f32[MOVED] parameter(0)
  %big = f32[MOVED] negate(%x), metadata={op_name="jit(step)/big/neg"}
  ROOT %rest = f32[REST] broadcast(%zero), metadata={op_name="jit(step)/loss/zeros"}
}
"""


@pytest.mark.parametrize(
    ("moved", "rest", "batch", "is_said"),
    [
        (8_000_000, 8, 8, True),  # 64 MB, read and written
        (6_000_000, 8, 8, False),
        (8_000_000, 150_000_000, 8, False),  # less than a tenth of the step
        (8_000_000, 8, 8192, False),  # not much more than its data
    ],
)
def test_a_layer_that_moves_far_more_than_its_data_is_named(moved: int, rest: int, batch: int, is_said: bool) -> None:
    model = keras.Sequential([keras.Input((64,)), layers.Dense(64, name="big")])
    text = MOVING.replace("MOVED", str(moved)).replace("REST", str(rest))
    found = hlo.program_findings(HloProgram(text), model, batch)
    assert [(one.severity, one.layer) for one in found] == [("warning", "big")] * is_said


def test_an_operation_without_a_scope_counts_with_its_neighbors_and_last_with_the_optimizer() -> None:
    scopes = {"source": "jit(step)/conv/dot", "copy": "", "use": "jit(step)/adam/mul", "other": "", "unused": ""}
    found = hlo.with_neighbors(scopes, {"copy": ["source"], "use": ["copy", "other"], "unused": ["use"]}, "adam")
    assert (found["copy"], found["other"]) == (scopes["source"], scopes["use"])
    assert "unused" not in found


def test_a_name_with_a_number_more_is_that_of_the_layer_whose_own_name_has_it() -> None:
    scopes = ["step/conv2d_1/dot", "step/conv2d_1_2/dot"]
    assert hlo.as_named(frozenset({"conv2d", "conv2d_1"}), scopes) == {"conv2d_1_2": "conv2d_1", "conv2d_1": "conv2d"}


@pytest.mark.parametrize(
    ("window", "made", "pairs"),
    [
        ("size=3 pad=1_1", 4, 3 * 4 - 2),
        ("size=3 stride=2 pad=0_1", 2, 5),
        ("size=3 rhs_dilate=2 pad=2_2", 4, 2 + 4 + 2),
        ("size=3 pad=2_2 lhs_dilate=2", 9, 4 * 3),
    ],
)
def test_a_convolution_counts_only_products_of_numbers(window: str, made: int, pairs: int) -> None:
    text = f"""ENTRY %main (a: f32[1,4,1], k: f32[3,1,1]) -> f32[1,{made},1] {{
  %a = f32[1,4,1] parameter(0)
  %k = f32[3,1,1] parameter(1)
  ROOT %c = f32[1,{made},1] convolution(%a, %k), window={{{window}}}, dim_labels=b0f_0io->b0f
}}
"""
    assert HloProgram(text).flops == 2 * pairs


def test_the_arithmetic_of_a_step_is_known_before_it_is_compiled() -> None:
    jax = pytest.importorskip("jax", reason="the extra [tpu] is not installed")

    def step(x: Any, weights: Any) -> Any:
        return jax.lax.scan(lambda y, _: (y @ weights, None), x, length=3)[0]

    given = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 32), (32, 32))]
    text = jax.jit(step).lower(*given).as_text(dialect="hlo")
    products = 3 * 2 * 64 * 32 * 32
    flops = HloProgram(text).flops
    assert products <= flops < 1.01 * products
    bound = hlo.bound_of_shapes(small_config(batch_size=8), find_topology("v5e-8"), text, 10**9, 10**6)
    assert bound.flops == flops / 8
    assert bound.step_s >= 10**9 / find_topology("v5e-8").hbm_bytes_per_s
    assert bound.is_partial


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
    assert (hlo.ring_bytes(8e6, 8), hlo.ring_bytes(8e6, 1)) == (14e6, 0)


def test_an_exchange_in_the_background_counts_once() -> None:
    assert exchanged_bytes(HloProgram(IN_THE_BACKGROUND), 8) == pytest.approx(7 / 8 * 128 * 8 * 8 * 32 * 2)


def test_fast_memory_is_no_traffic() -> None:
    # The copy reads the batch; the all-reduce reads 4,000 bytes and writes 4,096; the last fusion moves 4,000 twice.
    assert hbm_bytes(HloProgram(PROGRAM)) == pytest.approx(128 * 64 * 2 + 4 + 4000 + 4096 + 4000 + 4000, abs=8)


def test_the_bound_is_the_slowest_of_three() -> None:
    config = small_config(dataset="digits", batch_size=16, epochs=10)
    v5e = find_topology("v5e-8")
    bound = hlo.bound_of(config, v5e, 197e12, 1e3, HloProgram(PROGRAM))
    assert (bound.limited_by, bound.step_s, bound.compute_s) == ("compute", 1.0, 1.0)
    assert bound.hbm_bytes == 1e3
    assert bound.images_per_s == 128
    # 1,437 examples are 11 steps of 128.
    assert bound.epoch_s == pytest.approx(11.0)
    assert bound.run_s == pytest.approx(110.0)
    assert hlo.bound_of(config, v5e, 1.0, 1e9, HloProgram(PROGRAM)).limited_by == "memory"
