"""Fixtures and settings of all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pathlib import Path

# The same examples on every machine, so that a failure is never a matter of luck; `--hypothesis-profile=search`
# looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True, database=None)
settings.register_profile(
    "search", deadline=None, database=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test out of the runs and presets of the person who starts it."""
    home = tmp_path / "home"
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(home))
    return home
