"""What each part of the program loads: the first frame may not wait for a training framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FRAMEWORKS = ("tensorflow", "keras", "jax", "torch", "pandas", "sklearn", "tensorflow_hub")
TERMINAL = ("textual", "click", "rich", "plotext", "textual_plotext", "tui", "presets")
TRAINS = (
    "accelerators",
    "augmentation",
    "bridge",
    "datasets",
    "filling",
    "fine_tuning",
    "input_rate",
    "models",
    "outputs",
    "pipeline",
    "report",
    "samples",
    "weights",
)
ROOT = Path(__file__).parent.parent
LIGHT = sorted(f"engine.{path.stem}" for path in (ROOT / "engine").glob("[!_]*.py") if path.stem not in TRAINS)


def loaded(modules: list[str], names: tuple[str, ...]) -> set[str]:
    """Which of some packages a fresh process has loaded after importing some modules."""
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n    importlib.import_module(name)\n"
        f"print(*(name for name in {names!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["tui.cli", "tui.app", "tui.screens.setup", "tui.screens.live", "presets", "engine", "engine.thread"]
)
def test_the_console_loads_no_training_framework(module: str) -> None:
    assert loaded([module], FRAMEWORKS) == set()


def test_the_console_s_side_of_the_engine_loads_no_training_framework() -> None:
    assert "engine.state" in LIGHT
    assert loaded(LIGHT, FRAMEWORKS) == set()


def test_no_engine_module_loads_the_terminal() -> None:
    assert loaded(LIGHT, TERMINAL) == set()
    trains = [f"engine.{name}" for name in TRAINS]
    assert loaded(trains, TERMINAL) - {"rich"} == set()  # Keras itself loads it


def test_the_frameworks_would_be_seen_if_they_were_loaded() -> None:
    assert loaded(["click", "pandas"], FRAMEWORKS + TERMINAL) == {"click", "pandas"}
