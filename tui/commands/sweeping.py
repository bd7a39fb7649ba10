"""`tpu-console sweep` and `tpu-console runs sweeps`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.errors import ConfigError, ConsoleError, Problem
from tpu_console.engine.storage.files import open_regular

from ..terminal.output import complain, interrupts_call, say, width_of_output
from ..text.numbers import duration, metric
from ..text.tables import as_lines, labelled
from .opening import has_terminal, open_console
from .options import (
    chosen_preset,
    command,
    complete_preset,
    detach_option,
    form_options,
    offers,
    option,
    parsed,
    preset_file_option,
    screen_options,
    set_option,
    trust_option,
    with_trust,
)

if TYPE_CHECKING:
    import subprocess

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.sweeps.folder import Definition, Sweep

    from ..following.sweep import SeenCell, SweepView

_LOOK_S = 1.0


def _names() -> list[str]:
    from tpu_console.engine.sweeps.folder import list_sweeps

    return [sweep.name for sweep in list_sweeps()]


_complete_sweep = offers(_names, anywhere=True)
_result_options = form_options(
    csv="Print one row per combination as CSV.",
    markdown="Print a Markdown table.",
    svg="Print the bars as an SVG picture.",
)


@command(
    "tpu-console sweep digits-cnn --over batch_size=16,32,64 --epochs 5",
    "tpu-console sweep cifar10-cnn --over accelerator=cpu,sim:8 --over batch_size=32,512 --epochs 2",
    "tpu-console sweep digits-cnn --over accelerator=cpu,sim:2 --epochs 3 --repeat 3 --csv > table.csv",
    "tpu-console sweep --resume 20261120-133100-digits-cnn",
    "tpu-console sweep digits-cnn --lr-find",
    "tpu-console sweep digits-cnn --search tpe --over learning_rate=1e-4..1e-1:log --trials 20 --prune",
    done="every run finished, or the sweep was stopped on request",
    failed="a run failed",
)
@click.argument("preset", metavar="[PRESET|DATA]", required=False, shell_complete=complete_preset)
@option(
    "--over KEY=A,B,C",
    "A key and its values: a list, or a range such as 1e-4..1e-1:log:4. Repeatable: every combination is trained.",
    multiple=True,
)
@set_option
@option("--epochs N", "Number of epochs of each run.", type=int)
@option("--repeat N", "Train each combination N times.", type=click.IntRange(1, 20), default=1)
@option("--baseline KEY=VALUE", "Compare with these. [default: the first --over]", default="")
@option("--lr-find", "Short for 11 learning rates from 1e-5 to 1, one epoch each.")
@option("--search", "Let Optuna choose the values.", type=click.Choice(["grid", "random", "tpe"]))
@option("--trials N", "Runs of a search. [default: 20]", type=click.IntRange(1, 1000), default=20)
@option("--prune", "Stop runs of a search that are worse than the median of earlier ones.")
@option("--metric NAME", "What a search improves. [default: the run's own metric]", default="")
@option("--study NAME", "Name of Optuna's study, to share it.", default="")
@option("--storage URL|FILE", "Where Optuna keeps the study, to share it.", default="")
@option("--resume SWEEP", "Go on with a sweep.", "resumed", shell_complete=_complete_sweep)
@trust_option
@detach_option
@preset_file_option
@_result_options
def sweep(preset: str | None, assignments: Sequence[str], preset_files: Sequence[Path], **options: Any) -> int:
    """Train PRESET with every combination of some settings.

    Each combination is a run like any other, one after another; at the end, the results are compared. Ctrl-C stops
    the sweep and its run, which is saved. If the terminal closes, the sweep continues: `tpu-console runs sweeps`
    comes back to it. --resume goes on: it trains what is missing, continues what was stopped, and tries again what
    failed.
    """
    from tpu_console.engine.machine.devices import detect_hardware
    from tpu_console.engine.sweeps.folder import create_sweep, find_sweep, start_driver

    from ..text.plan_text import sweep_plan_lines

    form, resumed, detach = (options.pop(name) for name in ("form", "resumed", "detach"))
    write = complain if form is not None else say
    if resumed is not None:
        if preset is not None or options["over"]:
            raise ConfigError([Problem("--resume", "takes no preset and no --over: the sweep knows them")])
        chosen = find_sweep(resumed)
        if with_trust(lambda trust: chosen.checked(trust=trust)) is None:
            return 1
    else:
        if preset is None:
            raise ConfigError([Problem("PRESET", "is missing; `tpu-console presets` lists them")])
        config = chosen_preset(preset, preset_files, assignments).config
        definition = _definition(config, parsed(assignments), options)
        write(sweep_plan_lines(definition, detect_hardware()))
        chosen = create_sweep(definition)
    process = start_driver(chosen)
    write([labelled("sweep", chosen.name), labelled("watch", f"tpu-console runs sweeps {chosen.name}")])
    return 0 if detach else _follow(chosen, process, form, write)


def _definition(config: RunConfig, changes: list[tuple[str, Any]], options: dict[str, Any]) -> Definition:
    """Return the definition of a sweep; raise `ConfigError` if the options do not fit together."""
    from tpu_console.engine.config.reading import with_changes
    from tpu_console.engine.runs.metrics import monitor_of
    from tpu_console.engine.sweeps.cells import LR_FIND, check_search, parse_axes, parse_baseline
    from tpu_console.engine.sweeps.folder import Definition

    over, lr_find, epochs = (options.pop(name) for name in ("over", "lr_find", "epochs"))
    if epochs is not None:
        changes = [*changes, ("epochs", epochs)]
    if lr_find:
        over = (LR_FIND, *over)
        changes = [("optimizer.schedule", "constant"), ("optimizer.warmup_epochs", 0), ("epochs", 1), *changes]
    config = with_changes(config, changes)
    axes = parse_axes(over)
    parse_baseline(options["baseline"], axes)
    for name in ("prune", "metric", "study", "storage"):
        if options[name] and not options["search"]:
            raise ConfigError([Problem(f"--{name}", "is for a search; add --search tpe, for example")])
    if options["search"]:
        if options["repeat"] > 1 or options["baseline"]:
            raise ConfigError([Problem("--search", "takes neither --repeat nor --baseline")])
        if bool(options["study"]) != bool(options["storage"]):
            raise ConfigError([Problem("--study", "needs --storage, and --storage needs it, to share a study")])
        if options["storage"] and "://" not in options["storage"]:
            options["storage"] = str(Path(options["storage"]).expanduser().absolute())
        check_search(axes, search=options["search"])
        options["metric"] = options["metric"] or monitor_of(config)
    return Definition(config=config, over=over, **options | {"search": options["search"] or ""})


def _follow(sweep: Sweep, process: subprocess.Popen[bytes], form: str | None, write: Callable[..., object]) -> int:
    """Print a line when a run begins or ends, and finally the results; Ctrl-C stops the sweep, a second one leaves."""
    from ..following.sweep import SweepReader

    reader, shown, heard = SweepReader(sweep), dict[int, str](), list[int]()

    def hear(number: int) -> None:
        heard.append(number)
        if len(heard) == 1:
            sweep.request("stop-run")
            complain(["Stopping the sweep; its run is saved first. Press Ctrl-C again to leave."])

    with interrupts_call(hear):
        while True:
            is_over = process.poll() is not None
            view = reader.read()
            for cell in view.cells:
                status = "running" if cell.is_running else cell.status
                if status != shown.get(cell.cell.number, "waiting"):
                    write([_line(view, cell)])
                shown[cell.cell.number] = status
            if len(heard) > 1:
                complain([f"Left; {sweep.name} stops when its run is saved."])
                return 130
            if is_over:
                break
            time.sleep(_LOOK_S)
    if process.returncode:
        with suppress(OSError, IndexError), open_regular(sweep.log) as log:
            complain([f"Error: {log.read().decode('utf-8', 'replace').splitlines()[-1]}"])
    write([""])
    _print(view, form)
    if not view.is_complete:
        write(["", labelled("go on", f"tpu-console sweep --resume {sweep.name}")])
    return int(bool(process.returncode) or any(cell.status in {"failed", "crashed"} for cell in view.cells))


def _line(view: SweepView, cell: SeenCell) -> str:
    """Describe the state and the result of a run."""
    from tpu_console.engine.sweeps.cells import combination

    number = str(cell.cell.number) if view.definition.search else f"{cell.cell.number}/{len(view.cells)}"
    parts = [f"{number:<7}{combination(view.axes, cell.cell.values)}", cell.status]
    if cell.run is None:
        return "  ".join([*parts, cell.refused])
    overview = cell.run.overview
    if cell.is_running:
        return "  ".join([*parts, overview.run.run_id])
    best = [f"{overview.best[0]} {metric(overview.best[1])}"] if overview.best is not None else []
    return "  ".join([*parts, *best, duration(overview.seconds())])


def _print(view: SweepView, form: str | None) -> None:
    """Print the results."""
    from ..following import sweep as results

    if form in {"csv", "svg"}:
        say([results.as_csv(view) if form == "csv" else results.as_svg(view)])
    else:
        say(results.as_markdown(view) if form else results.as_text(view, width_of_output()))


@command(
    "tpu-console runs sweeps",
    "tpu-console runs sweeps 133100-digits",
    "tpu-console runs sweeps 133100-digits --markdown",
    "tpu-console runs sweeps 133100-digits --stop",
)
@click.argument("name", metavar="[SWEEP]", required=False, shell_complete=_complete_sweep)
@option("--stop", "Stop the sweep and its run, which is saved.")
@_result_options
@screen_options
def sweeps(name: str | None, stop: bool, form: str | None) -> int:
    """List the sweeps, or watch one.

    SWEEP is a name or a part of it. On a terminal this opens a screen with its runs; otherwise it prints the results
    so far. Leaving does not stop the sweep.
    """
    from tpu_console.engine.sweeps.folder import find_sweep, list_sweeps

    from ..following.sweep import LIST_COLUMNS, NO_SWEEP, SweepReader, listed

    if name is None and not (stop or form):
        found = [listed(sweep, {}) for sweep in list_sweeps()]
        say(as_lines(LIST_COLUMNS, found, width_of_output()) if found else [f"{NO_SWEEP} See tpu-console sweep --help"])
        complain([one.problem for one in found if one.problem])
        return 0
    chosen = find_sweep(name or "")
    if stop:
        if not chosen.is_driven:
            raise ConsoleError(f"{chosen.name} is not running.")
        chosen.request("stop-run")
        say([f"Asked {chosen.name} to stop; its run is saved first."])
    elif form is None and has_terminal():
        return open_console(sweep=chosen)
    else:
        _print(SweepReader(chosen).read(), form)
    return 0
