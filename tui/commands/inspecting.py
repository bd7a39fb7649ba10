"""`tpu-console presets`, `inspect` and `preflight`: what can be known before a training."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from msgspec import to_builtins

from tpu_console.engine.config.catalog import DATASETS, is_user_reference
from tpu_console.engine.data.places import locate
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem, did_you_mean
from tpu_console.engine.preflight.topologies import TOPOLOGIES
from tpu_console.engine.sanitize import printable, printable_values
from tpu_console.engine.storage.paths import user_path, user_presets_folder, with_keras_home
from tpu_console.presets import preset_files

from ..jobs.job_process import ProgressLines, run_job
from ..terminal.output import complain, complain_about, say, say_json, speaks_utf8, width_of_output
from ..text.names import data_state
from ..text.tables import Column, as_lines, labelled
from .options import (
    chosen_preset,
    command,
    complete_preset,
    decided,
    json_option,
    option,
    parsed,
    preset_file_option,
    set_option,
    trust_option,
)

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig

_PIPE_CELLS = 100
_FAILED, _BAD_USAGE = 1, 2
_GRACE_S = 1.0  # seconds until an inspection that does not respond is killed: it has nothing to save


@command(
    "tpu-console presets",
    "tpu-console presets --preset-file ./mine.toml",
    "tpu-console presets --json | jq -r '.[].name'",
)
@preset_file_option
@json_option("Print a JSON array.")
def presets(preset_files: tuple[Path, ...], as_json: bool) -> int:
    """List the presets.

    Lists the built-in presets, yours, and those of --preset-file. Files with errors are reported on standard error;
    the exit code is 2 if --preset-file named one of them.
    """
    from tpu_console.presets.catalog import all_presets

    found, broken = all_presets(preset_files)
    width = width_of_output()
    if as_json:
        say_json([
            {
                "name": one.name,
                "yours": not one.is_builtin,
                "path": printable(str(one.path)),
                **one.about.model_dump(),
                "config": one.config.model_dump(mode="json"),
            }
            for one in found
        ])  # fmt: skip
    else:
        say(as_lines(_PRESET_COLUMNS, found, width))
    if not as_json and sys.stdout.isatty():
        complain(["", f"Put your own presets in {user_path(user_presets_folder())}"])
    for error in broken:
        complain_about(error)
    asked_for = {user_path(path) for path in preset_files}
    return _BAD_USAGE if any(error.source in asked_for for error in broken) else 0


_PRESET_COLUMNS = (
    Column("preset", 9, value=lambda one: one.name),
    Column("from", 3, value=lambda one: "built in" if one.is_builtin else "yours"),
    Column("dataset", 7, value=lambda one: one.config.dataset),
    Column("model", 6, value=lambda one: one.config.model),
    Column("data", 5, value=lambda one: data_state(one.config)),
    Column("title", 8, value=lambda one: one.about.title),
    Column("expected score", 2, value=lambda one: one.about.expected_score),
    Column("expected time", 1, value=lambda one: one.about.expected_time),
)


def _complete_dataset(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tpu_console.engine.data.kinds.table import dataset_names

    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in (*dataset_names(), *preset_files()) if name.startswith(incomplete)]


@command(
    "tpu-console inspect digits",
    "tpu-console inspect plant-pathology-cnn",
    "tpu-console inspect ./photos --speed",
    "tpu-console inspect image-csv --set data.options.path=train.csv",
    "tpu-console inspect ratings.csv --json | jq .ratings",
    done="inspected; bad files may have been found",
    failed="the dataset could not be read",
)
@click.argument("dataset", shell_complete=_complete_dataset)
@set_option
@option("--speed", "Measure the input pipeline in its first and later epochs.")
@option("--save FILE", "Write a preset file that trains on it.", type=click.Path(path_type=Path))
@preset_file_option
@trust_option
@json_option("Print a JSON object.")
def inspect(
    dataset: str,
    assignments: Sequence[str],
    speed: bool,
    save: Path | None,
    preset_files: Sequence[Path],
    as_json: bool,
) -> int:
    """Inspect DATASET: counts, class balance, bad files, samples.

    DATASET is a dataset, a preset, a preset file, or a file or folder (its format is detected).

    Nothing is trained or changed. Bad files are counted and named, even those that a run would skip.
    """
    config, guessed, changes, source = _configured(dataset, assignments, preset_files)
    if guessed:
        complain([f"{dataset}: detected as {guessed}."])
    options = {"config": config.model_dump(mode="json"), "speed": speed}
    found = run_job("inspect", options, when_interrupted="Nothing was changed.", grace_s=_GRACE_S)
    trouble = found["trouble"]
    # A class or file name with a line feed stays one line; an error may have several.
    found = printable_values(found, sys.maxsize) | {"trouble": trouble}
    if as_json:
        values: dict[str, Any] = {"dataset": config.dataset, "options": config.data.options}
        if (info := DATASETS.get(config.dataset)) is not None:
            values |= {"title": info.title, "licence": info.licence, "download_bytes": info.download_bytes}
            files = info.files
            values["files"] = [{"path": str(one.location), "is_there": one.location.is_file()} for one in files]
        say_json({**values, **found})
    else:
        from ..text.inspection import depth_of, page

        width = width_of_output() or _PIPE_CELLS
        depth = depth_of(os.environ, is_terminal=sys.stdout.isatty(), is_utf8=speaks_utf8())
        say(page(config.dataset, config.data.options, found, width, depth))
        if trouble is None and guessed:
            say(_next_steps(dataset, changes, save))
    if trouble is None:
        return 0
    complain_about(ConsoleError(trouble["what"], why=trouble["why"], remedy=trouble["remedy"]))
    if source:
        complain([f"Data source of this preset: {source}."])
    return _FAILED


def _configured(
    name: str, assignments: Sequence[str], extra: Sequence[Path]
) -> tuple[RunConfig, str, list[tuple[str, Any]], str]:
    """Return the configuration of DATASET, its format if that was guessed, all changes, and the source of its data."""
    from tpu_console.engine.config.reading import with_changes
    from tpu_console.engine.data.kinds.formats import config_for, guess
    from tpu_console.engine.data.kinds.table import KINDS, dataset_names, is_name

    changes, prefix = parsed(assignments), "data.options."
    if name in dataset_names() or (is_user_reference(name) and not is_name(name)):
        # The path of a format is among the changes, so that only both together are a configuration.
        options = {key.removeprefix(prefix): value for key, value in changes if key.startswith(prefix)}
        others = [(key, value) for key, value in changes if not key.startswith(prefix)]
        return with_changes(config_for(name, options), others), "", changes, ""
    presets = preset_files(extra)
    if name.endswith(".toml") or name in presets:
        preset = chosen_preset(name, extra)
        source = with_keras_home(preset.about.data) if preset.config.dataset in KINDS else ""
        return with_changes(preset.config, changes), "", changes, source
    if not (is_name(name) or os.sep in name or Path(name).exists() or Path(locate(name)).exists()):
        near = did_you_mean(name, [*dataset_names(), *presets])
        raise ConfigError([Problem("", f"There is no dataset, preset, file or folder '{name}'; {near}")])
    with ProgressLines() as downloads:
        (dataset, options), answers = decided(lambda answers: guess(name, [*changes, *answers], downloads.arrived))
    return with_changes(config_for(dataset, options), changes), dataset, [*changes, *answers], ""


def _next_steps(name: str, changes: Sequence[tuple[str, Any]], save: Path | None) -> list[str]:
    """Return the command that trains on what was found, and write a preset file if one was asked for."""
    from tpu_console.engine.config.reading import value_text, with_changes
    from tpu_console.engine.data.kinds.formats import first_run
    from tpu_console.presets.catalog import save_preset

    if save is None:
        settings = [word for key, value in changes for word in ("--set", f"{key}={value_text(key, value)}")]
        train = shlex.join(["tpu-console", "run", name, *settings])
        return ["", labelled("run", train), labelled("preset", "add --save mine.toml to write its settings")]
    wanted = with_changes(first_run(name, changes).config, changes)
    file = save_preset(wanted, save.stem, f"{wanted.name}, as inspected", save.absolute().parent)
    return ["", labelled("run", f"tpu-console run {shlex.quote(str(file))}")]


_UNKNOWN = 1
_OTHER_CODES = {3: "a choice does not compile", 4: "a choice does not fit in memory"}
_KEPT = "Results so far are kept."


def _complete_tpu(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Offer TPU names, appended to those already typed."""
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in TOPOLOGIES if name.startswith(begun)]


