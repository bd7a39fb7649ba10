"""The terminal training console for Keras on TPU, GPU and CPU.

`BridgeCallback` is the public API: add it to `model.fit` and watch the run from any terminal::

    from tpu_console import BridgeCallback

    model.fit(x, y, epochs=5, callbacks=[BridgeCallback("my-run")])

`Run` does the same for a training loop of your own. In a notebook, `watch` draws a run in a cell.

The source is in `engine/`, `presets/` and `tui/` beside this folder, which links to them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine.runs.run_directory import RunDirectory
    from .engine.training.bridge import BridgeCallback as BridgeCallback
    from .engine.training.notebook import Run as Run
    from .tui.notebook.watching import watch as watch

__version__ = "0.1.0"
__all__ = ["BridgeCallback", "Run", "__version__", "watch"]


_PUBLIC = {
    "BridgeCallback": "engine.training.bridge",
    "Run": "engine.training.notebook",
    "watch": "tui.notebook.watching",
}


def __getattr__(name: str) -> object:
    """Import the callback on first use: it imports Keras, which the console never does."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name != "watch":
        from .engine.training import notebook

        notebook.open_display = _open_display
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def _open_display(run: RunDirectory) -> Callable[[], None]:
    """Draw a run in the notebook's cell: the engine, which writes it, does not know the part that draws."""
    from .tui.notebook.watching import watch_beside_training

    return watch_beside_training(run)


def load_ipython_extension(ipython: Any) -> None:
    """Add ``%tpu_console``, for ``%load_ext tpu_console``."""
    from tpu_console.tui.notebook.watching import register

    register(ipython)
