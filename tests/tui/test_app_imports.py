from __future__ import annotations

import subprocess
import sys

HEAVY = ("tensorflow", "keras", "jax", "pandas", "sklearn", "tensorflow_hub")


def loaded_after(statement: str) -> set[str]:
    """The top-level modules and our own modules that a fresh process has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_app_alone_loads_nothing_that_draws_or_trains() -> None:
    loaded = loaded_after("import tui.app")
    assert loaded.isdisjoint(
        {"numpy", "plotext", "pydantic", "psutil", "tui.screens.live", "tui.screens.setup", *HEAVY}
    )
    assert "textual.app" in loaded


def test_the_setup_screen_loads_no_curves() -> None:
    loaded = loaded_after("import tui.app, tui.screens.setup")
    assert loaded.isdisjoint({"numpy", "plotext", "engine.state", *HEAVY})
    assert "pydantic" in loaded


def test_the_live_screen_never_loads_a_framework() -> None:
    loaded = loaded_after("import tui.app, tui.screens.live, tui.screens.help, tui.hosting, tui.terminal")
    assert loaded.isdisjoint(HEAVY)
    assert "plotext" in loaded
