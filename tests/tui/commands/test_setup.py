from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from tpu_console.engine.config.reading import parse_assignment, parse_config, run_command, with_changes
from tpu_console.presets import find_preset

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig

OPTIONS = {"--epochs": "epochs", "--batch-size": "batch_size", "--accelerator": "accelerator"}


def _run(command: str, base: RunConfig) -> RunConfig:
    """Do what the command line does with its options."""
    words = shlex.split(command)[3:]
    changes: list[tuple[str, Any]] = []
    for option, value in zip(words[::2], words[1::2], strict=True):
        key = OPTIONS.get(option)
        changes.append(parse_assignment(f"{key}={value}" if key else value))
    return with_changes(base, changes)


CHANGES: list[dict[str, Any]] = [
    {"epochs": 3, "batch_size": 7, "accelerator": "sim:4"},
    {"model": "mlp", "model_options": {"hidden": [64]}},
    {"model": "mlp", "model_options": {"dropout": 0.3}},
    {"model": "my net.py:build", "model_options": {"units": 3, "name": "a b"}},
    {"name": "123", "steps_per_epoch": 9},
    {"name": "true", "metrics": ["accuracy", "auc"]},
    {"model_options": {"filters": [8]}},
    {"dataset": "d.py:load", "data": {"options": {"n": 1, "kind": "7"}}},
]


@pytest.mark.parametrize("changes", CHANGES, ids="-".join)
@pytest.mark.parametrize("preset", ["digits-cnn", "plant-pathology-efficientnet"])
def test_the_command_makes_the_configuration_of_the_form(preset: str, changes: dict[str, Any]) -> None:
    base = find_preset(preset).config
    plain = {"model": "cnn", "model_options": {}, "fine_tuning": {}}  # only pretrained models have a second phase
    config = parse_config(base.model_dump(mode="json") | plain | changes)
    assert _run(run_command(config, base, preset), base) == config


def test_a_removed_custom_option_is_removed_from_the_command() -> None:
    base = parse_config(
        {"dataset": "digits", "model": "m.py:f", "batch_size": 8, "epochs": 1, "model_options": {"a": 1, "b": 2}}
    )
    config = base.model_copy(update={"model_options": {"b": 2}})
    assert _run(run_command(config, base, "own"), base) == config
