"""The search for the largest batch, on memories whose answer is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.preflight.search import MOST_COMPILES, largest_batch, worth_choosing

LIMIT = 16 * 2**30


@dataclass
class Machine:
    """A device whose memory grows with the batch as is said here, and the batches that were tried on it."""

    fixed: int
    an_example: float
    bend: float = 1.0
    tried: list[int] = field(default_factory=list)

    def needs(self, batch: int) -> int:
        return int(self.fixed + self.an_example * batch**self.bend)

    def probe(self, batch: int) -> tuple[bool, int]:
        assert batch not in self.tried
        self.tried.append(batch)
        return self.needs(batch) <= LIMIT, self.needs(batch)

    def search(self, first: int = 64, largest: int = 4096) -> int:
        known = {first: (self.needs(first) <= LIMIT, self.needs(first))}
        return largest_batch(self.probe, known, self.fixed, LIMIT, largest)


def test_a_linear_growth_needs_few_compiles() -> None:
    machine = Machine(300 * 2**20, 26e6)
    found = machine.search()
    assert machine.needs(found) <= LIMIT < machine.needs(found + 1)
    assert len(machine.tried) <= 5


def test_what_always_fits_takes_one_compile() -> None:
    machine = Machine(2**20, 1e3)
    assert machine.search(largest=179) == 179
    assert machine.tried == [179]


def test_a_first_batch_that_is_the_largest_takes_none() -> None:
    machine = Machine(2**20, 1e3)
    assert machine.search(first=179, largest=179) == 179
    assert machine.tried == []


def test_a_model_that_never_fits() -> None:
    machine = Machine(17 * 2**30, 1e6)
    assert machine.search() == 0
    assert machine.tried == []


def test_small_batches_are_found_below_a_refused_one() -> None:
    assert Machine(2**30, 5e9).search(first=64) == 3


@given(
    fixed=st.integers(2**20, 8 * 2**30),
    an_example=st.floats(1e4, 2e8),
    bend=st.floats(0.85, 1.15),
    first=st.integers(1, 2048),
)
def test_the_answer_is_the_largest_that_fits(fixed: int, an_example: float, bend: float, first: int) -> None:
    machine = Machine(fixed, an_example, bend)
    found = machine.search(first)
    assert len(machine.tried) <= MOST_COMPILES
    assert found == 0 or machine.needs(found) <= LIMIT
    if found < 4096:
        assert machine.needs(found + 1) > LIMIT


@pytest.mark.parametrize("largest", [1, 2, 7, 8, 9])
def test_tiny_datasets(largest: int) -> None:
    assert Machine(2**20, 1e3).search(first=1, largest=largest) == largest


class Tiled(Machine):
    """Pads batches to 8, and lays multiples of 128 out better."""

    def needs(self, batch: int) -> int:
        return int(self.fixed + self.an_example * -(-batch // 8) * 8 * (0.99 if batch % 128 == 0 else 1.0))


def test_a_multiple_of_128_may_fit_above_a_batch_that_does_not() -> None:
    machine = Tiled(0, LIMIT / 1148)
    assert machine.needs(1144) <= LIMIT < machine.needs(1145)
    assert machine.search(largest=16_384) == 1152
    assert len(machine.tried) <= 8


def test_a_multiple_of_8_is_found_exactly() -> None:
    machine = Tiled(2**30, 15 * 2**30 / 331)
    assert machine.search() == 328
    assert len(machine.tried) <= 6


@pytest.mark.parametrize(
    ("largest", "wanted", "batches"),
    [
        (1152, 64, [1152, 64]),
        (1150, 64, [1150, 1024, 64]),
        (1150, 4096, [1150, 1024, 512]),
        (100, 32, [100, 96, 32]),
        (179, 179, [179, 128, 64]),
        (5, 32, [5, 2]),
        (1, 1, [1]),
        (0, 32, []),
    ],
)
def test_three_batches_are_worth_choosing(largest: int, wanted: int, batches: list[int]) -> None:
    assert worth_choosing(largest, wanted) == batches
