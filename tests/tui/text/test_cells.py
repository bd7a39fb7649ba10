from __future__ import annotations

import pytest
from rich.cells import cell_len

from tpu_console.tui.text.cells import clipped, end_of

TEXTS = ["", "plain", "健康な葉", "a健b康", "cafe\u0301 – ★", "👍 fine"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 5, 11])
def test_a_text_is_no_wider_than_asked_for(text: str, size: int) -> None:
    for cut in (clipped(text, size), end_of(text, size)):
        assert cell_len(cut) <= size
        assert cut == text or "…" in cut


def test_a_text_is_cut_off_at_its_end_or_at_its_beginning() -> None:
    assert clipped("a long name", 7) == "a long…"
    assert end_of("a long name", 7) == "…g name"
    assert clipped("健康な葉", 6) == "健康…"
    assert end_of("健康な葉", 6) == "…な葉"
