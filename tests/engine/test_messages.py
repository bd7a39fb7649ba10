import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.helpers import LIMIT_S, ROOT, small_config
from tpu_console.engine.errors import ConsoleError, RunNotFoundError, UntrustedCodeError
from tpu_console.engine.messages import FAILED, MessageReader, Reporter, error_of, exit_cause, report_result


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_the_first_and_the_last_message_of_each_step_are_written_however_fast_it_goes() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream)
    for what in ("reading", "writing"):
        for done in range(1001):
            reporter.progress(what, done, 1000, "images")
    reported = [(record["what"], record["done"]) for record in written(stream)]
    ends = [("reading", 0), ("reading", 1000), ("writing", 0), ("writing", 1000)]
    assert [pair for pair in reported if pair[1] in (0, 1000)] == ends
    assert len(reported) < 50


def test_a_reader_returns_complete_messages_that_are_safe_to_show() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        reader = MessageReader(stream)
        os.write(writing, b'{"kind": "note", "text": "a\\u001b[2Jb"}\n{"kind": "no')
        (first,) = reader.read() or []
        assert first["kind"] == "note"
        assert "\x1b" not in first["text"]
        os.write(writing, b'te", "text": "second\\nline"}\n')
        os.close(writing)
        assert reader.read() == [{"kind": "note", "text": "second\nline"}]
        assert reader.read() is None


def reported_error(error: Exception) -> ConsoleError:
    def work() -> Mapping[str, Any]:
        raise error

    stream = io.StringIO()
    assert report_result(Reporter(stream), "test", work) == FAILED
    (message,) = written(stream)
    return error_of(message, "~/test.log")


def test_an_error_arrives_as_it_was_raised() -> None:
    found = reported_error(ConsoleError("What.", why="Why.", remedy="Remedy."))
    assert (type(found), found.what, found.why, found.remedy) == (ConsoleError, "What.", "Why.", "Remedy.")
    for kind in (RunNotFoundError, UntrustedCodeError):  # exit code 2, and a question
        assert type(reported_error(kind("What."))) is kind


def test_a_bug_names_the_log_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    found = reported_error(RuntimeError("two\nlines"))
    assert str(found) == "Internal error in the test: RuntimeError: two lines Its log: ~/test.log"
    assert "Traceback" in capsys.readouterr().err


def test_the_cause_of_an_exit_is_a_sentence() -> None:
    assert exit_cause(-9).startswith("It was killed")
    assert exit_cause(-11).endswith(" SIGSEGV.")
    assert exit_cause(-40).endswith(" signal 40.")  # a real-time signal, which has no name
    assert exit_cause(3).endswith(" 3.")


def test_the_worker_of_a_preflight_writes_the_same_messages() -> None:
    asked = {"config": small_config().model_dump(mode="json"), "tpu": "v5e-7", "search": False}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tpu_console.engine.preflight.worker_pool"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()  # it stays open: the worker ends with its parent
        reader, messages = MessageReader(process.stdout), []
        while (some := reader.read()) is not None:
            messages += some
        assert process.wait(LIMIT_S) == FAILED
    assert [message["kind"] for message in messages] == ["progress", "error"]
    assert "no TPU 'v5e-7'" in str(error_of(messages[-1], ""))
