"""The optimizers that train a model: one, or several, as a GAN has them."""

from __future__ import annotations

from typing import Any

import keras


def own_optimizers(model: Any) -> dict[str, Any]:
    """Return the optimizers of a model besides its `optimizer` by their attributes."""
    found = {name: value for name, value in vars(model).items() if isinstance(value, keras.optimizers.Optimizer)}
    return {name: value for name, value in found.items() if name not in {"optimizer", "_optimizer"}}


def used_optimizers(model: Any) -> dict[str, Any]:
    """Return the optimizers that have trained a model by their attributes; all of them if none has."""
    every = {"optimizer": getattr(model, "optimizer", None), **own_optimizers(model)}
    return {name: one for name, one in every.items() if _steps_of(one)} or every


def rate_of(optimizer: Any) -> float | None:
    """Return the learning rate of an optimizer now; None if it has none."""
    try:
        return float(keras.ops.convert_to_numpy(optimizer.learning_rate))
    except (AttributeError, TypeError, ValueError):
        return None


def optimizers_in_words(model: Any) -> str:
    """Describe the optimizers that a model is compiled with, such as ``SGD, learning rate 0.003``."""
    found = own_optimizers(model)
    named_in_step = getattr(getattr(type(model).train_step, "__code__", None), "co_names", ())
    if not found or "optimizer" in named_in_step:  # otherwise it is Keras's default, which trains nothing
        found = {"optimizer": model.optimizer, **found}
    return "; ".join(
        _in_words(getattr(one, "inner_optimizer", one)) + (f" ({name})" if len(found) > 1 else "")
        for name, one in found.items()
    )


def _in_words(optimizer: Any) -> str:
    rate = optimizer.get_config().get("learning_rate")
    schedule = f", with {rate['class_name']}" if isinstance(rate, dict) else ""
    now = rate_of(optimizer)
    return type(optimizer).__name__ + ("" if now is None else f", learning rate {now:g}{schedule}")


def _steps_of(optimizer: Any) -> int:
    iterations = getattr(getattr(optimizer, "inner_optimizer", optimizer), "iterations", 0)
    return int(keras.ops.convert_to_numpy(iterations))
