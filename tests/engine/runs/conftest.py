"""Fixtures of the tests of a run's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tpu_console.engine.runs.run_directory import RunDirectory, create_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """An empty run."""
    return create_run("a", tmp_path)
