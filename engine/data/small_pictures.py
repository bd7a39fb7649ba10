"""Images small enough to draw in a terminal, as JSON values."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_SIDE = 48
"""Longest side of a picture, in pixels."""


def small_picture(caption: str, image: NDArray[Any], pixel_range: float) -> dict[str, Any]:
    """Return an image small enough to draw in a terminal: its caption, height, width and ``rgb``, bytes in base64.

    Its pixels have shape (height, width, 1 or 3); `pixel_range` is the largest value of one, 0 if unknown.
    """
    import tensorflow as tf

    pixels = image.astype(np.float32)
    height, width = pixels.shape[:2]
    if (longest := max(height, width)) > LARGEST_SIDE:
        size = [max(1, round(side * LARGEST_SIDE / longest)) for side in (height, width)]
        pixels = tf.image.resize(pixels, size, method="area").numpy()
    # The range of a custom dataset is unknown: values above 1 are bytes, others are shares.
    scale = 255 / (pixel_range or (1.0 if float(pixels.max(initial=0)) <= 1.0 else 255.0))
    values = np.clip(pixels * scale, 0, 255).astype(np.uint8)
    values = np.broadcast_to(values, (*values.shape[:2], 3))
    return {
        "caption": caption,
        "height": values.shape[0],
        "width": values.shape[1],
        "rgb": base64.b64encode(values.tobytes()).decode("ascii"),
    }
