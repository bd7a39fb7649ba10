"""What the pool makes of the verdicts of its workers, without a compiler."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.helpers import small_config
from tests.made_verdicts import FITS, REFUSED, TOO_LARGE
from tpu_console.engine.findings import Finding, Severity
from tpu_console.engine.messages import MessageReader
from tpu_console.engine.preflight.choices import Choice
from tpu_console.engine.preflight.compile_time import expected_seconds, save_compile_time
from tpu_console.engine.preflight.compiler_environment import quick_allocator
from tpu_console.engine.preflight.topologies import find_topology
from tpu_console.engine.preflight.worker_pool import (
    _after_trial,
    _is_over,
    _result,
    _should_try_tensorflow,
    _Worker,
)

if TYPE_CHECKING:
    from tpu_console.engine.preflight.result import Verdict

FLOW = replace(
    REFUSED, findings=(Finding(Severity.ERROR, "It calls TensorFlow.", "flow", "Use keras.ops.", "backend"),)
)


def worker(verdict: Verdict, **changes: object) -> _Worker:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.wait()
    assert process.stdout is not None
    choice = Choice(small_config(accelerator="tpu", **changes), find_topology("v5e-8"))
    return _Worker(0, choice, process, MessageReader(process.stdout), verdict=verdict)


@pytest.mark.parametrize(
    ("on_tensorflow", "text"),
    [
        (FITS, "Or set backend=tensorflow, with which it compiles and fits"),
        (TOO_LARGE, "needs more memory than a device has"),
        (REFUSED, "With backend=tensorflow it does not compile either."),
    ],
)
def test_another_backend_is_only_advised_once_it_was_tried(on_tensorflow: Verdict, text: str) -> None:
    assert _should_try_tensorflow(worker(FLOW))
    verdict = _after_trial(FLOW, worker(on_tensorflow))
    assert text in verdict.findings[0].remedy
    assert verdict.findings[0].remedy.startswith("Use keras.ops.")


def test_other_refusals_and_runs_on_tensorflow_are_not_tried_again() -> None:
    assert not _should_try_tensorflow(worker(REFUSED))
    assert not _should_try_tensorflow(worker(FITS))
    assert not _should_try_tensorflow(worker(FLOW, backend="tensorflow"))


def test_the_expected_time_comes_from_similar_compiles_on_this_machine() -> None:
    assert expected_seconds(13_600) == pytest.approx(60)
    for lines, seconds in ((1_000, 2.0), (1_200, 3.0), (40_000, 400.0)):
        save_compile_time(lines, seconds)
    assert expected_seconds(2_000) == pytest.approx(2_000 * (0.002 + 0.0025) / 2)
    assert expected_seconds(60_000) == pytest.approx(600)


def test_a_verdict_is_kept_if_only_the_search_was_not_done_in_time() -> None:
    late = worker(TOO_LARGE)
    late.process.returncode = None  # as if it were still searching
    late.phase = "searching the largest batch"
    assert _is_over(late, deadline=0.0, limit_s=60.0)
    verdict = _result(late)
    assert (verdict.outcome, late.is_late) == (TOO_LARGE.outcome, True)
    assert verdict.findings[-1].text == "Stopped at the limit of 60 s while searching the largest batch."


def test_a_crash_after_the_verdict_is_named_beside_it() -> None:
    crashed = worker(TOO_LARGE)
    crashed.process.returncode, crashed.phase = -11, "trying batch_size=8: compiling the training step"
    assert _is_over(crashed, deadline=1e18, limit_s=60.0)
    verdict = _result(crashed)
    assert (verdict.outcome, crashed.is_late) == (TOO_LARGE.outcome, True)
    assert verdict.findings[-1].text.startswith("The TPU compiler crashed while trying batch_size=8")


@pytest.mark.skipif(ctypes.util.find_library("jemalloc") is None, reason="libjemalloc2 is not installed")
def test_the_compiler_uses_jemalloc_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    command = [sys.executable, "-S", "-c", "print(open('/proc/self/maps').read())"]
    environment = os.environ | quick_allocator.__wrapped__()
    assert "libjemalloc" in subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_libraries_that_the_user_preloads_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert quick_allocator.__wrapped__() == {}
