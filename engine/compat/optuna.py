"""Private calls of Optuna, checked on Optuna 5.0.0."""

from typing import Any


def continued_trial(study: Any, trial: Any) -> Any:
    """Return a running trial of a study, as `Study.get_trials` lists it, so that it can be reported to again.

    Private: `FrozenTrial._trial_id`. Optuna has no public call to continue a trial. Without it, a search that was
    killed leaves its trial running in the study and starts another one. Tested in `tests/engine/sweeps/test_search.py`.
    """
    from optuna.trial import Trial

    return Trial(study, trial._trial_id)  # noqa: SLF001
