from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tui.terminal_driver import Terminal
from tpu_console.tui.following import follow


@pytest.fixture(autouse=True)
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens show news quickly, however long drawing takes; ``test_watcher.py`` tests how they slow down."""
    for name, seconds in {"FASTEST_S": 0.05, "SLOWEST_S": 0.1, "_LOOK_S": 0.05, "_LIVENESS_S": 0.3}.items():
        monkeypatch.setattr(follow, name, seconds)


@pytest.fixture
def home(private_home: Path) -> Path:
    """The home of the programs in terminals."""
    return private_home


@pytest.fixture
def open_terminal(home: Path) -> Iterator[Callable[..., Terminal]]:
    """Return what opens a terminal, with the options of `Terminal`."""
    opened: list[Terminal] = []

    def start(*arguments: str, **options: object) -> Terminal:
        opened.append(Terminal(*arguments, home=home, **options))  # type: ignore[arg-type]  # passed on
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()
