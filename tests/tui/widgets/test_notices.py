"""The notices above the charts."""

from __future__ import annotations

import pytest
from textual.content import Content

from tpu_console.tui.widgets.run_header import bar_text

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
