import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tpu_console.tui.charts.curve import Axis, FloatArray
from tpu_console.tui.charts.scale import (
    Scale,
    Tick,
    format_value,
    full_range,
    label_ticks,
    robust_range,
    x_scale,
    x_ticks,
    y_scale,
    y_ticks,
)

# Of a cell: how far from its middle a dot may be drawn, and 0.05 more for 2 and 5 on a logarithmic axis.
HALF_A_DOT, LOG_TICK = 0.5, 0.05
FINENESSES = (1, 2, 4)


@st.composite
def ends(draw: st.DrawFn) -> tuple[float, float]:
    """A range whose size is no rounding of its ends."""
    low = draw(st.one_of(st.just(0.0), st.floats(-1e6, 1e6), st.floats(0.0, 1.0)))
    size = draw(st.floats(1e-4, 1e4)) * max(abs(low), 1e-3)
    return low, low + size


def check(scale: Scale, ticks: list[Tick], low: float, high: float, shares: list[float], allowed: float = 0.0) -> None:
    """Check that values are drawn where the ticks around them say."""
    assert scale.cell(low) >= 0
    assert scale.ends[0] <= low + 1e-6 * (high - low)
    assert scale.ends[1] >= high - 1e-6 * (high - low)
    values = np.array([low, high, *(low + share * (high - low) for share in shares)])
    for fineness in FINENESSES:
        middles = (scale.dots(values, fineness) + 0.5) / fineness - 0.5  # of the dots, in cells
        assert scale.dots(values, 1).tolist() == (scale.dots(values, fineness) // fineness).tolist()
        for value, drawn in zip(values.tolist(), middles.tolist(), strict=True):
            for one, other in itertools.pairwise(ticks):
                if one.value <= value <= other.value:
                    share = (value - one.value) / (other.value - one.value)
                    place = one.cell + share * (other.cell - one.cell)
                    assert abs(drawn - place) <= HALF_A_DOT / fineness + allowed + 1e-6
            for tick in ticks:
                distance = value - tick.value
                if abs(distance) > allowed * scale.step / scale.per_step + 1e-9 * (abs(value) + scale.step):
                    assert (drawn - tick.cell) * distance >= 0.0


@given(ends=ends(), rows=st.integers(2, 60), shares=st.lists(st.floats(0, 1), max_size=8))
def test_every_value_is_drawn_where_the_axis_says(ends: tuple[float, float], rows: int, shares: list[float]) -> None:
    scale = y_scale(*ends, rows)
    ticks = y_ticks(scale)
    check(scale, ticks, *ends, shares)
    assert (
        len({(b.cell - a.cell, round((b.value - a.value) / scale.step, 6)) for a, b in itertools.pairwise(ticks)}) <= 1
    )
    assert len({tick.label for tick in ticks}) == len(ticks) >= (3 if rows >= 9 else 2 if rows >= 4 else 1)
    assert round(scale.step / 10.0 ** np.floor(np.log10(scale.step * 1.0001)), 6) in {1, 2, 5}
    # Nothing visible lies more than a step beyond a label.
    assert ticks[0].value - scale.step <= ends[0] + 1e-6 * scale.step
    assert ticks[-1].value + scale.step >= ends[1] - 1e-6 * scale.step


@given(ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted), rows=st.integers(4, 60))
def test_a_share_is_not_drawn_below_0_or_above_1(ends: list[float], rows: int) -> None:
    low, high = ends
    if high - low < 1e-3:
        return
    scale = y_scale(low, high, rows)
    ticks = {tick.value: tick.cell for tick in y_ticks(scale)}
    assert max(ticks) <= 1.0 + 1e-9
    assert min(ticks) >= 0.0
    for fineness in FINENESSES:
        dots = scale.dots(np.array([low, high]), fineness)
        for limit, sign in ((0.0, 1), (1.0, -1)):
            if limit in ticks:
                assert (sign * ((dots + 0.5) / fineness - 0.5 - ticks[limit]) >= 0).all()


@given(
    low=st.sampled_from([0.0, 0.2, 0.5]),
    high=st.sampled_from([0.8, 1.0]),
    rows=st.integers(8, 40),
    below=st.integers(0, 3),
    above=st.integers(0, 3),
)
def test_rows_below_and_above_stay_free_and_have_no_label_above_1(
    low: float, high: float, rows: int, below: int, above: int
) -> None:
    scale = y_scale(low, high, rows, below=below, above=above)
    assert below <= scale.cell(low) < scale.cell(high) < rows - above
    if scale.first >= 0:
        assert max(tick.value for tick in y_ticks(scale)) <= 1.0 + 1e-9


