"""`tpu-console resume`, `run --resume-if-exists` and `runs mirror`, also of runs that the user did not start."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.engine.mirror.parts import Training
from tests.helpers import Host, fork_host, small_config, the, wait_until
from tests.tui.calling import Call
from tests.tui.live_fakes import screen_text, until
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import RunFinished, RunResumed, RunStarted
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of, write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.storage.paths import runs_folder, sweeps_folder
from tpu_console.engine.sweeps.driver import main as drive
from tpu_console.engine.sweeps.folder import Definition, Sweep, create_sweep
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.following.follow import wait_for_life
from tpu_console.tui.following.overview import read_details
from tpu_console.tui.screens.setup import SetupScreen


def ended(epoch: int) -> events.EpochEnded:
    return events.EpochEnded(epoch, 4 * epoch, 4, 1.0 * epoch, 1.0, 0.0, 0.0, 2.0, 500.0, 1e-3, {"loss": 0.5})


def interrupted(*history: events.Event) -> RunDirectory:
    run = Host(small_config(epochs=2), runs_folder(), start=False).run
    write(run, RunStarted("small", "host", 1, "here"), *history)
    return run


def write(run: RunDirectory, *history: events.Event) -> None:
    writer = JournalWriter(run.journal)
    for event in history:
        writer.write(event)
    writer.close()


@pytest.mark.slow
@pytest.mark.usefixtures("resumed_in_forks")
def test_a_stopped_run_is_continued_and_only_its_continuation_printed(call: Call) -> None:
    run = interrupted(ended(1), RunFinished("stopped", "asked", {}))
    lines = call.out("resume", run.run_id, "--batch-size", "16").splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["changed", "resumed"]
    assert "batch_size: 32 → 16" in lines[0]
    assert [line[:9] for line in lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    assert any(line.startswith("finished") for line in lines)
    wait_until(lambda: liveness_of(run) is Liveness.DEAD, "its process ends")
    assert f"{run.run_id} --epochs 4" in call.refused("resume", run.run_id, code=1)
    assert f"{run.run_id} has finished" in call.out("run", "digits-cnn", "--resume-if-exists", "small")
    kinds = [json.loads(line)["type"] for line in call.out("attach", run.run_id, "--json").splitlines()]
    assert kinds.count("RunFinished") == 2, "the first end was not the last"


def test_a_run_that_trains_or_is_changed_wrongly_is_refused(call: Call) -> None:
    run = interrupted(ended(1))
    assert "--set mirror=…" in call.refused("mirror", code=1)
    assert "optimizer.nme: " in call.refused("resume", run.run_id, "--set", "optimizer.nme=3", "--epochs", "0")
    call.refused("resume", run.run_id, "--set", "model=mlp", "--set", "seed")
    write_heartbeat(run, os.getpid())
    error, remedy = call.refused("resume", run.run_id, code=1).splitlines()
    assert "still training" in error
    assert f" attach {run.run_id}," in remedy


def test_a_run_is_copied_to_its_mirror_later_and_found_there_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    (tmp_path / "drive").mkdir()
    training = Training(runs_folder(), str(tmp_path / "drive"))
    training.epoch()
    place, run = tmp_path / "drive" / training.run.run_id, training.run
    training.recorder.emit(events.MirrorReported(str(place), 0, "away", ("events.jsonl",), is_given_up=True))
    training.recorder.emit(RunFinished("completed", "all epochs are done", {}))
    training.journal.close()
    took_s = read_details(run).state.took_s
    assert "copied: events.jsonl" in call.out("show")
    assert call.out("mirror") == f"{run.run_id} is complete at {place}\n"
    assert call.json("show")["mirror"]["epoch"] == 1
    assert read_details(run).state.took_s == took_s, "copying later is no part of the run"
    assert (place / "events.jsonl").read_bytes() == run.journal.read_bytes()

    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "new machine"))
    mounted = (tmp_path / "drive").rename(tmp_path / "mounted")
    again = ["run", "digits-cnn", "--resume-if-exists", "mirrored", "--set", f"mirror={mounted}"]
    copy = runs_folder() / run.run_id
    mirror, here, end = call.out(*again, "--epochs", "1").splitlines()
    assert mirror.split(maxsplit=1) == ["mirror", str(mounted / run.run_id)]
    assert here.split(maxsplit=1) == ["here", str(copy)]
    assert f"{run.run_id} has finished" in end
    assert (copy / "events.jsonl").read_bytes() == run.journal.read_bytes()


def test_what_a_run_did_before_it_was_resumed_does_not_count() -> None:
    run = interrupted(ended(1), ended(2), RunFinished("stopped", "asked", {}))
    write(run, RunResumed(1, 2, 6, 65.0, 1, "here"), ended(2), RunResumed(1, 0, 4, 65.0, 1, "here"), ended(2))
    assert wait_for_life(run, 0.0, resumed=2) == "alive"
    assert wait_for_life(run, 0.0, resumed=3) != "alive"


CODE = """
from pathlib import Path
import keras

Path(__file__).with_name("it ran").touch()

def build(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])
"""


class Foreign:
    """A run and a sweep of another user, which name code, a webhook and a mirror, in this user's folders."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code, self.mirror = folder / "theirs.py", folder / "mirror"
        self.ran = folder / "it ran"
        self.code.write_text(CODE)
        self.mirror.mkdir()
        config = small_config(
            name="theirs",
            epochs=2,
            model=f"{self.code}:build",
            model_options={},
            alerts={"webhook": "http://127.0.0.1:9/a-secret"},
            mirror=str(self.mirror),
        )
        with monkeypatch.context() as theirs:
            theirs.setenv("TPU_CONSOLE_HOME", str(folder / "theirs"))
            made = Host(config, runs_folder(), start=False).run
            write(made, RunStarted("theirs", "host", 1, "elsewhere"), RunFinished("stopped", "asked", {}))
            sweep = create_sweep(Definition(config=config, over=("batch_size=16,32",)))
            there = runs_folder(), sweeps_folder()
        for source, target in zip(there, (runs_folder(), sweeps_folder()), strict=True):
            shutil.copytree(source, target)
        self.run, self.sweep = RunDirectory(runs_folder() / made.path.name), sweep.name

    def is_untouched(self) -> bool:
        """Whether nothing outside of the run was reached, and no other run was made."""
        return not self.ran.exists() and not list(self.mirror.iterdir()) and list_runs() == [self.run]


