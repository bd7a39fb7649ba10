"""A run that the user did not start reaches nothing outside of it, whatever goes on with it."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers import Host, fork_host, small_config, the, wait_until
from tests.tui.calling import Call
from tests.tui.live_fakes import screen_text, until
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.events import RunFailed, RunFinished, RunStarted
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.storage.paths import runs_folder, sweeps_folder
from tpu_console.engine.sweeps.driver import main as drive
from tpu_console.engine.sweeps.folder import Definition, Sweep, create_sweep
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.screens.setup import SetupScreen

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
            writer = JournalWriter(made.journal)
            writer.write(RunStarted("theirs", "host", 1, "elsewhere"))
            writer.write(RunFinished("stopped", "asked", {}))
            writer.close()
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


def test_without_a_terminal_everything_is_named_and_refused(foreign: Foreign, call: Call) -> None:
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
    assert str(foreign.code) in the(foreign.run, RunFailed).what
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


async def test_the_key_that_goes_on_with_a_sweep_asks(foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
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
