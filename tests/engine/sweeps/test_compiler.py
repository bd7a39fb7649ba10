"""TPU columns: what the TPU compiler says about a combination, without a TPU."""

from __future__ import annotations

import psutil
import pytest

from tests.helpers import LIMIT_S, small_config, wait_until
from tpu_console.engine.preflight.result import Outcome, Verdict
from tpu_console.engine.sweeps.driver import drive
from tpu_console.engine.sweeps.folder import Definition, create_sweep, start_driver
from tpu_console.tui.following.sweep import SweepReader
from tpu_console.tui.following.sweep_tables import as_csv, as_text

pytest.importorskip("libtpu", reason="the extra [tpu] is not installed")
pytestmark = pytest.mark.slow


def test_a_tpu_is_a_column_of_bounds() -> None:
    sweep = create_sweep(Definition(config=small_config(), over=("accelerator=v5e-8", "batch_size=32")))
    drive(sweep)
    verdict = sweep.verdicts()[1]
    assert isinstance(verdict, Verdict)
    assert (verdict.tpu, verdict.replica_batch, verdict.outcome) == ("v5e-8", 32, Outcome.FITS)
    view = SweepReader(sweep).read()
    assert verdict.bound is not None
    limited = "bound by host"  # which takes longer to start so small a step than the TPU to do it
    assert (view.counts(), view.is_complete, sweep.runs()) == ({limited: 1}, True, {})
    text = "\n".join(as_text(view, 200))
    assert "v5e-8" in text
    assert "≤ " in text  # a bound, explained below the table
    assert "\n≤ " in text
    assert f",{limited}," in as_csv(view)


def test_the_compiler_ends_with_a_driver_that_is_killed() -> None:
    sweep = create_sweep(Definition(config=small_config(), over=("accelerator=v5e-8",)))
    driver = start_driver(sweep)
    process = psutil.Process(driver.pid)
    wait_until(lambda: sweep.compiling.exists() and process.children(), "the compiler", 2 * LIMIT_S)
    jobs = process.children(recursive=True)
    driver.kill()
    driver.wait(LIMIT_S)
    assert not psutil.wait_procs(jobs, LIMIT_S)[1]
    assert not sweep.verdicts()
    assert not sweep.is_driven
