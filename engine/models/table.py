"""The one table of the built-in models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .application import Application
from .basic import Cnn, Mlp, Recommender, Text, Transformer, Vgg
from .hub import Hub

if TYPE_CHECKING:
    from ..config.values import Section
    from .model import BuiltinModel

MODELS: dict[str, BuiltinModel[Any]] = {
    model.name: model for model in (Cnn(), Vgg(), Mlp(), Application(), Hub(), Transformer(), Text(), Recommender())
}
"""The built-in models, by their names in a configuration."""


def model_sections() -> dict[str, type[Section]]:
    """Return the options of each model."""
    return {name: model.Options for name, model in MODELS.items()}
