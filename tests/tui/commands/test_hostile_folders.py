"""Every command, over every hostile run: nothing outside of the runs is changed, shown, copied, run or called.

A command that `GROUPS` does not have fails, so that tomorrow's commands are held to it.
"""

import ast
import errno
import json
import os
import re
import shlex
import shutil
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import IO, Any

import click
import numpy as np
import pytest

from tests import hostile_folders
from tests.helpers import fork_host, run_host, small_config
from tests.hostile_folders import CANARY, FILES, FOLDERS, SWEEP_FILES, SWEEP_FOLDERS, make_led_out
from tests.hostile_models import lambda_run
from tests.hostile_runs import is_safe, long_ago
from tests.made_verdicts import FITS
from tests.tui.calling import Call, all_commands
from tests.tui.live_fakes import screen_text, send, until
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.config.user_code import note_start
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.jobs.job import run_job
from tpu_console.engine.messages import Reporter, report_result
from tpu_console.engine.preflight.choice import save_verdict
from tpu_console.engine.runs.heartbeat import identify
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.sweeps.folder import Definition, create_sweep
from tpu_console.presets.catalog import find_preset, save_preset
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.screens.runs import RunsScreen
from tpu_console.tui.widgets.record_table import RecordTable

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Use:
    line: str  # the arguments; {run} is the path of a run, so that it is called for each of them
    may_change: tuple[str, ...] = ()  # what it may write outside of the runs and the caches
    is_silent: bool = False  # whether it is called for runs that seem to train, but do not answer
    is_form: bool = False  # whether it opens the same files as the use before: called for one kind of leading out

    def of(self, runs: list[Path], sweeps: list[Path], models: Collection[Path]) -> list[Path]:
        """Return the folders that it is called for; converting a model takes seconds, so only for some."""
        if "{sweep}" in self.line:
            return sweeps
        if "{model}" in self.line:
            runs = sorted(models)
        elif "{run}" not in self.line and "{name}" not in self.line:
            return runs[:1]
        return [run for run in runs if not self.is_form or is_for_all_forms(*led_out_kind(run))]


def is_for_all_forms(name: str, kind: str) -> bool:
    """Return whether a way out is tried with all forms of a command: they write requests each in their own way."""
    return name.startswith("control") or kind not in {"new", "hard", "pipe"}


GOOD = "20270101-000000-good"
KINDS = hostile_folders.led_out_kinds(FILES, FOLDERS)
OF_MODELS = {"model.keras", "hub", "hub/assets", "inputs.json", "config.toml"}
"""What leads out of the runs whose model is converted, which takes seconds."""

JOB, TRASH = ("home/*.log", "work/out*"), ("home/runs/.trash",)
GROUPS: tuple[dict[str, list[Use]], ...] = (
    {
        "attach": [Use("attach -- {run}")],
        "runs show": [Use("runs show --json -- {run}")],
        "predict": [Use("predict --data {data} --out out.csv --force --checkpoint best -- {model}", JOB)],
        "resume": [
            Use("resume --epochs 9 -- {run}"),
            Use("resume --trust --epochs 9 --set seed=3 -- {run}", is_form=True),
        ],
    },
    {
        "export": [Use("export --script out.py --force -- {run}", JOB)],
        "inspect": [Use("inspect {home}", JOB), Use("inspect -- {run}", JOB)],
        "presets": [Use("presets")],
        "tfrecord": [Use("tfrecord {home} out", JOB)],
        "preflight": [Use("preflight good --on v5e-8", JOB)],
        "doctor": [Use("doctor")],
        "completion": [Use("completion bash")],
        "runs list": [Use("runs list --json")],
        "runs compare": [Use("runs compare --csv -- {run} {good}")],
        "cache": [Use("cache"), Use("cache --clear")],
        "run": [Use("run good --set accelerator=cpu", ("home/own-code", "home/*.json"))],
    },
    {
        "pause": [Use("pause -- {run}", is_silent=True)],
        "continue": [Use("continue -- {run}", is_silent=True, is_form=True)],
        "checkpoint": [Use("checkpoint -- {run}", is_silent=True, is_form=True)],
        "set": [Use("set -- {run} epochs=+1", is_silent=True, is_form=True)],
        "runs profile": [Use("runs profile -- {run}", is_silent=True, is_form=True)],
        "stop": [
            Use("stop -- {run}", is_silent=True),
            Use("stop --now --yes -- {run}", is_silent=True, is_form=True),
        ],
    },
    {
        "runs rename": [Use("runs rename -- {run} title")],
        "runs tag": [Use("runs tag --add a --note n --archive -- {run}")],
        "runs mirror": [Use("runs mirror -- {run}", JOB)],
        "runs import": [Use("runs import -- {run}", JOB)],
        "runs delete": [
            Use("runs delete -- {run}", TRASH),
            Use("runs delete --restore -- {name}", TRASH),
            Use("runs delete -- {run}", TRASH),
            Use("runs delete --empty-trash --yes", TRASH),
        ],
    },
    {
        "runs sweeps": [Use("runs sweeps --csv -- {sweep}"), Use("runs sweeps --stop -- {sweep}")],
        "sweep": [Use("sweep --resume {sweep}")],
    },
)
"""Commands that leave the hostile folders to the next one as they need them, because making those takes longest."""


