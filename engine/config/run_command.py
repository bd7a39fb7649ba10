"""Writes the command that trains a configuration, to repeat it or use it in a script."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from .reading import parse_assignment
from .run_config import flat_values

if TYPE_CHECKING:
    from .run_config import RunConfig


def run_command(config: RunConfig, base: RunConfig, preset: str) -> str:
    """Write the `tpu-console run` command that turns a preset's own configuration into this one."""
    words = ["tpu-console", "run", preset]
    short = {"epochs": "--epochs", "batch_size": "--batch-size", "accelerator": "--accelerator"}
    before, after = flat_values(base), flat_values(config)
    for section, chooser in (("model_options", "model"), ("data.options", "dataset")):
        there = {key for key in before if key.startswith(f"{section}.")}
        is_emptied = after[chooser] != before[chooser]  # `with_changes` does it then
        if is_emptied or there - after.keys():
            words += [] if is_emptied else ["--set", f"{section}={{}}"]
            before = {key: value for key, value in before.items() if key not in there}
    for key, value in after.items():
        if before.get(key) == value:
            continue
        words += [short[key], str(value)] if key in short else ["--set", f"{key}={value_text(key, value)}"]
    return shlex.join(words)


def value_text(key: str, value: object) -> str:
    """Write a value in the shortest form that `parse_assignment` reads back unchanged.

    Text that looks like a number or a boolean must be quoted; nearly all JSON is valid TOML.
    """
    import tomli_w

    forms = [value] if isinstance(value, str) else []
    forms.append(json.dumps(value, ensure_ascii=False))
    toml = tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
    return next((form for form in forms if parse_assignment(f"{key}={form}") == (key, value)), toml)
