"""The page about traced steps; most of it is recorded in `tests/record/texts/profile.txt`."""

from pathlib import Path

from tests.helpers import replace
from tests.record import of_each, same_text
from tpu_console.engine.runs.events import AcceleratorReady, Compiled, FitStarted, Profiled, RunStarted, Spent
from tpu_console.engine.runs.state import RunState
from tpu_console.tui.text.profile import profile_lines, reason_of

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
FIRST = Compiled(0, 0, 0.0, 2.0, False, False, "", "float32[64,8]", "")
AGAIN = Compiled(1, 9, 5.0, 4.0, False, True, "inputs", "float32[37,8]", "float32[64,8]")
COMPILED = (FIRST, AGAIN, replace(FIRST, is_validation=True))


def spent(cause: Spent, share: float) -> Profiled:
    times = {Spent.COMPUTING: 0.010 * (1 - share), cause: 0.010 * share}
    return replace(COMPUTED, spent=times, callbacks={"Slow": 0.010 * share})


def traced(trace: Profiled = COMPUTED, accelerator: str = "", **changes: object) -> RunState:
    started = RunStarted("r", "host", 1, "h", {"precision": "float32"})
    ready = AcceleratorReady(accelerator, "", "", (), {}, "jax") if accelerator else None
    return replace(RunState(fit=FIT, profiled=(trace,), started=started, accelerator=ready), **changes)


def compared(step_s: float) -> Profiled:
    return replace(
        COMPUTED, step_s=step_s, spent={Spent.COMPUTING: min(step_s, 0.009), Spent.INPUT: max(0.0, step_s - 0.009)}
    )


LATER = replace(COMPUTED, step=90, step_s=0.008, matrix_unit=0.12, bandwidth=0.34)
OPTIMIZED = replace(COMPUTED, layers={"adam": 0.008, "table": 0.002}, weights={"table": 0.99, "head": 0.01})
CASES = {
    **{f"mostly {cause.value}": traced(spent(cause, 0.5)) for cause in Spent},
    "steps that run together": traced(spent(Spent.HOST, 0.5), fit=replace(FIT, steps_per_execution=10)),
    "an optimizer": traced(OPTIMIZED),
    "half an optimizer": traced(replace(OPTIMIZED, layers={"adam": 0.005, "table": 0.005})),
    "float32 on a TPU": traced(accelerator="tpu"),
    "float32 of a notebook": traced(replace(COMPUTED, float32_s=0.004), accelerator="tpu", started=None),
    "less float32 than matters": traced(replace(COMPUTED, float32_s=0.0009), accelerator="gpu"),
    "float32 on a processor": traced(accelerator="cpu"),
    "compiled again": traced(compiled=COMPILED),
    "compiled again, a long run": traced(replace(COMPUTED, elapsed_s=100.0), compiled=COMPILED),
    "compiled often, never traced": traced(compiled=(*COMPILED, *[AGAIN] * 9), profiled=()),
    "two traces": traced(
        profiled=(COMPUTED, LATER), fit=replace(FIT, best_layers_ms={"conv": 1.234}, best_step_ms=5.0)
    ),
    "a damaged trace": traced(replace(COMPUTED, problem="The trace cannot be read.")),
    "nothing": RunState(),
}
BEFORE = {
    "20% less": compared(0.008),
    "50% more": compared(0.015),
    "as long": compared(0.0101),
    "a layer that went away": replace(COMPUTED, layers={"dense": 0.004}, step=1),
    "a smaller layer that went away": replace(COMPUTED, layers={"conv": 0.006}, step=1),
}
"""Traces that are compared with another run's."""


def texts(_folder: Path) -> str:
    pages = {name: profile_lines(state, 78) for name, state in CASES.items()}
    other = ("in other-run", COMPUTED)
    pages |= {name: profile_lines(traced(trace), 78, before=other) for name, trace in BEFORE.items()}
    return of_each(pages)


def test_traces_are_written_as_recorded(tmp_path: Path) -> None:
    same_text("profile.txt", texts(tmp_path))


def test_a_cause_is_named_only_above_its_threshold() -> None:
    for cause in {*Spent} - {Spent.COMPUTING}:
        least = 0.20 if cause == Spent.INPUT else 0.10
        assert f"{least + 0.01:.0%}" in reason_of(spent(cause, least + 0.01), RunState(fit=FIT))
        assert "'conv'" in reason_of(spent(cause, least - 0.01), RunState(fit=FIT))


def test_a_narrow_page_has_fewer_columns_and_fits() -> None:
    lines = profile_lines(CASES["two traces"], 40)
    assert all(len(line) <= 40 for line in lines[1:])
    assert any(line.endswith("at best") for line in lines)
    assert not any("before" in line and "at best" in line for line in lines)
