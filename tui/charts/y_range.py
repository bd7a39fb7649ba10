"""The vertical range of a chart."""

from __future__ import annotations

import enum


class YRange(enum.Enum):
    """How a chart chooses its vertical range.

    `AUTO` fits what matters and marks spikes at the edge, `FULL` shows every sample, `FIXED` keeps the range that the
    chart had when it was chosen.
    """

    AUTO = "auto"
    FULL = "full"
    FIXED = "fixed"
