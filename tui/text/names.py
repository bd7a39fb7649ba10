"""The name of a run where there is little room."""

from __future__ import annotations

import re

_DATED = re.compile(r"\d{8}-(?=\d{6}-.)")


def short_name(run_id: str) -> str:
    """Return a run's name without the date it begins with; names differ at their end, and commands accept a part."""
    return _DATED.sub("", run_id, count=1) if _DATED.match(run_id) else run_id
