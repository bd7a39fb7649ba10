"""The folder of a sweep: its definition and the names of its runs. The folders of the runs show its progress.

==================  =========================================================================
``sweep.toml``      the configuration and the options of `tpu-console sweep`; never changes
``runs/0001``       the name of the run of cell 1; of a search, of trial 0
``control/``        requests: ``stop``, ``stop-run`` and ``retry-0001``
``study.db``        Optuna's study, unless it is stored elsewhere
``lock``            locked by the process that starts the runs
``console.log``     what that process prints
==================  =========================================================================
"""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

import tomli_w
from msgspec import Struct
from pydantic import BeforeValidator, ValidationError

from ..config.reading import current_keys, read_toml
from ..config.run_config import RunConfig
from ..config.user_code import Reached, check_started, note_start
from ..config.values import Count, Section
from ..errors import ConsoleError, RunNotFoundError
from ..messages import start_module
from ..runs.run_directory import RunDirectory, cannot_begin, is_run, new_folder
from ..sanitize import printable
from ..storage import files
from ..storage.files import inside, read_text, require_real, write_whole
from ..storage.paths import refusal_of, runs_folder, sweeps_folder, user_path

_SMALL = 1 << 10
_PROBED_S, _LOOK_S = 2.0, 0.05
_MOST_LOOKED_AT = 50
STOPPED = "the sweep was asked to stop"
PRUNED = "pruned by the search"


class Definition(Section):
    """The definition of a sweep."""

    config: Annotated[
        RunConfig, BeforeValidator(lambda given: current_keys(given) if isinstance(given, dict) else given)
    ]  # what all of its runs have in common
    over: tuple[str, ...]  # the keys to change and their values, as on the command line
    repeat: Count = 1  # how often each combination is trained
    baseline: str = ""  # which combinations the others are compared with, as on the command line
    search: Literal["", "grid", "random", "tpe"] = ""  # Optuna's sampler; empty to train every combination
    trials: Count = 20  # how many runs the study has in the end
    prune: bool = False  # whether to stop runs that are worse than the median of the earlier ones
    metric: str = ""  # what the search improves
    study: str = ""  # the name of the study; empty for the name of the sweep
    storage: str = ""  # where the study is, to share it: a URL of a database, a file; empty for the sweep's folder


class SweepRunningError(ConsoleError):
    """Another process starts the runs of this sweep."""


class Sweep(Struct, frozen=True):
    """A sweep."""

    path: Path  # its folder

    @property
    def name(self) -> str:
        """The folder's name; safe to show."""
        return printable(self.path.name)

    @property
    def log(self) -> Path:
        """What the process that starts the runs prints."""
        return self.path / "console.log"

    def read(self) -> Definition:
        """Read its definition; raise `ConsoleError` if that is impossible."""
        file = self.path / "sweep.toml"
        try:
            return Definition.model_validate(read_toml(file))
        except ValidationError as error:
            raise ConsoleError(f"{user_path(file)} does not define a sweep: {error.errors()[0]['msg']}.") from error

    def checked(self, *, trust: bool = False) -> Self:
        """Return it if the user started what it reaches, or trusts it; otherwise raise `UntrustedCodeError`."""
        definition = self.read()
        if trust:
            note_start(definition.config, *_reached(definition))
        else:
            check_started(self.name, definition.config, *_reached(definition))
        return self

    def note(self, number: int, run: RunDirectory) -> None:
        """Record which run belongs to a cell."""
        write_whole(inside(self.path, f"runs/{number:04}"), run.path.name)

    def runs(self) -> dict[int, RunDirectory]:
        """Return the runs by number of their cell; deleted ones are missing, and will be trained again."""
        found: dict[int, RunDirectory] = {}
        with suppress(OSError):
            for file in sorted(inside(self.path, "runs/").iterdir()):
                with suppress(ValueError, OSError):
                    number, name = int(file.name), printable(read_text(file, _SMALL))
                    if os.sep not in name and name not in {"", ".", ".."} and is_run(runs_folder() / name):
                        found[number] = RunDirectory(runs_folder() / name)
        return found

    def request(self, what: str) -> None:
        """Ask the process that starts the runs: ``stop``, ``stop-run``, or ``retry-0001``."""
        require_real(self.path)
        write_whole(inside(self.path, f"control/{what}"), "")

    def requested(self, what: str, *, taken: bool = False) -> bool:
        """Return whether something was asked for, and forget it if it is `taken`."""
        file = inside(self.path, f"control/{what}")
        is_there = file.exists()
        if taken:
            file.unlink(missing_ok=True)
        return is_there

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self.requested("stop") or self.requested("stop-run")

    def lock(self) -> int:
        """Lock it for a process that starts its runs; raise `SweepRunningError` if another has it, or `OSError`."""
        require_real(self.path)
        files.require_plain(self.path, ("sweep.toml", "runs", "control", "study.db", "lock", "console.log"))
        deadline = time.monotonic() + _PROBED_S  # a process that only checks the lock holds it briefly
        lock = lock_when_free(self.path / "lock", lambda: time.monotonic() >= deadline)
        if lock is None:
            remedy = f"Watch it: tpu-console runs sweeps {self.name}"
            raise SweepRunningError(f"{self.name} is running.", remedy=remedy)
        return lock

    @property
    def is_driven(self) -> bool:
        """Whether a process starts its runs."""
        with suppress(OSError):  # it was deleted, or belongs to somebody else
            if (self.path / "lock").exists():  # looking at a sweep writes nothing
                if (lock := lock_when_free(self.path / "lock", lambda: True)) is None:
                    return True
                os.close(lock)
        return False


