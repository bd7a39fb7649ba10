from __future__ import annotations

import subprocess
import sys

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
