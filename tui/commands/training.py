"""`tpu-console run`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.errors import ConfigError, Problem

from ..terminal.output import say, width_of_output
from ..text.tables import wrapped
from .options import (
    backend_option,
    complete_accelerator,
    examples,
    hosts_options,
    in_process_option,
    json_option,
    preset_argument,
    preset_file_option,
    set_option,
    trust_option,
)
from .preset_choice import chosen_preset, parsed
from .starting import fetched, refuse_both, resume_or_watch, watched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.presets.catalog import Preset

_KEYS = {"hosts": "hosts.count", "host_index": "hosts.index", "coordinator": "hosts.coordinator"}
"""The keys of the options that are named differently."""


@click.command(
    epilog=examples(
        "tpu-console run digits-cnn",
        "tpu-console run ./photos",
        "tpu-console run digits-cnn --epochs 5 --set optimizer.learning_rate=0.001",
        "tpu-console run ./mine.toml --accelerator sim:8",
        "tpu-console run ./mine.toml --accelerator tpu",
        "tpu-console run fashion-mnist-cnn --detach",
        "tpu-console run ./mine.toml --budget kaggle",
        "tpu-console run digits-cnn --json > events.jsonl",
        "tpu-console run digits-cnn --resume-if-exists my-run",
        "",
        "On two machines, the first at 10.0.0.1:",
        "tpu-console run mine.toml --hosts 2 --host-index 0 --coordinator 10.0.0.1",
        "tpu-console run mine.toml --hosts 2 --host-index 1 --coordinator 10.0.0.1",
    )
)
@preset_argument
@set_option
@click.option("--epochs", type=int, metavar="N", help="Number of epochs.")
@click.option("--batch-size", type=int, metavar="N", help="Batch size per replica.")
@click.option(
    "--accelerator",
    metavar="A",
    shell_complete=complete_accelerator,
    help="auto, cpu, gpu, tpu, tpu:ADDRESS (a remote TPU) or sim:N (N simulated replicas).",
)
@backend_option
@hosts_options
@click.option("--budget", metavar="T", help="Longest time, such as 8h30m, colab or kaggle; stops in time to be saved.")
@preset_file_option
@click.option(
    "--resume-if-exists",
    "resumed_name",
    metavar="NAME",
    help="Name the run; if a run of that name is here or at the mirror, resume it, or watch it if it is training.",
)
@trust_option
@in_process_option
@click.option("--detach", is_flag=True, help="Start in the background and return.")
@json_option("Print the run's events, one JSON object per line.")
def run(
    preset: str,
    assignments: tuple[str, ...],
    preset_files: tuple[Path, ...],
    resumed_name: str | None,
    in_process: bool,
    detach: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Train PRESET and print plain lines.

    PRESET is a preset's name (see `tpu-console presets`), a preset file, or a file or folder of yours, such as
    ./photos: its format is detected and the settings are chosen.

    The run trains in its own process. Ctrl-C stops it and saves the model; a second Ctrl-C kills it. If the terminal
    closes, the run continues: `tpu-console attach` comes back to it. With --in-process, it ends with this command.
    """
    refuse_both(detach=detach, in_process=in_process)
    given = [(_KEYS.get(name, name), value) for name, value in options.items() if value is not None]
    if resumed_name is not None:
        given.append(("name", resumed_name))
    chosen = chosen_preset(preset, preset_files, assignments)
    config = _configured(chosen, assignments, given)
    if resumed_name is not None:
        config = config.model_copy(update={"name": chosen.config.name})  # the name is the folder's, not the preset's
        code = _resumed(resumed_name, config, detach=detach, as_json=as_json, in_process=in_process)
        if code is not None:
            return code
    plan = _checked_plan(config, chosen)
    if not as_json:
        say(plan)
    from ..jobs.run_process import launch

    return watched(launch(config, in_process=in_process, label=resumed_name or ""), detach=detach, as_json=as_json)


def _resumed(name: str, config: RunConfig, *, detach: bool, as_json: bool, in_process: bool) -> int | None:
    """Resume or watch the run with a name, here or at the mirror; return the exit code, or None if there is none."""
    from tpu_console.engine.config.trust import note_start
    from tpu_console.engine.process.resume import newest_run_named

    run, changes = newest_run_named(name), []
    if run is None and config.mirror:
        run, changes = fetched(config.mirror, name, as_json=as_json), [("mirror", config.mirror)]
    if run is None:
        return None
    with suppress(OSError):  # which starting it would report
        note_start(config)  # the user has just named it
    return resume_or_watch(run, changes, detach=detach, as_json=as_json, in_process=in_process)


def _configured(preset: Preset, assignments: Sequence[str], given: Sequence[tuple[str, Any]]) -> RunConfig:
    """Apply ``--set`` and then the dedicated options; report all problems together."""
    from tpu_console.engine.config.reading import with_changes

    problems: list[Problem] = []
    changes: list[tuple[str, Any]] = []
    for text in assignments:
        try:
            changes += parsed([text])
        except ConfigError as error:
            problems += error.problems
    try:
        config = with_changes(preset.config, [*changes, *given])
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return config


def _checked_plan(config: RunConfig, preset: Preset) -> list[str]:
    """Return the plan's lines; an error about missing files says where the preset's author got them.

    Raises:
        ConfigError: The run would fail.
    """
    from tpu_console.engine.findings import Severity
    from tpu_console.engine.machine.devices import detect_hardware
    from tpu_console.engine.planning.plan import make_plan
    from tpu_console.engine.storage.paths import with_keras_home

    from ..text.run_lines import plan_lines

    plan = make_plan(config, detect_hardware())
    refused = [item for item in plan.advice if item.severity is Severity.ERROR]
    errors = [Problem("", item.text) for item in refused]
    is_same_data = (config.dataset, config.data.options) == (preset.config.dataset, preset.config.data.options)
    if is_same_data and any(item.key == "data.options.path" for item in refused):
        errors.append(Problem("", f"The data of {preset.name}: {with_keras_home(preset.about.data)}."))
    if errors:
        raise ConfigError(errors)
    lines = plan_lines(config, plan)
    width = width_of_output() or sys.maxsize
    notes = [line for label, text in preset.notes for line in wrapped(label, text, width)]
    return [*notes, *lines[bool(notes) :]]
