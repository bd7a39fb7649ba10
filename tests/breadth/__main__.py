"""Compares verdicts with direct compiles: ``make preflight-breadth PART=2/20``, or ``NAMES=ResNet50,lstm``.

Each model takes some minutes, so the work can be done in parts. Each result is kept in ``docs/preflight-breadth.json``
as soon as it is there, and the table in ``docs/preflight.md`` is written from them. A model that is kept already is
compared again only with ``--again``.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.breadth.models import APPLICATIONS, OTHERS, shape_of
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.cached_facts import FunctionRecord, save_function_record
from tpu_console.engine.data.examples import Input
from tpu_console.engine.preflight.choice import TpuChoice
from tpu_console.engine.preflight.result import Outcome
from tpu_console.engine.preflight.topologies import find_topology
from tpu_console.engine.preflight.worker_pool import PREFLIGHT, reach_verdicts
from tpu_console.engine.storage.paths import HOME_VARIABLE

ROOT = Path(__file__).parents[2]
PAGE, KEPT = ROOT / "docs" / "preflight.md", ROOT / "docs" / "preflight-breadth.json"
BEGIN, END = "<!-- breadth: written by make preflight-breadth -->", "<!-- end of breadth -->"
BATCH = 8
LIMIT_S = 4 * 3600.0
MODELS = Path(__file__).with_name("models.py")


class UndecidedError(Exception):
    """The preflight could not tell."""


def compared(name: str) -> dict[str, Any]:
    """Return what the preflight and a direct compile say of a model on v5e-8."""
    values = {"model": f"{MODELS}:build", "model_options": {"name": name}, "batch_size": BATCH}
    record = FunctionRecord((Input(shape_of(name)), Input((), "int32")), (), 10, None, 0, "2026-11-22")
    with TemporaryDirectory() as home:
        os.environ[HOME_VARIABLE] = home
        config = parse_config({"dataset": f"{MODELS}:data", "epochs": 1, **values})
        save_function_record(config, record)
        choices = [TpuChoice(config, find_topology("v5e-8"))]
        (verdict,) = reach_verdicts(choices, lambda *_: None, use_cache=False, advise=False, limit_s=LIMIT_S)
    if verdict.outcome is Outcome.UNKNOWN:  # for want of memory, say: it is no result to keep
        raise UndecidedError(verdict.reason)
    command = [sys.executable, "-m", "tests.breadth.direct", name, str(BATCH)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | PREFLIGHT, stdout=subprocess.PIPE, text=True, check=True)
    ours = {
        "outcome": verdict.outcome.value,
        "flops": verdict.bound.flops if verdict.bound else None,
        "peak": verdict.memory.peak if verdict.memory else None,
        "reason": verdict.reason,
    }
    return {"preflight": ours, "direct": json.loads(done.stdout.splitlines()[-1])}


def table(results: dict[str, Any]) -> str:
    """Write the results as a table."""
    rows = ["| model | verdict | GFLOP | difference | peak MiB | difference |", "|---|---|---|---|---|---|"]
    for name, found in sorted(results.items()):
        ours, direct = found["preflight"], found["direct"]
        cells = ["–"] * 4
        if ours["flops"] and direct.get("flops"):
            cells = [f"{ours['flops'] / 1e9:,.4g}", f"{ours['flops'] / direct['flops'] - 1:+.3%}"]
            cells += [f"{ours['peak'] / 2**20:,.1f}", f"{ours['peak'] / direct['peak'] - 1:+.2%}"]
        verdicts = dict.fromkeys([ours["outcome"], direct["outcome"]])
        rows.append(f"| {' | '.join([f'`{name}`', ', directly: '.join(verdicts), *cells])} |")
    return "\n".join(rows)


def main() -> None:
    """Compare the models that were asked for, one after the other, and keep each result."""
    parser = argparse.ArgumentParser(prog="python -m tests.breadth", description=__doc__)
    parser.add_argument("--part", default="1/1", help="which part of all models, such as 2/20")
    parser.add_argument("--names", default="", help="models to compare, separated by commas")
    parser.add_argument("--again", action="store_true", help="compare models again that are in the table")
    asked = parser.parse_args()
    part, parts = (int(number) for number in asked.part.split("/"))
    names = asked.names.split(",") if asked.names else [*OTHERS, *APPLICATIONS][part - 1 :: parts]
    for name in names:
        results = _kept()
        if name in results and not asked.again:
            continue
        try:
            found = compared(name)
        except (UndecidedError, subprocess.CalledProcessError) as error:
            print(f"{name} has no result: {error}", flush=True)
            continue
        results = _kept() | {name: found}
        KEPT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        print(name, json.dumps(found), flush=True)
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.partition(BEGIN)[0], page.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}", encoding="utf-8")


def _kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return found


if __name__ == "__main__":
    main()
