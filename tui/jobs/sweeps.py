"""A sweep before it starts: what a person typed, the runs it would train, and how long they would take."""

import shlex

from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.errors import ConfigError, Problem
from tpu_console.engine.machine.devices import detect_hardware
from tpu_console.engine.planning.plan import make_plan
from tpu_console.engine.sweeps.axes import cells_of, combination, parse_axes
from tpu_console.engine.sweeps.folder import Definition
from tpu_console.presets.catalog import find_preset

from ..text.numbers import plural, whole_duration
from ..text.tables import labelled

_MOST_REFUSED = 5


def typed_sweep(text: str) -> Definition:
    """Return the sweep of a line such as ``digits-cnn batch_size=16,32 epochs=2``, or raise `ConsoleError`."""
    try:
        preset, *words = shlex.split(text)
    except ValueError as error:
        raise ConfigError([Problem("sweep", "starts with the name of a preset")]) from error
    axes = dict(zip(words, parse_axes(words) if words else [], strict=True))
    over = tuple(word for word, axis in axes.items() if len(axis.values) != 1)
    if not over:
        raise ConfigError([Problem("sweep", "needs a setting with several values, such as batch_size=16,32")])
    changes = [(axis.key, axis.values[0]) for word, axis in axes.items() if word not in over]
    return Definition(config=with_changes(find_preset(preset).config, changes), over=over)


def plan_lines(definition: Definition) -> list[str]:
    """List the runs, the refused ones and the estimated time; raise `ConfigError` if all runs are refused."""
    axes = parse_axes(definition.over)
    if definition.search:
        most = labelled("runs", f"{definition.trials} at most, chosen by Optuna ({definition.search})")
        return [most, labelled("improves", definition.metric)]
    cells, hardware = cells_of(definition.config, axes, definition.repeat), detect_hardware()
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
