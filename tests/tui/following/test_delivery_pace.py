"""How often the screen is given something to draw, with clocks of its own."""

from __future__ import annotations

import threading
import time

import pytest

from tpu_console.tui.following.watcher import FASTEST_S, SLOWEST_S, DeliveryPace, main_thread_s


def interval_after(cost_s: float, for_s: float = 60.0) -> float:
    """The interval once every snapshot has cost so much processor time for a while."""
    now = spent = 0.0
    pace = DeliveryPace(lambda: spent, lambda: now)
    while now < for_s:
        now += pace.interval_s
        spent += cost_s
        pace.judge()
    return pace.interval_s


@pytest.mark.parametrize(("cost_s", "expected"), [(0.001, FASTEST_S), (0.02, 1.0), (0.03, 1.5), (0.3, SLOWEST_S)])
def test_drawing_is_brought_to_a_fiftieth_of_a_core(cost_s: float, expected: float) -> None:
    assert interval_after(cost_s) == pytest.approx(expected, rel=0.05)


def test_a_screen_that_becomes_cheap_is_drawn_often_again() -> None:
    now = spent = 0.0
    pace = DeliveryPace(lambda: spent, lambda: now)
    intervals = []
    for cost_s in (0.3, 0.002):
        for _ in range(60):
            now += pace.interval_s
            spent += cost_s
            pace.judge()
        intervals.append(pace.interval_s)
    assert intervals == [SLOWEST_S, FASTEST_S]


def test_a_pause_does_not_make_drawing_look_cheap() -> None:
    now = spent = 0.0
    pace = DeliveryPace(lambda: spent, lambda: now)
    for _ in range(20):
        now += 30.0  # the console was suspended
        spent += 0.02
        pace.judge()
    assert pace.interval_s == pytest.approx(1.0)


def test_nothing_is_judged_by_a_moment() -> None:
    now = spent = 0.0
    pace = DeliveryPace(lambda: spent, lambda: now)
    now, spent = 1.0, 0.9  # opening takes what it takes
    pace.judge()
    assert pace.interval_s == FASTEST_S


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="this system does not tell a thread's time")
def test_another_thread_s_work_is_not_counted() -> None:
    def work() -> None:
        while time.thread_time() < 0.2:
            pass

    before = main_thread_s()
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert main_thread_s() - before < 0.1
