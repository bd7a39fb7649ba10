"""A job's process and what is shown of it: progress, notes, errors, interrupts, a process that dies."""

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers import LIMIT_S, ROOT, private_mode, replace, wait_until
from tests.made_verdicts import speaking
from tpu_console.engine.errors import ConsoleError
from tpu_console.tui.jobs.job_process import JobProgress, ProgressLines, Step, log_file, run_job
from tpu_console.tui.terminal.output import encodable


def run(code: str) -> dict[str, Any]:
    return run_job("inspect", {}, start=speaking(code))


def logged() -> list[str]:
    return log_file("inspect").read_text().splitlines()[1:]


def test_a_result_comes_back_and_progress_and_notes_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(
        "for done in range(0, 1001, 100):\n    reporter.progress('reading images', done, 1000, 'images')\n"
        "reporter.note('two files are left out')\n"
        "reporter.progress('counting', 7, None, 'files')\n"
        "reporter.result({'images': 998, 'names': ['é', 'b']})\n"
    )
    assert result == {"images": 998, "names": ["é", "b"]}
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[0] for line in err.splitlines()] == ["reading", "reading", "note", "counting", "counting"]
    assert "(0%)" in err
    assert "7 files in " in err


def test_a_job_s_error_keeps_its_parts() -> None:
    with pytest.raises(ConsoleError) as caught:
        run("reporter.error(ConsoleError('a.jpg is empty.', why='It has 0 bytes.', remedy='Delete it.'))\nsys.exit(1)")
    error = caught.value
    assert (error.what, error.why, error.remedy) == ("a.jpg is empty.", "It has 0 bytes.", "Delete it.")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "probably because memory ran out"),
        ("os.kill(os.getpid(), signal.SIGABRT)", "SIGABRT"),
        ("sys.exit(3)", "exit code was 3"),
        ("print('{\"kind\": \"resu', end='')", "exit code was 0"),
    ],
)
def test_a_process_that_dies_without_a_word_names_its_log(code: str, why: str) -> None:
    with pytest.raises(ConsoleError) as caught:
        run(f"print('the last words', file=sys.stderr)\nreporter.progress('reading', 1, 3, 'files')\n{code}")
    assert why in caught.value.why
    assert str(log_file("inspect")) in caught.value.remedy
    assert logged()[0] == "the last words"


def test_a_mistake_of_the_job_s_own_is_a_sentence_and_its_traceback_is_in_the_log() -> None:
    with pytest.raises(ConsoleError) as caught:
        run_job("mirror", {"no_such_option": 1})
    assert "TypeError" in caught.value.what
    assert str(log_file("mirror")) in caught.value.remedy
    assert "Traceback" in log_file("mirror").read_text()
    assert private_mode(log_file("mirror")) == 0o600


WAITING = "reporter.progress('reading', 1, 3, 'files')\n{}while True:\n    time.sleep(60)\n"
"""A job that never ends by itself, after something it does first."""


