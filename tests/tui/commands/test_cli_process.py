"""The real program on real training: exit codes, signals, pipes, and the files of a user as the README says."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.forks import fork
from tests.helpers import LIMIT_S, ROOT, wait_until
from tests.images import write_image_folder
from tests.tui.forked_program import FORKED, forking
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.tui.cli import main

PROGRAM = [sys.executable, "-c", "import sys; from tpu_console.tui.cli import main; sys.exit(main())"]
FOREVER = ["--epochs", "100000"]
TRAIN = ["run", "digits-cnn", "--set", "model=mlp"]  # which compiles in a blink

pytestmark = pytest.mark.slow


class Runner:
    """Starts the program in a home of its own, with training processes that begin with Keras imported or are real."""

    def __init__(self, home: Path, *, forks: bool = False) -> None:
        self.home = home
        self.program = [sys.executable, *FORKED] if forks else PROGRAM
        self.environment = os.environ | {"TPU_CONSOLE_HOME": str(home)} | (forking() if forks else {})

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.program, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.home,
        )

    def finish(self, *args: str) -> tuple[int, str, str]:
        return self.end(self.start(*args))

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=2 * LIMIT_S)
        return process.returncode, out, err

    @property
    def run(self) -> RunDirectory:
        (run,) = list_runs(self.home / "runs")
        return run

    def journal_has(self, text: str) -> bool:
        journals = [run.journal for run in list_runs(self.home / "runs") if run.journal.exists()]
        return any(text in journal.read_text() for journal in journals)

    def train_until(self, text: str, *args: str) -> subprocess.Popen[str]:
        process = self.start(*TRAIN, *args)
        wait_until(lambda: self.journal_has(text))
        return process

    def host(self) -> psutil.Process:
        return psutil.Process(json.loads(self.run.heartbeat.read_text())["pid"])


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    yield Runner(tmp_path, forks=True)
    for run in list_runs(tmp_path / "runs"):
        with suppress(psutil.Error, OSError, ValueError):
            psutil.Process(json.loads(run.heartbeat.read_text())["pid"]).kill()


def test_a_run_trains_in_process_under_a_given_name(runner: Runner) -> None:
    words = (*TRAIN, *FOREVER, "--in-process", "--resume-if-exists", "mine")
    said = runner.home / "said"
    process = fork(PROGRAM[-1], *words, output=said, errors=said, cwd=runner.home, env=runner.environment)
    wait_until(lambda: runner.journal_has('"EpochEnded"'))
    assert runner.host().pid == process.pid
    process.send_signal(signal.SIGINT)
    assert process.wait(2 * LIMIT_S) == 130
    run = runner.run
    assert run.run_id.endswith("-mine")
    assert load_config(run.config).name == "digits-cnn"  # it still is a run of its preset
    assert main(["run", "digits-cnn", "--in-process", "--detach"]) == 2


def test_run_prints_tidy_lines_and_ends_with_0(runner: Runner) -> None:
    code, out, err = runner.finish(*TRAIN, "--epochs", "2")
    assert (code, err) == (0, "")
    # A phase that takes long, on a slow machine, is printed once more every while.
    lines = [line for line in out.splitlines() if not line.startswith(" ") and "  so far" not in line]
    first_words = [line.split()[0] for line in lines]
    once = ("preset", "importing", "loading", "building", "compiling", "saving", "finished", "history")
    assert {word: first_words.count(word) for word in once} == dict.fromkeys(once, 1)
    assert first_words.count("epoch") == 2
    assert all(c.isprintable() or c == "\n" for c in out)
    assert runner.run.model.is_file()


@pytest.mark.usefixtures("hangups")
def test_json_is_the_journal_and_nothing_else_and_a_closed_terminal_ends_only_its_viewer(runner: Runner) -> None:
    process = runner.train_until('"importing"', "--epochs", "2", "--json")
    watcher = runner.start("attach", "--json")
    process.send_signal(signal.SIGHUP)
    code, begun, err = runner.end(process)
    assert (code, err) == (-signal.SIGHUP, "")
    code, out, err = runner.end(watcher)
    assert (code, err) == (0, "")
    assert out == runner.run.journal.read_text()
    assert out.startswith(begun.rpartition("\n")[0])
    records = [json.loads(line) for line in out.splitlines()]
    assert records[0]["type"] == "RunStarted"
    assert records[-1]["type"] == "RunFinished"
    assert all({"v", "t", "type"} <= record.keys() for record in records)


def test_first_signal_stops_and_saves(runner: Runner) -> None:
    process = runner.train_until('"EpochEnded"', *FOREVER)
    process.send_signal(signal.SIGTERM)
    code, out, err = runner.end(process)
    assert code == 130
    assert "Stopping" in err
    assert re.search(r"^stopped .*Ctrl-C", out, re.M)
    assert runner.run.model.is_file()
    assert runner.journal_has('"outcome":"stopped"')


def test_a_second_interrupt_ends_the_run_immediately(runner: Runner) -> None:
    process = runner.train_until('"importing"', *FOREVER)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert "Stopping" in process.stderr.readline()
    host = runner.host()
    process.send_signal(signal.SIGINT)
    code, _, err = runner.end(process)
    assert code == 130
    assert "Killed" in err
    wait_until(lambda: not host.is_running())
    assert not runner.run.model.exists()


def test_a_run_continues_when_its_pipe_is_closed(runner: Runner) -> None:
    process = runner.train_until('"EpochEnded"', "--epochs", "4")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(LIMIT_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    wait_until(lambda: runner.journal_has('"outcome":"completed"'))


@pytest.fixture
def hangups() -> Iterator[None]:
    """Programs that are started hear a hangup, even where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_detached_run_is_found_watched_left_and_stopped(runner: Runner) -> None:
    code, out, err = runner.finish(*TRAIN, *FOREVER, "--detach")
    assert (code, err) == (0, "")
    run_id = runner.run.run_id
    assert f"Started {run_id}\n" in out
    assert f"tpu-console attach {run_id}" in out
    assert json.loads(runner.finish("runs", "--json")[1])[0]["state"] == "running"
    watcher = runner.start("attach")
    assert watcher.stdout is not None
    assert watcher.stdout.readline().startswith("run  ")
    watcher.send_signal(signal.SIGINT)
    code, _, err = runner.end(watcher)
    assert code == 130
    assert "the run continues" in err
    assert runner.host().is_running()
    watcher = runner.start("attach")
    assert runner.finish("stop")[0] == 0
    code, out, _ = runner.end(watcher)
    assert code == 0
    assert re.search(r"^stopped .*console stop", out, re.M)
    assert json.loads(runner.finish("runs", "--json")[1])[0]["state"] == "stopped"


