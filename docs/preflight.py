"""Writes the verdicts on a few presets into ``docs/preflight.md``: ``make docs-preflight``, which takes minutes.

They come from `tpu-console preflight`, with the batch and precision of each preset.
"""

# ruff: noqa: INP001  a script, not a package
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tpu_console.engine.preflight.result import Verdict, from_dict
from tpu_console.engine.preflight.topologies import GENERATIONS
from tpu_console.tui.text.checks import finding_text
from tpu_console.tui.text.numbers import duration, gib

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE = Path(__file__).with_name("preflight.md")
PRESETS = ("cifar10-vgg-augmented", "nmt-transformer")
TPUS = ("v5e-8", "v3-8")
VERDICTS = "verdicts"
_HEADINGS = ("preset", "TPU", "batch", "verdict", "HBM peak", "step", "examples/s", "whole run")
_DERIVED = ("global_batch", "headroom", "kaggle", "input")


def verdicts_on(preset: str) -> list[Verdict]:
    """Return the verdicts on a preset, one per TPU.

    Raises:
        RuntimeError: There are none.
    """
    program = Path(sys.executable).parent / "tpu-console"
    command = [str(program), "preflight", preset, "--on", ",".join(TPUS), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(done.stdout or '{"verdicts": []}')["verdicts"]
    if not found:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode} and no verdict")
    return [from_dict({key: value for key, value in one.items() if key not in _DERIVED}) for one in found]


def section(presets: Sequence[tuple[str, Sequence[Verdict]]]) -> str:
    """Write the table of all verdicts, and the findings on each preset."""
    rows = [_row(preset, verdict) for preset, verdicts in presets for verdict in verdicts]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in (_HEADINGS, ["---"] * len(_HEADINGS), *rows))
    versions = next(verdict.versions for _, verdicts in presets for verdict in verdicts if verdict.versions)
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "tpu-console")
    notes = "".join(f"- `{preset}`: {text}\n" for preset, verdicts in presets for text in _notes(verdicts))
    return f"With {packages}; times are at best.\n\n{table}\n{notes}"


def hardware() -> str:
    """Write the figures of every generation."""
    rows = [
        "| TPU | TFLOP/s in bfloat16 | HBM, GB/s | to other chips, GB/s | HBM for a program |",
        "|---|---|---|---|---|",
    ]
    for one in GENERATIONS.values():
        speeds = (one.flops / 1e12, one.hbm / 1e9, one.link / 1e9)
        cells = [one.name, *(f"{speed:,.0f}" for speed in speeds), f"{one.usable_hbm:.2f} GiB"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _row(preset: str, verdict: Verdict) -> list[str]:
    memory, bound = verdict.memory, verdict.bound
    room = "–" if memory is None else f"{gib(memory.peak)} of {gib(memory.limit)}"
    pace = ["–"] * 3
    if bound is not None:
        pace = [f"{duration(bound.step_s)} ({bound.limited_by})", f"{bound.images_per_s:,.0f}", duration(bound.run_s)]
    batch = f"{verdict.replica_batch:,} × {verdict.devices}"
    return [f"`{preset}`", verdict.tpu, batch, verdict.outcome.value, room, *pace]


def _notes(verdicts: Sequence[Verdict]) -> Iterable[str]:
    """Write reasons of failures, warnings, and the layer with the most padding."""
    failed = [f"{verdict.tpu}: {verdict.reason}" for verdict in verdicts if verdict.bound is None]
    found = [
        finding_text(finding) for verdict in verdicts for finding in verdict.findings if finding.severity != "info"
    ]
    worst = next((verdict.wastes[0] for verdict in verdicts if verdict.wastes), None)
    padded = []
    if worst is not None:
        size = f"{worst.size:,} of its {worst.dimension} are computed as {worst.padded:,}"
        padded = [f"padding wastes most in `{worst.layer}`: {size}, {worst.share:.0%} of its work."]
    return dict.fromkeys([*failed, *found, *padded])


def filled(page: str, name: str, content: str) -> str:
    """Return the page with new content between the two marks of a name.

    Raises:
        ValueError: The page has no such marks.
    """
    begin, end = f"<!-- {name}: written by make docs-preflight -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        message = f"{PAGE} has no place for the {name}: {begin} … {end}"
        raise ValueError(message)
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"


def main() -> None:
    """Ask for the verdicts and write them into the page."""
    verdicts = section([(preset, verdicts_on(preset)) for preset in PRESETS])
    page = filled(PAGE.read_text(encoding="utf-8"), VERDICTS, verdicts)
    page = filled(page, "hardware", hardware())
    PAGE.write_text(page, encoding="utf-8")
    print(f"Written {PAGE}")


if __name__ == "__main__":
    main()
