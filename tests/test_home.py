"""The tests' own tools: the home that every test has, and forks of a process that has imported the frameworks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import Forked, fork
from tests.helpers import LIMIT_S, ROOT, run_forked, wait_until

_FIXTURES = """
import os
import subprocess
import sys
from pathlib import Path

import pytest

_WRITE = (
    "from pathlib import Path; from tpu_console.engine.storage.paths import *;"
    "folders = cache_folder(), keras_home(), runs_folder(), user_presets_folder(), Path.home();"
    "[(folder.mkdir(parents=True, exist_ok=True), (folder / 'x').touch()) for folder in folders]"
)


@pytest.fixture(scope="session")
def written():
    exec(_WRITE)
    subprocess.run([sys.executable, "-c", _WRITE], check=True)


def test_a_fixture_of_the_session_writes(written):
    for name in {more!r}:
        (Path({home!r}) / name).touch()
"""


@pytest.mark.parametrize(
    ("more", "workers", "code"), [(["elsewhere"], "0", 0), ([".keras/new", ".local/share/tpu-console/new"], "1", 1)]
)
def test_a_session_that_writes_into_the_user_s_folders_fails(
    more: list[str], workers: str, code: int, tmp_path: Path
) -> None:
    home, test = tmp_path / "user", tmp_path / "test_writing.py"
    old = [home / ".keras" / "old", home / ".local" / "share" / "tpu-console" / "runs" / "old" / "events.jsonl"]
    for file in old:
        file.parent.mkdir(parents=True)
        file.touch()
    test.write_text(_FIXTURES.format(home=str(home), more=more))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TPU_CONSOLE_"))}
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "-n", workers, str(test)]
    command, env = [sys.executable, "-m", "pytest", *options], kept | {"HOME": str(home)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert [str(home / name) in done.stdout for name in more] == [bool(code)] * len(more)
    assert {path for path in home.rglob("*") if path.is_file()} == {*old, *(home / name for name in more)}


def forked(folder: Path, code: str, *arguments: str) -> Forked:
    return fork(code, *arguments, output=folder / "output", errors=folder / "errors", cwd=folder)


def test_a_fork_has_its_own_folder_arguments_environment_and_modules(tmp_path: Path) -> None:
    code = (
        "import keras, os, sys\n"
        "assert keras.backend.backend() == 'tensorflow'\n"
        "assert not [name for name in sys.modules if name.startswith('tpu_console')]\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['WORD'], os.getsid(0) == os.getpid())"
    )
    said = run_forked(code, "a", "b", cwd=tmp_path, env={"WORD": "yes"})
    assert said == f"['a', 'b'] {tmp_path} yes True\n"


def test_a_fork_ends_as_it_says(tmp_path: Path) -> None:
    ends = [forked(tmp_path, code) for code in ("", "import sys; sys.exit(3)", "1 / 0")]
    assert [end.wait(LIMIT_S) for end in ends] == [0, 3, 1]
    assert "ZeroDivisionError" in (tmp_path / "errors").read_text(encoding="utf-8")


def test_a_fork_is_ended_by_a_signal(tmp_path: Path) -> None:
    waiting = forked(tmp_path, "print('here', flush=True); import threading; threading.Event().wait()")
    wait_until(lambda: (tmp_path / "output").exists() and (tmp_path / "output").read_text() == "here\n", "its word")
    assert waiting.poll() is None
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(LIMIT_S) == -signal.SIGTERM
    waiting.kill()  # it has ended: nothing happens