def test_every_command_is_held_to_it() -> None:
    commands = {name for name, command in all_commands().items() if not isinstance(command, click.Group)}
    # `web` opens the console: `test_the_console_changes_nothing_outside_of_hostile_folders`.
    assert commands - {"web"} == {name for group in GROUPS for name in group}


class World:
    """A user's folders: the home of the program, files that are nobody else's business, and a folder to work in."""

    sweep: Path  # a sweep that a user started

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.user, self.work = (root / name for name in ("home", "user", "work"))
        for folder in (self.home / "runs", self.user / ".ssh", self.work):
            folder.mkdir(parents=True)
        for name in (".bashrc", ".bashrc.1", "notes.7.draft", ".ssh/id_rsa"):
            (self.user / name).write_text(CANARY)
        np.save(self.work / "data.npy", np.zeros((2, 8, 8), np.float32))

    def call(self, call: Call, use: Use, run: Path) -> str:
        """Call a command for a run; return what it prints, after a look at it."""
        values = {"run": run, "model": run, "name": run.name, "sweep": run.name, "home": self.home}
        values |= {"good": self.home / "runs" / GOOD, "data": self.work / "data.npy"}
        code, out, err = call(
            *shlex.split(use.line.format(**{key: shlex.quote(str(value)) for key, value in values.items()}))
        )
        assert code in {0, 1, 2}, (run.name, out, err)
        assert is_safe(out, err), (run.name, out, err)
        assert err or code == 0, run.name
        if code == 0 and use.line.startswith("runs show --json"):
            json.loads(out)
        return out + err

    def snapshot(self, may_change: tuple[str, ...]) -> dict[str, object]:
        """Everything outside of the folders of runs and sweeps, and of what a command may write."""
        found: dict[str, object] = {}
        skipped = {*self.root.glob("home/cache"), *self.root.glob("home/runs/*"), *self.root.glob("home/sweeps/*")}
        skipped |= {path for pattern in may_change for path in self.root.glob(pattern)}
        written_to = {self.home, self.home / "runs", self.home / "sweeps", self.work}
        folders = [self.root]
        while folders:
            for path in folders.pop().iterdir():
                if path in skipped:
                    continue
                status = path.lstat()
                is_folder = path.is_dir() and not path.is_symlink()
                content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
                at = 0 if path in written_to else status.st_mtime_ns
                found[str(path.relative_to(self.root))] = (status.st_mode, at, content)
                folders += [path] * is_folder
        return found

    def written(self) -> list[Path]:
        folders = (self.work, self.home / "cache", self.home / "mirror")
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


