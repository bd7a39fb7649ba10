"""Private names of other packages are used in the compat modules only."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRIVATE = re.compile(
    r"noqa: SLF001|\b(keras\.src|jax\._src|tensorflow\.python)\b|\"jaxlib\._|getattr\(\w+, f?\"_[a-z{]"
)
ALLOWED = {
    "engine/compat/keras.py",
    "engine/compat/tensorflow.py",
    "engine/compat/jax.py",
    "engine/compat/optuna.py",
    "tui/terminal/display.py",  # Textual has a public call for the bell, and none for OSC 9
    "engine/process/main.py",  # atexit._run_exitfuncs of Python
    "engine/training/notebook.py",  # sys._current_frames of Python
}


def test_private_names_are_used_in_the_compat_modules_only() -> None:
    files = [path for part in ("engine", "presets", "tui") for path in (ROOT / part).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if PRIVATE.search(path.read_text(encoding="utf-8"))}
    assert found == ALLOWED
