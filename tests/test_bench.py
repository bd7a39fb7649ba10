import pytest

from tests.bench.__main__ import ITEMS
from tests.bench.report import interval, ratio_row, with_sections


def test_every_item_has_a_name() -> None:
    assert {"first-frame", "first-step", "small-steps", "throughput"} <= set(ITEMS)


@pytest.mark.parametrize(("count", "skipped"), [(1, 0), (3, 0), (5, 0), (6, 0), (8, 0), (9, 1), (15, 3)])
def test_the_interval_leaves_out_as_many_values_as_95_percent_allow(count: int, skipped: int) -> None:
    assert interval([float(number) for number in range(count)]) == (skipped, count - 1 - skipped)


def test_a_ratio_is_judged_by_its_median_from_either_side() -> None:
    ours, theirs = [1.0, 1.2, 1.1], [1.0, 1.0, 1.0]
    assert ratio_row("", ours, theirs, most=1.1).met
    assert not ratio_row("", ours, theirs, most=1.05).met
    assert ratio_row("", ours, theirs, 1.1).met
    assert ratio_row("", ours, theirs).met is None


def test_a_section_that_is_measured_again_takes_its_place_on_the_page() -> None:
    page = with_sections(with_sections("", {"one": "1\n\n| a |", "two": "2"}), {"one": "3", "new": "4"})
    assert page.partition("## ")[2] == "one\n\n3\n\n## two\n\n2\n\n## new\n\n4\n"
