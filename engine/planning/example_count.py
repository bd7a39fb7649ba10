"""Counts the training examples of a configuration without loading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.catalog import DATASETS, is_user_reference
from ..data.cached_facts import function_record_of
from ..data.survey.survey import survey

if TYPE_CHECKING:
    from ..config.run_config import RunConfig


def train_examples_of(config: RunConfig) -> int | None:
    """Return the number of training examples after the split and the limit; None if unknown before the run."""
    info = DATASETS.get(config.dataset)
    if is_user_reference(config.dataset):
        seen = function_record_of(config)
        return None if seen is None else seen.train_count
    if info is None:
        found = survey(config)
        count = None if found is None else found.train(config.data.validation_fraction)
    elif info.name == "digits":
        # scikit-learn's train_test_split rounds the held-out part up.
        total = info.train_examples + info.validation_examples
        count = total - -int(-total * config.data.validation_fraction // 1)
    else:
        count = info.train_examples
    return None if count is None else min(count, config.data.train_limit or count)
