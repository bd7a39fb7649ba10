import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "keras", "jax", "pandas", "sklearn", "tensorflow_hub")


def loaded_after(statement: str) -> set[str]:
    """The top-level modules and our own modules that a fresh process has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


APP = "import tpu_console.tui.app"
VERDICTS = "from tpu_console.engine.runs.state import RunState; from tpu_console.tui.text import outcome; "


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        (APP, {"numpy", "pydantic", "psutil", "tpu_console.tui.screens.live", "tpu_console.tui.screens.setup"}),
        (f"{APP}, tpu_console.tui.screens.setup", {"numpy", "pydantic", "tpu_console.engine.runs.state"}),
        (f"{APP}, tpu_console.tui.screens.live, tpu_console.tui.terminal.output", set()),
        (f"{APP}, tpu_console.engine.process.launch", {"numpy", "tpu_console.engine.runs.state"}),
        ("import tpu_console.tui.notebook.watching", {"textual.app", "textual.screen", "pydantic"}),
        (VERDICTS + "outcome.efficiency_line(RunState())", {"tpu_console.engine.preflight.choice", "pydantic"}),
    ],
    ids=["app", "form", "live", "start", "notebook", "verdicts"],
)
def test_what_is_shown_first_waits_for_nothing_heavy(statement: str, absent: set[str]) -> None:
    loaded = loaded_after(statement)
    assert loaded.isdisjoint({*absent, *HEAVY})
    assert "tpu_console.tui" in loaded
