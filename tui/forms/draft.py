"""The draft in the run form: the typed texts by field, the configuration they make, and the command that runs it.

Does not depend on Textual. Keeps everything typed, also invalid texts and the options of other models and datasets.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tpu_console.engine.config.reading import parse_config, run_command, value_text
from tpu_console.engine.config.run_config import RunConfig, flat_values
from tpu_console.engine.errors import ConfigError, Problem
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.paths import user_path, user_presets_folder

from ..text.names import to_text
from .fields import OPTION_TABLES, OptionTable, fields_of, option_fields, to_value

if TYPE_CHECKING:
    from tpu_console.presets import Preset

    from .field import FieldSpec


class Draft:
    """The form's content for one preset.

    Args:
        preset: The preset it starts from.
    """

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self._base: dict[str, Any] = preset.config.model_dump(mode="json")
        self._texts: dict[str, str] = {}

    @property
    def is_edited(self) -> bool:
        """Whether anything differs from the preset."""
        return any(self.is_changed(spec) for spec in self.fields())

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return the fields that apply to the chosen model and dataset, each followed by its options."""
        options = {table.chooser: option_fields(table, self._choice(table)) for table in OPTION_TABLES.values()}
        return tuple(field for spec in fields_of() for field in (spec, *options.get(spec.key, ())))

    def text(self, spec: FieldSpec) -> str:
        """Return a field's text."""
        return self._texts.get(self._slot(spec), self._original(spec))

    def set(self, spec: FieldSpec, text: str) -> bool:
        """Set a field's text; return whether it changed."""
        if text == self.text(spec):
            return False
        self._texts[self._slot(spec)] = text
        return True

    def take(self, config: RunConfig) -> None:
        """Take over a configuration."""
        values = config.model_dump(mode="json")
        for _ in range(2):  # the chosen model and dataset decide which options there are
            for spec in self.fields():
                value: Any = values
                for name in spec.key.split("."):
                    value = value.get(name) if isinstance(value, dict) else None
                self.set(spec, spec.default if value is None else to_text(value))

    def is_changed(self, spec: FieldSpec) -> bool:
        """Whether a field differs from the preset."""
        return self.text(spec) != self._original(spec)

    def reset(self) -> None:
        """Go back to the preset."""
        self._texts.clear()

    def config(self) -> RunConfig:
        """Return the configuration.

        Raises:
            ConfigError: With every problem, by key.
        """
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        for spec in self.fields():
            try:
                self._put(values, spec)
            except ValueError as error:
                problems.append(Problem(spec.key, str(error)))
        try:
            config = parse_config(values)
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(problems)
        return config

    def command(self, config: RunConfig) -> str:
        """Return the `tpu-console run` command that starts the same run."""
        preset = self.preset
        if preset.notes:  # made for data, and again by the command
            values = flat_values(config)
            given = [
                f"--set {shlex.quote(f'{key}={value_text(key, value)}')}"
                for key, value in preset.given
                if values.get(key) == value
            ]
            return " ".join([run_command(config, preset.config, user_path(preset.path)), *given])
        command = run_command(config, preset.config, preset.name)
        if preset.is_builtin or preset.path.parent == user_presets_folder():
            return command
        path = user_path(preset.path)
        # A quoted ~ is not the home folder to a shell.
        file = path if path == shlex.quote(path) else shlex.quote(printable(str(preset.path)))
        return f"{command} --preset-file {file}"

    def _put(self, values: dict[str, Any], spec: FieldSpec) -> None:
        text = self.text(spec)
        if not text.strip() and spec.empty_is_default:
            return
        value = to_value(spec, text)
        *sections, last = spec.key.split(".")
        table = OPTION_TABLES.get(".".join(sections))
        if table is not None and text == spec.default and last not in self._base_options(table):
            return  # a default that the user did not choose would only make the command longer
        for name in sections:
            values = values.setdefault(name, {})
        values[last] = value

    def _choice(self, table: OptionTable) -> str:
        """Return the text of the choice that a table of options depends on."""
        name: str = self._texts.get(table.chooser, self._base[table.chooser])
        return name

    def _base_options(self, table: OptionTable) -> dict[str, Any]:
        """Return the preset's options if its model or dataset is the chosen one."""
        if self._choice(table) != self._base[table.chooser]:
            return {}
        options: dict[str, Any] = self._base_value(table.key)
        return options

    def _base_value(self, key: str) -> Any:
        value: Any = self._base
        for name in key.split("."):
            value = value[name]
        return value

    def _original(self, spec: FieldSpec) -> str:
        table = _table_of(spec)
        if table is None:
            return to_text(self._base_value(spec.key))
        options = self._base_options(table)
        if spec.key == table.key:
            return to_text(options)
        name = spec.key.removeprefix(f"{table.key}.")
        return to_text(options[name]) if name in options else spec.default

    def _slot(self, spec: FieldSpec) -> str:
        # Each built-in model and dataset keeps the options typed for it while another one is chosen.
        table = _table_of(spec)
        return spec.key if table is None else f"{table.slot(self._choice(table))}:{spec.key}"


def _table_of(spec: FieldSpec) -> OptionTable | None:
    tables = OPTION_TABLES.values()
    return next((table for table in tables if f"{spec.key}.".startswith(f"{table.key}.")), None)
