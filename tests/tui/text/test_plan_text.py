from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.models.table import MODELS
from tpu_console.presets.catalog import all_presets
from tpu_console.tui.text.plan_text import PlanLine, laid_out

WORDS = ["a", "step,", "(auto:", "= 5;", "something-too-long-for-a-narrow-line", "batch"]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (40, ["Time      about 26 s, from a run here"]),
        (32, ["Time      about 26 s,", "          from a run here"]),
        (24, ["Time      about 26 s,", "  from a run here"]),
    ],
)
def test_a_line_ends_between_two_facts(width: int, lines: list[str]) -> None:
    line = PlanLine("Time      ", "about 26 s, from a run here")
    assert laid_out([line], width).plain.split("\n") == lines


@given(words=st.lists(st.sampled_from(WORDS), max_size=12), width=st.integers(20, 60))
def test_a_wrapped_text_fits_and_keeps_every_word(words: list[str], width: int) -> None:
    lines = laid_out([PlanLine("Step      ", " ".join(words))], width).plain.split("\n")
    assert all(len(line) <= width for line in lines)
    assert "".join(" ".join(lines).split()) == "".join(["Step", *words]).replace(" ", "")


def test_no_fact_about_a_preset_breaks_in_the_narrowest_form() -> None:
    about = [preset.about for preset in all_presets()[0] if preset.is_builtin]
    texts = [text for one in about for text in (one.title, one.expected_score, one.expected_time, one.reproduces)]
    texts += [text for info in DATASETS.values() for text in (info.title, info.licence)]
    texts += [f"{name}: {model.title}" for name, model in MODELS.items()]
    for text in texts:
        lines = laid_out([PlanLine("Score    ", text)], 30).plain.split("\n")
        for line, after in pairwise(lines):
            assert line.endswith((",", ";", ":", "Score    ")) or after.strip().startswith(("(", "=")), text
