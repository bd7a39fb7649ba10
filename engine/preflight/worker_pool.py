"""Has choices judged by worker processes, several at a time where cores and memory allow it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..data.places import is_remote
from ..errors import ConsoleError
from ..storage.paths import runs_folder, user_path
from .cache import cached_verdict, save_verdict, versions
from .compiler_environment import compiler_environment_of
from .memory_room import USUAL, free_bytes
from .result import Outcome, Verdict, from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..config.run_config import RunConfig
    from .cases import Case

LIMIT_S = 900.0
"""Seconds that one phase may take: compiling the largest models of `keras.applications` takes some minutes."""

_POLL_S = 0.5
_READ_BYTES = 1 << 16


@dataclass(slots=True)
class _Worker:
    """A worker process that judges a case."""

    number: int
    case: Case
    process: subprocess.Popen[bytes]
    phase: str = "starting"
    phase_began: float = field(default_factory=time.monotonic)
    rest: bytes = b""
    verdict: Verdict | None = None
    error: ConsoleError | None = None


def judge_all(
    cases: Sequence[Case],
    tell: Callable[[str, int], None],
    *,
    search: bool = False,
    use_cache: bool = True,
    limit_s: float = LIMIT_S,
) -> list[Verdict]:
    """Judge all cases and return the verdicts in their order.

    Args:
        cases: What to judge.
        tell: Called about twice a second with what is being done and for how many seconds.
        search: Whether to look for the largest batches that fit.
        use_cache: Whether verdicts that were kept are taken.
        limit_s: Seconds that one phase may take before its process is ended.

    Raises:
        ConsoleError: The compiler cannot be started.
    """
    verdicts: dict[int, Verdict] = {}
    for number, case in enumerate(cases):
        if reason := _out_of_reach(case.config):
            verdicts[number] = _unknown(case, reason)
        elif use_cache and (kept := cached_verdict(case.config, case.topology.name, search=search)):
            verdicts[number] = kept
    waiting = [number for number in range(len(cases)) if number not in verdicts]
    working: list[_Worker] = []
    try:
        while waiting or working:
            while waiting and len(working) < _at_once(len(working)):
                number = waiting.pop(0)
                working.append(_start(number, cases[number], search=search))
            _listen(working)
            _tell(working, tell)
            for worker in [worker for worker in working if _is_over(worker, limit_s)]:
                working.remove(worker)
                verdicts[worker.number] = _result(worker)
                save_verdict(worker.case.config, verdicts[worker.number], search=search)
    finally:
        for worker in working:
            _end(worker.process)
    return [verdicts[number] for number in range(len(cases))]


def _out_of_reach(config: RunConfig) -> str:
    """Say why a model cannot be built without fetching anything; empty when it can."""
    path = str(config.model_options.get("path", ""))
    if config.model != "hub" or not is_remote(path):
        return ""
    return (
        f"What the SavedModel {path} computes is known only when it was fetched, which a preflight does not do. "
        "Download and unpack it, and set model_options.path to its folder."
    )


def _at_once(working: int) -> int:
    """Return how many workers may be there at the same time; compiling keeps one core busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, working + int(free_bytes() // USUAL)))


def _start(number: int, case: Case, *, search: bool) -> _Worker:
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tpu_console.engine.preflight.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | compiler_environment_of(case.config),
            bufsize=0,
        )
    except OSError as error:
        raise ConsoleError(f"The process of the TPU compiler cannot be started: {error.strerror}.") from error
    asked = {"config": case.config.model_dump(mode="json"), "tpu": case.topology.name, "search": search}
    assert process.stdin is not None  # noqa: S101  it was asked for
    with suppress(BrokenPipeError):  # it ended already, which is noticed soon
        process.stdin.write(json.dumps(asked).encode() + b"\n")
    return _Worker(number, case, process)


def _listen(working: Sequence[_Worker]) -> None:
    """Take in what the workers say; wait a moment where they say nothing."""
    streams = {worker.process.stdout: worker for worker in working if worker.process.stdout is not None}
    for stream in select.select(list(streams), [], [], _POLL_S)[0]:
        worker = streams[stream]
        data = os.read(stream.fileno(), _READ_BYTES)
        *lines, worker.rest = (worker.rest + data).split(b"\n")
        for line in lines:
            _hear(worker, json.loads(line))
        if not data:
            worker.process.wait()


def _hear(worker: _Worker, values: dict[str, Any]) -> None:
    if "phase" in values:
        worker.phase, worker.phase_began = values["phase"], time.monotonic()
    elif "verdict" in values:
        worker.verdict = from_dict(values["verdict"])
    else:
        worker.error = ConsoleError(**values["error"])


def _is_over(worker: _Worker, limit_s: float) -> bool:
    if worker.process.returncode is not None:
        return True
    if time.monotonic() - worker.phase_began < limit_s:
        return False
    _end(worker.process)
    worker.error = None
    worker.verdict = _unknown(worker.case, f"{worker.phase.capitalize()} took longer than {limit_s:,.0f} s.")
    return True


def _result(worker: _Worker) -> Verdict:
    _close(worker.process)
    if worker.error is not None:
        raise worker.error
    if worker.verdict is not None:
        return worker.verdict
    log = user_path(runs_folder().parent / "preflight.log")
    reason = f"The TPU compiler crashed while {worker.phase}: {_cause(worker.process.returncode)}. Its log: {log}"
    return _unknown(worker.case, reason)


def _cause(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was ended by force, as systems do when memory runs out"
    return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"its exit code was {code}"


def _unknown(case: Case, reason: str) -> Verdict:
    topology, config = case.topology, case.config
    return Verdict(
        topology.name,
        topology.devices,
        topology.hosts,
        config.batch_size,
        config.precision,
        Outcome.UNKNOWN,
        reason,
        versions=dict(versions()),
    )


def _tell(working: Sequence[_Worker], tell: Callable[[str, int], None]) -> None:
    if working:
        now = time.monotonic()
        text = "; ".join(f"{worker.case.label}: {worker.phase}" for worker in working)
        tell(text, int(now - max(worker.phase_began for worker in working)))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
