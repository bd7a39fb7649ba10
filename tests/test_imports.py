"""What each part of the program loads: the first frame may not wait for a training framework."""

import subprocess
import sys
from pathlib import Path

from tests.helpers import run_forked

FRAMEWORKS = ("tensorflow", "keras", "jax", "torch", "pandas", "sklearn", "tensorflow_hub")
TERMINAL = ("textual", "click", "rich", "plotext", "tpu_console.tui", "tpu_console.presets")
ROOT = Path(__file__).parent.parent
LIGHT_ROOMS = (
    "config",
    "data/kinds",
    "doctor.py",
    "machine",
    "planning.py",
    "process",
    "runs",
    "self_test.py",
    "sweeps",
)
"""The parts of the engine that the console imports."""


def modules_of(folder: str) -> list[str]:
    paths = [*(ROOT / folder).rglob("*.py")] or [ROOT / folder]
    parts = (path.relative_to(ROOT).with_suffix("").parts for path in paths)
    return sorted(".".join(("tpu_console", *part)).removesuffix(".__init__") for part in parts)


LIGHT = [name for room in LIGHT_ROOMS for name in modules_of(f"engine/{room}")]


def importing(modules: list[str], names: tuple[str, ...]) -> str:
    """Return a script that imports some modules and says which of some packages are loaded then."""
    return (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n    importlib.import_module(name)\n"
        f"print(*(name for name in {names!r} if name in sys.modules))"
    )


def loaded(modules: list[str], names: tuple[str, ...]) -> set[str]:
    """Which of some packages a fresh process has loaded after importing some modules."""
    command = [sys.executable, "-c", importing(modules, names)]
    return set(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split())


CONSOLE = ["cli", "app", "screens.setup", "screens.live"]


def test_the_console_loads_no_training_framework() -> None:
    modules = ["tpu_console", "tpu_console.presets", *(f"tpu_console.tui.{name}" for name in CONSOLE)]
    assert loaded(modules, FRAMEWORKS) == set()


def test_the_console_s_side_of_the_engine_loads_neither_a_framework_nor_the_terminal() -> None:
    assert modules_of("engine/runs")[0] in LIGHT
    assert loaded(LIGHT, FRAMEWORKS + TERMINAL) == set()


def test_no_other_module_of_the_engine_loads_the_terminal(tmp_path: Path) -> None:
    trains = [name for name in modules_of("engine") if name not in LIGHT]
    found = run_forked(importing(trains, TERMINAL), cwd=tmp_path).splitlines()[-1].split()
    assert set(found) - {"rich"} == set()  # Keras itself loads it


def test_the_frameworks_would_be_seen_if_they_were_loaded() -> None:
    assert loaded(["click", "pandas"], FRAMEWORKS + TERMINAL) == {"click", "pandas"}
