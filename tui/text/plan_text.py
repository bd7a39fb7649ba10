"""Formats the plan of a run or a sweep: as lines of plain text, and as entries that a screen wraps to a width."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tpu_console.engine.config.catalog import is_user_reference
from tpu_console.engine.errors import ConfigError, Finding, Problem, Severity

from .names import BACKENDS
from .numbers import learning_rate, plural, whole_duration
from .tables import labelled, labelled_lines

if TYPE_CHECKING:
    from textual.content import Content

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.planning import Plan
    from tpu_console.engine.sweeps.folder import Definition

MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "i"}
"""The mark before each piece of advice, so that its severity does not depend on color."""

_STYLES = {Severity.ERROR: "bold $text-error", Severity.WARNING: "bold $text-warning", Severity.INFO: "$text-accent"}
_LABEL = 10
_FACTS = re.compile(r"(?<=[;,]) | (?=\(|= )|(?<=:) (?![^(]*\))")  # where one fact ends and the next one begins
_MOST_REFUSED = 5  # that a sweep's plan names
_NARROW = 32  # columns; below this, a text wraps under its lead instead of beside it


class PlanLine(Struct, frozen=True):
    """A lead and a text that wraps beside it."""

    lead: str  # the text at the left of the first line
    text: str  # the text that wraps
    lead_style: str = "$foreground 60%"  # style of the lead
    text_style: str = ""  # style of the text


def figures(plan: Plan, config: RunConfig) -> tuple[list[PlanLine], list[PlanLine]]:
    """Return what the run does, and how long it takes, one entry per figure."""
    batch, steps = f"global batch of {plural(plan.global_batch, plan.unit)}", plan.steps_per_epoch
    if plan.replicas > 1:
        batch = f"{plan.replica_batch:,} per replica × {plan.replicas} = {batch}"
    run = plural(config.epochs, "epoch")
    if steps is not None:
        run += f" × {steps:,} = {plural(config.epochs * steps, 'step')}"
    what = {
        "Device": plan.accelerator,
        "Backend": f"{BACKENDS[plan.backend]} ({plan.backend_reason})",
        "Replicas": f"{plan.replicas} (each step is split between them)" if plan.replicas > 1 else "",
        "Step": batch,
        "Rate": as_compiled(_learning_rate(plan, config), config),
    }
    time = {"Epoch": _epoch(plan), "Run": run, "Time": time_ahead(plan, config), "Input": input_speed(plan)}

    def shown(pairs: dict[str, str]) -> list[PlanLine]:
        return [PlanLine(label.ljust(_LABEL), text) for label, text in pairs.items() if text]

    return shown(what), shown(time)


def plan_lines(config: RunConfig, plan: Plan) -> list[str]:
    """Describe what a run will do, with advice."""
    steps = "one epoch = the whole dataset"
    if plan.steps_per_epoch is not None:
        examples = "" if plan.images_per_epoch is None else f" ({plan.images_per_epoch:,} examples)"
        steps = f"{plural(plan.steps_per_epoch, 'step')} per epoch{examples}"
    batch = f"batch {plan.global_batch:,}"
    if plan.replicas > 1:
        batch += f" ({plan.replica_batch:,} × {plan.replicas} replicas)"
    optimizer, rate, speed = config.optimizer, learning_rate(plan.learning_rate), input_speed(plan)
    trains_with = as_compiled(f"{optimizer.name}, learning rate {rate} ({optimizer.schedule})", config)
    facts = [
        ("preset", config.name),
        ("", f"{config.dataset} → {config.model}, {plural(config.epochs, 'epoch')}, on {plan.accelerator}"),
        ("plan", f"{batch}, {steps}"),
        ("", time_ahead(plan, config)),
        ("", f"{trains_with}, {config.precision}"),
        ("", f"input {speed}" if speed else ""),
        *(("", item.text) for item in plan.advice if item.key in {"structure", "outputs"}),
        *(("budget", item.text) for item in plan.advice if item.key == "budget"),
        ("mirror", config.mirror),
        *(("warning", one.text) for one in plan.advice if one.severity is Severity.WARNING and one.key != "budget"),
    ]
    return labelled_lines(facts)


def sweep_plan_lines(definition: Definition, hardware: Hardware) -> list[str]:
    """List a sweep's runs, the refused ones and the estimated time; raise `ConfigError` if all are refused."""
    from tpu_console.engine.planning import make_plan
    from tpu_console.engine.sweeps.cells import cells_of, combination, parse_axes

    axes = parse_axes(definition.over)
    if definition.search:
        most = labelled("runs", f"{definition.trials} at most, chosen by Optuna ({definition.search})")
        return [most, labelled("improves", definition.metric)]
    cells = cells_of(definition.config, axes, definition.repeat)
    trained = {cell.number: cell.config for cell in cells if cell.config is not None}
    plans = {number: make_plan(config, hardware) for number, config in trained.items()}
    refused = {cell.number: cell.refused for cell in cells if cell.config is None}
    refused |= {number: plan.advice[0].text for number, plan in plans.items() if not plan.is_possible}
    runs = [plan for number, plan in plans.items() if number not in refused]
    known = [plan.seconds for plan in runs if plan.seconds is not None]
    if not runs:
        raise ConfigError([Problem("--over", f"no combination can be trained: {next(iter(refused.values()))}")])
    of = " × ".join(f"{len(axis.values)} {axis.name}" for axis in axes)
    repeated = f", each {definition.repeat} times with other seeds" if definition.repeat > 1 else ""
    lines = [labelled("runs", f"{len(runs)}, of {of}{repeated}")]
    named = [f"{combination(axes, cell.values)}: {refused[cell.number]}" for cell in cells if cell.number in refused]
    named = [*dict.fromkeys(named)]  # repetitions say the same
    if (more := len(named) - _MOST_REFUSED) > 0:
        named[_MOST_REFUSED:] = [f"and {more} more"]
    about = f"about {whole_duration(max(1.0, sum(known)))} for {plural(len(known), 'run')}" if known else "unknown"
    about += ", the others unknown" * (0 < len(known) < len(runs))
    return [*lines, *(labelled("refused", text) for text in named), labelled("time", about)]


