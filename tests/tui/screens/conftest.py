from __future__ import annotations

import pytest

from tpu_console.tui.following import follow


@pytest.fixture(autouse=True)
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens show news quickly, however long drawing takes; ``test_watcher.py`` tests how they slow down."""
    for name, seconds in {"FASTEST_S": 0.05, "SLOWEST_S": 0.1, "_LOOK_S": 0.05, "_LIVENESS_S": 0.3}.items():
        monkeypatch.setattr(follow, name, seconds)
