"""The shown command trains the same configuration."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings

from tests.engine.strategies import configurations
from tpu_console.engine.config.reading import parse_assignment, parse_config, run_command, with_changes

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig

SHORT = {"--epochs": "epochs", "--batch-size": "batch_size", "--accelerator": "accelerator"}


def config(**changes: Any) -> RunConfig:
    values = {"dataset": "digits", "model": "cnn", "batch_size": 32, "epochs": 3, "accelerator": "cpu"}
    return parse_config(values | changes)


def run_again(command: str, base: RunConfig) -> RunConfig:
    """The configuration that a command trains, read as the command line reads it."""
    program, subcommand, _, *words = shlex.split(command)
    assert (program, subcommand) == ("tpu-console", "run")
    changes = []
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option == "--set":
            changes.append(parse_assignment(value))
        else:
            key = SHORT[option]
            changes.append((key, value if key == "accelerator" else int(value)))
    return with_changes(base, changes)


@settings(max_examples=40)
@given(configurations(), configurations())
def test_the_command_trains_the_same_configuration(base: RunConfig, wanted: RunConfig) -> None:
    assert run_again(run_command(wanted, base, "preset"), base) == wanted


def test_the_command_of_an_unchanged_preset_is_short() -> None:
    assert run_command(config(), config(), "digits-cnn") == "tpu-console run digits-cnn"


def test_the_command_uses_the_short_options_and_quotes_for_the_shell() -> None:
    changed = config(epochs=9, accelerator="sim:2", model_options={"filters": [8, 16]}, name="true")
    command = run_command(changed, config(), "a b")
    assert command.startswith("tpu-console run 'a b' ")
    assert "--epochs 9" in command
    assert "--accelerator sim:2" in command
    assert "--set 'model_options.filters=[8, 16]'" in command
    assert "--set 'name=\"true\"'" in command


def test_the_command_does_not_empty_options_of_another_dataset() -> None:
    files = config(dataset="image-folder", data={"options": {"path": "photos", "skip_bad": True}})
    assert run_command(config(), files, "photos") == "tpu-console run photos --set dataset=digits"
    command = run_command(files, config(), "digits-cnn")
    assert command.endswith(
        "--set dataset=image-folder --set data.options.path=photos --set data.options.skip_bad=true"
    )
