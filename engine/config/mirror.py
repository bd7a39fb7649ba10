"""The place that a run is copied to while it trains."""

from __future__ import annotations

import re

_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]+(/[\w.=-]+)*/?", re.ASCII)


def is_bucket(place: str) -> bool:
    """Return whether a place is in a bucket, which only TensorFlow can reach."""
    return place.startswith("gs://")


def check_mirror(mirror: str) -> None:
    """Raise `ValueError` if a mirror is neither a bucket nor the full path of a folder."""
    is_folder = mirror.startswith(("/", "~/"))
    if mirror and not is_folder and not _BUCKET.fullmatch(mirror):
        raise ValueError("must be a bucket such as gs://bucket/runs, or the full path of a folder such as /mnt/runs")
