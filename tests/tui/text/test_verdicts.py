"""Verdicts in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.helpers import small_config
from tests.made_verdicts import FITS, REFUSED, TOO_LARGE, UNKNOWN
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.findings import Finding, Severity
from tpu_console.engine.preflight.likely import QuotaShare, kaggle_share
from tpu_console.engine.preflight.result import BatchFigures, Likely, Verdict, Waste
from tpu_console.tui.text.numbers import flop, gib
from tpu_console.tui.text.verdicts import (
    detail_lines,
    feeding_lines,
    largest_text,
    quota_cell,
    quota_text,
    verdict_lines,
)

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig

ALL = [FITS, replace(FITS, tpu="v3-8"), TOO_LARGE, REFUSED, UNKNOWN]


@pytest.mark.parametrize("width", [80, 120])
def test_every_line_fits_the_terminal(width: int) -> None:
    lines = verdict_lines(ALL, width)
    assert max(map(len, lines)) <= width
    assert max(map(len, detail_lines(small_config(), FITS, "x", width))) <= width
    head = lines[0].lower().split()
    assert head[:3] == ["tpu", "batch", "precision"]
    assert "verdict" in head


def test_facts_shared_by_several_choices_are_shown_once() -> None:
    text = " ".join(" ".join(verdict_lines(ALL, None)).split())
    assert text.count("Random rotation inside") == 1
    assert "v5e-8, 128 per replica, float32; v3-8, 128 per replica, float32: random_rotation: Random" in text
    assert text.count("conv2d ") == 1
    assert "dense_1" not in text  # padding of a small layer does not matter
    assert text.count("6,931 per replica fits") == 1


def test_a_failure_shows_the_reason() -> None:
    text = "\n".join(verdict_lines(ALL, None))
    assert "too large    v5e-8, 16,384 per replica, float32: A step needs 36.52 GiB" in text
    assert "RESOURCE_EXHAUSTED" not in text  # the reason has its figures
    assert "132% over" in text
    assert "refused      v3-8, 128 per replica, mixed_bfloat16: random_width" in text


def test_a_lower_bound_is_marked_as_one() -> None:
    text = "\n".join(verdict_lines([UNKNOWN], 80))
    assert ">0.31 GiB" in text
    assert "> means at least" in text
    assert "install jax[tpu]" in " ".join(text.split())
    assert "needs at least 0.31 GiB of 15.75 GiB" in text
    assert ">" not in "\n".join(verdict_lines([FITS], 80))


def test_many_layers_show_the_worst() -> None:
    wastes = tuple(replace(FITS.wastes[0], layer=f"conv{n}") for n in range(20))
    lines = verdict_lines([replace(FITS, wastes=wastes)], 80)
    assert [line for line in lines if line.startswith("conv0 ")]
    assert not [line for line in lines if line.startswith("conv9 ")]
    assert " 12 more " in lines[-1]


def test_the_largest_batch_comes_with_the_ones_worth_choosing() -> None:
    assert largest_text(FITS) == ""
    assert "batch of 1" in largest_text(replace(FITS, largest_batch=0))
    batches = (BatchFigures(1160, 15 * 2**30, 9000.4), BatchFigures(1152, 14 * 2**30, 9100.0))
    searched = replace(FITS, largest_batch=1160, batches=batches)
    assert largest_text(searched) == (
        "1,160 per replica fits, 9,280 in total; 1,160 needs 15.00 GiB, at best 9,000 examples/s; "
        "1,152 needs 14.00 GiB, at best 9,100 examples/s"
    )
    limited = largest_text(replace(searched, dataset_is_limit=True))
    assert "9,280" in limited
    assert "the dataset" in limited


def test_a_quota_is_shown_if_it_is_fixed() -> None:
    assert kaggle_share("v6e-1", 3600.0) is None
    assert kaggle_share("v5e-8", None) is None
    share = kaggle_share("v5e-8", 36_000.0)
    assert share == QuotaShare(0.5, 36_000 / 32_400)
    long = likely(FITS, run_s=36_000.0)
    assert (quota_cell(long), quota_cell(likely(long, factor=1.0, most=2.0))) == ("≥ 50%", "50% – 100%")
    assert "2 sessions" in quota_text(long)
    assert quota_cell(likely(FITS, run_s=1.0)) == "<0.1%"
    assert quota_cell(replace(long, tpu="v6e-1")) is None


def likely(verdict: Verdict, factor: float = 1.0, most: float | None = None, run_s: float | None = None) -> Verdict:
    """A verdict whose steps take from `factor` to `most` times as long as at best."""
    assert verdict.bound is not None
    bound = replace(verdict.bound, run_s=run_s or verdict.bound.run_s)
    times = Likely(factor * bound.step_s, most and most * bound.step_s, "host" if factor > 1 else "device", "")
    return replace(verdict, bound=bound, likely=times)


def test_each_likely_figure_has_its_bound_beside_it() -> None:
    slow = likely(replace(FITS, tpu="v3-8"), factor=10.0)
    (row,) = [line for line in verdict_lines([FITS, slow], None) if line.startswith("v3-8") and "host" in line]
    for cell in ("≥ 3m 43s (22.3 s)", "≥ 1.11 s (0.11 s)", "≥ 23.2 ms (2.32 ms)", "≤ 44,138 (441,379)"):
        assert cell in row
    ranged = likely(FITS, factor=2.0, most=4.0)
    assert ranged.expected(10.0) == (20.0, 40.0)
    (row,) = [line for line in verdict_lines([ranged], None) if "1m" in line and line.startswith("v5e-8")]
    assert "44.6 s – 1m 29s (22.3 s)" in row
    assert "110,345 – 220,690 (441,379)" in row
    names = [line.split()[0] for line in verdict_lines([slow], 80) if line.split()]
    assert names.index("likely") < names.index("at") < names.index("memory")  # before what it follows from


def test_the_same_padding_is_the_same_figure_in_every_layer() -> None:
    wide = Waste("conv2d", "features", 64, 128, 0.12, 4.1e10, 128)
    narrow = replace(wide, layer="dense", share=0.25)
    lines = [line.split() for line in verdict_lines([replace(FITS, wastes=(wide, narrow))], 80)]
    assert [line[4:6] for line in lines if line and line[0] in ("conv2d", "dense")] == [["50%", "8%"], ["50%", "17%"]]


def feeding(config: RunConfig, verdict: Verdict) -> str:
    return " ".join(" ".join(feeding_lines(config, [verdict, REFUSED], "digits-cnn", None)).split())


def test_the_input_is_set_against_the_tpu() -> None:
    config = small_config()
    assert "inspect digits-cnn --speed" in feeding(config, FITS)
    save_input_speed(config, [{"name": "first", "per_s": 100.0}, {"name": "later", "per_s": 2_000_000.0}])
    assert "is enough" in feeding(config, FITS)
    assert feeding(config, FITS).endswith("441,379/s")
    save_input_speed(config, [{"name": "first", "per_s": 1000.0}])
    starved = feeding(config, replace(FITS, hosts=4))
    assert "each of 4 hosts" in starved
    assert starved.endswith("inspect digits-cnn --speed")


def test_sizes_and_spans_keep_three_digits() -> None:
    assert [gib(count) for count in (31_797_248, 0.31 * 2**30, 15.75 * 2**30)] == ["30.3 MiB", "0.31 GiB", "15.75 GiB"]


@pytest.mark.parametrize(("count", "text"), [(12, "12 FLOP"), (61.4e9, "61.4 GFLOP"), (1.4424e12, "1.44 TFLOP")])
def test_operations_are_written_with_three_digits(count: float, text: str) -> None:
    assert flop(count) == text


def test_a_refusal_says_what_where_and_what_to_write_once() -> None:
    reason = "The layer 'sided' (Branch) makes a Python decision."
    where = ("File own.py, line 6: `if x:`.",)
    finding = Finding(Severity.ERROR, reason, "sided", "Write keras.ops.where.", evidence=where)
    lines = verdict_lines([replace(REFUSED, reason=reason, findings=(finding,))], 100)
    assert sum("makes a Python decision" in line for line in lines) == 1
    assert "change       File own.py, line 6: `if x:`. Write keras.ops.where." in lines
