"""Work that needs TensorFlow and is not a run: converting, inspecting, predicting, preflighting.

`python -P -m tpu_console.engine.jobs.job NAME OPTIONS`, where OPTIONS are the arguments of the job's function as a JSON
object, writes the messages of `engine.messages` to standard output; native code prints to standard error.

SIGINT and SIGTERM end a job with what it has finished. A job that can be resumed continues there the next time. If its
standard input is a pipe, the job ends with the process at the other end.
"""

import json
import os
import signal
import stat
import sys
from importlib import import_module
from typing import Any

from ..accelerators.backend import check_tensorflow, importing
from ..messages import Reporter, end_with_parent, report_result, standard_output_reporter

JOBS = {
    "tfrecord": "tpu_console.engine.jobs.tfrecord:convert_dataset",
    "inspect": "tpu_console.engine.jobs.inspect:inspect_dataset",
    "convert": "tpu_console.engine.export.export:convert_run",
    "export": "tpu_console.engine.export.export:export_run",
    "import": "tpu_console.engine.export.bring_in:import_runs",
    "predict": "tpu_console.engine.jobs.predict:predict_with_run",
    "fetch": "tpu_console.engine.mirror.copier:fetch_job",
    "mirror": "tpu_console.engine.mirror.copier:copy_job",
    "call": "tpu_console.engine.jobs.preflight:call_dataset",
    "preflight": "tpu_console.engine.jobs.preflight:preflight_choices",
    "least-memory": "tpu_console.engine.jobs.preflight:least_memory_of_choices",
}
"""Module and function of each job: ``function(reporter, **options)`` returns the result as plain values."""


def run_job(name: str, reporter: Reporter, options: dict[str, Any]) -> dict[str, Any]:
    """Run the job with a name and return its result."""
    check_tensorflow()
    module, _, function = JOBS[name].partition(":")
    with importing():
        job = getattr(import_module(module), function)
    result: dict[str, Any] = job(reporter, **options)
    return result


def main(arguments: list[str]) -> int:
    """Run a job and report its result; return the exit code."""
    reporter = standard_output_reporter()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore SIGINT otherwise
        signal.signal(number, signal.default_int_handler)
    name, options = arguments
    # Jobs read and feed data with TensorFlow; on TPU runtimes the variable often says jax.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    return report_result(reporter, f"{name} job", lambda: run_job(name, reporter, json.loads(options)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
