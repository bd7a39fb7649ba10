"""Ratings, split at random: users and items are numbered, and what each user rated is packed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.words import config, ratings, write_ratings
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.ratings_csv import packed, unpacked
from tpu_console.engine.data.kinds.table import load_examples

ROWS = ratings(20, 30, 400)


def loaded(path: Path, **options: Any) -> Examples:
    return load_examples(config("ratings-csv", path, options), lambda _: None)


def rows_of(examples: Examples) -> list[tuple[str, str, float]]:
    """The training ratings, with what users and items are called in the file; unknown ones are an empty name."""
    users, items = (["", *examples.record[name]] for name in ("users", "items"))
    dataset = examples.train.concatenate(examples.validation)
    return [(users[x["user"]], items[x["item"]], float(y)) for x, y in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("name", ["ratings.csv", "ratings.dat"])
def test_every_rating_is_read_once(tmp_path: Path, name: str) -> None:
    examples = loaded(write_ratings(tmp_path / name, ROWS))
    assert (examples.train_count, examples.validation_count) == (320, 80)
    read = rows_of(examples)
    assert len(read) == 400
    assert {row for row in read if "" not in row} <= {(str(user), str(item), rating) for user, item, rating, _ in ROWS}
    signature = examples.signature
    assert signature.task is Task.RATINGS
    assert signature.sizes == {"users": len(examples.record["users"]) + 1, "items": len(examples.record["items"]) + 1}
    labels = [float(label) for _, label in examples.train.as_numpy_iterator()]
    assert signature.label_mean == pytest.approx(np.mean(labels), abs=1e-5)
    assert json.loads(json.dumps(examples.record)) == examples.record


def test_a_table_of_other_columns_and_separators(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    lines = ["id;who;what;stars", *(f"{n};{user};film {item};{stars}" for n, (user, item, stars, _) in enumerate(ROWS))]
    path.write_text("\r\n".join(lines), encoding="utf-8")
    examples = loaded(path, columns=["who", "what", "stars"])
    assert {f"film {item}" for _, item, _, _ in ROWS} >= set(examples.record["items"])
    assert {stars for _, _, stars in rows_of(examples)} == {stars for _, _, stars, _ in ROWS}


def test_users_and_items_that_are_not_trained_on_are_unknown(tmp_path: Path) -> None:
    rows = [(user, user, 3.0 + user % 2, user) for user in range(10)]
    examples = loaded(write_ratings(tmp_path / "ratings.csv", rows))
    held_out = list(examples.validation.as_numpy_iterator())
    assert [(int(x["user"]), int(x["item"])) for x, _ in held_out] == [(0, 0), (0, 0)]
    assert sorted(int(x["user"]) for x, _ in examples.train.as_numpy_iterator()) == list(range(1, 9))
    assert sum(notice.startswith("100.0%") for notice in examples.notices) == 2


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=8), st.randoms())
def test_what_is_unpacked_is_what_each_known_user_rated_of_known_items(rated: list[list[int]], random: object) -> None:
    pairs = [(user, item) for user, items in enumerate([[5], *([*items, 1] for items in rated)]) for item in items]
    random.shuffle(pairs)  # type: ignore[attr-defined]
    users, items = np.array(pairs, np.int32).T
    found = unpacked(json.loads(json.dumps(packed(users, items))), len(rated))
    assert [part.tolist() for part in found] == [sorted([*filter(None, items), 1]) for items in rated]


@pytest.mark.parametrize("text", ["", "what?", packed(np.array([1, 2], np.int32), np.array([1, 1], np.int32)), None])
def test_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says, the caller names the file
        unpacked(text, 3)