@example(low=-0.4, size=0.9, rows=14, shares=[0.2, 0.5, 0.8])
@given(
    low=st.floats(-300, 300),
    size=st.floats(0.5, 300),
    rows=st.integers(4, 60),
    shares=st.lists(st.floats(0, 1), max_size=8),
)
def test_a_logarithmic_axis_is_as_exact(low: float, size: float, rows: int, shares: list[float]) -> None:
    scale = y_scale(low, low + size, rows, is_log=True)
    check(scale, y_ticks(scale), low, low + size, shares, LOG_TICK)


@given(
    ends=st.tuples(st.floats(0, 1e7), st.floats(1e-3, 1e7)),
    columns=st.integers(6, 250),
    axis=st.sampled_from(list(Axis)),
    shares=st.lists(st.floats(0, 1), max_size=8),
)
def test_a_horizontal_axis_is_as_exact(
    ends: tuple[float, float], columns: int, axis: Axis, shares: list[float]
) -> None:
    left, right = ends[0], ends[0] + ends[1]
    scale = x_scale(left, right, columns, axis)
    ticks = x_ticks(scale, axis)
    check(scale, ticks, left, right, shares)
    for one, other in itertools.pairwise(ticks):
        assert other.cell - one.cell > max(len(one.label), len(other.label)) or columns < 40


@pytest.mark.parametrize(
    ("low", "high", "rows", "labels"),
    [
        (0.0036, 0.4, 22, ["0", "0.1", "0.2", "0.3", "0.4"]),
        (0.35, 1.0, 22, ["0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]),
        (0.0, 1.0, 11, ["0", "0.5", "1.0"]),
        (0.0, 1.0, 3, ["0", "0.5", "1.0"]),
        (0.0, 1.0, 8, ["0", "1"]),
        (0.0, 1.0, 27, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-30, 50, 9, ["-20", "0", "20", "40"]),
    ],
)
def test_values_people_plot(low: float, high: float, rows: int, labels: list[str]) -> None:
    assert [tick.label for tick in y_ticks(y_scale(low, high, rows))] == labels


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (-3, 2, {"0.01", "1", "100"}),
        (-6, -4, {"1e-6", "1e-5", "0.0001"}),
        (-0.4, 0.5, {"0.5", "1", "2"}),
        (-300, 300, {"1e-300", "1", "1e300"}),
    ],
)
def test_a_log_axis_is_labelled_over_any_range(low: float, high: float, labels: set[str]) -> None:
    assert labels <= {tick.label for tick in y_ticks(y_scale(low, high, 14, is_log=True))}


@pytest.mark.parametrize(
    ("right", "columns", "axis", "labels"),
    [
        (90.0, 40, Axis.TIME, ["0s", "20s", "40s", "60s", "80s"]),
        (1800.0, 40, Axis.TIME, ["0min", "10min", "20min", "30min"]),
        (36_000.0, 60, Axis.TIME, ["0h", "2h", "4h", "6h", "8h", "10h"]),
        (864_000.0, 30, Axis.TIME, ["0d", "5d", "10d"]),
        (1000.0, 24, Axis.STEP, ["0", "0.5k", "1.0k"]),
        (3.0, 40, Axis.STEP, ["0", "1", "2", "3"]),  # no half of a step
        (1.0, 40, Axis.STEP, ["0", "1"]),
        (1.0, 40, Axis.EPOCH, ["0", "0.5", "1.0"]),
    ],
)
def test_a_horizontal_axis_has_labels_in_a_unit_people_use(
    right: float, columns: int, axis: Axis, labels: list[str]
) -> None:
    assert [tick.label for tick in x_ticks(x_scale(0.0, right, columns, axis), axis)] == labels


