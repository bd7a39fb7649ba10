"""From the start of the process to the first frame, beside a trivial Textual app and other programs."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bench import HERE, ROOT, wait_until
from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.bench.runs_list import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.bench import Bench

_MOST_S = 0.5
_TRIVIAL = b"A trivial app"
# A main field and the plan, which are drawn first, and a key of the form.
_FORM = (b"Learning rate", b"tpu-console run digits-cnn", b"Preflight")
_MODEL = b"model.keras"  # below the end of a run on its screen
# Programs with a first screen of their own, where they are installed: `.venv-peers/NAME` is an environment for each.
_PEERS = {"toolong": ("tl", str(ROOT / "README.md")), "harlequin": ("harlequin",)}
_PEER_TEXT = {"toolong": b"tpu-console", "harlequin": b"Data Catalog"}
_COMMANDS = {"--help": ("--help",), "runs": ("runs",), "show": ("show",)}
_COMPLETION = {"_TPU_CONSOLE_COMPLETE": "bash_complete", "COMP_WORDS": "tpu-console runs show ", "COMP_CWORD": "3"}
_MOST_OF_CLICK = 1.5


def measure(bench: Bench) -> Section:
    """Start each program in turn and watch for its first drawn text."""
    bench.output(bench.console("run", "digits-cnn", "--epochs", "3"))
    run_id = bench.runs[0].run_id.encode()
    peers = {name: command for name in _PEERS if (command := _peer(name)) is not None}
    with bench.open(bench.console()):  # keeps the plan for the next start
        wait_until((bench.folder / "home" / "cache" / "shown" / "form.json").is_file)
    figures: dict[str, list[float]] = {}
    for _ in bench.rounds(9, quick=3):
        for name, command in {
            "pass": bench.python("-c", "pass"),
            "textual": bench.python("-c", "import textual.app"),
        }.items():
            figures.setdefault(name, []).append(_seconds(bench, command))
        frames: dict[tuple[str, ...], list[float]] = {
            ("trivial",): _frames(bench, bench.python(HERE / "trivial_app.py"), _TRIVIAL),
            ("setup", "plan", "form"): _frames(bench, bench.console(), *_FORM),
            ("attach", "ended", "curves"): _frames(bench, bench.console("attach"), run_id, b"Finished", _MODEL),
            **{(name,): _frames(bench, command, _PEER_TEXT[name]) for name, command in peers.items()},
        }
        for names, times in frames.items():
            for name, seconds in zip(names, times, strict=True):
                figures.setdefault(name, []).append(seconds)
        click = bench.python("-c", "import click")
        figures.setdefault("click", []).append(cpu_seconds(click, bench.environment))
        for name, arguments in _COMMANDS.items():
            figures.setdefault(name, []).append(cpu_seconds(bench.console(*arguments), bench.environment))
        completing = cpu_seconds(bench.console(), bench.environment | _COMPLETION)
        figures.setdefault("completion", []).append(completing)
    return _section(figures)


def _section(figures: dict[str, list[float]]) -> Section:
    middle = {name: median(values) for name, values in figures.items()}
    trivial = figures["trivial"]
    return Section(
        "First frame",
        "Seconds from the start of the process to the first text on the screen, in a pseudo-terminal of 120×40, and in "
        "times of a Textual app that shows one line. The last rows are processor time in times of `python -c 'import "
        "click'`.",
        (
            limit_row("`tpu-console`: first frame, with the main fields", middle["setup"], _MOST_S),
            limit_row("`tpu-console`: plan, from the second start on", middle["plan"]),
            limit_row("`tpu-console`: form that takes keys", middle["form"]),
            limit_row("`tpu-console attach`: first frame", middle["attach"], _MOST_S),
            limit_row("`tpu-console attach`: how a finished run ended", middle["ended"]),
            limit_row("`tpu-console attach`: its curves", middle["curves"]),
            limit_row("a trivial Textual app", middle["trivial"]),
            limit_row("`python -c pass`", middle["pass"]),
            limit_row("`python -c 'import textual.app'`", middle["textual"]),
            ratio_row("`tpu-console`: first frame ÷ trivial app", figures["setup"], trivial, most=1.3),
            ratio_row(
                "`tpu-console`: plan, from the second start on ÷ trivial app", figures["plan"], trivial, most=2.0
            ),
            ratio_row("`tpu-console`: form that takes keys ÷ trivial app", figures["form"], trivial, most=2.0),
            ratio_row("`tpu-console attach`: first frame ÷ trivial app", figures["attach"], trivial, most=1.5),
            ratio_row(
                "`tpu-console attach`: how a finished run ended ÷ trivial app", figures["ended"], trivial, most=1.5
            ),
            ratio_row("`tpu-console attach`: its curves ÷ trivial app", figures["curves"], trivial),
            *(_peer_row(name, figures.get(name), trivial) for name in _PEERS),
            *(
                ratio_row(
                    f"`tpu-console {name}` ÷ `import click`", figures[name], figures["click"], most=_MOST_OF_CLICK
                )
                for name in _COMMANDS
            ),
            ratio_row(
                "completing a name ÷ `import click`", figures["completion"], figures["click"], most=_MOST_OF_CLICK
            ),
        ),
    )


def _peer(name: str) -> list[str] | None:
    program, *arguments = _PEERS[name]
    path = ROOT / ".venv-peers" / name / "bin" / program
    return [str(path), *arguments] if Path(path).is_file() else None


def _peer_row(name: str, ours: Sequence[float] | None, trivial: Sequence[float]) -> Row:
    if ours is None:
        return Row(f"{name} ÷ trivial app", f"not in `.venv-peers/{name}`")
    return ratio_row(f"{name} ÷ trivial app", ours, trivial)


def _seconds(bench: Bench, command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=bench.environment, check=True)
    return time.perf_counter() - began


def _frames(bench: Bench, command: Sequence[str], *texts: bytes) -> list[float]:
    with bench.open(command) as terminal:
        return [terminal.wait_for(text) - terminal.started_at for text in texts]
