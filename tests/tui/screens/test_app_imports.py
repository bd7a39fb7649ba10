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


def test_the_setup_screen_loads_no_curves_and_no_configuration() -> None:
    loaded = loaded_after("import tpu_console.tui.app, tpu_console.tui.screens.setup")
    assert loaded.isdisjoint({"numpy", "plotext", "pydantic", "tpu_console.engine.runs.state", *HEAVY})


def test_the_live_screen_never_loads_a_framework() -> None:
    loaded = loaded_after(
        "import tpu_console.tui.app, tpu_console.tui.screens.live, tpu_console.tui.screens.dialogs;"
        "import tpu_console.tui.jobs.run_process, tpu_console.tui.terminal.native_output"
    )
    assert loaded.isdisjoint(HEAVY)
    assert "numpy" in loaded


def test_the_run_of_a_cpu_loads_no_verdicts() -> None:
    loaded = loaded_after(
        "from tpu_console.engine.runs.state import RunState;"
        "from tpu_console.tui.text.run_lines import efficiency_line; efficiency_line(RunState())"
    )
    assert loaded.isdisjoint({"tpu_console.engine.preflight.cache", "pydantic"})
    assert "tpu_console.tui.text.run_lines" in loaded
