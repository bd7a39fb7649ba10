"""Verdicts in words; most of them are recorded in `tests/record/texts/checks.txt`."""

from pathlib import Path

from tests.helpers import replace, small_config
from tests.made_verdicts import FITS, GIB, REFUSED, TOO_LARGE, UNKNOWN
from tests.record import of_each, same_text
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.errors import Finding, Severity
from tpu_console.engine.preflight.result import BatchFigures, Likely, Verdict, Waste
from tpu_console.tui.text.checks import detail_lines, quota_cell, verdict_lines

FULL = int(15.75 * GIB)
ALL = [FITS, replace(FITS, tpu="v3-8"), TOO_LARGE, REFUSED, UNKNOWN]


def lines_of(*verdicts: Verdict, width: int | None = None) -> list[str]:
    return verdict_lines(small_config(), verdicts, "digits-cnn", width)


def likely(verdict: Verdict, factor: float = 1.0, most: float | None = None, run_s: float | None = None) -> Verdict:
    """A verdict whose steps take from `factor` to `most` times as long as at best."""
    assert verdict.bound is not None
    bound = replace(verdict.bound, run_s=run_s or verdict.bound.run_s)
    times = Likely(factor * bound.step_s, most and most * bound.step_s, "host" if factor > 1 else "device", "")
    return replace(verdict, bound=bound, likely=times)


_BRANCH = "The layer 'sided' (Branch) makes a Python decision."
_WHERE = Finding(
    Severity.ERROR, _BRANCH, "sided", "Write keras.ops.where.", evidence=("File own.py, line 6: `if x:`.",)
)
_WIDE = Waste("conv2d", "features", 64, 128, 0.12, 4.1e10, 128)
_SEARCHED = replace(
    FITS,
    largest_batch=1160,
    batches=(BatchFigures(1160, 15 * GIB, 9000.4), BatchFigures(1152, 14 * GIB, 9100.0)),
    dataset_is_limit=True,
)
CASES: dict[str, list[Verdict]] = {
    "several choices": ALL,
    "a lower bound alone": [UNKNOWN],
    "likely times": [FITS, likely(replace(FITS, tpu="v3-8"), 10.0), likely(replace(FITS, tpu="v2-8"), 2.0, 4.0)],
    "a long run alone": [likely(FITS, run_s=36_000.0)],
    "searched batches": [_SEARCHED, replace(_SEARCHED, largest_batch=0)],
    "a full memory": [
        replace(one, memory=replace(FITS.memory, peak=FULL, limit=FULL, is_lower_bound=is_least))
        for one, is_least in ((FITS, False), (UNKNOWN, True))
    ],
    "padding": [replace(FITS, wastes=(_WIDE, *(replace(_WIDE, layer=f"dense{n}", share=0.25) for n in range(9))))],
    "a layer that makes a decision": [replace(REFUSED, reason=_BRANCH, findings=(_WHERE,))],
}


def texts(_folder: Path) -> str:
    written = {name: lines_of(*verdicts) for name, verdicts in CASES.items()}
    details = detail_lines(small_config(), FITS, "digits-cnn", 80)
    return of_each({**written, "several choices, 80 columns": lines_of(*ALL, width=80), "details": details})


def test_verdicts_are_written_as_recorded(tmp_path: Path) -> None:
    same_text("checks.txt", texts(tmp_path))


def test_every_line_fits_the_terminal() -> None:
    for width in (80, 120):
        lines = [*lines_of(*ALL, width=width), *detail_lines(small_config(), FITS, "x", width)]
        assert max(map(len, lines)) <= width
        assert {"TPU", "Batch", "Precision", "Verdict"} <= {*lines[0].split()}


def test_a_quota_is_shown_if_it_is_fixed() -> None:
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
