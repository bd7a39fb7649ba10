from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from tpu_console.tui.charts.legend import Entry, header_line, legends_of, pen_for

ENTRIES = [
    Entry("loss", pen_for(0, "braille", "dark", is_validation=False), 0.1234),
    Entry("val_loss", pen_for(0, "braille", "dark", is_validation=True), 0.1532, 0.15, 24.0),
]


def legend(title: str, width: int, *entries: Entry) -> str:
    """The legend alone."""
    return header_line("", legends_of(entries, title), (), width).plain.rstrip()


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (80, "─ train 0.1234  ● val 0.1532 ★ 0.1500 (24)"),
        (41, "─ train 0.123  ● val 0.153 ★ 0.150 (24)"),
        (36, "─ train 0.123  ● val 0.153 ★(24)"),
        (28, "─ train .123 ● val .153 ★24"),
        (27, "─ train .123 ● val .153 ★24"),
        (26, "─ train 0.123  ● val 0.153"),
        (25, "─ train .123 ● val .153"),
        (12, "─ train .12…"),
    ],
)
def test_the_legend_says_less_the_narrower_it_is(width: int, text: str) -> None:
    assert legend("loss", width, *ENTRIES) == text


NOTES = [("! 3 NaN", Style(bold=True)), ("log", Style()), ("step", Style())]


@given(width=st.integers(1, 100))
def test_the_header_fits_any_width(width: int) -> None:
    assert header_line("loss", legends_of(ENTRIES, "loss"), NOTES, width).cell_len == width


def test_the_header_gives_up_the_axis_then_words_of_the_legend_then_notes() -> None:
    def header(width: int) -> str:
        return header_line("loss", legends_of(ENTRIES, "loss"), NOTES, width).plain

    assert header(80).endswith("● val 0.1532 ★ 0.1500 (24)              ! 3 NaN  log  step")
    assert header(63).endswith("(24)   ! 3 NaN  log")
    assert header(46).endswith("val 0.153  ! 3 NaN  log")
    assert header(41).endswith("val 0.153  ! 3 NaN")
    assert header(32).endswith("● val 0.153")


def test_the_epoch_so_far_is_marked() -> None:
    entry = Entry("auc", ENTRIES[0].pen, 0.9, running=True)
    assert legend("auc", 60, entry) == "─ train~ 0.9000"


def test_a_metric_without_a_finite_value_is_named_so() -> None:
    assert legend("loss", 60, Entry("loss", ENTRIES[0].pen, math.nan)) == "─ train NaN"
