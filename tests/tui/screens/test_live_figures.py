from __future__ import annotations

import math

import pytest

from tpu_console.tui.text.live_numbers import bar_cells, clock, glyphs_for, memory, plain, rate, score, seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (42.9, "0:42"), (3723, "1:02:03"), (183_840, "2d 03:04"), (-5, "0:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.98765, "0.9877"),
        (12.3456, "12.346"),
        (123.456, "123.46"),
        (1234.56, "1234.6"),
        (0.00001234, "1.2e-5"),
        (0.0, "0.0000"),
        (3.2e9, "3.2e9"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
        (None, ""),
    ],
)
def test_score(value: float | None, text: str) -> None:
    assert score(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.001, "1.0e-3"), (0.5, "0.5"), (1.953e-4, "2.0e-4"), (0.00196, "2.0e-3"), (1.0, "1")]
)
def test_rate_fits_its_column(value: float, text: str) -> None:
    assert rate(value) == text
    assert len(rate(value)) <= 6


def test_durations_keep_their_column() -> None:
    assert [seconds_text(s) for s in (0.84, 12.34, 307)] == ["0.84 s", "12.3 s", "5:07"]


def test_memory_says_only_what_is_known() -> None:
    gib = 1 << 30
    assert memory(3 * gib, 16 * gib) == "3.0/16.0 GiB"
    assert memory(5 << 20, None) == "5.0 MiB"
    assert memory(None, None) == ""


def test_only_a_finished_bar_is_full() -> None:
    assert bar_cells(0.999, 10) == 9
    assert bar_cells(1.0, 10) == 10
    assert bar_cells(-1, 10) == 0


def test_ascii_glyphs_are_ascii() -> None:
    glyphs = glyphs_for("ascii")
    assert all(getattr(glyphs, name).isascii() for name in glyphs.__slots__)
    assert plain("8 × 1,000 – émile", glyphs).isascii()
    assert plain("8 × 1,000", glyphs_for("braille")) == "8 × 1,000"
