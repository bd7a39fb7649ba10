"""The process that compiles one choice: `python -P -m tpu_console.engine.preflight.worker`.

A line of JSON on standard input names the choice (``config``, ``tpu``, ``search``, ``advise``, ``begun``). The process
writes the messages of `engine.messages` to standard output: a ``progress`` for each phase, and the verdict as the
``result``, again whenever there is more in it. A crash of the compiler ends this process and nothing else. The process
also ends when its standard input is closed, so that it never outlives the console.
"""

import json
import math
import os
import sys
from typing import Any

from ..config.reading import parse_config
from ..messages import end_with_parent, report_result, standard_output_reporter
from .cache import TpuChoice
from .result import from_dict
from .topologies import find_topology


def main() -> int:
    """Compile the choice on standard input and report its verdict; return the exit code."""
    reporter = standard_output_reporter()
    asked = json.loads(sys.stdin.readline())
    end_with_parent()  # a compilation cannot be interrupted otherwise

    def report(phase: str, expected_s: float | None) -> None:
        reporter.progress(phase, 0, None if expected_s is None else math.ceil(expected_s), "seconds")

    def compile_choice() -> dict[str, Any]:
        report("loading Keras and JAX", None)
        choice = TpuChoice(parse_config(asked["config"]), find_topology(asked["tpu"]))
        from .verdict import reach_verdict

        begun = from_dict(asked["begun"]) if asked["begun"] else None
        asks = {"search": asked["search"], "advise": asked["advise"], "begun": begun}
        return reach_verdict(choice, report, lambda verdict: reporter.result(verdict.as_dict()), **asks).as_dict()

    return report_result(reporter, "preflight", compile_choice)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # libtpu's clean-up can hang or crash if there is nothing to clean up.
    os._exit(code)
