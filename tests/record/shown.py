"""What the program shows of the recorded runs: tables, JSON, plain lines and screens."""

import asyncio
import hashlib
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.record import of_each
from tests.tui.charts import test_chart
from tests.tui.following import test_plain, test_sweep
from tests.tui.live_fakes import screen_text, until
from tests.tui.text import test_checks, test_confusion, test_hosts, test_inspection, test_profile
from tests.tui.widgets import test_run_header
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.errors import ConfigError
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan
from tpu_console.engine.runs.checkpoint import newest_checkpoint, read_checkpoint
from tpu_console.engine.runs.run_directory import find_run
from tpu_console.engine.sweeps.folder import list_sweeps
from tpu_console.presets.catalog import all_presets
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.cli import main
from tpu_console.tui.text.plan_text import plan_lines
from tpu_console.tui.widgets.setup_parts import PresetList

HERE = Path(__file__).parent
NAMES: dict[str, str] = json.loads((HERE / "runs.json").read_text())["names"] if (HERE / "runs.json").exists() else {}
SIZES = ((80, 24), (120, 40))
REVIEWS = "text,label\n" + "".join(f"a {('good', 'bad')[n % 2]} film number {n},{n % 2}\n" for n in range(20))


class _Output(io.StringIO):
    """Standard output, or a terminal."""

    encoding = "utf-8"

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@contextmanager
def recorded(folder: Path) -> Iterator[Path]:
    """Copy the recorded runs, sweeps and presets into a folder, and let the program read them there."""
    home = folder / "console"
    for name in ("runs", "sweeps", "presets"):
        shutil.copytree(HERE / name, home / name)
    for name, at in json.loads((HERE / "runs.json").read_text())["beats"].items():
        os.utime(home / "runs" / name / "heartbeat.json", (at, at))
    places = {"HOME": str(folder), "TPU_CONSOLE_HOME": str(home), "KERAS_HOME": str(folder / "keras")}
    try:
        with patch.dict(os.environ, {**places, "TZ": "UTC", "TPU_CONSOLE_PREWARM": "false"}):
            time.tzset()
            yield home
    finally:
        time.tzset()


def all_texts(home: Path) -> dict[str, str]:
    """Return what is shown, by the name of the file that it is recorded in."""
    texts = {
        "presets.json": _call("presets", "--json"),
        "presets-80.txt": _call("presets", width=80),
        "plans.txt": of_each({preset.name: plan_of(preset.config) for preset in all_presets()[0]}),
        "mistakes.txt": _mistakes(),
        "runs.json": _call("runs", "--json"),
        "runs.txt": _call("runs"),
        "compare.json": _call("compare", *_COMPARED, "--json"),
        "compare.csv": _call("compare", *_COMPARED, "--csv"),
        "compare.md": _call("compare", *_COMPARED, "--markdown"),
        "attach.txt": of_each({short: _call("attach", name) for short, name in NAMES.items()}),
        "show.json": json.dumps(
            {short: json.loads(_call("show", name, "--json")) for short, name in NAMES.items()}, indent=1
        ),
        "show.txt": of_each({short: _call("show", name, width=80) for short, name in NAMES.items()}),
        "sweep.csv": _call("sweeps", list_sweeps()[0].name, "--csv"),
        "sweep.md": _call("sweeps", list_sweeps()[0].name, "--markdown"),
        "checkpoint.json": json.dumps(_checkpoint(), indent=1),
        "doctor.json": json.dumps(_shape(json.loads(_call("doctor", "--json"))), indent=1),
    }
    of_texts = (test_checks, test_confusion, test_hosts, test_inspection, test_profile)
    for module in (*of_texts, test_plain, test_run_header, test_sweep):
        (folder := home / module.__name__).mkdir()
        with patch.dict(os.environ, {"TPU_CONSOLE_HOME": str(folder)}):
            texts[f"{module.__name__.rpartition('_')[2]}.txt"] = module.texts(folder)
    texts["charts.txt"] = asyncio.run(test_chart.texts())
    for width, _ in SIZES:
        texts[f"runs-{width}.txt"] = _call("runs", width=width)
        texts[f"compare-{width}.txt"] = _call("compare", *_COMPARED, width=width)
    texts |= asyncio.run(_screens())
    return {name: _normal(text, home) for name, text in texts.items()}