class JobHere:
    """A job in this process, with the parts of `subprocess.Popen` that are used."""

    pid = -1
    stdin = None

    def __init__(self, name: str, options: Mapping[str, Any], _log: Path) -> None:
        self.stdout: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  `JobProcess` closes it
        with os.fdopen(os.dup(self.stdout.fileno()), "w", encoding="utf-8") as stream, redirect_stderr(StringIO()):
            reporter = Reporter(stream)
            self._code = report_result(reporter, f"{name} job", lambda: run_job(name, reporter, dict(options)))
        self.stdout.seek(0)

    def poll(self) -> int:
        return self._code

    def wait(self) -> int:
        return self._code


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has trained, of a user who has a mirror."""
    import_module("keras")  # which writes its settings once
    folder = tmp_path_factory.mktemp("finished")
    (folder / "mirror").mkdir()
    written = {"checkpoint": {"monitor": "auto"}, "tensorboard": {"enabled": True}, "mirror": str(folder / "mirror")}
    run = run_host(small_config(**written), folder / "runs")
    shutil.rmtree(folder / "mirror")
    return run.path


class Calls(list[str]):
    """What called the address that hostile runs name, and which runs and sweeps were started."""

    address = ""


@pytest.fixture
def calls(
    monkeypatch: pytest.MonkeyPatch,
    resume_with: Callable[[Callable[..., object]], None],
    jobs_from: Callable[[Any], None],
) -> Iterator[Calls]:
    heard = Calls()

    class Server(socketserver.ThreadingTCPServer):
        def verify_request(self, *_: object) -> bool:
            heard.append("called")
            return False

    def start(run: RunDirectory, resumes: str | None = None, *_: object, **__: object) -> Any:
        if resumes is None:
            return fork_host(run)
        heard.append(f"started {run.run_id}")
        raise ConsoleError("by design")

    def drive(_: str, folder: str, *more: object, **options: object) -> Any:
        heard.append(f"started {folder}")
        raise OSError(errno.EPERM, "by design")

    with Server(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        heard.address = f"http://127.0.0.1:{server.server_address[1]}"
        resume_with(start)
        monkeypatch.setattr("tpu_console.engine.sweeps.folder.start_module", drive)
        jobs_from(JobHere)
        yield heard
        server.shutdown()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Path) -> World:
    world = World(tmp_path / "world")
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(world.home))
    monkeypatch.setenv("HOME", str(world.user))
    monkeypatch.chdir(world.work)
    shutil.copytree(finished, world.home / "runs" / GOOD)
    sweep = create_sweep(Definition(config=small_config(), over=("seed=1,2",)))
    (sweep.path / "runs" / "0001").write_text(GOOD)
    world.sweep = sweep.path.rename(world.root / "sweep")
    note_start(load_config(finished / "config.toml"))
    save_preset(small_config(), "good", "Good")
    save_verdict(find_preset("good").config, FITS)
    return world


def be_silent(run: Path, process: int) -> None:
    """Let a run seem to train, in a process of the user that has nothing to do with it."""
    if (run / "events.jsonl").is_file():
        lines = [line for line in (run / "events.jsonl").read_bytes().splitlines(True) if b'"RunFinished"' not in line]
        with (run / "events.jsonl").open("wb") as file:
            file.writelines(lines)
    if (run / "heartbeat.json").is_file():
        (run / "heartbeat.json").write_text(json.dumps(identify(process)))
        os.utime(run / "heartbeat.json", (time.time() - 30,) * 2)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: next(iter(group)))
def test_nothing_outside_of_a_hostile_folder_is_touched_and_no_value_becomes_code_or_an_address(
    world: World, finished: Path, group: dict[str, list[Use]], call: Call, calls: Calls
) -> None:
    home, elsewhere = world.home, world.user / "elsewhere"
    elsewhere.mkdir()
    led_out = make_led_out(home / "runs", elsewhere, finished, FILES, FOLDERS)
    sweeps = make_led_out(home / "sweeps", elsewhere, world.sweep, SWEEP_FILES, SWEEP_FOLDERS)
    valued = hostile_folders.make_values(home / "runs", world.user, finished, calls.address)
    valued.append(lambda_run(home / "runs" / "20290105-lambda", world.user / "PWNED").path)
    long_ago(valued[-1])
    sweeps += hostile_folders.make_sweep_values(home / "sweeps", world.user, world.sweep, calls.address)
    models = {run for run in led_out if led_out_kind(run)[0] in OF_MODELS}
    models |= {run for run in valued if run.name.endswith(("lambda", "00-reaches", "-path"))}
    uses = [use for of_command in group.values() for use in of_command]
    with subprocess.Popen(["sleep", "600"]) as bystander:
        try:
            for run in led_out if any(use.is_silent for use in uses) else ():
                be_silent(run, bystander.pid)
            for use in uses:
                before = world.snapshot(use.may_change)
                # A trusted run may do whatever its values say.
                runs = led_out if "--trust" in use.line else led_out + valued
                for folder in use.of(runs, sweeps, models):
                    said = world.call(call, use, folder)
                    # A hard link is a regular file in the folder, and may be read.
                    assert folder.name.endswith("-hard") or CANARY not in said, (folder.name, said)
                    for file in world.work.glob("out.*"):
                        assert_no_code(file)
                assert world.snapshot(use.may_change) == before, use.line
            assert bystander.poll() is None
        finally:
            bystander.kill()
    assert [path for path in world.written() if CANARY.encode() in path.read_bytes() and "-hard" not in path.name] == []
    assert [*world.root.rglob("PWNED*")] == []
    assert [heard for heard in calls if not heard.startswith("started") or re.search("20280101-|-reaches", heard)] == []


def led_out_kind(run: Path) -> tuple[str, str]:
    return KINDS.get(run.name, ("", ""))


def assert_no_code(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    if file.suffix in {".py", ".ipynb"}:
        names = [getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(ast.parse(text))]
        assert not {"__import__", "system"} & {*names}, text


async def test_the_console_changes_nothing_outside_of_hostile_folders(
    world: World, finished: Path, calls: Calls
) -> None:
    (world.user / "elsewhere").mkdir()
    runs = make_led_out(world.home / "runs", world.user / "elsewhere", finished, FILES, FOLDERS)
    runs.pop().unlink()  # the link to a run, whose refusal is a dialog
    before = world.snapshot(("home/runs/.trash", "home/*.json"))
    async with ConsoleApp().run_test(size=(120, 40)) as pilot:
        await pilot.app.push_screen(RunsScreen())
        table = pilot.app.screen.query_one(RecordTable)
        await until(pilot, lambda: table.row_count == len(runs) + 1 and "reading" not in screen_text(pilot))
        send(pilot.app, *["space"] * (len(runs) + 1))
        for keys in (["number_sign", "x", "enter"], ["e", "a"], ["D", "y"]):
            await pilot.press(*keys)
        await until(pilot, lambda: len(list_runs()) == 0)
        await pilot.press("U")
        await until(pilot, lambda: len(list_runs()) == len(runs) + 1)
        assert CANARY not in screen_text(pilot)
    assert world.snapshot(("home/runs/.trash", "home/*.json")) == before
    assert calls == []
