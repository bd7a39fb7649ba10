"""How a run ended, on the live screen."""

from __future__ import annotations

import pytest

from tpu_console.tui.text.outcome import RunOutcome
from tpu_console.tui.widgets.outcome_box import _content

PATH = "~/.local/share/tpu-console/runs/20261122-085334-digits-cnn/model.keras"
OUTCOME = RunOutcome("stopped", "Stopped after 60 epochs.", (("why", "long " * 30), ("model", PATH)))


@pytest.mark.parametrize("width", [120, 78, 77, 76, 50, 30])
def test_a_path_keeps_its_end_in_one_line(width: int) -> None:
    line = _content(OUTCOME, width).plain.splitlines()[-1]
    assert len(line) <= width
    assert line.endswith("cnn/model.keras")
    assert (PATH in line) == (width >= len("model: ") + len(PATH))


def test_a_sentence_is_never_cut() -> None:
    assert "long " * 29 in _content(OUTCOME, 30).plain


def test_a_good_end_takes_one_row() -> None:
    content = _content(RunOutcome("good", "Finished.", (("best", "0.9 in epoch 3"), ("model", PATH))), 80).plain
    assert content.splitlines() == [f"✓ Finished.  best: 0.9 in epoch 3  model: {PATH}"]
