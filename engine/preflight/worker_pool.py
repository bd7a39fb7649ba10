"""Checks for the compiler, and compiles choices in worker processes, several in parallel if the machine allows it.

Such a process is `python -P -m tpu_console.engine.preflight.worker_pool`. A line of JSON on standard input names the
choice (``config``, ``tpu``, ``search``, ``advise``, ``begun``). The process writes the messages of `engine.messages` to
standard output: a ``progress`` for each phase, and the verdict as the ``result``, again whenever there is more in it. A
crash of the compiler ends this process and nothing else. The process also ends when its standard input is closed, so
that it never outlives the console.
"""

import ctypes.util
import json
import math
import os
import platform
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import IO, Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from .. import messages
from ..accelerators.backend import importing, is_installed
from ..config.catalog import is_user_reference
from ..config.reading import parse_config
from ..data.kinds.kind import UnknownShapesError
from ..data.places import is_remote
from ..errors import ConsoleError, Finding, Severity
from ..machine.environment import free_memory_bytes, usable_cores
from ..machine.install import JAX_ON_TPU, install_line
from ..storage.paths import runs_folder, user_path
from .choice import TpuChoice, batch_of, cached_verdict, compiler_versions, save_verdict
from .result import Outcome, Verdict, from_dict
from .topologies import find_topology

LIMIT_S = 1800.0
"""Seconds that a choice may take: compiling the largest models of `keras.applications` takes ten minutes on two cores
that do nothing else."""

_USUAL = 2.5e9  # bytes that compiling a typical model needs; it decides how many are compiled in parallel
_POLL_S = 0.5

