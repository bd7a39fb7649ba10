from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.tui.commands.options import absolute

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_path_does_not_depend_on_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert [absolute("~/a/../b"), absolute("a")] == ["/home/me/b", f"{tmp_path}/a"]
    assert absolute("~no-such-user/a.csv") == f"{tmp_path}/~no-such-user/a.csv"
