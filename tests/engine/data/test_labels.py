"""The split: every class in both parts where that can be, by the seed, small classes named."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.helpers import small_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.labels import (
    LabelScale,
    parts_of,
    random_split,
    split_by_label,
    split_classes,
    split_numbers,
    stratified_split,
)
from tpu_console.engine.errors import DataError

NAMES = tuple("abcdefghijklmnopqrst")


def config(fraction: float = 0.2, seed: int = 0, limit: int = 0) -> RunConfig:
    return small_config(seed=seed, data={"validation_fraction": fraction, "train_limit": limit})


def class_counts(labels: Any, settings: RunConfig) -> list[list[int]]:
    counts = split_classes(labels, NAMES[: labels.max() + 1], settings).record["class_counts"]
    return [counts["train"], counts["validation"]]


def test_the_seed_decides() -> None:
    labels = np.arange(200) % 4
    parts = [stratified_split(labels, NAMES[:4], config(0.25, seed))[0] for seed in (3, 3, 4)]
    (train, validation), again, other = [[part.tolist() for part in both] for both in parts]
    assert [train, validation] == again
    assert {*validation} != {*other[1]}


def test_training_examples_are_shuffled_before_a_limit_so_it_takes_from_every_class() -> None:
    train, validation = class_counts(np.repeat(np.arange(4), 100), config(0.3, limit=80))
    assert sum(train) == 80
    assert min(train) >= 10
    assert validation == [30] * 4


@pytest.mark.parametrize(
    ("small", "said"),
    [(15, "15 classes have one example each"), (2, "2 classes"), (1, "The class 'a' has one example: "), (0, "")],
)
def test_of_many_small_classes_the_first_are_named(small: int, said: str) -> None:
    labels = np.concatenate([np.arange(small), [small] * 30, [small + 1] * 30])
    (_, validation), notices = stratified_split(labels, NAMES[: small + 2], config())
    notice = "".join(notices)
    assert len(validation) == round(0.2 * len(labels))
    assert notice.startswith(said)
    assert bool(notice) == bool(small)
    assert ("a, b, c, d, e, f, g, h, i, j and 5 more." in notice) == (small == 15)


@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_and_every_class_that_can_is_in_both_parts(
    counts: list[int], fraction: float, seed: int
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    (train, validation), _ = stratified_split(labels, NAMES[: len(counts)], config(fraction, seed))
    assert sorted([*train, *validation]) == list(range(len(labels)))
    for number, count in enumerate(counts):
        here, there = (int((labels[part] == number).sum()) for part in (train, validation))
        assert here + there == count
        assert min(here, there) >= (1 if count > 1 else 0)
        assert here >= min(count, 1)


@pytest.mark.parametrize(
    ("count", "fraction", "limit", "sizes"),
    [(100, 0.2, 0, (80, 20)), (100, 0.2, 30, (30, 20)), (3, 0.01, 0, (2, 1)), (2, 0.5, 0, (1, 1))],
)
def test_examples_without_classes_are_shared_out_at_random(
    count: int, fraction: float, limit: int, sizes: tuple[int, int]
) -> None:
    labels = split_numbers(np.arange(count, dtype=np.float32), config(fraction, limit=limit))
    train, validation = labels.parts
    assert (len(train), len(validation)) == sizes
    assert not {*train.tolist()} & {*validation.tolist()}
    assert limit or {*train.tolist(), *validation.tolist()} == {*range(count)}
    assert labels.scale.mean == pytest.approx(train.mean())
    assert labels.scale.deviation == pytest.approx(train.std() or 1)


@pytest.mark.parametrize(
    ("labels", "names", "says"),
    [
        ("aabb", "ab", ""),
        ("abcabc", "abc", ""),
        (["10", "9"] * 2, ["9", "10"], ""),
        ("aab", "", "2 different labels in 3 rows"),
        ("aa", "", "are 'a'"),
    ],
)
def test_labels_are_classes_in_order_unless_they_are_all_alike_or_nearly_all_different(
    labels: Sequence[str], names: Sequence[str], says: str
) -> None:
    column = pd.Series([*labels], name="kind")
    with pytest.raises(DataError, match=says) if says else nullcontext():
        assert split_by_label(column, "t.csv", config()).names == (*names,)


@pytest.mark.parametrize(
    "scale",
    [
        *({"mean": math.nan, "deviation": 1.0}, {"mean": 0.0, "deviation": math.inf}, {"mean": 0.0, "deviation": 0.0}),
        *({"mean": "1", "deviation": 1.0}, {"mean": 0.0}),
    ],
    ids=repr,
)
def test_a_scale_that_cannot_be_is_refused(scale: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LabelScale.model_validate(scale)


def test_too_few_examples_to_split_are_refused() -> None:
    with pytest.raises(DataError, match="1 rows are too few"):
        random_split(1, "rows", config())


@pytest.mark.parametrize(("limit", "kept"), [(0, 7), (3, 3)])
def test_given_validation_examples_stay_in_their_order(limit: int, kept: int) -> None:
    parts = parts_of(7, 10, config(limit=limit))
    assert parts is not None
    assert (len(parts[0]), parts[1].tolist()) == (kept, [7, 8, 9])
    assert {*parts[0].tolist()} <= {*range(7)}
    assert parts_of(10, 10, config()) is None
