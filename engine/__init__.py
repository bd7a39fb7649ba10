"""The training engine: configuration, the run directory and its journal, and the thread that trains.

Everything the console needs is importable without TensorFlow, Keras or JAX. The one public name here,
:class:`~engine.bridge.BridgeCallback`, imports Keras when it is first asked for::

    from engine import BridgeCallback

    model.fit(x, y, epochs=5, callbacks=[BridgeCallback("my-run")])
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.bridge import BridgeCallback as BridgeCallback

__version__ = "0.1.0"
__all__ = ["BridgeCallback", "__version__"]


def __getattr__(name: str) -> object:
    """Import the callback on first use, so that `import engine` stays free of Keras."""
    if name == "BridgeCallback":
        from importlib import import_module

        return import_module("engine.bridge").BridgeCallback
    message = f"module 'engine' has no attribute {name!r}"
    raise AttributeError(message)
