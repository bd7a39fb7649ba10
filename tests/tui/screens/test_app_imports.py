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
    loaded = loaded_after("import tpu_console.tui.app")
    assert loaded.isdisjoint(
        {
            "numpy",
            "plotext",
            "pydantic",
            "psutil",
            "tpu_console.tui.screens.live",
            "tpu_console.tui.screens.setup",
            *HEAVY,
        }
    )
    assert "textual.app" in loaded


def test_the_setup_screen_loads_no_curves() -> None:
    loaded = loaded_after("import tpu_console.tui.app, tpu_console.tui.screens.setup")
    assert loaded.isdisjoint({"numpy", "plotext", "tpu_console.engine.runs.state", *HEAVY})
    assert "pydantic" in loaded


def test_the_live_screen_never_loads_a_framework() -> None:
    loaded = loaded_after(
        "import tpu_console.tui.app, tpu_console.tui.screens.live, tpu_console.tui.screens.help;"
        "import tpu_console.tui.jobs.run_process, tpu_console.tui.terminal.native_output"
    )
    assert loaded.isdisjoint(HEAVY)
    assert "plotext" in loaded
