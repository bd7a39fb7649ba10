"""Above the charts: notices, and how a run ended."""

from __future__ import annotations

import pytest
from textual.content import Content

from tpu_console.tui.text.outcome import Ending
from tpu_console.tui.widgets.run_header import bar_text, outcome_content

SHORT = "The loss jumped to 9."
LONG = " ".join(f"word{number}" for number in range(60))


@pytest.mark.parametrize("width", [118, 78, 40])
@pytest.mark.parametrize(("notices", "end"), [((LONG,), "…  (i: all of it)"), ((LONG, SHORT, SHORT), "…  (i: 2 more)")])
def test_a_long_notice_ends_with_the_key_that_shows_the_rest(notices: tuple[str, ...], end: str, width: int) -> None:
    shown = bar_text(notices, width)
    assert shown.endswith(end)
    assert len(Content(shown).wrap(width)) == 1


def test_a_notice_that_fits_is_whole() -> None:
    assert bar_text((SHORT,), 78) == f"▲ {SHORT}"
    assert bar_text((SHORT, LONG), 78) == f"▲ {SHORT}  (i: 1 more)"


PATH = "~/.local/share/tpu-console/runs/20261122-085334-digits-cnn/model.keras"
OUTCOME = Ending("stopped", "Stopped after 60 epochs.", (("why", "long " * 30), ("model", PATH)))


@pytest.mark.parametrize("width", [120, 78, 77, 76, 50, 30])
def test_a_path_keeps_its_end_in_one_line(width: int) -> None:
    line = outcome_content(OUTCOME, width).plain.splitlines()[-1]
    assert len(line) <= width
    assert line.endswith("cnn/model.keras")
    assert (PATH in line) == (width >= len("model: ") + len(PATH))


def test_a_sentence_is_never_cut() -> None:
    assert "long " * 29 in outcome_content(OUTCOME, 30).plain


def test_a_good_end_takes_two_rows_at_most_and_breaks_no_fact() -> None:
    classes = "balanced accuracy 0.9846 · most confused: 8 as 1 (2 of 35)"
    facts = (("best", "val_accuracy 0.9 in epoch 3"), ("classes", classes), ("model", PATH))
    good = Ending("good", "Finished: 3 epochs in 9.36 s.", facts)
    wide = outcome_content(good, 240).plain
    assert "\n" not in wide
    assert PATH in wide
    for width in range(32, 240):
        lines = outcome_content(good, width).plain.splitlines()
        assert len(lines) <= 2
        assert max(map(len, lines)) <= width
        said = "\n".join(lines)
        assert ("classes" in said) == (f"classes: {classes}" in said)
        assert ("model" in said) == any(line.endswith("model.keras") for line in lines)
    assert f"classes: {classes}" in outcome_content(good, 77).plain
    assert [label for label, _ in facts if label in outcome_content(good, 118).plain] == ["best", "classes", "model"]
