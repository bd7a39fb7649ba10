"""What users rated, packed into a text and back."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.data.kinds.ratings_csv import packed, unpacked


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=8), st.randoms())
def test_what_is_unpacked_is_what_each_known_user_rated_of_known_items(rated: list[list[int]], random: object) -> None:
    pairs = [(user, item) for user, items in enumerate([[5], *([*items, 1] for items in rated)]) for item in items]
    random.shuffle(pairs)  # type: ignore[attr-defined]
    users, items = np.array(pairs, np.int32).T
    found = unpacked(json.loads(json.dumps(packed(users, items))), len(rated))
    assert [part.tolist() for part in found] == [sorted([*filter(None, items), 1]) for items in rated]


def test_a_rating_takes_about_two_bytes() -> None:
    random = np.random.default_rng(1)
    users, items = random.integers(1, 600, 100_000), random.zipf(1.3, 100_000) % 9000 + 1
    assert len(packed(users.astype(np.int32), items.astype(np.int32))) < 250_000


@pytest.mark.parametrize("text", ["", "what?", packed(np.array([1, 2], np.int32), np.array([1, 1], np.int32)), None])
def test_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says, the caller names the file
        unpacked(text, 3)


def test_a_text_that_would_fill_the_memory_is_refused() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(65 << 20))).decode("ascii")
    with pytest.raises(ValueError, match="larger than ratings are"):
        unpacked(bomb, 3)
