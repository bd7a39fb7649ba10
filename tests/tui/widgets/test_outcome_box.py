"""How a run ended, on the live screen."""

from __future__ import annotations

import pytest

from tpu_console.tui.text.outcome import Ending
from tpu_console.tui.widgets.run_header import _content

PATH = "~/.local/share/tpu-console/runs/20261122-085334-digits-cnn/model.keras"
OUTCOME = Ending("stopped", "Stopped after 60 epochs.", (("why", "long " * 30), ("model", PATH)))


@pytest.mark.parametrize("width", [120, 78, 77, 76, 50, 30])
def test_a_path_keeps_its_end_in_one_line(width: int) -> None:
    line = _content(OUTCOME, width).plain.splitlines()[-1]
    assert len(line) <= width
    assert line.endswith("cnn/model.keras")
    assert (PATH in line) == (width >= len("model: ") + len(PATH))


def test_a_sentence_is_never_cut() -> None:
    assert "long " * 29 in _content(OUTCOME, 30).plain


def test_a_good_end_takes_two_rows_at_most_and_breaks_no_fact() -> None:
    classes = "balanced accuracy 0.9846 · most confused: 8 as 1 (2 of 35)"
    facts = (("best", "val_accuracy 0.9 in epoch 3"), ("classes", classes), ("model", PATH))
    good = Ending("good", "Finished: 3 epochs in 9.36 s.", facts)
    wide = _content(good, 240).plain
    assert "\n" not in wide
    assert PATH in wide
    for width in range(32, 240):
        lines = _content(good, width).plain.splitlines()
        assert len(lines) <= 2
        assert max(map(len, lines)) <= width
        said = "\n".join(lines)
        assert ("classes" in said) == (f"classes: {classes}" in said)
        assert ("model" in said) == any(line.endswith("model.keras") for line in lines)
    assert f"classes: {classes}" in _content(good, 77).plain
    assert [label for label, _ in facts if label in _content(good, 118).plain] == ["best", "classes", "model"]
