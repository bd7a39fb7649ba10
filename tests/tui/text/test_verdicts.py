"""Verdicts in words; most of them are recorded in `tests/record/texts/verdicts.txt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers import replace, small_config
from tests.made_verdicts import ALL, FITS, REFUSED, likely
from tests.record.shown import same_text, verdict_texts
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.preflight.likely import QuotaShare, kaggle_share
from tpu_console.tui.text.verdicts import detail_lines, quota_cell, verdict_lines

if TYPE_CHECKING:
    from tpu_console.engine.preflight.result import Verdict


def lines_of(*verdicts: Verdict, width: int | None = None) -> list[str]:
    return verdict_lines(small_config(), verdicts, "digits-cnn", width)


def test_verdicts_are_written_as_recorded() -> None:
    same_text("verdicts.txt", verdict_texts())


@pytest.mark.parametrize("width", [80, 120])
def test_every_line_fits_the_terminal(width: int) -> None:
    lines = [*lines_of(*ALL, width=width), *detail_lines(small_config(), FITS, "x", width)]
    assert max(map(len, lines)) <= width
    assert {"TPU", "Batch", "Precision", "Verdict"} <= {*lines[0].split()}


def test_a_quota_is_shown_if_it_is_fixed() -> None:
    assert kaggle_share("v6e-1", 3600.0) is None
    assert kaggle_share("v5e-8", None) is None
    assert kaggle_share("v5e-8", 36_000.0) == QuotaShare(0.5, 36_000 / 32_400)
    long = likely(FITS, run_s=36_000.0)
    assert (quota_cell(long), quota_cell(likely(long, most=2.0))) == ("≥ 50.00%", "50.00% – 100.00%")
    assert quota_cell(replace(long, tpu="v6e-1")) is None
    assert likely(FITS, factor=2.0, most=4.0).expected(10.0) == (20.0, 40.0)


def test_the_input_is_set_against_the_tpu() -> None:
    def last_words(*verdicts: Verdict) -> list[str]:
        return " ".join(lines_of(*verdicts)).split()[-2:]

    assert last_words(FITS, REFUSED) == ["digits-cnn", "--speed"]
    save_input_speed(small_config(), [{"name": "first", "per_s": 100.0}, {"name": "later", "per_s": 2_000_000.0}])
    assert last_words(FITS, REFUSED) == ["to", "441,379/s"]
    save_input_speed(small_config(), [{"name": "first", "per_s": 1000.0}])
    assert last_words(replace(FITS, hosts=4)) == ["digits-cnn", "--speed"]