@command(
    "tpu-console preflight digits-cnn",
    "tpu-console preflight cifar10-vgg-augmented --on v5e-8,v3-8 --batch-size 128",
    "tpu-console preflight cifar10-vgg-augmented --batch-size 32 --batch-size 128 --precision mixed_bfloat16",
    "tpu-console preflight plant-pathology-efficientnet --on v6e-8 --search",
    "tpu-console preflight ./mine.py:build --set dataset=cifar10",
    "tpu-console preflight digits-cnn --json | jq '.verdicts[0].bound'",
    done="every choice fits",
    failed="at least one choice could not be judged",
    others=_OTHER_CODES,
)
@click.argument("name", metavar="PRESET|FILE", shell_complete=complete_preset)
@option(
    "--on TPU[,TPU…]",
    "TPUs to check, such as v5e-8, v3-8 or v5e-32; repeatable.",
    "tpus",
    multiple=True,
    default=("v5e-8",),
    show_default=True,
    shell_complete=_complete_tpu,
)
@option(
    "--batch-size N",
    "Batch size per replica; repeatable. [default: from the preset]",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
)
@option(
    "--precision",
    "Precision; repeatable. [default: from the preset]",
    "precisions",
    type=click.Choice(["float32", "mixed_bfloat16"]),
    multiple=True,
)
@option("--search", "Find the largest batch that fits, and compare three; compiles several times.")
@option("--no-cache", "Ignore cached results.")
@option("--no-call", "Do not call your dataset function if its shapes are unknown.")
@option(
    "--limit SECONDS",
    "Time for all choices; what is done by then is shown. [default: 1800 per choice, 7200 with --search]",
    type=click.FloatRange(min=0, min_open=True),
)
@set_option
@preset_file_option
@trust_option
@json_option("Print a JSON object; see docs/preflight.md.")
def preflight(name: str, assignments: Sequence[str], preset_files: Sequence[Path], as_json: bool, **asked: Any) -> int:
    """Check PRESET with the TPU compiler; needs no TPU.

    Shows whether the train step compiles, whether it fits in memory, its best-case speed, wasted padding, and
    whether the input pipeline can keep up. Nothing is trained or downloaded; a dataset function of yours is called
    once if its shapes are unknown.

    PRESET|FILE is a preset, a preset file, or your own model as file.py:function.

    Several TPUs, batch sizes and precisions are compared. The worst result sets the exit code: does not compile,
    does not fit, could not be judged.

    This needs the TPU compiler: pip install 'jax[tpu]', on x86-64 Linux.
    """
    from tpu_console.engine.data.cached_facts import known_batch

    from ..jobs.checks import GRACE_S, Choices, advice_for, known_tpus, missing_compiler, remembered
    from ..text.checks import advice_lines

    config, inspected = _preflighted(name, assignments, asked["batches"], preset_files)
    choices = Choices(
        known_tpus(asked["tpus"], "--on"),
        tuple(dict.fromkeys(asked["batches"] or (known_batch(config),))),
        tuple(dict.fromkeys(asked["precisions"] or (config.precision,))),
        search=asked["search"],
        use_cache=not asked["no_cache"],
        limit=asked["limit"],
    )
    if (known := remembered(config, choices)) is not None:
        return _show_verdicts(inspected, config, known, as_json=as_json)
    missing = missing_compiler()
    found: Mapping[str, Any] = {}
    try:
        for job, options in choices.jobs(config, missing, calls=not asked["no_call"]):
            found = run_job(job, options, _KEPT, limit_s=choices.stuck_s, grace_s=GRACE_S)
    except ConsoleError as error:
        advice = advice_for(config, choices.tpus)
        if as_json:
            why = {"what": error.what, "why": error.why, "remedy": error.remedy}
            nothing = {"config": config.name, "exit_code": _UNKNOWN, "versions": {}, "verdicts": []}
            say_json({**nothing, "advice": [to_builtins(one) for one in advice], "error": why})
        else:
            say(advice_lines(advice, width_of_output()))
        complain_about(error)
        return _UNKNOWN
    code = _show_verdicts(inspected, config, found, as_json=as_json)
    if missing is not None:
        complain_about(missing)
    return code


