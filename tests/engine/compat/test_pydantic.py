from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tpu_console.engine.compat.pydantic import without_plugins

if TYPE_CHECKING:
    import pytest

# Ends with 1 if Pydantic looks for plugins while our models are used.
PROGRAM = """
import importlib.metadata, sys
found = importlib.metadata.entry_points
def entry_points(**options):
    if options.get("group") == "pydantic":
        sys.exit(1)
    return found(**options)
importlib.metadata.entry_points = entry_points
import pydantic
from tpu_console.engine.runs.journal import decode
from tpu_console.presets.catalog import all_presets
presets, broken = all_presets()
assert presets and not broken
decode({"v": 1, "t": 1.0, "type": "PhaseStarted", "phase": "importing"})
if sys.argv[1:]:
    class Own(pydantic.BaseModel):
        number: int
"""


def test_our_models_never_look_for_plugins_and_those_of_the_user_still_do() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", PROGRAM, "own"], check=False).returncode == 1


def test_the_variable_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("logfire", None):
        monkeypatch.delenv("PYDANTIC_DISABLE_PLUGINS", raising=False)
        if before is not None:
            monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", before)
        with without_plugins():
            assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "__all__"
        assert os.environ.get("PYDANTIC_DISABLE_PLUGINS") == before
