"""The share of a service's free TPU time that a run takes.

Only Kaggle publishes figures: 20 hours per week and 9 hours per session for TPUs (https://www.kaggle.com/docs/tpu).
Colab's free limits vary and are not published.
"""

from __future__ import annotations

from dataclasses import dataclass

WEEK_S = 20 * 3600.0
SESSION_S = 9 * 3600.0

KAGGLE = ("v3-8", "v5e-8")  # TPUs that Kaggle offers; v3-8 until 2025


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """The share of Kaggle's free time that a run takes."""

    week: float  # share of a week's time; above 1 if it is not enough
    session: float  # share of a session's time, likewise


def kaggle_share(tpu: str, run_s: float | None) -> QuotaShare | None:
    """Return the share of Kaggle's time; None for a TPU that Kaggle does not have, or a run of unknown length."""
    if tpu not in KAGGLE or run_s is None:
        return None
    return QuotaShare(run_s / WEEK_S, run_s / SESSION_S)
