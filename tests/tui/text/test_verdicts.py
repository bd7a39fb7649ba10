"""Verdicts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers import replace, small_config
from tests.made_verdicts import FITS, REFUSED, TOO_LARGE, UNKNOWN
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.findings import Finding, Severity
from tpu_console.engine.preflight.likely import QuotaShare, kaggle_share
from tpu_console.engine.preflight.result import BatchFigures, Likely, Verdict, Waste
from tpu_console.tui.text.verdicts import detail_lines, largest_text, quota_cell, verdict_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = [FITS, replace(FITS, tpu="v3-8"), TOO_LARGE, REFUSED, UNKNOWN]


def lines_of(*verdicts: Verdict, width: int | None = None) -> list[str]:
    return verdict_lines(small_config(), verdicts, "digits-cnn", width)


def in_one(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("width", [80, 120])
def test_every_line_fits_the_terminal(width: int) -> None:
    lines = lines_of(*ALL, width=width)
    assert max(map(len, lines)) <= width
    assert max(map(len, detail_lines(small_config(), FITS, "x", width))) <= width
    head = lines[0].lower().split()
    assert head[:3] == ["tpu", "batch", "precision"]
    assert "verdict" in head


def test_a_note_names_the_choices_that_it_is_about_and_why_some_fail_and_comes_once() -> None:
    text = in_one(lines_of(*ALL))
    assert text.count("Random rotation inside") == 1
    assert "v5e-8, 128 per replica, float32; v3-8, 128 per replica, float32: random_rotation: Random" in text
    assert text.count("conv2d:") == 1
    assert "dense_1" not in text  # padding of a small layer does not matter
    assert text.count("6,931 per replica fits") == 1
    assert "too large v5e-8, 16,384 per replica, float32: A step needs 36.52 GiB" in text
    assert "RESOURCE_EXHAUSTED" not in text  # the reason has its figures
    assert "132% over" in text
    assert "refused v3-8, 128 per replica, mixed_bfloat16: random_width" in text


def test_a_lower_bound_is_marked_as_one() -> None:
    text = in_one(lines_of(UNKNOWN, width=80))
    assert ">0.31 GiB" in text
    assert "> means at least" in text
    assert "needs at least 0.31 GiB of 15.75 GiB" in text
    assert ">" not in in_one(lines_of(FITS))


def test_the_worst_padding_is_shown_with_the_same_figure_in_every_layer() -> None:
    wastes = tuple(replace(FITS.wastes[0], layer=f"conv{n}") for n in range(20))
    text = in_one(lines_of(replace(FITS, wastes=wastes)))
    assert "conv0:" in text
    assert "conv9:" not in text
    wide = Waste("conv2d", "features", 64, 128, 0.12, 4.1e10, 128)
    text = in_one(lines_of(replace(FITS, wastes=(wide, replace(wide, layer="dense", share=0.25)))))
    assert [text.count(words) for words in ("50% wasted", "adds 8%", "adds 17%")] == [2, 1, 1]


def test_the_largest_batch_comes_with_the_ones_worth_choosing() -> None:
    assert "batch of 1" in largest_text(replace(FITS, largest_batch=0))
    batches = (BatchFigures(1160, 15 * 2**30, 9000.4), BatchFigures(1152, 14 * 2**30, 9100.0))
    searched = replace(FITS, largest_batch=1160, batches=batches)
    text = largest_text(searched)
    assert all(figure in text for figure in ("1,160", "9,280", "15.00 GiB", "9,000", "1,152", "14.00 GiB", "9,100"))
    assert "the dataset" not in text
    assert "the dataset" in largest_text(replace(searched, dataset_is_limit=True))


def test_a_quota_is_shown_if_it_is_fixed() -> None:
    assert kaggle_share("v6e-1", 3600.0) is None
    assert kaggle_share("v5e-8", None) is None
    assert kaggle_share("v5e-8", 36_000.0) == QuotaShare(0.5, 36_000 / 32_400)
    long = likely(FITS, run_s=36_000.0)
    assert (quota_cell(long), quota_cell(likely(long, most=2.0))) == ("≥ 50.00%", "50.00% – 100.00%")
    assert "2 sessions" in in_one(lines_of(long))
    assert quota_cell(replace(long, tpu="v6e-1")) is None


def likely(verdict: Verdict, factor: float = 1.0, most: float | None = None, run_s: float | None = None) -> Verdict:
    """A verdict whose steps take from `factor` to `most` times as long as at best."""
    assert verdict.bound is not None
    bound = replace(verdict.bound, run_s=run_s or verdict.bound.run_s)
    times = Likely(factor * bound.step_s, most and most * bound.step_s, "host" if factor > 1 else "device", "")
    return replace(verdict, bound=bound, likely=times)


def test_each_likely_figure_has_its_bound_beside_it() -> None:
    slow = likely(replace(FITS, tpu="v3-8"), factor=10.0)
    (row,) = [line for line in lines_of(FITS, slow) if line.startswith("v3-8") and "host" in line]
    for cell in ("≥ 3m 43s (22.3 s)", "≥ 1.11 s (0.11 s)", "≥ 23.2 ms (2.32 ms)", "≤ 44,138 (441,379)"):
        assert cell in row
    ranged = likely(FITS, factor=2.0, most=4.0)
    assert ranged.expected(10.0) == (20.0, 40.0)
    (row,) = [line for line in lines_of(ranged) if "1m" in line and line.startswith("v5e-8")]
    assert "44.6 s – 1m 29s (22.3 s)" in row
    assert "110,345 – 220,690 (441,379)" in row


def test_the_input_is_set_against_the_tpu() -> None:
    config = small_config()
    assert "inspect digits-cnn --speed" in in_one(lines_of(FITS, REFUSED))
    save_input_speed(config, [{"name": "first", "per_s": 100.0}, {"name": "later", "per_s": 2_000_000.0}])
    assert in_one(lines_of(FITS, REFUSED)).endswith("441,379/s")
    save_input_speed(config, [{"name": "first", "per_s": 1000.0}])
    assert in_one(lines_of(replace(FITS, hosts=4))).endswith("inspect digits-cnn --speed")


def test_a_refusal_says_what_where_and_what_to_write_once() -> None:
    reason = "The layer 'sided' (Branch) makes a Python decision."
    where = ("File own.py, line 6: `if x:`.",)
    finding = Finding(Severity.ERROR, reason, "sided", "Write keras.ops.where.", evidence=where)
    lines = lines_of(replace(REFUSED, reason=reason, findings=(finding,)), width=100)
    assert sum("makes a Python decision" in line for line in lines) == 1
    assert "change       File own.py, line 6: `if x:`. Write keras.ops.where." in lines
