"""What tests write stays out of the home of the person who starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

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
    (Path({home!r}) / {more!r}).touch()
"""


@pytest.mark.parametrize(
    ("more", "workers", "code"),
    [("elsewhere", "1", 0), (".keras/new", "0", 1), (".local/share/tpu-console/new", "1", 1)],
)
def test_a_session_that_writes_into_the_user_s_folders_fails(
    more: str, workers: str, code: int, tmp_path: Path
) -> None:
    home, test = tmp_path / "user", tmp_path / "test_writing.py"
    old = [home / ".keras" / "old", home / ".local" / "share" / "tpu-console" / "runs" / "old" / "events.jsonl"]
    for file in old:
        file.parent.mkdir(parents=True)
        file.touch()
    test.write_text(_FIXTURES.format(home=str(home), more=more))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TPU_CONSOLE_"))}
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "-n", workers, str(test)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT,
        env=kept | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert (str(home / more) in done.stdout) == bool(code)
    assert {path for path in home.rglob("*") if path.is_file()} == {*old, home / more}
