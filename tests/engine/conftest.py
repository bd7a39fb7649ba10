"""Fixtures of the engine's tests: runs of real models, trained once for all tests that look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from presets.catalog import find_preset
from tests.helpers import Host, hosts, run_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engine.config import RunConfig
    from engine.rundir import RunDirectory


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[RunConfig], Host]]:
    """Start host processes, of which none outlives the test."""
    yield from hosts(tmp_path / "runs")


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The preset digits-cnn, trained by a host process from beginning to end."""
    return run_host(find_preset("digits-cnn").config, tmp_path_factory.mktemp("digits"))