def interrupting(code: str, *numbers: signal.Signals, grace_s: float | None = None) -> None:
    """Run a job that does not end by itself, and interrupt it each time it has said something."""

    def send() -> None:
        for count, number in enumerate(numbers, 1):
            wait_until(partial(has_said, count))
            os.kill(os.getpid(), number)

    def has_said(lines: int) -> bool:
        return log_file("inspect").exists() and len(logged()) >= lines

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job("inspect", {}, "Whole shards are kept.", start=speaking(code), grace_s=grace_s)
    finally:
        thread.join(LIMIT_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reaches_the_job_once_and_says_what_is_kept(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    ready = (
        "def end(number, frame):\n    print('asked', number, file=sys.stderr, flush=True)\n    sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', file=sys.stderr, flush=True)\n"
    )
    interrupting(WAITING.format(ready), number)
    assert logged() == ["ready", f"asked {int(signal.SIGTERM)}"]
    assert capsys.readouterr().err.splitlines()[-1].startswith("Interrupted. ")
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("count", "grace_s"), [(2, None), (1, 0.3)])
def test_a_second_interrupt_or_a_short_grace_ends_a_job_that_does_not_listen(count: int, grace_s: float | None) -> None:
    deaf = (
        "signal.signal(signal.SIGTERM, lambda *_: print('no', os.getpid(), file=sys.stderr, flush=True))\n"
        "print('ready', os.getpid(), file=sys.stderr, flush=True)\n"
    )
    interrupting(WAITING.format(deaf), *[signal.SIGINT] * count, grace_s=grace_s)
    pid = int(logged()[0].split()[1])
    assert not psutil.pid_exists(pid)


def test_a_job_that_takes_too_long_is_ended_with_all_it_started() -> None:
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    code = f"import subprocess\nprint({child}.pid, file=sys.stderr, flush=True)\n" + WAITING.format("")

    def start(name: str, options: Mapping[str, Any], log: Path) -> subprocess.Popen[bytes]:
        process = speaking(code)(name, options, log)
        wait_until(logged, "its first line")
        return process

    with pytest.raises(ConsoleError, match=r"no result after 0\.50 s") as caught:
        run_job("inspect", {}, start=start, limit_s=0.5)
    assert str(log_file("inspect")) in caught.value.remedy
    pid = int(logged()[0])
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


BLOCKED = """
import sys
from tests.helpers import small_config
from tpu_console.tui.jobs.job_process import JobProcess

config = small_config(dataset="mine.py:data", model_options={})
job = JobProcess("call", {"config": config.model_dump(mode="json")})
sys.stdin.read()
"""


def test_a_job_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import threading\n\ndef data():\n    threading.Event().wait()\n")
    command = [sys.executable, "-c", BLOCKED]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, env=environment)
    wait_until(lambda: psutil.Process(parent.pid).children(), "the job")
    (job,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.communicate()
    wait_until(lambda: not job.is_running() or job.status() == psutil.STATUS_ZOMBIE, "its end")


def test_a_result_that_came_before_the_interrupt_counts() -> None:
    code = f"os.kill({os.getpid()}, signal.SIGINT)\nreporter.result({{'done': True}})\n"
    found = run("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + code)
    assert found == {"done": True}


def test_in_a_pipe_a_line_comes_at_most_every_five_seconds_also_for_a_silent_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 100.0
    lines = ProgressLines(is_terminal=False, clock=lambda: now)
    lines.tick()  # nothing is known yet

    def said() -> list[str]:
        return [re.sub(r".*?  | images| choices|/s", "", line) for line in capsys.readouterr().err.splitlines()]

    for done in range(0, 121, 2):
        lines.feed(Step("writing", done, 120, "images"))
        now += 0.25
    progress = ["0 of 120 (0%)", "40 of 120 (33%), 8.0, 10.0 s left", "80 of 120 (66%), 8.0, 5.00 s left"]
    assert said() == [*progress, "120 in 15.0 s"]
    lines.feed(Step("compiling for v5e-8", 0, 3, "choices"))
    for _ in range(55):
        now += 0.2
        lines.tick()
    lines.feed(Step("compiling for v3-8", 0, None, "seconds"))
    now += 6
    lines.tick()
    lines.feed(Step("building", 0, None, "seconds"))
    now += 0.1
    lines.finish()
    silent = [f"0 of 3 (0%){so_far}" for so_far in ("", ", 5.00 s so far", ", 10.0 s so far", " in 11.0 s")]
    # Building is over before its seconds say anything.
    assert said() == [*silent, "compiling for v3-8", "6.00 s", "6.00 s", "building"]


def at(step: Step, seconds: float, began_with: int = 0) -> JobProgress:
    times = itertools.chain([0.0], itertools.repeat(seconds))
    progress = JobProgress(lambda: next(times))
    progress.feed(replace(step, done=began_with))
    progress.feed(step)
    return progress


def test_the_time_left_is_corrected_while_it_counts() -> None:
    texts = {0: "about 43 s left", 12: "12.0 s, about 31 s left", 590: "9m 50s, longer than expected"}
    for seconds, text in texts.items():
        step = Step("compiling", seconds, 43, "seconds")
        assert at(step, seconds).running() == f"compiling  {text}"
        assert not step.is_over  # it was only expected to be


def test_what_an_earlier_start_did_makes_nothing_look_faster() -> None:
    step = Step("writing", 600, 1000, "images")
    assert at(step, 10.0, 500).running().endswith(", 10 images/s, 40.0 s left")
    assert at(replace(step, done=1000), 50.0, 500).ended().endswith("1,000 images in 50.0 s")


def test_a_bar_is_drawn_in_ascii_if_the_locale_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = at(Step("writing", 6, 24, "images"), 0.0).running(bar=True)
    assert text.startswith("writing  ██████░░░░░░░░░░░░░░░░░░  6 of")
    monkeypatch.setenv("LC_ALL", "C")
    assert encodable(text, sys.stderr).startswith("writing  ######..................  6 of")
