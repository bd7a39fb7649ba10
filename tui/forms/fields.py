"""The fields of the run form, from the configuration's types, so that a new key appears automatically, and the draft.

The draft keeps everything typed, also invalid texts and the options of other models and datasets.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from msgspec import Struct

from tpu_console.engine.config.catalog import is_user_reference
from tpu_console.engine.config.options import (
    ALERTS,
    CALLBACKS,
    LOSSES,
    METRICS,
    OPTIMIZERS,
    SCHEDULES,
    SINKS,
    DataOptions,
)
from tpu_console.engine.config.reading import parse_assignment, parse_config, run_command, value_text
from tpu_console.engine.config.run_config import RunConfig, flat_values
from tpu_console.engine.config.values import Section, split_pieces
from tpu_console.engine.data.kinds.table import dataset_names, option_sections
from tpu_console.engine.errors import ConfigError, Problem
from tpu_console.engine.models.table import MODELS
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.paths import user_path, user_presets_folder

from ..text.names import to_text
from .field_row import ControlKind, FieldSpec, OwnValue

if TYPE_CHECKING:
    from tpu_console.presets.catalog import Preset

ESSENTIAL = ("dataset", "model", "batch_size", "epochs", "optimizer.learning_rate", "accelerator")
"""The essential keys, which decide most of what a run does; keys without a default are essential too."""


class OptionTable(Struct, frozen=True):
    """A table of the configuration whose keys depend on a choice."""

    key: str  # its dotted key
    chooser: str  # key of the choice
    group: str  # the heading of its fields
    sections: Callable[[], Mapping[str, type[Section]]]  # returns the options by name, of names that have any
    holder: type[Section]  # the section that the table is a field of


OPTION_TABLES = {
    "data.options": OptionTable("data.options", "dataset", "Data", option_sections, DataOptions),
    "model_options": OptionTable("model_options", "model", "Model", lambda: MODELS, RunConfig),
}

_OWN_FUNCTION = OwnValue("custom function…", "Function", "", "package.module:function or file.py:function")
_PIECE = OwnValue("custom, or with options…", "Name", "", "name(option=1) or file.py:name")
_OWN = {
    "dataset": _OWN_FUNCTION,
    "model": _OWN_FUNCTION,
    "loss": _PIECE,
    "optimizer.name": _PIECE,
    "optimizer.schedule": _PIECE,
    "class_weight": OwnValue("a weight for each class…", "Weights", "", "0=1.0, 1=5.0"),
    "accelerator": OwnValue("simulated replicas, or tpu:ADDRESS…", "Replicas", "sim:", "2", first="2"),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "model": tuple(MODELS),
    "accelerator": ("auto", "cpu", "gpu", "tpu"),
    "class_weight": ("none", "balanced"),
    "loss": tuple(LOSSES),
    "optimizer.name": tuple(OPTIMIZERS),
    "optimizer.schedule": tuple(SCHEDULES),
    "metrics": tuple(METRICS),
    "callbacks": tuple(CALLBACKS),
    "sinks": SINKS,
    "alerts.kinds": ALERTS,
}
_TRAINING = "Training"
_GROUPS = {  # the headings in the order of the decisions, each with its keys and sections; training has all others
    "Data": ("dataset", "data"),
    "Model": ("model", "model_options", "weights"),
    _TRAINING: (),
    "Optimizer and schedule": ("optimizer",),
    "Fine-tuning": ("fine_tuning",),
    "Accelerator": ("accelerator", "backend", "precision", "steps_per_execution"),
    "Augmentation": ("augmentation",),
    "Early stopping": ("early_stopping",),
    "Checkpoints": ("checkpoint", "mirror"),
    "Experiment trackers": ("sinks",),
    "Alerts": ("alerts",),
    "Several hosts": ("hosts",),
    "Seed and name": ("seed", "name"),
}
GROUPS = tuple(_GROUPS)
_GROUP_OF = {key: group for group, keys in _GROUPS.items() for key in keys}


@cache
def fields_of(section: type[Section] = RunConfig, prefix: str = "") -> tuple[FieldSpec, ...]:
    """Return the fields of a configuration class and of the sections in it, by group, essential ones first."""
    specs: list[FieldSpec] = []
    for name, info in section.model_fields.items():
        key = prefix + name
        if isinstance(info.default, Section):
            specs += fields_of(type(info.default), f"{key}.")
        elif key not in OPTION_TABLES:  # their fields depend on a choice: see `option_fields`
            kind, choices = _kind(key, info.annotation)
            # An empty text is a value if it is a list that may be empty.
            is_open = get_origin(info.annotation) is tuple and get_args(info.annotation)[-1] is Ellipsis
            may_be_empty = is_open and not any(getattr(one, "min_length", 0) for one in info.metadata)
            specs.append(
                FieldSpec(
                    key,
                    _GROUP_OF.get(key.partition(".")[0], _TRAINING),
                    name.replace("_", " ").capitalize(),
                    section.description(name).replace("`", ""),
                    kind,
                    choices,
                    own=_OWN.get(key),
                    default="" if info.is_required() else to_text(info.default),
                    empty_is_default=not may_be_empty,
                    is_essential=key in ESSENTIAL or info.is_required(),
                )
            )
    return tuple(sorted(specs, key=lambda spec: (GROUPS.index(spec.group), not spec.is_essential)))


def option_fields(table: OptionTable, name: str) -> tuple[FieldSpec, ...]:
    """Return the fields of the options of a model or dataset: a custom one has a single free field."""
    section = table.sections().get(name)
    if section is not None:
        return fields_of(section, f"{table.key}.")
    if not is_user_reference(name):
        return ()
    about = table.holder.description(table.key.rpartition(".")[2])
    return (FieldSpec(table.key, table.group, "Keyword arguments", about, ControlKind.KEYWORDS),)


def _kind(key: str, annotation: Any) -> tuple[ControlKind, tuple[str, ...]]:
    origin, choices = get_origin(annotation), dataset_names() if key == "dataset" else _CHOICES.get(key, ())
    if choices and origin is not tuple:
        return (ControlKind.OPEN_CHOICE if key in _OWN else ControlKind.CHOICE), choices
    if origin is Literal:
        return ControlKind.CHOICE, tuple(str(value) for value in get_args(annotation))
    if origin is tuple:
        item = get_args(annotation)[0]
        is_text = (get_args(item)[0] if get_origin(item) is Annotated else item) is str
        return (ControlKind.NAMES if is_text else ControlKind.LIST), choices
    if origin is dict:
        return ControlKind.KEYWORDS, ()
    return {bool: ControlKind.SWITCH, str: ControlKind.TEXT}.get(annotation, ControlKind.NUMBER), ()


def to_value(spec: FieldSpec, text: str) -> object:
    """Parse a field's text as a plain value; an invalid text stays text, and the configuration rejects it.

    Raises:
        ValueError: The text is not a valid list of keyword arguments, or has nothing after its prefix.
    """
    text = text.strip()
    if spec.own is not None and spec.own.prefix and text == spec.own.prefix:
        raise ValueError(f"needs a number, such as {spec.own.example}")
    if spec.kind is ControlKind.SWITCH:
        return text == "true"
    if spec.kind in {ControlKind.LIST, ControlKind.NAMES}:
        items = split_pieces(text)
        return items if spec.kind is ControlKind.NAMES else [_number(item) for item in items]
    if spec.kind is ControlKind.KEYWORDS:
        try:
            return tomllib.loads(f"value = {{{text}}}")["value"]
        except tomllib.TOMLDecodeError:
            pairs = [part.partition("=") for part in text.split(",")]
            if not all(key.strip().isidentifier() and value.strip() for key, _, value in pairs):
                raise ValueError("write name=value with commas between, such as units=64, wide=true") from None
            return dict(parse_assignment(part.strip()) for part in text.split(","))
    return _number(text) if spec.kind is ControlKind.NUMBER else text


def _number(text: str) -> int | float | str:
    # Thousands separators and digits of other scripts are ambiguous; only plain numbers are accepted.
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) else text


class Draft:
    """The form's content, which starts from a preset."""

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
                value = _at(values, spec.key)
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
            text, table = self.text(spec), _table_of(spec.key)
            *sections, last = spec.key.split(".")
            is_unchosen = table is not None and text == spec.default and last not in self._base_options(table)
            if is_unchosen or (not text.strip() and spec.empty_is_default):
                continue  # a default that the user did not choose would only make the command longer
            section = values
            for name in sections:
                section = section.setdefault(name, {})
            try:
                section[last] = to_value(spec, text)
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
        if preset.notes:  # made for data; the command makes it again
            values = flat_values(config)
            given = [f"{key}={value_text(key, value)}" for key, value in preset.given if values.get(key) == value]
            command = run_command(config, preset.config, user_path(preset.path))
            return " ".join([command, *(f"--set {shlex.quote(assignment)}" for assignment in given)])
        command = run_command(config, preset.config, preset.name)
        if preset.is_builtin or preset.path.parent == user_presets_folder():
            return command
        path = user_path(preset.path)
        # A quoted ~ is not the home folder to a shell.
        file = path if path == shlex.quote(path) else shlex.quote(printable(str(preset.path)))
        return f"{command} --preset-file {file}"

    def _choice(self, table: OptionTable) -> str:
        """Return the text of the choice that a table of options depends on."""
        name: str = self._texts.get(table.chooser, self._base[table.chooser])
        return name

    def _base_options(self, table: OptionTable) -> dict[str, Any]:
        """Return the preset's options if its model or dataset is the chosen one."""
        if self._choice(table) != self._base[table.chooser]:
            return {}
        options: dict[str, Any] = _at(self._base, table.key)
        return options

    def _original(self, spec: FieldSpec) -> str:
        if (table := _table_of(spec.key)) is None:
            return to_text(_at(self._base, spec.key))
        options = self._base_options(table)
        if spec.key == table.key:
            return to_text(options)
        name = spec.key.removeprefix(f"{table.key}.")
        return to_text(options[name]) if name in options else spec.default

    def _slot(self, spec: FieldSpec) -> str:
        # Each built-in model and dataset keeps the options typed for it while another one is chosen; all others share.
        table = _table_of(spec.key)
        if table is None:
            return spec.key
        name = self._choice(table)
        return f"{name if name in table.sections() else 'own'}:{spec.key}"


def _at(values: Any, key: str) -> Any:
    """Return the value of a dotted key; None if there is none."""
    for name in key.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _table_of(key: str) -> OptionTable | None:
    return next((table for table in OPTION_TABLES.values() if f"{key}.".startswith(f"{table.key}.")), None)
