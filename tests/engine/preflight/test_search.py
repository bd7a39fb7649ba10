"""The search for the largest batch, with a compiler whose memories are known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.preflight.fitting import largest_fitting, next_batch, smallest_too_large, worth_choosing
from tpu_console.engine.preflight.result import BatchFigures

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 16 * 2**30
GROWTHS: dict[str, Callable[[int], float]] = {
    # The memory of a batch, in examples of a straight line.
    "straight": float,
    "bent down": lambda batch: batch**0.85,
    "bent up": lambda batch: batch**1.15,
    "by tiles of 8": lambda batch: -(-batch // 8) * 8 * (0.99 if batch % 128 == 0 else 1.0),
    "with a knee": lambda batch: min(batch, 200) + 0.2 * max(0, batch - 200),
    "uneven": lambda batch: batch * (1 + 0.03 * math.sin(batch)),
    "by powers of two": lambda batch: 2.0 ** math.ceil(math.log2(batch)),
    "hardly beyond the limit": lambda batch: batch if batch <= 131_000 else 250_000 + 0.02 * batch,
}


class Compiler:
    """Compiles for a device where each batch needs what is said here; the results are in the order of the tries."""

    def __init__(self, fixed: int, an_example: float, growth: str = "straight", overhead: int = 0) -> None:
        self.results = {0: BatchFigures(0, fixed, 0.0)}
        self._fixed, self._an_example, self._growth = fixed + overhead, an_example, GROWTHS[growth]

    def compile(self, batch: int) -> None:
        assert batch not in self.results
        needs = int(self._fixed + self._an_example * self._growth(batch))
        self.results[batch] = BatchFigures(batch, needs, 0.0, fits=needs <= LIMIT)

    def search(self, first: int = 64, largest: int = 16_384) -> tuple[int, int]:
        """Return the largest batch that fits and how many were compiled after the first."""
        self.compile(first)
        while (batch := next_batch(self.results, LIMIT, largest)) is not None:
            assert 0 < batch <= largest
            self.compile(batch)
        return largest_fitting(self.results), len(self.results) - 2


@given(
    growth=st.sampled_from(sorted(GROWTHS)),
    fixed=st.integers(2**20, 8 * 2**30),
    an_example=st.floats(1e4, 2e8),
    overhead=st.integers(0, 2**29),
    first=st.integers(1, 2048),
    largest=st.sampled_from([2048, 16_384, 500_000]),
)
def test_what_is_found_fits_and_little_more_does_not(
    growth: str, fixed: int, an_example: float, overhead: int, first: int, largest: int
) -> None:
    compiler = Compiler(fixed, an_example, growth, overhead)
    found, compiles = compiler.search(first, largest)
    assert compiles <= (15 if growth == "by powers of two" else 12)
    assert compiler.results[found].fits
    assert found <= largest
    if found < largest and compiles < 15:
        above = smallest_too_large(compiler.results)
        assert above is not None
        assert above - found <= max(8, found / 32)


@pytest.mark.parametrize(
    ("growth", "most"),
    [
        ("straight", 2),
        ("by tiles of 8", 2.5),
        ("with a knee", 3),
        ("uneven", 3.5),
        ("bent down", 4.5),
        ("bent up", 4.5),
    ],
)
def test_few_compiles_are_needed(growth: str, most: float) -> None:
    searches = [
        Compiler(2**30, 10 ** (power / 10), growth).search(first)[1]
        for power in range(50, 85)
        for first in (8, 32, 128)
    ]
    assert sum(searches) / len(searches) <= most


def test_a_line_that_always_misses_on_the_same_side_is_left() -> None:
    """Following it alone would try one multiple after the other, each below the one before."""
    found, compiles = Compiler(2**30, 65_000, "hardly beyond the limit").search(86_408, 1_000_000)
    assert 128_000 <= found <= 131_000
    assert compiles <= 12


def test_a_multiple_of_128_may_fit_above_a_batch_that_does_not() -> None:
    found, compiles = Compiler(0, LIMIT / 1014.5, "by tiles of 8").search()
    assert (found, compiles <= 5) == (1024, True)


def test_what_always_fits_takes_one_compile() -> None:
    assert Compiler(2**20, 1e3).search(largest=179) == (179, 1)
    assert Compiler(17 * 2**30, 1e6).search() == (0, 0)  # and what never fits is not compiled again
    assert Compiler(2**30, 5e9).search(first=64)[0] == 3  # batches below a multiple count


@pytest.mark.parametrize("largest", [1, 2, 7, 8, 9])
def test_tiny_datasets(largest: int) -> None:
    assert Compiler(2**20, 1e3).search(first=1, largest=largest)[0] == largest


def test_a_search_goes_on_from_the_results_of_an_earlier_one() -> None:
    whole = Compiler(2**30, 1e6, "bent up")
    expected, _ = whole.search()
    tries = list(whole.results.items())
    for known in range(2, len(tries)):
        rest = dict(tries[:known])
        while (batch := next_batch(rest, LIMIT)) is not None:
            rest[batch] = whole.results[batch]
        assert largest_fitting(rest) == expected


@pytest.mark.parametrize(
    ("largest", "wanted", "batches"),
    [
        (1152, 64, [1152, 64]),
        (1150, 64, [1150, 1024, 64]),
        (1150, 4096, [1150, 1024, 512]),
        (179, 179, [179, 128, 64]),
        (5, 32, [5, 2]),
        (1, 1, [1]),
        (0, 32, []),
    ],
)
def test_three_batches_are_worth_choosing(largest: int, wanted: int, batches: list[int]) -> None:
    assert worth_choosing(largest, wanted) == batches
