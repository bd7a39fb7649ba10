"""`tpu-console preflight`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from tpu_console.engine.config.catalog import is_user_reference
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem
from tpu_console.engine.preflight.topologies import TOPOLOGIES

from ..jobs.job_process import run_job
from ..terminal.output import complain_about, say, say_json, width_of_output
from .options import command, complete_preset, json_option, option, preset_file_option, set_option, trust_option
from .preset_choice import chosen_preset, parsed

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.preflight.result import Verdict

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

    from ..jobs.preflights import GRACE_S, Choices, known_tpus, missing_compiler, remembered

    config, inspected = _configured(name, assignments, asked["batches"], preset_files)
    choices = Choices(
        known_tpus(asked["tpus"], "--on"),
        tuple(dict.fromkeys(asked["batches"] or (known_batch(config),))),
        tuple(dict.fromkeys(asked["precisions"] or (config.precision,))),
        search=asked["search"],
        use_cache=not asked["no_cache"],
        limit=asked["limit"],
    )
    if (known := remembered(config, choices)) is not None:
        return _show(inspected, config, known, as_json=as_json)
    missing = missing_compiler()
    found: Mapping[str, Any] = {}
    try:
        for job, options in choices.jobs(config, missing, calls=not asked["no_call"]):
            found = run_job(job, options, _KEPT, limit_s=choices.stuck_s, grace_s=GRACE_S)
    except ConsoleError as error:
        return _without_verdict(error, config, choices.tpus, as_json=as_json)
    code = _show(inspected, config, found, as_json=as_json)
    if missing is not None:
        complain_about(missing)
    return code


def _configured(
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


def _without_verdict(error: ConsoleError, config: RunConfig, tpus: Sequence[str], *, as_json: bool) -> int:
    """Print the advice that needs no compiler, and why there is no verdict."""
    from ..jobs.preflights import advice_for
    from ..text.verdicts import advice_lines

    advice = advice_for(config, tpus)
    if as_json:
        why = {"what": error.what, "why": error.why, "remedy": error.remedy}
        nothing = {"config": config.name, "exit_code": _UNKNOWN, "versions": {}, "verdicts": []}
        say_json({**nothing, "advice": [to_builtins(one) for one in advice], "error": why})
    else:
        say(advice_lines(advice, width_of_output()))
    complain_about(error)
    return _UNKNOWN


def _show(inspected: str, config: RunConfig, found: Mapping[str, Any], *, as_json: bool) -> int:
    """Show the verdicts and return the exit code."""
    from ..jobs.preflights import exit_code, read_verdicts
    from ..text.verdicts import verdict_lines

    verdicts = read_verdicts(config, found)
    code = exit_code(verdicts)
    if as_json:
        shown = [_as_json(config, verdict) for verdict in verdicts]
        say_json({"config": config.name, "exit_code": code, "versions": found["versions"], "verdicts": shown})
    else:
        say(verdict_lines(config, verdicts, inspected, width_of_output()))
    return code


def _as_json(config: RunConfig, verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain values, with derived figures."""
    from tpu_console.engine.preflight.likely import input_throughput_of, kaggle_share

    share = kaggle_share(verdict.tpu, verdict.bound.run_s if verdict.bound is not None else None)
    feeding = input_throughput_of(config, verdict)
    return {
        **verdict.as_dict(),
        "global_batch": verdict.global_batch,
        "headroom": verdict.memory.headroom if verdict.memory is not None else None,
        "kaggle": to_builtins(share) if share is not None else None,
        "input": to_builtins(feeding) if feeding is not None else None,
    }
