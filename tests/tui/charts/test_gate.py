from __future__ import annotations

import pytest

from tpu_console.tui.charts.gate import RedrawGate


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_nothing_changed_means_no_redraw_unless_forced() -> None:
    gate = RedrawGate(FakeClock())
    assert not gate.ready()
    assert gate.ready(force=True)


def test_the_first_change_is_drawn_at_once() -> None:
    gate = RedrawGate(FakeClock())
    gate.mark()
    assert gate.wait_s() == 0.0
    assert gate.ready()


def test_a_cheap_chart_is_drawn_at_most_four_times_a_second() -> None:
    clock = FakeClock()
    gate = RedrawGate(clock)
    gate.mark()
    drawn = 0
    for _ in range(1000):
        gate.mark()
        if gate.ready():
            drawn += 1
            gate.drawn(0.0)
        clock.now_s += 0.01
    assert drawn == pytest.approx(40, abs=2)


@pytest.mark.parametrize(("cost_s", "wait_s"), [(0.001, 0.25), (0.03, 1.0), (0.045, 1.5), (2.0, 2.0)])
def test_the_wait_grows_with_the_cost_up_to_a_limit(cost_s: float, wait_s: float) -> None:
    clock = FakeClock()
    gate = RedrawGate(clock)
    gate.drawn(cost_s)
    gate.mark()
    assert gate.wait_s() == pytest.approx(wait_s)
    clock.now_s += wait_s - 0.01
    assert not gate.ready()
    assert gate.ready(force=True)
    clock.now_s += 0.02
    assert gate.ready()


def test_a_redraw_settles_what_had_changed() -> None:
    clock = FakeClock()
    gate = RedrawGate(clock)
    gate.mark()
    changed_before = gate.changed
    gate.drawn(0.01)
    clock.now_s += 60.0
    assert (changed_before, gate.changed) == (True, False)
    assert not gate.ready()


def test_a_held_redraw_waits_but_never_too_long() -> None:
    clock = FakeClock()
    gate = RedrawGate(clock)
    gate.mark()
    gate.drawn(0.0)
    drawn_at = clock.now_s
    gate.mark()
    while not gate.ready():  # a key every tenth of a second
        gate.hold(0.3)
        clock.now_s += 0.1
    assert clock.now_s - drawn_at == pytest.approx(2.0, abs=0.15)
