"""What the pool makes of the verdicts of its workers, without a compiler."""

import ctypes.util
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.helpers import known, replace, small_config
from tests.made_verdicts import FITS, TOO_LARGE
from tpu_console.engine.messages import MessageReader
from tpu_console.engine.preflight.choice import TpuChoice, cached_verdict, compiler_versions, versions
from tpu_console.engine.preflight.compile import CompileTimes
from tpu_console.engine.preflight.result import BatchFigures, Outcome, Verdict
from tpu_console.engine.preflight.topologies import find_topology
from tpu_console.engine.preflight.worker_pool import Worker, progress_of, quick_allocator


def worker(verdict: Verdict | None, **changes: object) -> Worker:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.wait()
    assert process.stdout is not None
    choice = TpuChoice(small_config(accelerator="tpu", **changes), find_topology("v5e-8"))
    return Worker(0, choice, process, MessageReader(process.stdout), verdict=verdict)


@dataclass(frozen=True)
class Lowered:
    lines: int
    grouped: int = 0

    def as_text(self, dialect: str = "") -> str:
        return "feature_group_count=8 " * self.grouped if dialect else "line\n" * self.lines


def test_the_expected_time_grows_with_the_step_and_its_grouped_convolutions() -> None:
    assert CompileTimes().expected_s("training", Lowered(13_600)) == pytest.approx(60)
    assert CompileTimes().expected_s("training", Lowered(13_600, grouped=54)) > 500  # as those of ConvNeXtTiny


def test_what_took_longer_than_expected_corrects_the_next_expectation() -> None:
    times = CompileTimes()
    times.note("training", 590.0, times.expected_s("training", Lowered(13_600)))
    assert times.expected_s("training", Lowered(13_600)) == 590.0
    assert times.expected_s("validation", Lowered(1_360)) == pytest.approx(59)


def test_what_takes_longest_decides_how_long_all_will_take() -> None:
    one, other = worker(None), worker(None)
    one.phase_began, one.expected_s = 100.0, 60
    other.phase_began, other.expected_s = 110.0, 5
    assert progress_of([one, other], 112.0)[1:] == (2, 50)  # the first one ends 50 s after the second began
    other.expected_s = None
    assert progress_of([one, other], 112.0)[1:] == (2, None)


def _stopped(late: Worker, phase: str) -> Verdict:
    """Return the verdict of a worker that the limit ends."""
    late.process.returncode, late.phase = None, phase
    assert late.is_over(deadline=0.0, limit_s=60.0)
    return late.result()


def test_a_search_that_the_limit_ends_is_kept_and_can_go_on() -> None:
    searching = replace(
        FITS, largest_batch=256, tried=(BatchFigures(128, 10**9, 5e5), BatchFigures(256, 2 * 10**9, 6e5))
    )
    late = worker(searching)
    verdict = _stopped(late, "searching (256 fits)")
    assert (verdict.outcome, verdict.largest_batch) == (FITS.outcome, 256)
    assert "while searching (256 fits)" in verdict.findings[-1].text
    assert "goes on" in verdict.findings[-1].remedy
    config = late.choice.config
    assert cached_verdict(config, FITS.tpu, search=True) is None
    begun = known(cached_verdict(config, FITS.tpu))
    assert begun.tried == searching.tried
    assert begun.findings == searching.findings


def test_what_lacks_the_changes_that_make_it_fit_is_not_cached() -> None:
    late = worker(TOO_LARGE, batch_size=17)
    verdict = _stopped(late, "trying precision=mixed_bfloat16")
    assert (verdict.outcome, verdict.largest_batch) == (TOO_LARGE.outcome, TOO_LARGE.largest_batch)
    assert "--limit 120" in verdict.findings[-1].remedy
    assert cached_verdict(late.choice.config, TOO_LARGE.tpu) is None


def test_the_figures_from_shapes_stay_if_the_compiler_does_not_answer_in_time() -> None:
    by_shapes = replace(FITS, outcome=Outcome.UNKNOWN, reason="", findings=())
    verdict = _stopped(worker(by_shapes), "compiling")
    assert "60 s while compiling." in verdict.reason
    assert "--limit 120" in verdict.reason
    assert (verdict.memory, verdict.bound) == (FITS.memory, FITS.bound)


@pytest.mark.parametrize("made", [None, TOO_LARGE])
def test_a_crash_names_the_phase_the_signal_and_the_versions(made: Verdict | None) -> None:
    crashed = worker(made)
    crashed.process.returncode, crashed.phase = -11, "trying batch_size=8: compiling"
    assert crashed.is_over(deadline=1e18, limit_s=60.0)
    verdict = crashed.result()
    text = verdict.reason if made is None else verdict.findings[-1].text
    assert f"crashed while {crashed.phase} (" in text
    assert "SIGSEGV" in text
    assert compiler_versions() in text
    assert all(f"{name} {versions()[name]}" in text for name in ("jax", "libtpu") if name in versions())


@pytest.mark.skipif(ctypes.util.find_library("jemalloc") is None, reason="libjemalloc2 is not installed")
def test_the_compiler_uses_jemalloc_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    command = [sys.executable, "-S", "-c", "print(open('/proc/self/maps').read())"]
    environment = os.environ | quick_allocator.__wrapped__()
    assert "libjemalloc" in subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_libraries_that_the_user_preloads_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert quick_allocator.__wrapped__() == {}
