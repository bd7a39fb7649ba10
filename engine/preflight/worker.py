"""The process that compiles one choice: `python -P -m engine.preflight.worker`.

One line of JSON on standard input says what to judge (``config``, ``tpu``, ``search``); lines of JSON on standard
output say how far it is (``phase``) and what came of it (``verdict``, or ``error`` with ``what``, ``why`` and
``remedy``). A crash of the compiler ends this process and nothing else. It also ends when its standard input is closed,
so that none is left behind by a console that was killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from ..config.reading import parse_config
from ..errors import ConsoleError, one_line
from .compiler_environment import compiler_environment_of
from .topologies import find_topology

if TYPE_CHECKING:
    from typing import TextIO


def main() -> int:
    """Judge what standard input asks for; return the exit code."""
    # Standard output is kept for what is said here: libtpu and a person's own function print what they like.
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, name="tpu-console-parent", daemon=True).start()
    try:
        _say(said, {"phase": "loading the compiler"})
        config, topology = parse_config(asked["config"]), find_topology(asked["tpu"])
        os.environ.update(compiler_environment_of(config))
        from .verdict import judge

        verdict = judge(config, topology, lambda phase: _say(said, {"phase": phase}), search=asked["search"])
        _say(said, {"verdict": verdict.as_dict()})
    except ConsoleError as error:
        _say(said, {"error": {"what": error.what, "why": error.why, "remedy": error.remedy}})
    except Exception as error:  # noqa: BLE001  a bug is told in a sentence, and its traceback goes to the log
        traceback.print_exc()
        text = f"The preflight met a mistake of its own: {type(error).__name__}: {one_line(error)}"
        _say(said, {"error": {"what": text, "why": "", "remedy": ""}})
    said.close()
    return 0


def _end_with_parent() -> None:
    """End the process when the one that started it is gone: compiling cannot be interrupted otherwise."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)


def _say(stream: TextIO, values: dict[str, Any]) -> None:
    stream.write(json.dumps(values) + "\n")
    stream.flush()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Without the clean-up of libtpu, which can hang or crash when nothing is to be cleaned up.
    os._exit(code)
