"""`tpu-console doctor`, `cache` and `completion`: this machine, and what is installed on it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import BashComplete, get_completion_class
from msgspec.structs import replace

from tpu_console.engine.machine.devices import detect_hardware
from tpu_console.engine.runs.heartbeat import runs_with_old_caches
from tpu_console.engine.runs.run_directory import discard_cache
from tpu_console.engine.storage.files import COMPILED, compiled_files, folder_size
from tpu_console.engine.storage.paths import HOME_VARIABLE, cache_folder, user_path

from ..terminal.output import complain, say, say_json, width_of_output
from ..text.numbers import duration, plural, size
from ..text.tables import Column, table
from .options import PROGRAM, command, complete_accelerator, json_option, option

if TYPE_CHECKING:
    from tpu_console.engine.doctor import Report

    from ..jobs.checks import SelfTest

_COLORS = {"note": "cyan", "warning": "yellow", "problem": "red", "could not tell": "magenta"}
_LIMIT_S = 300.0
_ACCELERATOR = re.compile(r"cpu|gpu|tpu|sim:[1-9]\d?")


@command(
    "tpu-console doctor",
    "tpu-console doctor --json | jq '.findings[] | .command'",
    "tpu-console doctor --train",
    "tpu-console doctor --train --accelerator sim:8 --json",
    done="no problem found; there may be notes and warnings",
    failed="at least one problem was found",
)
@option("--train", "Train digits on every accelerator and backend.")
@option(
    "--accelerator A",
    "With --train, what to test: gpu, tpu, cpu or sim:N; repeatable. [default: all found, else cpu]",
    "accelerators",
    multiple=True,
    shell_complete=complete_accelerator,
)
@option(
    "--limit SECONDS",
    "With --train, the time for one accelerator and backend.",
    type=click.FloatRange(min=0, min_open=True),
    default=_LIMIT_S,
    show_default=True,
)
@json_option("Print a JSON object.")
def doctor(train: bool, accelerators: tuple[str, ...], limit: float, as_json: bool) -> int:
    """Check this machine.

    Reports the environment (Colab, Kaggle, a TPU VM, GKE or other), accelerators, package conflicts, processes that
    use the TPU, disks and the terminal, each with the command to run next. Changes nothing; takes at most 3 seconds.

    With --train it also trains a small model on every accelerator with every backend, which takes a few minutes.
    """
    from tpu_console.engine.doctor import examine
    from tpu_console.engine.machine.environment import look_around

    from ..text.checks import report_lines  # with Pydantic, which completion does without

    if accelerators and not train:
        raise click.UsageError("--accelerator needs --train.")
    report, test, folder = examine(look_around()), None, None
    if train:
        test, folder = _trained(report, accelerators, limit)
        report = replace(report, groups=report.groups | test.groups)
    if as_json:
        say_json(report.as_dict() | ({"trainings": test.figures} if test is not None else {}))
    else:
        is_colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        for line in report_lines(report, width_of_output()):
            label, color = line.label.rstrip(), _COLORS.get(line.look) if is_colored else None
            painted = click.style(label, fg=color, bold=True) if color is not None else label
            say([f"{painted}{line.label[len(label) :]}{line.text}"])
    if folder is not None:
        complain([f"The runs with their logs are kept in {folder}."])
    return 130 if test is not None and test.was_interrupted else 0 if report.is_well else 1


def _trained(report: Report, accelerators: Sequence[str], limit: float) -> tuple[SelfTest, Path | None]:
    """Train; return the test, and the folder with its runs if something is wrong with one."""
    from tpu_console.engine.self_test import legs_of

    from ..jobs.checks import SelfTest

    if unknown := [name for name in accelerators if not _ACCELERATOR.fullmatch(name)]:
        raise click.UsageError(f"--accelerator: '{unknown[0]}' is not cpu, gpu, tpu or sim:N.")
    hardware = detect_hardware()
    legs = legs_of(hardware, accelerators)
    folder = Path(tempfile.mkdtemp(prefix="tpu-console-doctor-"))
    # These runs, and their records of this machine, are kept apart from the user's.
    os.environ[HOME_VARIABLE] = str(folder)
    complain([f"{plural(len(legs), 'training')}, each of at most {duration(limit)}; Ctrl-C stops."])
    test = SelfTest(legs, hardware, limit)
    test.run()
    if test.was_interrupted or not replace(report, groups=test.groups).is_well:
        return test, folder
    shutil.rmtree(folder, ignore_errors=True)
    return test, None


@command("tpu-console cache", "tpu-console cache --clear", done="listed, or cleared", failed="not all cleared")
@option("--clear", "Clear all caches.")
@json_option("Print a JSON array.")
def cache(clear: bool, as_json: bool) -> None:
    """List the caches, or clear them.

    What is in them is computed again when it is needed. Each cache stays below a limit by itself.
    """
    old, files = runs_with_old_caches(), compiled_files()
    caches = (
        (COMPILED, "programs compiled by JAX", [file.stat().st_size for file in files]),
        ("runs", "images decoded by runs that were killed, in their folders", [folder_size(run.cache) for run in old]),
    )
    if clear:
        for file in files:
            file.unlink(missing_ok=True)
        for run in old:
            discard_cache(run)
    if as_json:
        say_json([{"name": name, "holds": of, "files": len(each), "bytes": sum(each)} for name, of, each in caches])
        return
    rows = [[name, str(len(each)), size(sum(each)), of] for name, of, each in caches]
    columns = [Column("cache", 3), Column("files", 1, right=True), Column("size", 2, right=True), Column("holds", 0)]
    verb = "Cleared" if clear else "Kept in"
    say([*table(columns, rows, width_of_output()), f"{verb} {user_path(cache_folder())}"])


VARIABLE = "_TPU_CONSOLE_COMPLETE"

_INSTALL = {
    "bash": """add this line to ~/.bashrc: eval "$(tpu-console completion bash)\"""",
    "zsh": """add this line to ~/.zshrc, after compinit: eval "$(tpu-console completion zsh)\"""",
    "fish": "run once: tpu-console completion fish > ~/.config/fish/completions/tpu-console.fish",
}


@command(*(line.partition(": ")[2] for line in _INSTALL.values()))
@click.argument("shell", type=click.Choice(sorted(_INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options, presets, runs, accelerators and the keys of --set.
    """
    complete = get_completion_class(shell)
    if complete is None:  # this version of click does not support the shell
        ctx.fail(f"There is no completion for {shell}.")
    source = complete(ctx.find_root().command, {}, PROGRAM, VARIABLE).source_template
    function = f"_{PROGRAM.replace('-', '_')}_completion"
    script = (source % {"complete_func": function, "complete_var": VARIABLE, "prog_name": PROGRAM}).strip()
    if complete is BashComplete:  # no space after `--set key=`, so that the value can follow directly
        nospace = "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
        script = script.replace("    return 0\n", f"{nospace}    return 0\n")
    say([f"# To enable it in every shell, {_INSTALL[shell]}", script])