def _preflighted(
    name: str, assignments: Sequence[str], batches: Sequence[int], extra: Sequence[Path]
) -> tuple[RunConfig, str]:
    """Return the configuration of the preset, file or function, and what `tpu-console inspect` calls the same input."""
    from tpu_console.engine.config.reading import parse_config, with_changes
    from tpu_console.engine.data.kinds.table import is_name

    changes = parsed(assignments)
    of_data = [part for one in assignments if one.startswith(("data.", "augmentation.")) for part in ("--set", one)]
    if not is_user_reference(name) or is_name(name):
        return with_changes(chosen_preset(name, extra, assignments).config, changes), shlex.join([name, *of_data])
    given = dict(changes)
    if "dataset" not in given:
        raise ConfigError([Problem(name, "a model needs a dataset; for example --set dataset=cifar10")])
    options = {key.partition("data.options.")[2]: value for key, value in changes if key.startswith("data.options.")}
    base = {"dataset": given["dataset"], "model": name, "batch_size": [*batches, 128][0], "epochs": 1}
    config = with_changes(parse_config({**base, "data": {"options": options}}), changes)
    return config, shlex.join([config.dataset, *of_data])


def _show_verdicts(inspected: str, config: RunConfig, found: Mapping[str, Any], *, as_json: bool) -> int:
    """Show the verdicts and return the exit code."""
    from tpu_console.engine.preflight.likely import input_throughput_of, kaggle_share

    from ..jobs.checks import exit_code, read_verdicts
    from ..text.checks import verdict_lines

    verdicts = read_verdicts(config, found)
    code = exit_code(verdicts)
    if as_json:
        shown = [
            {
                **verdict.as_dict(),
                "global_batch": verdict.global_batch,
                "headroom": verdict.memory.headroom if verdict.memory is not None else None,
                "kaggle": to_builtins(kaggle_share(verdict.tpu, verdict.bound.run_s if verdict.bound else None)),
                "input": to_builtins(input_throughput_of(config, verdict)),
            }
            for verdict in verdicts
        ]
        say_json({"config": config.name, "exit_code": code, "versions": found["versions"], "verdicts": shown})
    else:
        say(verdict_lines(config, verdicts, inspected, width_of_output()))
    return code
