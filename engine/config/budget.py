"""The time budget of a run, such as ``8h30m``, or the name of a service whose sessions have a limit."""

from __future__ import annotations

import re

_HOUR = 3600
_PARTS = re.compile(r"(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")
_UNITS = (24 * _HOUR, _HOUR, 60, 1)

LIMITS = {"colab": (12 * _HOUR, 12 * _HOUR), "kaggle": (12 * _HOUR, 9 * _HOUR)}
"""Seconds of the longest session, without and with a TPU: Colab's FAQ (free of charge) and Kaggle's documentation of
notebooks. Paid plans of Colab allow more."""


def budget_seconds(budget: str, *, on_tpu: bool = False) -> int | None:
    """Return a budget in seconds, None if it is empty; raise `ValueError` if it is not a budget.

    It is a duration such as ``8h30m``, ``90m`` or ``1d``, or a name in `LIMITS`. A service may have another limit on a
    TPU.
    """
    if not budget:
        return None
    if budget in LIMITS:
        return LIMITS[budget][on_tpu]
    found = _PARTS.fullmatch(budget.replace(" ", ""))
    seconds = sum(int(count or 0) * unit for count, unit in zip(found.groups(), _UNITS, strict=True)) if found else 0
    if not seconds:
        raise ValueError(f"'{budget}' is not a duration such as 8h30m, nor one of {', '.join(LIMITS)}")
    return seconds
