"""Types of numbers that can be drawn and added: a damaged or hostile journal may have epoch 10**30.

They are checked where a file is read. Metrics and learning rates are plain floats: they may be any number.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MOST_COUNT = 2**53  # the largest whole number that a float64, and so a curve, holds exactly
MOST_REPLICAS = 16_384  # the largest TPU has 9,216 chips
MOST_METRICS = 200  # of a run; further ones are dropped

Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
Measure = Annotated[float, Meta(ge=-1e15, le=1e15)]  # seconds, bytes per second and so on; not NaN
