"""Runs, sweeps, presets and a checkpoint of an earlier version are read and shown as they were.

If what is shown was changed on purpose, write the texts anew (``python -m tests.record texts``) and look at the
difference.
"""

from pathlib import Path

import pytest

from tests.record import TEXTS, same_text
from tests.record.shown import all_texts, inspected, recorded
from tests.tui.conftest import forked_jobs, jobs_from  # noqa: F401  fixtures


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with recorded(tmp_path_factory.mktemp("record")) as home:
        return all_texts(home)


@pytest.mark.parametrize("name", sorted(path.name for path in TEXTS.iterdir() if path.name != "inspect.json"))
def test_what_is_shown_of_earlier_runs_stays(texts: dict[str, str], name: str) -> None:
    same_text(name, texts[name])


@pytest.mark.usefixtures("forked_jobs")
def test_an_inspected_table_stays(tmp_path: Path) -> None:
    with recorded(tmp_path) as home:
        same_text("inspect.json", inspected(home))
