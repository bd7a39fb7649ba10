"""What every built-in model has: its options, and how it is built for a dataset."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..config.values import Section
from ..errors import DataError

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..data.examples import Signature


class BuiltinModel(Section):
    """A built-in model; its fields are the table `model_options`. Only methods import Keras: the form reads it too."""

    title: ClassVar[str]  # in a few words
    sizes: ClassVar[tuple[str, ...]] = ()  # its options that are feature sizes, which a TPU pads
    is_pretrained: ClassVar[bool] = False  # whether it has a base that a second phase can train
    only_backend: ClassVar[tuple[str, str]] = ("", "")  # the backend that alone can train it, and why; empty if any can
    # Whether `export` can write it as code: no branches, and layers made in the order of their use.
    has_code: ClassVar[bool] = False

    @classmethod
    def without_weights(cls, config: RunConfig) -> RunConfig:
        """Return a configuration of the same model that reads no pretrained weights."""
        return config

    @classmethod
    def frozen_base(cls, config: RunConfig) -> tuple[str, str, dict[str, Any]] | None:
        """Return how to train only the classifier: in words, the key, and new values; None if no base is trained."""
        return None

    @abstractmethod
    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Return the uncompiled model for the examples of a dataset; raise `DataError` if it does not fit them.

        `saved_model` is the folder for a SavedModel that the model always needs; None for a temporary one.
        """


def image_shape(model: str, signature: Signature) -> tuple[int | None, ...]:
    """Return the shape of the examples: (height, width, channels); raise `DataError` if they are not images."""
    if len(signature.shape) != 3:
        shapes = " and ".join(str(given.shape) for given in signature.inputs.values())
        what = f"The model '{model}' needs images of shape (height, width, channels); the examples have shape {shapes}."
        raise DataError(what, remedy="Use model = 'mlp' or a custom model.")
    return signature.shape


def classifier(classes: int) -> Any:
    """Return the last layer of a classifier; raise `DataError` if the examples have no classes."""
    import keras

    if not classes:
        what = "This model predicts classes, and the number of classes of the examples is unknown."
        raise DataError(what, remedy="Return whole numbers from 0 on as labels, or use a custom model.")
    # Always float32: a softmax in 16 bits loses small probabilities (Keras mixed precision guide).
    return keras.layers.Dense(classes, activation="softmax", dtype="float32")


def head(classes: int, hidden: tuple[int, ...] = (), dropout: float = 0.0) -> list[Any]:
    """Return the last layers of a classifier, after dense ones and dropout; raises the errors of `classifier`."""
    import keras

    layers = [keras.layers.Dense(units, activation="relu") for units in hidden]
    return [*layers, *([keras.layers.Dropout(dropout)] if dropout else []), classifier(classes)]
