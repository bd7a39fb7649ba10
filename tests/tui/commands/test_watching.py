"""`tpu-console attach`: when it opens a screen."""

from __future__ import annotations

import os
from pathlib import Path

from tests.tui.made_runs import made_run
from tests.tui.terminal_driver import Terminal


def test_a_notebook_cell_gets_plain_lines_although_it_has_a_terminal() -> None:
    made_run()
    cell = {"JPY_PARENT_PID": "1", "TERM": "xterm-color"}
    terminal = Terminal("attach", home=Path(os.environ["TPU_CONSOLE_HOME"]), size=(120, 40), environment=cell)
    try:
        assert terminal.wait() == 0
        assert "finished" in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw
    finally:
        terminal.close()