def _reached(definition: Definition) -> list[Reached]:
    """Return what a sweep may reach beyond its configuration: a value can be that of any key."""
    return [Reached("--over", text, text) for text in (*definition.over, definition.storage) if text]


def lock_when_free(file: Path, gives_up: Callable[[], bool]) -> int | None:
    """Lock a file as soon as no other process holds it, as `lock_file` does; None if it is given up before."""
    while True:
        try:
            return files.lock_file(file)
        except BlockingIOError:
            if gives_up():
                return None
        time.sleep(_LOOK_S)


def create_sweep(definition: Definition) -> Sweep:
    """Create the folder of a sweep; raise `ConsoleError` if it cannot be written."""
    try:
        stem = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{definition.config.name}"
        sweep = Sweep(new_folder(sweeps_folder(), stem))
        for folder in ("runs", "control"):
            (sweep.path / folder).mkdir(mode=0o700)
        note_start(definition.config, *_reached(definition))
        write_whole(sweep.path / "sweep.toml", tomli_w.dumps(definition.model_dump(mode="json")))
    except OSError as error:
        raise cannot_begin(sweeps_folder(), error) from error
    return sweep


def list_sweeps() -> list[Sweep]:
    """Return all sweeps, the newest first."""
    try:
        found = [path for path in sweeps_folder().iterdir() if (path / "sweep.toml").is_file()]
    except OSError:
        return []
    return [Sweep(path) for path in sorted(found, reverse=True)]


def running_sweeps() -> list[Sweep]:
    """Return the sweeps whose runs are being trained, the newest first."""
    return [sweep for sweep in list_sweeps()[:_MOST_LOOKED_AT] if sweep.is_driven]


def find_sweep(name: str = "") -> Sweep:
    """Find a sweep by a part of its name, by default the newest; raise `RunNotFoundError` if none or several match."""
    sweeps = list_sweeps()
    matching = [sweep for sweep in sweeps if sweep.name == name] or [one for one in sweeps if name in one.name]
    if not matching:
        what = f"There is no sweep named '{name}'." if sweeps else "There is no sweep yet."
        raise RunNotFoundError(what, remedy="Start one: tpu-console sweep digits-cnn --over batch_size=16,32")
    if name and len(matching) > 1:
        names = ", ".join(sweep.name for sweep in matching[:5])
        raise RunNotFoundError(f"'{name}' matches {len(matching)} sweeps.", remedy=f"Use one of these names: {names}")
    return matching[0]


def start_driver(sweep: Sweep) -> subprocess.Popen[bytes]:
    """Start the process that starts the sweep's runs, in its own session; raise `ConsoleError` if that fails."""
    lock = None
    try:
        lock = sweep.lock()
        for what in ("stop", "stop-run"):
            sweep.requested(what, taken=True)
        with open(sweep.log, "ab", opener=files.open_private) as log:
            arguments = str(sweep.path), str(lock)
            return start_module(
                "engine.sweeps.driver", *arguments, stdout=log, stderr=subprocess.STDOUT, pass_fds=(lock,)
            )
    except OSError as error:
        raise ConsoleError(f"The sweep cannot be started: {refusal_of(error)}.") from error
    finally:
        if lock is not None:
            os.close(lock)
