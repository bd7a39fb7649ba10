"""Weights for a base of keras.applications that stand in for ImageNet's, which cannot be fetched in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path


def fitted_mobilenet(images: Path, weights: Path, side: int = 32, count: int = 96) -> str:
    """Write weights of MobileNet without its classifier whose features tell images apart.

    Its filters are random. Left at that, what comes out is the same for every image: batch normalisation takes a
    variance of 1 for what is far smaller, layer by layer. Given the means and variances of real images, random
    filters are features that a classifier can learn from.

    Args:
        images: Folder of JPEG files.
        weights: The file to write, whose name ends in ``.weights.h5``.
        side: Height and width of the images in the model.
        count: How many images are looked at.

    Returns:
        `weights` as text.
    """
    keras.utils.set_random_seed(1)
    shape = (side, side, 3)
    base = keras.applications.MobileNet(weights=None, include_top=False, input_shape=shape, pooling="avg")
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0  # one batch is enough
    files = sorted(images.glob("Train_*.jpg"))[:count]
    pixels = np.stack([np.asarray(Image.open(path).resize((side, side)), np.float32) for path in files])
    base(pixels / 127.5 - 1, training=True)
    base.save_weights(weights)
    return str(weights)
