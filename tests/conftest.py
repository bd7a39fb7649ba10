from __future__ import annotations

import gc
import os
import re
import shutil
import socket
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.forks import COMPILED
from tpu_console.engine.storage.paths import cache_folder, keras_home, runs_folder, user_presets_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpu_console.engine.runs.timing import PastRun

_FOLDERS = {runs_folder().parent, user_presets_folder().parent, cache_folder(), keras_home()}


def _user_files() -> dict[Path, int]:
    """Return the times of the files in the user's folders, but not of those in a run, which may be training."""
    found = (path for folder in _FOLDERS for pattern in ("*", "*/*") for path in folder.glob(pattern))
    return {path: path.stat().st_mtime_ns if path.is_file() else 0 for path in found}


# The session has a home before anything else is imported: fixtures, workers and forks leave their files there.
_BEFORE = _user_files()
_HOME = Path(tempfile.mkdtemp(prefix="tpu-console-home-"))
# `readline`, which pytest loads, sets the size of the terminal for the workers of pytest-xdist.
_UNSET = {"TPU_CONSOLE_HOME", "KERAS_HOME", "COLUMNS", "LINES"}
for _name in [name for name in os.environ if name in _UNSET or name.startswith("XDG_")]:
    del os.environ[_name]
os.environ["HOME"] = str(_HOME)

# The same examples on every machine, so that a failure is never a matter of luck; `--hypothesis-profile=search`
# looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True, database=None, max_examples=50)
settings.register_profile(
    "search", deadline=None, database=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# 700 new objects are few: a console has a hundred thousand. But models and consoles shall not stay for long.
gc.set_threshold(100_000, 10, 3)
gc.disable()  # while test files are imported


_NUMBERS = count()

# The files that take longest, longest first, so that no worker is left with one of them in the end. They are shared out
# whole (`--dist loadfile`), because their tests share trained runs.
SLOWEST = (
    "presets/test_trained_presets.py",
    "engine/training/test_resume.py",
    "engine/accelerators/test_several_hosts.py",
    "engine/preflight/test_compile.py",
    "tui/commands/test_cli_process.py",
    "tui/commands/test_hostile_folders.py",
    "engine/preflight/test_own.py",
    "tui/screens/test_terminal_runs.py",
    "test_notebooks.py",
    "engine/export/test_script.py",
    "tui/notebook/test_browser.py",
    "engine/training/test_keras_examples.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the slowest files first, and mix the others: screens wait while training needs both cores."""
    order = {Path(__file__).parent / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: (order.get(item.path, len(order)), crc32(item.nodeid.partition("::")[0].encode())))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let pytest-rerunfailures send what it asks before each test at once: it sends twice, then waits for an answer.

    The kernel keeps the second message back until the first is acknowledged, which takes 40 ms: minutes in all.
    """
    asks: socket.socket | None = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if asks is not None:
        asks.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_collection_finish() -> None:
    """Look for garbage from now on in what tests make: looking through TensorFlow, too, would take half a second."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test wrote into the folders of the person who started it."""
    if written := [str(path) for path, time in _user_files().items() if _BEFORE.get(path) != time]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.get_terminal_writer().line(f"\nERROR: changed while the tests ran: {', '.join(written[:5])}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test needed its second run, which pytest-rerunfailures leaves out if that one passes."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first run of {report.nodeid}")
        terminalreporter.line(report.longreprtext)


def pytest_unconfigure() -> None:
    """Let the end of a worker find no garbage: pytest looks for it five times, in millions of objects."""
    gc.freeze()
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what JAX compiles in one folder, for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    os.environ[COMPILED] = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one test: pytest's own fixture looks through the folders of all tests before it, for each test."""
    name = re.sub(r"\W", "_", request.node.name)[:26]
    return tmp_path_factory.mktemp(f"{name}{next(_NUMBERS)}", numbered=False)


@pytest.fixture
def resume_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., object]], None]:
    """Let a function start what goes on with a run, in place of `start_host`."""
    return partial(monkeypatch.setattr, "tpu_console.engine.process.launch.start_host")


@pytest.fixture
def resumed_in_forks(resume_with: Callable[[Callable[..., object]], None]) -> None:
    """Let runs that are resumed begin with Keras imported."""
    from tests.helpers import fork_resumed  # it imports what may not be imported before the session has a home

    resume_with(fork_resumed)


@pytest.fixture
def similar_run(monkeypatch: pytest.MonkeyPatch) -> Callable[[PastRun], None]:
    """Give every configuration a similar run that has ended."""

    def gives(took: PastRun) -> None:
        monkeypatch.setattr("tpu_console.engine.planning.past_run_like", lambda *_: took)

    return gives


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test out of the runs and presets of the person who starts it."""
    home = tmp_path / "home"
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(home))
    # No test waits for a framework that it does not need.
    monkeypatch.setenv("TPU_CONSOLE_PREWARM", "false")
    return home