@pytest.fixture
def resumed(resume_with: Callable[[Callable[..., object]], None]) -> list[RunDirectory]:
    """Runs that would be resumed; they are only prepared."""
    asked: list[RunDirectory] = []

    def start(run: RunDirectory, _checkpoint: str, _lock: int) -> None:
        asked.append(run)
        raise ConsoleError("It is only prepared here.")

    resume_with(start)
    return asked


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Foreign:
    return Foreign(tmp_path, monkeypatch)


def test_without_a_terminal_untrusted_code_and_addresses_are_named_and_refused(foreign: Foreign, call: Call) -> None:
    run, config = foreign.run.run_id, foreign.run.config
    for command in (
        f"resume {run}",
        "run digits-cnn --resume-if-exists theirs",
        f"run {config}",
        f"preflight {config}",
        f"inspect {config}",
        f"sweep {config} --over batch_size=16,32",
        f"sweep --resume {foreign.sweep}",
        f"mirror {run}",
    ):
        err = call.refused(*command.split(), code=1)
        named = (f"{foreign.code}:build", "alerts.webhook: http://127.0.0.1/…", f"mirror: {foreign.mirror}", "--trust")
        assert all(text in err for text in named), command
        assert "a-secret" not in err
        assert foreign.is_untouched()


def test_what_the_user_names_needs_no_trust(foreign: Foreign, call: Call) -> None:
    err = call.refused("resume", foreign.run.run_id, "--set", "mirror=", "--set", "alerts.webhook=", code=1)
    assert str(foreign.code) in err
    assert not any(word in err for word in ("mirror", "webhook"))


@pytest.mark.slow
@pytest.mark.usefixtures("resumed_in_forks")
def test_what_was_trusted_once_is_not_asked_about_again(foreign: Foreign, call: Call) -> None:
    assert call("resume", foreign.run.run_id, "--trust")[0] == 0
    assert foreign.ran.exists()
    wait_until(lambda: liveness_of(foreign.run) is Liveness.DEAD, "its process ends")
    wait_until((foreign.mirror / foreign.run.run_id / "summary.json").exists, "its copy")
    call.out("mirror", foreign.run.run_id)
    call.out("resume", foreign.run.run_id, "--epochs", "3")


def test_on_a_terminal_no_leaves_everything_as_it_is(foreign: Foreign, private_home: Path) -> None:
    with closing(Terminal("resume", foreign.run.run_id, home=private_home, size=(120, 40))) as terminal:
        terminal.wait_for("[y/N]")
        for named in (f"{foreign.code}:build", "http://127.0.0.1/", str(foreign.mirror)):
            assert named in terminal.flat.replace(" ", "")
        terminal.press("n", "enter")
        assert terminal.wait() == 1
    assert foreign.is_untouched()


@pytest.mark.slow
def test_the_training_process_checks_by_itself(foreign: Foreign) -> None:
    assert fork_host(foreign.run, resumes="").wait() == 1
    assert str(foreign.code) in the(foreign.run, events.RunFailed).what
    assert foreign.is_untouched()


def test_the_process_of_a_sweep_checks_by_itself(foreign: Foreign, capsys: pytest.CaptureFixture[str]) -> None:
    assert drive([str(sweeps_folder() / foreign.sweep)]) == 1
    assert str(foreign.code) in capsys.readouterr().err
    assert foreign.is_untouched()


@pytest.mark.parametrize("keys", [("R", "y"), ("r",)])
async def test_the_keys_of_the_screens_ask(
    keys: tuple[str, ...], foreign: Foreign, resumed: list[RunDirectory]
) -> None:
    app = ConsoleApp(run=foreign.run)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "R Resume" in screen_text(pilot) and "r Again" in screen_text(pilot))
        for answer in "ny":
            await pilot.press(*keys)
            await until(pilot, lambda: "Allow it to run?" in screen_text(pilot))
            assert "theirs.py:build" in screen_text(pilot)
            assert not resumed
            await pilot.press(answer)
        await until(pilot, lambda: bool(resumed) if keys[0] == "R" else isinstance(app.screen, SetupScreen))
    assert foreign.is_untouched()


async def test_the_key_that_resumes_a_sweep_asks(foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Sweep] = []
    monkeypatch.setattr("tpu_console.tui.screens.sweep.start_driver", started.append)
    sweep = Sweep(sweeps_folder() / foreign.sweep)
    app = ConsoleApp(sweep=sweep)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "waiting" in screen_text(pilot))
        for answer in "ny":
            await pilot.press("R", "y")
            await until(pilot, lambda: "Allow it to run?" in screen_text(pilot))
            assert not started
            await pilot.press(answer)
        await until(pilot, lambda: started == [sweep])


def test_the_same_preset_again_is_what_the_user_starts(
    foreign: Foreign, call: Call, tmp_path: Path, resumed: list[RunDirectory]
) -> None:
    mine = shutil.copy(foreign.run.config, tmp_path / "mine.toml")
    assert call("run", str(mine), "--resume-if-exists", "theirs")[0] == 1
    assert resumed == [foreign.run]
