"""The terminal training console for Keras on TPU, GPU and CPU.

`BridgeCallback` is the public API: add it to `model.fit` and watch the run from any terminal::

    from tpu_console import BridgeCallback

    model.fit(x, y, epochs=5, callbacks=[BridgeCallback("my-run")])

`Run` does the same for a training loop of your own.

The source is in `engine/`, `presets/` and `tui/` beside this folder, which links to them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine.training.bridge import BridgeCallback as BridgeCallback
    from .engine.training.logged_run import Run as Run

__version__ = "0.1.0"
__all__ = ["BridgeCallback", "Run", "__version__"]


def __getattr__(name: str) -> object:
    """Import the callback on first use: it imports Keras, which the console never does."""
    if name == "BridgeCallback":
        from .engine.training.bridge import BridgeCallback

        return BridgeCallback
    if name == "Run":
        from .engine.training.logged_run import Run

        return Run
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
