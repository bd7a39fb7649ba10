from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pyte

from tests.helpers import LIMIT_S
from tests.tui.live_fakes import FakeEngine

if TYPE_CHECKING:
    from pathlib import Path

NOISY = """
import os, sys, threading
from pathlib import Path
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.terminal.native_output import native_output_diverted, send_native_output_to

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


def drive(command: list[str], keys: bytes, until: str, size: tuple[int, int] = (100, 30)) -> tuple[str, bytes]:
    """Run a program under a terminal, press keys once a text is seen; the screen then, and every byte."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    # Whoever starts the tests may have set a size, which would count for more than the terminal's own.
    inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    environment = inherited | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment)
    os.close(other)
    screen = pyte.Screen(*size)
    stream = pyte.ByteStream(screen)
    seen, seen_screen, deadline = b"", "", time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if not select.select([main], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(main, 65536)
        except OSError:
            break  # the program has closed the terminal
        seen += data
        stream.feed(data)
        if not seen_screen and until in "\n".join(screen.display):
            seen_screen = "\n".join(screen.display)
            os.write(main, keys)
    assert process.wait(LIMIT_S) == 0, seen[-2000:]
    os.close(main)
    return seen_screen, seen


def test_native_output_goes_to_the_log_and_never_to_the_screen(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin()
    engine.train(1)
    screen, seen = drive([sys.executable, "-c", NOISY, str(engine.run.path)], b"d", "CPU, 1 replica")
    log = engine.run.log.read_text()
    assert log.startswith("NATIVE early\n")
    assert log.count("NATIVE out\n") == log.count("NATIVE err\n") == 200
    assert (engine.run.log.stat().st_mode & 0o777) == 0o600
    # The log pane shows the log, so the words may be drawn; a raw line would end in a line feed.
    assert b"NATIVE out\n" not in seen
    assert b"NATIVE out\r\n" not in seen
    assert len(screen.splitlines()[0].rstrip()) > 80, "it knew how wide the terminal is"
    assert seen.rstrip().endswith(b"BYE True True")
