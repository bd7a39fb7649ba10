"""The process of a job: what it reports, and how it ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers import LIMIT_S, ROOT, run_python
from tpu_console.engine.jobs.job import JOBS
from tpu_console.engine.messages import FAILED, INTERRUPTED

JOB = """
import os, sys
from tpu_console.engine.jobs import job
from tpu_console.engine.errors import DataError

def work(reporter, how):
    os.write(1, b"native code prints\\n")
    print("so does Python")
    reporter.note("at work")
    if how == "data":
        raise DataError("a.jpg is empty.", why="It has 0 bytes.", remedy="Delete it.")
    if how == "bug":
        raise RuntimeError("two\\nlines")
    if how == "wait":
        while True:
            reporter.progress("waiting", 1, 2, "s")
    return {"how": how}

sys.modules["its_module"] = sys.modules["__main__"]
job.JOBS["inspect"] = "its_module:work"
sys.exit(job.main(sys.argv[1:]))
"""


def start(how: str) -> subprocess.Popen[str]:
    """A job's process with a job of the test's own."""
    return subprocess.Popen(
        [sys.executable, "-c", JOB, "inspect", json.dumps({"how": how})],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def test_a_job_reports_its_end_and_native_output_stays_out() -> None:
    jobs = {how: start(how) for how in ("well", "data", "bug")}
    ends = {how: end(process) for how, process in jobs.items()}
    for how, (code, (note, last), err) in ends.items():
        assert code == (0 if how == "well" else FAILED)
        assert note == {"kind": "note", "text": "at work"}
        assert "native code prints" in err
        assert "so does Python" in err
        assert ("Traceback" in err) == (how == "bug")
        assert last["kind"] == ("result" if how == "well" else "error")
    error = {"kind": "error", "error": "DataError", "has_log": False}
    assert ends["data"][1][1] == {**error, "what": "a.jpg is empty.", "why": "It has 0 bytes.", "remedy": "Delete it."}
    assert ends["bug"][1][1]["has_log"]
    assert ends["bug"][1][1]["what"].endswith("RuntimeError: two lines")


def test_a_signal_ends_a_job_without_a_word() -> None:
    jobs = {number: start("wait") for number in (signal.SIGINT, signal.SIGTERM)}
    for number, process in jobs.items():
        assert process.stdout is not None
        assert "at work" in process.stdout.readline()
        assert "waiting" in process.stdout.readline()
        process.send_signal(number)
        code, said, err = end(process)
        assert code == INTERRUPTED
        assert {record["kind"] for record in said} <= {"progress"}
        assert "Traceback" not in err


def test_a_job_ends_when_its_reader_is_gone() -> None:
    process = start("wait")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(LIMIT_S) == INTERRUPTED


def test_every_job_has_its_module() -> None:
    for place in JOBS.values():
        module, _, function = place.partition(":")
        source = ROOT / f"{module.replace('.', '/')}.py"
        assert f"def {function}(" in source.read_text(encoding="utf-8"), place


_WRONG_ARGUMENTS = """
import sys
from pathlib import Path
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.export.export import convert_run
from tpu_console.engine.export.export import export_run
from tpu_console.engine.jobs.predict import predict_with_run

run = Path("runs/20260101-000000-a")
run.mkdir(parents=True)
run.joinpath("events.jsonl").touch()
for work in (
    lambda: export_run(None, "b", None, "script"),
    lambda: export_run(None, "a", str(run), "script"),
    lambda: export_run(None, "a", "c.py", "script"),
    lambda: convert_run(None, "a", "nowhere/c", "tflite"),
    lambda: convert_run(None, "a", "c", "tflite"),
    lambda: predict_with_run(None, "b", ["x.csv"], "c.csv"),
    lambda: predict_with_run(None, "a", ["x.csv"], str(run)),
    lambda: predict_with_run(None, "a", ["x.csv"], "c.csv"),
):
    try:
        work()
    except ConsoleError as error:
        print(error.what)
assert not {"tensorflow", "keras", "jax"} & {*sys.modules}
"""


def test_arguments_are_checked_before_a_framework_is_imported(tmp_path: Path) -> None:
    assert len(run_python(_WRONG_ARGUMENTS, cwd=tmp_path).splitlines()) == 8
