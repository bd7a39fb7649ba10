from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.text.plan_text import PlanLine, laid_out

WORDS = ["a", "step,", "(auto:", "= 5;", "something-too-long-for-a-narrow-line", "batch"]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (40, ["Time      about 26 s, from a run here"]),
        (32, ["Time      about 26 s, from a run", "          here"]),
        (24, ["Time      about 26 s,", "  from a run here"]),
    ],
)
def test_a_text_wraps_beside_its_lead_or_under_it(width: int, lines: list[str]) -> None:
    assert laid_out([PlanLine("Time      ", "about 26 s, from a run here")], width).plain.split("\n") == lines


@given(words=st.lists(st.sampled_from(WORDS), max_size=12), width=st.integers(20, 60))
def test_a_wrapped_text_fits_and_keeps_every_word(words: list[str], width: int) -> None:
    lines = laid_out([PlanLine("Step      ", " ".join(words))], width).plain.split("\n")
    assert all(len(line) <= width for line in lines)
    assert "".join(" ".join(lines).split()) == "".join(["Step", *words]).replace(" ", "")
