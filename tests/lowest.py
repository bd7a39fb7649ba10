"""Opens the setup screen, trains, watches and attaches with an installed console: ``python -m tests.lowest PROGRAM``.

`make lowest` gives it the console in an environment with the oldest packages that pyproject.toml allows.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.tui.terminal_driver import Terminal

LIMIT_S = 300.0  # the first import of an old TensorFlow from a cold disk takes a minute


def main(program: str) -> int:
    warned = subprocess.run([program, "presets"], capture_output=True, text=True, check=True).stderr
    assert not warned, warned
    with TemporaryDirectory() as home:
        setup = Terminal(home=Path(home), size=(120, 40), program=program)
        try:
            setup.wait_for("digits-cnn", LIMIT_S)
            setup.press("ctrl+r")
            setup.wait_for("epoch", LIMIT_S)
            setup.wait_for("finished", LIMIT_S)
            assert setup.curves, setup.text
            print("\n".join(setup.lines))
            setup.press("ctrl+q")
            assert setup.wait() == 0
        finally:
            setup.close()
        attached = Terminal("attach", home=Path(home), size=(80, 24), program=program)
        try:
            attached.wait_for("finished", LIMIT_S)
            print("\n".join(attached.lines))
            attached.press("ctrl+q")
            assert attached.wait() == 0
        finally:
            attached.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
