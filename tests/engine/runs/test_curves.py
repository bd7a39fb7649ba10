"""Columns that grow: immutable to whoever holds them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.runs.curves import Samples

values = st.lists(st.floats(), max_size=20)


@given(st.lists(values, max_size=8))
def test_extending_gives_the_same_column_as_all_values_at_once(parts: list[list[float]]) -> None:
    series = Samples()
    for part in parts:
        series = series.extended(part)
    together = [value for part in parts for value in part]
    assert series == Samples(together)
    assert len(series) == len(together)
    assert np.array_equal(series.values, np.array(together, dtype=float), equal_nan=True)


@given(values, st.lists(values, min_size=2, max_size=5))
def test_branches_of_one_column_do_not_see_each_other(trunk: list[float], branches: list[list[float]]) -> None:
    series = Samples(trunk)
    grown = [series.extended(branch) for branch in branches]
    assert series == Samples(trunk)
    for branch, result in zip(branches, grown, strict=True):
        assert result == Samples([*trunk, *branch])


def test_values_cannot_be_written_to() -> None:
    series = Samples([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        series.values[0] = 9.0
    assert series.extended([3.0]).values[0] == 1.0


def test_the_newest_value_is_known_and_an_empty_column_has_none() -> None:
    assert Samples().last is None
    assert Samples([1.0, 2.5]).last == 2.5
    assert math.isnan(Samples([math.nan]).last or 0.0)
