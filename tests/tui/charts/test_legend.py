from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from tpu_console.tui.charts.legend import Entry, legend_line, title_line
from tpu_console.tui.charts.pens import pen_for

ENTRIES = [
    Entry("loss", pen_for(0, "braille", "dark", is_validation=False), 0.1234),
    Entry("val_loss", pen_for(0, "braille", "dark", is_validation=True), 0.1532, 0.15, 24.0),
]


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (80, "─ train 0.1234  ● val 0.1532 (best 0.1500 in epoch 24)"),
        (44, "─ train 0.1234  ● val 0.1532 ★0.1500 ep 24"),
        (40, "─ train 0.123  ● val 0.153 ★0.150 ep24"),
        (36, "─ train 0.123  ● val 0.153 ★ep24"),
        (28, "─ train 0.123  ● val ★ep24"),
        (25, "─ train 0.123  ● val 0.1…"),
        (12, "─ train 0.1…"),
    ],
)
def test_the_legend_says_less_the_narrower_it_is(width: int, text: str) -> None:
    assert legend_line(ENTRIES, "loss", width).plain == text


@given(width=st.integers(1, 100))
def test_both_lines_fit_any_width(width: int) -> None:
    assert legend_line(ENTRIES, "loss", width).cell_len <= width
    assert title_line("loss", [], width).cell_len == width


def test_the_less_important_notes_go_first() -> None:
    notes = [("! 3 NaN", Style(bold=True)), ("log", Style()), ("step", Style())]
    assert title_line("loss", notes, 24).plain == "loss  ! 3 NaN  log  step"
    assert title_line("loss", notes, 20).plain == "loss    ! 3 NaN  log"
    assert title_line("loss", notes, 10).plain == "loss      "


def test_the_epoch_so_far_is_called_running() -> None:
    entry = Entry("auc", ENTRIES[0].pen, 0.9, running=True)
    assert legend_line([entry], "auc", 60).plain == "─ train (running) 0.9000"
    assert legend_line([entry], "auc", 16).plain == "─ train~ 0.9000"


def test_a_metric_without_a_finite_value_is_named_so() -> None:
    assert legend_line([Entry("loss", ENTRIES[0].pen, math.nan)], "loss", 60).plain == "─ train NaN"
