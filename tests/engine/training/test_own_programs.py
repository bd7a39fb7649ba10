"""The programs of the page on bringing your own model, data and metrics."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import ROOT, all_of, the
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.runs.events import EpochEnded, RunFinished
from tpu_console.engine.runs.run_directory import list_runs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "own-code.md").read_text(encoding="utf-8")
PROGRAMS = {
    title: (re.findall(r"```python\n(.*?)```", body, re.DOTALL), re.findall(r"```toml\n(.*?)```", body, re.DOTALL))
    for title, body in re.findall(r"^## (\d+\. .*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
SETTINGS = {"accelerator": "cpu", "tensorboard": {"enabled": False}, "checkpoint": {"enabled": True}}


@pytest.mark.parametrize("title", PROGRAMS)
def test_every_program_of_the_page_trains(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,), settings = PROGRAMS[title]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(program, encoding="utf-8")
    if not settings:
        exec(compile(program, "mine.py", "exec"), {"__name__": "__main__"})
        (run,) = list_runs()
    else:
        run = train(parse_config({**tomllib.loads(settings[0]), **SETTINGS, "name": "own"}), tmp_path)
    assert len(all_of(run, EpochEnded)) == 2
    assert the(run, RunFinished).outcome == "completed"
    if "new_data" in program:
        rows = Job(tmp_path)(run, "mine.py:new_data")
        assert list(rows[0]) == ["index", "prediction"]
        assert len(rows) == 5


def test_the_page_has_eight_programs() -> None:
    assert len(PROGRAMS) == 8
