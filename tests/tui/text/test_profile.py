"""What the page about traced steps says first."""

from __future__ import annotations

import pytest

from tests.helpers import replace
from tpu_console.engine.runs.events import AcceleratorReady, Compiled, FitStarted, Profiled, RunStarted, Spent
from tpu_console.engine.runs.state import RunState
from tpu_console.tui.text.profile import change_of, profile_lines, reason_of

COMPUTED = Profiled(
    epoch=1,
    step=10,
    elapsed_s=1.0,
    steps=5,
    step_s=0.010,
    spent={Spent.COMPUTING: 0.010},
    layers={"conv": 0.006, "dense": 0.004},
    operations={"convolution": 0.006, "dot_general": 0.004},
    callbacks={},
    optimizer="adam",
    weights={"conv": 0.9, "dense": 0.1},
    trace="",
)
FIT = FitStarted(1, 10, 32, 32, 1, "", "val_loss")
STATE = RunState(fit=FIT)
FIRST = Compiled(0, 0, 0.0, 2.0, False, False, "", "float32[64,8]", "")
AGAIN = Compiled(1, 9, 5.0, 4.0, False, True, "inputs", "float32[37,8]", "float32[64,8]")


def spent(cause: Spent, share: float) -> Profiled:
    return replace(COMPUTED, spent={Spent.COMPUTING: 0.010 * (1 - share), cause: 0.010 * share})


@pytest.mark.parametrize(
    ("cause", "share", "word"),
    [
        (Spent.INPUT, 0.30, "input"),
        (Spent.CALLBACKS, 0.15, "Slow"),
        (Spent.HOST, 0.15, "steps_per_execution"),
        (Spent.TRANSFER, 0.15, "uint8"),
        (Spent.EXCHANGE, 0.15, "batch_size"),
    ],
)
def test_the_largest_cause_and_its_share_come_first(cause: Spent, share: float, word: str) -> None:
    text = reason_of(replace(spent(cause, share), callbacks={"Slow": 0.010 * share}), STATE)
    assert word in text
    assert f"{share:.0%}" in text
    assert f"{10 * (1 - share):.3g}" in text  # milliseconds at best
    assert "'conv'" in reason_of(spent(cause, 0.01), STATE)  # too little to be the cause


def test_steps_that_run_together_need_a_larger_batch() -> None:
    together = RunState(fit=replace(FIT, steps_per_execution=10))
    assert "steps_per_execution" not in reason_of(spent(Spent.HOST, 0.5), together)


def test_an_optimizer_is_explained_by_the_largest_layer() -> None:
    profiled = replace(COMPUTED, layers={"adam": 0.008, "table": 0.002}, weights={"table": 0.99, "head": 0.01})
    text = reason_of(profiled, STATE)
    assert "80%" in text
    assert "99%" in text
    assert "'table'" in text


def test_float32_is_the_cause_on_a_tpu_only() -> None:
    started = RunStarted("r", "host", 1, "h", {"precision": "float32"})
    for name in ("tpu", "cpu"):
        ready = AcceleratorReady(name, "", "", (), {}, "jax")
        assert ("bfloat16" in reason_of(COMPUTED, replace(STATE, started=started, accelerator=ready))) is (
            name == "tpu"
        )


def test_steps_that_compile_again_come_first_if_that_takes_a_tenth_of_the_time() -> None:
    state = replace(STATE, compiled=(FIRST, AGAIN, replace(FIRST, is_validation=True)))
    assert AGAIN.batch in reason_of(COMPUTED, state)
    assert FIRST.batch in reason_of(COMPUTED, state)
    assert "'conv'" in reason_of(replace(COMPUTED, elapsed_s=100.0), state)
    text = "\n".join(profile_lines(state, 100))
    assert AGAIN.batch in text.splitlines()[0]
    assert "validation" in text


@pytest.mark.parametrize(
    ("step_s", "words"), [(0.008, ("20% less", "computing")), (0.015, ("50% more", "input")), (0.0101, ("as long as",))]
)
def test_two_traces_are_compared_in_a_sentence(step_s: float, words: tuple[str, ...]) -> None:
    later = replace(COMPUTED, step_s=step_s, spent={Spent.COMPUTING: min(step_s, 0.009), Spent.INPUT: step_s - 0.009})
    text = change_of(later, ("in other-run", COMPUTED))
    assert "other-run" in text
    assert all(word in text for word in words)


def test_the_page_compares_with_another_run_by_cause_and_layer() -> None:
    now = replace(COMPUTED, layers={"dense": 0.004}, step=1)
    lines = profile_lines(RunState(fit=FIT, profiled=(now,)), 100, before=("in other-run", COMPUTED))
    rows = [line.split() for line in lines]
    assert sum(row[1:4] == ["ms", "share", "before"] or row[-1:] == ["before"] for row in rows) == 3
    assert ["conv", "0.00", "0%", "6.00"] in [row[:4] for row in rows]  # a layer that went away
    assert ["dense", "4.00", "100%", "4.00"] in [row[:4] for row in rows]


@pytest.mark.parametrize("width", [40, 78])
def test_the_page_fits_and_compares_with_the_trace_before(width: int) -> None:
    later = replace(COMPUTED, step=90, step_s=0.008, matrix_unit=0.12, bandwidth=0.34)
    best = replace(FIT, best_layers_ms={"conv": 1.234})
    lines = profile_lines(RunState(fit=best, profiled=(COMPUTED, later), compiled=(FIRST, AGAIN)), width)
    assert all(len(line) <= width for line in lines[1:])
    text = "\n".join(lines)
    assert "8.00 ms" in text
    assert "10.0 ms" in text or width < 78
    assert "12%" in text
    assert "34%" in text
    assert ["1.23" in line for line in lines if line.startswith(("conv ", "dense "))] == [True, False]
    broken = replace(COMPUTED, problem="The trace cannot be read.")
    assert any("cannot be read" in line for line in profile_lines(replace(STATE, profiled=(broken,)), width))
