"""From the start of the process to the first frame, beside a trivial Textual app and other programs."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bench import HERE, ROOT
from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.bench.runs_list import seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.bench import Bench

_MOST_S = 0.6
_TRIVIAL = b"A trivial app"
_FORM = (b"Learning rate", b"tpu-console run digits-cnn")  # a field, and the plan
_MODEL = b"model.keras"  # below the end of a run on its screen
# Programs with a first screen of their own, where they are installed: `.venv-peers/NAME` is an environment for each.
_PEERS = {"toolong": ("tl", str(ROOT / "README.md")), "harlequin": ("harlequin",)}
_PEER_TEXT = {"toolong": b"tpu-console", "harlequin": b"Data Catalog"}
_COMMANDS = {"--help": ("--help",), "runs": ("runs",), "show": ("show",)}
_COMPLETION = {"_TPU_CONSOLE_COMPLETE": "bash_complete", "COMP_WORDS": "tpu-console show ", "COMP_CWORD": "2"}


def measure(bench: Bench) -> Section:
    """Start each program in turn and watch for its first drawn text."""
    bench.output(bench.console("run", "digits-cnn", "--epochs", "3"))
    peers = {name: command for name in _PEERS if (command := _peer(name)) is not None}
    figures: dict[str, list[float]] = {}
    for _ in bench.rounds(9, quick=3):
        for name, command in {
            "pass": bench.python("-c", "pass"),
            "textual": bench.python("-c", "import textual.app"),
        }.items():
            figures.setdefault(name, []).append(seconds_of(command, bench.environment))
        frames: dict[tuple[str, ...], list[float]] = {
            ("trivial",): _frames(bench, bench.python(HERE / "trivial_app.py"), _TRIVIAL),
            ("form", "plan"): _frames(bench, bench.console(), *_FORM),
            ("attach",): _frames(bench, bench.console("attach"), _MODEL),
            **{(name,): _frames(bench, command, _PEER_TEXT[name]) for name, command in peers.items()},
        }
        for names, times in frames.items():
            for name, seconds in zip(names, times, strict=True):
                figures.setdefault(name, []).append(seconds)
        for name, arguments in _COMMANDS.items():
            figures.setdefault(name, []).append(seconds_of(bench.console(*arguments), bench.environment))
        figures.setdefault("completion", []).append(seconds_of(bench.console(), bench.environment | _COMPLETION))
    return _section(figures)


def _section(figures: dict[str, list[float]]) -> Section:
    middle = {name: median(values) for name, values in figures.items()}
    trivial = figures["trivial"]
    return Section(
        "First frame",
        "Seconds from the start of the process to the first text on the screen, in a pseudo-terminal of 120×40, and as "
        "a multiple of a Textual app that shows one line. The last rows: to the end of the process.",
        (
            limit_row("`tpu-console`: form that takes keys", middle["form"], _MOST_S),
            limit_row("`tpu-console`: plan", middle["plan"]),
            limit_row("`tpu-console attach`: a finished run", middle["attach"]),
            limit_row("a trivial Textual app", middle["trivial"]),
            limit_row("`python -c pass`", middle["pass"]),
            limit_row("`python -c 'import textual.app'`", middle["textual"]),
            ratio_row("`tpu-console`: form that takes keys ÷ trivial app", figures["form"], trivial, most=3.0),
            ratio_row("`tpu-console attach`: a finished run ÷ trivial app", figures["attach"], trivial),
            *(_peer_row(name, figures.get(name), trivial) for name in _PEERS),
            *(limit_row(f"`tpu-console {name}`", middle[name], _MOST_S) for name in _COMMANDS),
            limit_row("completing a name", middle["completion"], _MOST_S),
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


def _frames(bench: Bench, command: Sequence[str], *texts: bytes) -> list[float]:
    with bench.open(command) as terminal:
        return [terminal.wait_for(text) - terminal.started_at for text in texts]