def test_killed_host_ends_with_1_and_says_so(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    process = runner.train_until('"importing"', *FOREVER)
    runner.host().kill()
    code, _, err = runner.end(process)
    assert code == 1
    assert all(words in err for words in ("without reporting", "Log: "))


def test_the_commands_of_the_readme_train_on_photos_and_predict_others(tmp_path: Path) -> None:
    photos = write_image_folder(tmp_path / "photos", per_class=20, size=(16, 16))
    (photos / "rose" / "cut.jpg").write_bytes((photos / "rose" / "rose_0.jpg").read_bytes()[:99])
    write_image_folder(tmp_path / "others", per_class=5, size=(16, 16), seed=1)
    (tmp_path / "new").mkdir()
    for file in (tmp_path / "others").rglob("*.jpg"):
        file.rename(tmp_path / "new" / file.name)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("**Train on your own files**")[2].split("```")[1]
    lines = [shlex.split(line, comments=True)[1:] for line in block.strip().splitlines()]
    assert [line[0] for line in lines] == ["inspect", "run", "predict"]
    runner = Runner(tmp_path, forks=True)
    outputs = {}
    for line in lines:
        code, outputs[line[0]], err = runner.finish(*line)
        assert code == 0, err
    assert " run ./photos\n" in outputs["inspect"]
    assert "1 of 61 images in " in outputs["run"].partition("loading data")[0]
    rows = list(csv.DictReader((tmp_path / "labels.csv").open()))
    assert len(rows) == 15
    assert np.mean([row["file"].startswith(row["label"]) for row in rows]) > 0.9
    assert load_config(runner.run.config).data.options["path"] == str(photos)


def test_reviews_are_trained_on_once_the_label_is_named(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["what", "verdict", "stars"])
        for number in range(100):
            words = [f"word{index}" for index in random.integers(0, 50, 12)]
            words[int(random.integers(0, 12))] = "dull" if number % 2 else "moving"
            table.writerow([" ".join(words), "down" if number % 2 else "up", number % 5])
    command = [*FORKED, "run", str(tmp_path / "reviews.csv"), "--epochs", "1"]
    forked = Terminal(*command, home=tmp_path, size=(120, 60), program=sys.executable, environment=forking())
    with closing(forked) as terminal:
        terminal.wait_for("Which column has the labels? (verdict, stars)")
        terminal.press(*"verdict", "enter")
        assert terminal.wait() == 0
    (run,) = list_runs(tmp_path / "runs")
    assert load_config(run.config).data.options["label"] == "verdict"