def as_compiled(configured: str, config: RunConfig) -> str:
    """Return the optimizer or rate of the configuration, which a model that the user's function compiles ignores."""
    return f"{configured}, unless {config.model} compiles its model" if is_user_reference(config.model) else configured


def input_speed(plan: Plan) -> str:
    """Say how fast the input pipeline is; empty if that is unknown."""
    if (speed := plan.input_speed) is None:
        return ""
    later = "" if speed.later is None else f", then {speed.later:,.0f}"
    return f"{speed.first:,.0f} examples/s in the first epoch{later} (measured on this machine)"


def time_ahead(plan: Plan, config: RunConfig) -> str:
    """Say how long a run will take and what the estimate is based on; empty if there is no estimate."""
    if plan.seconds is None or plan.took is None:
        return ""
    is_same = plan.took.batch == plan.replica_batch
    about = f"{'about' if is_same else 'roughly'} {whole_duration(max(1.0, plan.seconds))}"
    most, batch = "at most " * bool(config.early_stopping.patience), "" if is_same else f" with batch {plan.took.batch}"
    return f"{most}{about}, from a similar run here on {plan.took.day}{batch}"


def advice_entries(advice: Iterable[Finding]) -> list[PlanLine]:
    """Return pieces of advice with their marks."""
    return [PlanLine(f"{MARKS[item.severity]} ", item.text, _STYLES[item.severity]) for item in advice]


def problem_entries(problems: Sequence[Problem]) -> list[PlanLine]:
    """Return the problems of the form, each with its key."""
    return advice_entries(Finding(Severity.ERROR, str(problem)) for problem in problems)


def counts(advice: Iterable[Finding]) -> str:
    """Return the number of pieces of advice by severity, such as ``! 1  i 2``."""
    severities = [item.severity for item in advice]
    return "  ".join(f"{mark} {count}" for kind, mark in MARKS.items() if (count := severities.count(kind)))


def laid_out(entries: Iterable[PlanLine], width: int) -> Content:
    """Wrap entries to a width, with each text indented beside its lead, or under it if there is little room."""
    from textual.content import Content  # plain text does without it

    lines: list[Content] = []
    for entry in entries:
        lead = entry.lead if width >= _NARROW or entry.lead.strip() else entry.lead[:2]
        under = " " * (len(lead) if width >= _NARROW else min(len(lead), 2))
        first, *others = _wrapped(entry.text, max(width - len(lead), 10), max(width - len(under), 10))
        lines.append(Content.assemble((lead, entry.lead_style), (first, entry.text_style)))
        lines += [Content.styled(under + line, entry.text_style) for line in others]
    return Content("\n").join(lines)


def _wrapped(text: str, first: int, width: int) -> list[str]:
    """Wrap a text to a width, and its first line to another one; a fact that fits into a line is not broken."""
    lines = [""]
    for fact in _FACTS.split(text):
        room = first if len(lines) == 1 else width
        whole = f"{lines[-1]} {fact}".lstrip()
        if len(whole) <= room:
            lines[-1] = whole
        elif len(fact) <= width and (lines[-1] or first < width):
            lines.append(fact)
        else:
            indented = textwrap.wrap(whole, width, initial_indent=" " * (width - room), break_on_hyphens=False)
            lines[-1:] = [indented[0][width - room :], *indented[1:]]
    return lines


def _epoch(plan: Plan) -> str:
    if plan.steps_per_epoch is None:
        return "the whole dataset"
    if plan.images_per_epoch is None:
        return plural(plan.steps_per_epoch, "step")
    images = plural(plan.images_per_epoch, plan.unit)
    if plan.train_examples is not None and plan.images_per_epoch < plan.train_examples:
        images = f"{plan.images_per_epoch:,} of {plan.train_examples:,} {plan.unit}s"
    return f"{plural(plan.steps_per_epoch, 'step')} × {plan.global_batch:,} = {images}"


def _learning_rate(plan: Plan, config: RunConfig) -> str:
    options = config.optimizer
    text = learning_rate(plan.learning_rate)
    if options.scale_with_replicas and plan.replicas > 1:
        text = f"{learning_rate(options.learning_rate)} × {plan.replicas} replicas = {text}"
    name, final = options.decay
    if name in {"cosine", "linear", "exponential"}:
        text += f", {name} decay to {learning_rate(plan.learning_rate * final)}"
    elif name != "constant":
        return f"{text}, {options.schedule}"
    return f"{text}, after {options.warmup_epochs:g} epochs of warm-up" if options.warmup_epochs else text
