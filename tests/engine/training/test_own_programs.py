"""The programs of the page on bringing your own model, data and metrics, and of `examples/own-code`."""

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
FILES = sorted((ROOT / "examples" / "own-code").glob("*.py"))
PROGRAMS = {
    "mine": [re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0] for language in ("python", "toml")],
    **{
        program.stem: [
            path.read_text(encoding="utf-8") for path in (program, program.with_suffix(".toml")) if path.exists()
        ]
        for program in FILES
    },
}
SETTINGS = {"accelerator": "cpu", "sinks": [], "checkpoint": {"enabled": True}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_of_the_page_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *settings = PROGRAMS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
    if not settings:
        exec(compile(program, f"{name}.py", "exec"), {"__name__": "__main__"})
        (run,) = list_runs()
    else:
        run = train(parse_config({**tomllib.loads(settings[0]), **SETTINGS, "name": "own"}), tmp_path)
    assert len(all_of(run, EpochEnded)) == 2
    assert the(run, RunFinished).outcome == "completed"
    if "new_data" in program:
        rows = Job(tmp_path)(run, f"{name}.py:new_data")
        assert list(rows[0]) == ["index", "prediction"]
        assert len(rows) == 5


def test_the_page_names_every_program() -> None:
    assert [path.name for path in FILES if f"(../examples/own-code/{path.name})" not in PAGE] == []
    assert len(PROGRAMS) == 8
