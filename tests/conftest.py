"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.forks import COMPILED

if TYPE_CHECKING:
    from collections.abc import Iterator

# The same examples on every machine, so that a failure is never a matter of luck; `--hypothesis-profile=search`
# looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True, database=None, max_examples=50)
settings.register_profile(
    "search", deadline=None, database=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


# The files that take longest, longest first, so that no worker is left with one of them in the end. They are shared out
# whole (`--dist loadfile`), because their tests share trained runs.
SLOWEST = (
    "tui/screens/test_terminal_runs.py",
    "presets/test_image_presets.py",
    "presets/test_jax_presets.py",
    "tui/commands/test_cli_process.py",
    "engine/preflight/test_compile.py",
    "engine/training/test_train.py",
    "engine/training/test_resume.py",
    "engine/export/test_script.py",
    "engine/models/test_applications.py",
    "engine/preflight/test_own.py",
    "tui/commands/test_doctor_train.py",
    "engine/accelerators/test_several_hosts.py",
    "engine/models/test_fine_tuning.py",
    "engine/training/test_backends.py",
    "test_notebooks.py",
    "engine/data/test_tfrecord.py",
    "engine/preflight/test_findings.py",
    "engine/accelerators/test_connect.py",
    "presets/test_word_presets.py",
    "presets/test_digit_presets.py",
    "engine/monitoring/test_input_rate.py",
    "engine/training/test_digits.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the slowest files first."""
    order = {Path(__file__).parent / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let pytest-rerunfailures send what it asks before each test at once: it sends twice, then waits for an answer.

    The kernel keeps the second message back until the first is acknowledged, which takes 40 ms: minutes in all.
    """
    asks: socket.socket | None = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if asks is not None:
        asks.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what JAX compiles in one folder, for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    os.environ[COMPILED] = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled")


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test out of the runs and presets of the person who starts it."""
    home = tmp_path / "home"
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(home))
    # No test waits for a framework that it does not need.
    monkeypatch.setenv("TPU_CONSOLE_PREWARM", "false")
    return home


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """Undo what a console leaves in the process of its test: it freezes what it loaded, and rarely collects garbage."""
    usual = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*usual)
    gc.unfreeze()
