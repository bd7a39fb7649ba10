"""Runs the measurements, prints them and writes them into ``docs/benchmarks.md``."""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import others, reading, small_steps, starts, throughput, watching
from tests.bench.bench import ROOT, Bench, provide_fashion_mnist
from tests.bench.report import Section, as_markdown, as_text, machine_facts, with_sections

ITEMS: dict[str, Callable[[Bench], Section]] = {
    "throughput": throughput.measure,
    "jpeg": reading.jpeg,
    "tfds": reading.tfds,
    "small-steps": small_steps.measure,
    "first-frame": starts.first_frame,
    "first-step": starts.first_step,
    "long-run": watching.long_run,
    "many-curves": watching.many_curves,
    "runs-list": starts.runs_list,
    "reliability": others.reliability,
    "preflight": others.preflight,
}

_PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Read the options and measure; return 1 when a target was missed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; writes nothing")
    parser.add_argument("--only", nargs="+", choices=ITEMS, default=list(ITEMS), help="measure only these")
    parser.add_argument("--output", type=Path, default=_PAGE, help="the page to write into")
    options = parser.parse_args()
    sections, texts = [], {}
    with tempfile.TemporaryDirectory(prefix="tpu-console-bench-") as folder:
        bench = Bench(Path(folder), options.quick)
        os.environ |= bench.environment  # some items read runs in this process, which keeps what it read
        data = provide_fashion_mnist(Path(folder) / "keras")
        for name in options.only:
            began, facts = time.monotonic(), machine_facts() | {"data": data}
            section = ITEMS[name](bench)
            sections.append(section)
            texts[section.title] = as_markdown(section, facts)
            print(f"{as_text(section)}\n  ({time.monotonic() - began:.0f} s)\n", flush=True)
    if not options.quick:
        page = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        options.output.write_text(with_sections(page, texts), encoding="utf-8")
        print(f"Written into {options.output}")
    return int(any(row.met is False for section in sections for row in section.rows))


if __name__ == "__main__":
    raise SystemExit(main())