PREFLIGHT = {
    "KERAS_BACKEND": "jax",
    # Only the compiler is needed: another process may be using the devices, if there are any.
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    # Off Google Cloud libtpu would wait for a metadata server that does not exist.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # Otherwise only one process at a time may load libtpu, to protect a TPU that is not used here.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""The variables of a worker process for a step on JAX, by name."""


class Worker(Struct):
    """A worker process, the choice that it compiles, and what it has reported."""

    number: int
    choice: TpuChoice
    process: subprocess.Popen[bytes]
    reader: messages.MessageReader
    phase: str = "starting"
    phase_began: float = field(default_factory=time.monotonic)
    expected_s: int | None = None  # how long the phase will probably take; None if unknown
    is_cut_short: bool = False  # whether the limit or a crash ended it
    verdict: Verdict | None = None
    error: ConsoleError | None = None

    def read(self) -> None:
        """Wait for what the process reports, or else for its end."""
        reported = self.reader.read()
        if reported is None:
            self.process.wait()
        for message in reported or ():
            match message.pop("kind"):
                case "progress":
                    self.phase, self.phase_began = message["what"], time.monotonic()
                    self.expected_s = message["total"]
                case "result":
                    self.verdict = from_dict(message)
                case "error":
                    self.error = messages.error_of(message, _log())

    def is_over(self, deadline: float, limit_s: float) -> bool:
        """Return whether the process has ended; ends it at the deadline, and says what a crash was."""
        if (code := self.process.returncode) is not None:
            if code != 0 and self.error is None:
                crash = f"The TPU compiler crashed while {self.phase} ({compiler_versions()})."
                remedy = f"Other versions may not, or another TPU. Its log: {_log()}"
                self._cut_short(f"{crash} {messages.exit_cause(code)}", remedy)
            return True
        if time.monotonic() < deadline:
            return False
        self.end()
        self.error = None
        is_begun = self.verdict is not None and self.verdict.outcome is Outcome.FITS
        more = "The same command with --search goes on from there." if is_begun else _more_time(limit_s)
        self._cut_short(f"Stopped at the limit of {limit_s:,.0f} s while {self.phase}.", more)
        return True

    def _cut_short(self, text: str, remedy: str) -> None:
        """Say in the verdict what ended the process, and cache what a later search can go on from."""
        verdict = self.verdict or self.choice.undecided()
        self.is_cut_short = True
        if verdict.outcome is Outcome.UNKNOWN:
            self.verdict = replace(verdict, reason=f"{text} {remedy}")
            return
        if verdict.outcome is Outcome.FITS:  # others lack the changes that may make them fit
            save_verdict(self.choice.config, verdict)
        self.verdict = replace(verdict, findings=(*verdict.findings, Finding(Severity.INFO, text, remedy=remedy)))

    def result(self) -> Verdict:
        """Return the verdict; raises the error that the process reported."""
        if self.error is not None:
            raise self.error
        return self.verdict or self.choice.undecided("The TPU compiler ended without a verdict.")

    def end(self) -> None:
        """End the process, if it still runs, and close its streams."""
        self.process.kill()
        with suppress(BrokenPipeError), self.process:  # waits for its end, and closes its streams
            pass


def check_compiler() -> None:
    """Raise `ConsoleError` if the TPU compiler is not installed, or does not exist for this machine; loads nothing."""
    if not sys.platform.startswith("linux") or platform.machine() not in {"x86_64", "AMD64"}:
        raise ConsoleError(
            f"There is no TPU compiler for {platform.system()} on {platform.machine()}: libtpu needs Linux on x86-64.",
            remedy="Run the preflight on such a machine, for example on Colab, Kaggle or a TPU VM.",
        )
    missing = [name for name in ("jax", "libtpu") if not is_installed(name)]
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise ConsoleError(
            f"The TPU compiler is not installed: {' and '.join(missing)} {verb} missing.",
            remedy=f"To install it here: {install_line(JAX_ON_TPU)}",
        )


def reach_verdicts(
    choices: Sequence[TpuChoice],
    report: Callable[[str, int, int | None], None],
    *,
    search: bool = False,
    advise: bool = True,
    use_cache: bool = True,
    limit_s: float | None = None,
) -> list[Verdict]:
    """Return the verdicts on choices, in their order.

    With `advise`, changes that may make a step fit are compiled too. `report` is called about twice per second with
    what is being done, for how many seconds, and how many that will probably take, if known. When the limit for all
    choices is over, those that are not done are undecided; it is `LIMIT_S` for each by default. Raises `ConsoleError`
    if the compiler cannot be started.
    """
    known = (_known(choice, search=search, use_cache=use_cache) for choice in choices)
    verdicts = {number: verdict for number, verdict in enumerate(known) if verdict is not None}
    waiting = [number for number in range(len(choices)) if number not in verdicts]
    working: list[Worker] = []
    limit_s = limit_s or LIMIT_S * max(1, len(waiting))
    deadline = time.monotonic() + limit_s
    try:
        while waiting or working:
            # Compiling keeps one core busy.
            while waiting and len(working) < max(1, min(usable_cores(), len(working) + free_memory_bytes() // _USUAL)):
                number = waiting.pop(0)
                begun = cached_verdict(choices[number].config, choices[number].topology.name) if use_cache else None
                working.append(_start(number, choices[number], begun, search=search, advise=advise))
            workers = {worker.reader: worker for worker in working}
            for reader in select.select([*workers], [], [], _POLL_S)[0]:
                workers[reader].read()
            if working:
                report(*progress_of(working, time.monotonic()))
            if time.monotonic() >= deadline:
                text = f"Not started within the limit of {limit_s:,.0f} s. {_more_time(limit_s)}"
                verdicts |= {number: choices[number].undecided(text) for number in waiting}
                waiting = []
            for worker in [worker for worker in working if worker.is_over(deadline, limit_s)]:
                working.remove(worker)
                worker.end()
                verdict = verdicts[worker.number] = worker.result()
                if not worker.is_cut_short:
                    save_verdict(choices[worker.number].config, verdict, search=search)
    finally:
        for worker in working:
            worker.end()
    return [verdicts[number] for number in range(len(choices))]


def _known(choice: TpuChoice, *, search: bool, use_cache: bool) -> Verdict | None:
    """Return the cached verdict, or an undecided one if something must be loaded first; None if it must be compiled."""
    config, path = choice.config, str(choice.config.model_options.get("path", ""))
    if is_user_reference(config.dataset):
        try:
            batch_of(config)
        except UnknownShapesError as error:
            return choice.undecided(str(error))
    if config.model == "hub" and is_remote(path):
        return choice.undecided(
            f"The SavedModel {path} has to be downloaded first, which a preflight does not do. "
            "Download and unpack it, and set model_options.path to its folder."
        )
    return cached_verdict(config, choice.topology.name, search=search) if use_cache else None


def _start(number: int, choice: TpuChoice, begun: Verdict | None, **asked: bool) -> Worker:
    try:
        process = messages.start_module(
            "engine.preflight.worker_pool",
            start_new_session=False,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | quick_allocator() | PREFLIGHT | {"KERAS_BACKEND": choice.config.tpu_backend},
            bufsize=0,
        )
    except OSError as error:
        raise ConsoleError(f"The process of the TPU compiler cannot be started: {error.strerror}.") from error
    values = {
        "config": choice.config.model_dump(mode="json"),
        "tpu": choice.topology.name,
        "begun": None if begun is None else replace(begun, is_remembered=False).as_dict(),
    }
    with suppress(BrokenPipeError):  # it has ended already, which is noticed soon
        cast("IO[bytes]", process.stdin).write(json.dumps(values | asked).encode() + b"\n")
    return Worker(number, choice, process, messages.MessageReader(process.stdout))


@cache
def quick_allocator() -> dict[str, str]:
    """Return the variable that makes a process allocate memory with jemalloc; empty if it is not installed.

    With the C library's own allocator, libtpu spends up to half of its time on allocation. tcmalloc is not used: its
    libunwind can end a process that raises a C++ exception (taichi-dev/taichi#235).
    """
    if sys.platform != "linux" or "LD_PRELOAD" in os.environ:  # the user has chosen
        return {}
    found = ctypes.util.find_library("jemalloc")
    return {"LD_PRELOAD": found} if found else {}


def _more_time(limit_s: float) -> str:
    return f"Give it more time, such as --limit {2 * limit_s:.0f}."


def _log() -> str:
    return user_path(runs_folder().parent / "preflight.log")


def progress_of(working: Sequence[Worker], now: float) -> tuple[str, int, int | None]:
    """Return what workers do, for how many seconds since the newest phase began, and how many that will take."""
    text = "; ".join(f"{worker.choice.label}: {worker.phase}" for worker in working)
    began = max(worker.phase_began for worker in working)
    ends = [worker.phase_began + worker.expected_s for worker in working if worker.expected_s is not None]
    return text, int(now - began), round(max(ends) - began) if len(ends) == len(working) else None


def main() -> int:
    """Compile the choice on standard input and report its verdict; return the exit code."""
    reporter = messages.standard_output_reporter()
    asked = json.loads(sys.stdin.readline())
    messages.end_with_parent()  # a compilation cannot be interrupted otherwise

    def report(phase: str, expected_s: float | None) -> None:
        reporter.progress(phase, 0, None if expected_s is None else math.ceil(expected_s), "seconds")

    def compile_choice() -> dict[str, Any]:
        report("loading Keras and JAX", None)
        choice = TpuChoice(parse_config(asked["config"]), find_topology(asked["tpu"]))
        with importing():
            from .verdict import reach_verdict

        begun = from_dict(asked["begun"]) if asked["begun"] else None
        asks = {"search": asked["search"], "advise": asked["advise"], "begun": begun}
        return reach_verdict(choice, report, lambda verdict: reporter.result(verdict.as_dict()), **asks).as_dict()

    return messages.report_result(reporter, "preflight", compile_choice)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # libtpu's clean-up can hang or crash if there is nothing to clean up.
    os._exit(code)
