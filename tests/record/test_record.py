"""Runs, sweeps, presets and a checkpoint of an earlier version are read and shown as they were.

If what is shown was changed on purpose, write the texts anew (``python -m tests.record texts``) and look at the
difference.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.record.shown import TEXTS, all_texts, inspected, recorded
from tests.tui.conftest import forked_jobs, jobs_from  # noqa: F401  fixtures

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with recorded(tmp_path_factory.mktemp("record")) as home:
        return all_texts(home)


@pytest.mark.parametrize("name", sorted(path.name for path in TEXTS.iterdir() if path.name != "inspect.json"))
def test_what_is_shown_of_earlier_runs_stays(texts: dict[str, str], name: str) -> None:
    compare(name, texts[name])


@pytest.mark.usefixtures("forked_jobs")
def test_an_inspected_table_stays(tmp_path: Path) -> None:
    with recorded(tmp_path) as home:
        compare("inspect.json", inspected(home))


def compare(name: str, text: str) -> None:
    """Compare a text with the recorded one; JSON may have gained keys."""
    before = (TEXTS / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        values = json.loads(before)
        assert known(json.loads(text), values) == values
    else:
        assert text == before


def known(now: Any, before: Any) -> Any:
    """Return JSON values without the keys that were not there before."""
    if isinstance(now, dict) and isinstance(before, dict):
        return {key: known(value, before[key]) for key, value in now.items() if key in before}
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return [known(*values) for values in zip(now, before, strict=True)]
    return now
