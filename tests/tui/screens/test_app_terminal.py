from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.tui.live_fakes import FakeEngine
from tests.tui.terminal_driver import Terminal

if TYPE_CHECKING:
    from pathlib import Path

NOISY = """
import os, sys, threading
from pathlib import Path
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.terminal.output import native_output_diverted, send_native_output_to

run = RunDirectory(Path(sys.argv[1]))
with native_output_diverted():
    os.write(2, b"NATIVE early\\n")
    app = ConsoleApp(run=run, in_process=True)

    def shout():
        send_native_output_to(run.log)
        for _ in range(200):
            os.write(1, b"NATIVE out\\n")
            os.write(2, b"NATIVE err\\n")

    app.call_later(shout)
    app.run()
print("BYE", os.isatty(1), os.isatty(2))
"""


def test_native_output_goes_to_the_log_and_never_to_the_screen(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin(1)
    size = (100, 30)
    terminal = Terminal("-c", NOISY, str(engine.run.path), home=tmp_path, program=sys.executable, size=size)
    try:
        terminal.wait_for("CPU, 1 replica")
        assert len(terminal.lines[0].rstrip()) > 80, "it knows how wide the terminal is"
        terminal.press("d")
        assert terminal.wait() == 0
        seen = terminal.raw
    finally:
        terminal.close()
    log = engine.run.log.read_text()
    assert log.startswith("NATIVE early\n")
    assert log.count("NATIVE out\n") == log.count("NATIVE err\n") == 200
    assert (engine.run.log.stat().st_mode & 0o777) == 0o600
    # The log pane shows the log, so the words may be drawn; a raw line would end in a line feed.
    assert b"NATIVE out\n" not in seen
    assert b"NATIVE out\r\n" not in seen
    assert seen.rstrip().endswith(b"BYE True True")
