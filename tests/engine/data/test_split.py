"""The split: every class in both parts where that can be, by the seed, small classes named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import small_config
from tpu_console.engine.data.split import random_split, stratified_split

NAMES = tuple("abcdefghijklmnopqrst")


def test_the_seed_decides() -> None:
    labels = np.arange(200) % 4
    first, again, other = (stratified_split(labels, NAMES[:4], 0.25, seed) for seed in (3, 3, 4))
    assert first.train.tolist() == again.train.tolist()
    assert first.validation.tolist() == again.validation.tolist()
    assert set(first.validation.tolist()) != set(other.validation.tolist())


def test_training_examples_are_shuffled_before_a_limit_so_it_takes_from_every_class() -> None:
    labels = np.repeat(np.arange(4), 100)
    split = stratified_split(labels, NAMES[:4], 0.2, seed=0, train_limit=80)
    assert len(split.train) == 80
    assert min(split.class_counts["train"]) >= 10
    assert sum(split.class_counts["validation"]) == 80


def test_of_many_small_classes_the_first_are_named() -> None:
    labels = np.concatenate([np.arange(15), [15] * 30])
    (notice,) = stratified_split(labels, NAMES[:16], 0.2, seed=0).notices
    assert notice.startswith("15 classes have one example each")
    assert notice.endswith("a, b, c, d, e, f, g, h, i, j and 5 more.")


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5, 0.99])
def test_pairs_are_divided_whatever_the_share(fraction: float) -> None:
    split = stratified_split(np.repeat(np.arange(10), 2), NAMES[:10], fraction, seed=1)
    assert split.class_counts == {"train": [1] * 10, "validation": [1] * 10}


@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_and_every_class_that_can_is_in_both_parts(
    counts: list[int], fraction: float, seed: int
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    split = stratified_split(labels, NAMES[: len(counts)], fraction, seed)
    assert sorted([*split.train, *split.validation]) == list(range(len(labels)))
    for count, train, validation in zip(
        counts, split.class_counts["train"], split.class_counts["validation"], strict=True
    ):
        assert train + validation == count
        assert min(train, validation) >= (1 if count > 1 else 0)
        assert train >= min(count, 1)


@pytest.mark.parametrize(
    ("count", "fraction", "limit", "sizes"),
    [(100, 0.2, 0, (80, 20)), (100, 0.2, 30, (30, 20)), (3, 0.01, 0, (2, 1)), (2, 0.5, 0, (1, 1))],
)
def test_examples_without_classes_are_shared_out_at_random(
    count: int, fraction: float, limit: int, sizes: tuple[int, int]
) -> None:
    config = small_config(data={"validation_fraction": fraction, "train_limit": limit})
    train, validation = random_split(count, "rows", config)
    assert (len(train), len(validation)) == sizes
    assert not {*train.tolist()} & {*validation.tolist()}
    assert limit or {*train.tolist(), *validation.tolist()} == {*range(count)}
