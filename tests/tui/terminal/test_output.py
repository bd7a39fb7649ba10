"""The width of standard output."""

import pytest

from tpu_console.tui.terminal.output import width_of_output


@pytest.mark.parametrize(("columns", "width"), [("72", 72), ("", None), ("0", None), ("wide", None), ("-3", None)])
def test_a_pipe_is_as_wide_as_columns_says(
    columns: str, width: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert not capsys.readouterr().out
    assert width_of_output() == width