def inspected(home: Path) -> str:
    """Return what `inspect --json` prints of a table of texts."""
    (home / "reviews.csv").write_text(REVIEWS)
    return _normal(_call("inspect", str(home / "reviews.csv"), "--json"), home)


_COMPARED = [NAMES[short] for short in ("finished", "diverged-on", "resumed", "notebook") if short in NAMES]


def _call(*arguments: str, width: int | None = None) -> str:
    """Run a command; return what it prints, and below it what it says on standard error."""
    output, errors = _Output(is_terminal=width is not None), _Output(is_terminal=False)
    no_input = patch.object(sys, "stdin", _Output(is_terminal=False))
    columns = patch.dict(os.environ, {"COLUMNS": str(width or "")})
    with redirect_stdout(output), redirect_stderr(errors), columns, no_input:
        code = main(arguments)
    said = f"\n--- standard error, exit code {code}:\n{errors.getvalue()}" if errors.getvalue() or code else ""
    return output.getvalue() + ("" if "--json" in arguments else said)


def plan_of(config: Any) -> str:
    return "\n".join(plan_lines(config, make_plan(config, Hardware())))


def _mistakes() -> str:
    found = {}
    for path in sorted((HERE / "mistakes").glob("*.toml")):
        try:
            load_config(path)
        except ConfigError as error:
            found[path.stem] = "\n".join(map(str, error.problems))
    return of_each(found)


def _checkpoint() -> dict[str, Any]:
    found = newest_checkpoint(find_run(NAMES["killed"]))
    assert found is not None
    header, arrays = read_checkpoint(found[0])
    digests = {
        group: [[*array.shape, hashlib.sha256(array.tobytes()).hexdigest()] for array in several]
        for group, several in arrays.items()
    }
    return {"epoch": header.epoch, "step": header.step, "best": header.best, "arrays": digests}


def _shape(value: Any) -> Any:
    """Return the keys of a JSON value and the types of its values."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    return [_shape(value[0])] if isinstance(value, list) and value else type(value).__name__


async def _screens() -> dict[str, str]:
    """Draw each screen once at each size, all at the same time: each waits for itself."""
    live, compared = find_run(NAMES["finished"]), [find_run(name) for name in _COMPARED]
    screens: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
        "form": ({}, ("89 steps", "checked: 8 s")),
        "live": ({"run": live}, ("loss",)),
        "live-diverged": ({"run": find_run(NAMES["diverged-on"])}, ("loss",)),
        "compare": ({"compared": compared}, ("D", "results")),
        "sweep": ({"sweep": list_sweeps()[0]}, ("16", "64")),
    }
    drawn = [_drawn(name, size, *screens[name]) for name in screens for size in SIZES]
    return {file: text for texts in await asyncio.gather(*drawn) for file, text in texts.items()}


async def _drawn(name: str, size: tuple[int, int], options: dict[str, Any], waits_for: Sequence[str]) -> dict[str, str]:
    """Draw a screen, and the list of runs that opens from the form."""
    texts = {}
    async with ConsoleApp(**options).run_test(size=size) as pilot:
        texts[f"{name}-{size[0]}.screen"] = await _settled(pilot, waits_for)
        if name == "form":
            # How far the list has scrolled to the chosen preset depends on when it was laid out.
            pilot.app.screen.query_one(PresetList).scroll_to(y=0, animate=False)
            texts[f"{name}-{size[0]}.screen"] = await _settled(pilot, waits_for)
            await pilot.press("f7")
            texts[f"runs-{size[0]}.screen"] = await _settled(pilot, ("digits-cnn", "A small layer"))
    return texts


async def _settled(pilot: Any, waits_for: Sequence[str]) -> str:
    """Wait for what a screen shows at last."""
    await until(pilot, lambda: all(text in screen_text(pilot) for text in waits_for), 20)
    before, same = "", 0
    while same < 5:
        await pilot.pause(0.05)
        text = screen_text(pilot)
        before, same = text, same + 1 if text == before else 0
    return "\n".join(line.rstrip() for line in before.splitlines())


def _normal(text: str, home: Path) -> str:
    return text.replace(str(home), "<home>").rstrip("\n") + "\n"
