"""What a run costs of the free TPU time that a service gives out.

Only Kaggle names figures: 20 hours a week and 9 hours a session for TPUs (https://www.kaggle.com/docs/tpu). Colab's
free limits are not fixed, and it does not publish them.
"""

from __future__ import annotations

from dataclasses import dataclass

WEEK_S = 20 * 3600.0
SESSION_S = 9 * 3600.0

KAGGLE = ("v3-8", "v5e-8")
"""TPUs that Kaggle lends; v3-8 until 2025."""


@dataclass(frozen=True, slots=True)
class Share:
    """What part of Kaggle's free time a run takes.

    Args:
        week: Of a week's, as a fraction; above 1 where it does not suffice.
        session: Of a session's, likewise.
    """

    week: float
    session: float


def kaggle_share(tpu: str, run_s: float | None) -> Share | None:
    """Return the share of Kaggle's time; None for a TPU that Kaggle does not have, or a run of unknown length.

    Args:
        tpu: Its name, such as ``v5e-8``.
        run_s: Seconds of the whole run.
    """
    if tpu not in KAGGLE or run_s is None:
        return None
    return Share(run_s / WEEK_S, run_s / SESSION_S)
