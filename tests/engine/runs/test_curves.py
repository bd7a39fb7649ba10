"""Columns that grow: immutable to whoever holds them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.runs.curves import GrowingSequence, Samples

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


def test_equal_columns_have_equal_hashes_and_other_things_are_not_equal() -> None:
    assert hash(Samples([1.0, 2.0])) == hash(Samples([1.0]).extended([2.0]))
    assert Samples([1.0]) != [1.0]
    assert repr(Samples([1.0])) == "Samples([1.0])"


def test_a_refused_append_leaves_the_column_usable() -> None:
    series = Samples([1.0])
    with pytest.raises(ValueError, match="could not convert"):
        series.extended(["x"])  # type: ignore[list-item]
    assert series.extended([2.0]) == Samples([1.0, 2.0])


@given(st.lists(st.integers()), st.integers(), st.integers(), st.slices(20))
def test_a_growing_sequence_is_like_a_tuple(items: list[int], one: int, other: int, part: slice) -> None:
    trunk: GrowingSequence[int] = GrowingSequence()
    for item in items:
        trunk = trunk.appended(item)
    branches = [trunk.appended(one), trunk.appended(other)]
    for grown, wanted in zip([trunk, *branches], [items, [*items, one], [*items, other]], strict=True):
        assert grown == tuple(wanted)
        assert tuple(wanted) == grown
        assert (len(grown), [*grown], [*grown[part]], bool(grown)) == (len(wanted), wanted, wanted[part], bool(wanted))
    assert (branches[0][-1], branches[0][0]) == (one, [*items, one][0])
    with pytest.raises(IndexError):
        trunk[len(items)]
