"""Forks do what a new process does: they say, fail, end and are ended on their own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.forks import Forked, fork
from tests.helpers import LIMIT_S, run_forked, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def forked(folder: Path, code: str, *arguments: str) -> Forked:
    return fork(code, *arguments, output=folder / "output", errors=folder / "errors", cwd=folder)


def test_a_fork_has_its_own_folder_arguments_environment_and_modules(tmp_path: Path) -> None:
    code = (
        "import keras, os, sys\n"
        "assert keras.backend.backend() == 'tensorflow'\n"
        "assert not [name for name in sys.modules if name.startswith('tpu_console')]\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['WORD'], os.getsid(0) == os.getpid())"
    )
    said = run_forked(code, "a", "b", cwd=tmp_path, env={"WORD": "yes"})
    assert said == f"['a', 'b'] {tmp_path} yes True\n"


def test_a_fork_ends_as_it_says(tmp_path: Path) -> None:
    ends = [forked(tmp_path, code) for code in ("", "import sys; sys.exit(3)", "1 / 0")]
    assert [end.wait(LIMIT_S) for end in ends] == [0, 3, 1]
    assert "ZeroDivisionError" in (tmp_path / "errors").read_text(encoding="utf-8")


def test_a_fork_is_ended_by_a_signal(tmp_path: Path) -> None:
    waiting = forked(tmp_path, "print('here', flush=True); import threading; threading.Event().wait()")
    wait_until(lambda: (tmp_path / "output").exists() and (tmp_path / "output").read_text() == "here\n", "its word")
    assert waiting.poll() is None
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(LIMIT_S) == -signal.SIGTERM
    waiting.kill()  # it has ended: nothing happens