def test_values_between_two_borders_are_in_one_cell() -> None:
    assert y_scale(0.0, 1.0, 11).seen == (0.0, 1.0)
    for scale, halves in ((x_scale(100.0, 900.0, 61, Axis.STEP), 59), (x_scale(2.0**60, 2.0**60, 40, Axis.STEP), 0)):
        between = [scale.value(cell + 0.5) for cell in range(halves)]
        values = np.array([*np.linspace(*scale.seen, 997), *between])
        assert np.searchsorted(scale.borders, values, "right").tolist() == scale.dots(values, 1).tolist()


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0, 0.5, 1.0], ["0", "0.5", "1.0"]),
        ([0.0, 1000.0, 2000.0], ["0", "1k", "2k"]),
        ([0.0, 20_000.0], ["0", "20k"]),
        ([500_000.0, 1_000_000.0], ["0.5M", "1.0M"]),
        ([0.0, 0.002, 0.004], ["0", "0.002", "0.004"]),
        ([0.0, 2e-4, 4e-4], ["0", "2e-4", "4e-4"]),
        ([0.0], ["0"]),
        ([], []),
    ],
)
def test_labels_share_one_unit(values: list[float], labels: list[str]) -> None:
    assert label_ticks(values) == labels


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12, "0.1200"),
        (12.0, "12.00"),
        (1234.0, "1234"),
        (12_345.6, "12346"),
        (123_456.0, "1.23e5"),
        (1.5e-7, "1.50e-7"),
        (0.0, "0"),
        (-0.5, "-0.5000"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
    ],
)
def test_values_have_four_significant_digits(value: float, text: str) -> None:
    assert format_value(value) == text


NOTHING = np.empty(0)
FALLING = np.linspace(2.0, 1.0, 200)
VALUES = st.lists(st.floats(-1e6, 1e6), max_size=200).map(np.array)


@pytest.mark.parametrize(("spike", "seen"), [(60.0, (1.0, 2.0)), (2.8, (1.0, 2.8)), (-9.0, (1.0, 2.0))])
def test_one_spike_does_not_change_the_range_but_a_steep_beginning_is_seen(
    spike: float, seen: tuple[float, float]
) -> None:
    spiked = np.concatenate(([spike], FALLING))
    assert robust_range([spiked], [spiked], ()) == seen


@pytest.mark.parametrize(("spike", "is_seen"), [(3.0, True), (3.01, False), (0.0, True), (-0.01, False)])
def test_a_spike_that_is_no_sample_is_seen_if_it_at_most_doubles_the_range(spike: float, is_seen: bool) -> None:
    low, high = robust_range([FALLING], [np.append(FALLING, spike)], ()) or (0, 0)
    assert (low <= spike <= high) is is_seen


@pytest.mark.parametrize(("far", "is_seen"), [(225.0, True), (226.0, False), (-125.0, True), (-126.0, False)])
def test_what_is_three_boxes_away_from_the_box_is_seen_as_the_rest(far: float, is_seen: bool) -> None:
    samples = np.append(np.arange(100.0) + (far < 0), far)  # quartiles at 25 and 75
    low, high = robust_range([samples], [samples], ()) or (0, 0)
    assert (low <= far <= high) is is_seen


@given(samples=VALUES, kept=VALUES.filter(len))
def test_validation_and_the_newest_value_are_always_seen(samples: FloatArray, kept: FloatArray) -> None:
    low, high = robust_range([samples], [samples], [kept]) or (1, 0)
    assert low <= kept.min()
    assert high >= kept.max()


@given(samples=VALUES.filter(lambda values: len(values) > 3))
def test_most_samples_are_seen(samples: FloatArray) -> None:
    low, high = robust_range([samples], [samples], ()) or (1, 0)
    assert np.count_nonzero((samples >= low) & (samples <= high)) >= len(samples) - 2 * max(int(0.15 * len(samples)), 1)


def test_the_first_steep_tenth_of_a_loss_does_not_flatten_the_rest() -> None:
    loss = np.concatenate((np.geomspace(100.0, 1.0, 20), np.linspace(1.0, 0.4, 180)))
    low, high = robust_range([loss], [loss], ()) or (0, 0)
    assert high < 5.0
    assert low == 0.4


def test_the_steps_of_a_rate_that_is_constant_in_between_are_seen() -> None:
    rate = np.concatenate((np.full(20, 0.1), np.full(160, 0.01), np.full(20, 0.001)))
    assert robust_range([rate], [rate], ()) == (0.001, 0.1)
    spiked = np.append(np.full(199, 0.01), 5.0)
    assert robust_range([spiked], [spiked], ()) == (0.01, 0.01)


def test_without_values_there_is_no_range() -> None:
    assert robust_range([NOTHING], [NOTHING], ()) is None
    assert robust_range([NOTHING], [FALLING], ()) == (1.0, 2.0)
    assert full_range([NOTHING]) is None
    assert full_range([NOTHING, FALLING]) == (1.0, 2.0)
