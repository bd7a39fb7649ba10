from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tpu_console.tui.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line; return its exit code, standard output and standard error."""

    def run(*args: str) -> tuple[int, str, str]:
        code = main(args)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
