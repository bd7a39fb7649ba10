"""The fields of the run form, made from the configuration's own types: a new key appears by itself.

Knows no Textual: what a field is called, which values it takes, how its value is written and read as text.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from tpu_console.engine.config.catalog import DATASET_NAMES, MODELS, is_user_reference
from tpu_console.engine.config.data_options import DATA_OPTIONS
from tpu_console.engine.config.model_options import MODEL_OPTIONS
from tpu_console.engine.config.options import LOSSES, DataOptions
from tpu_console.engine.config.reading import parse_assignment
from tpu_console.engine.config.run_config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo


class Kind(StrEnum):
    """How a field is asked for."""

    TEXT = "text"
    NUMBER = "number"
    LIST = "list"
    NAMES = "names"
    SWITCH = "switch"
    CHOICE = "choice"
    OPEN_CHOICE = "open choice"
    KEYWORDS = "keywords"


@dataclass(frozen=True, slots=True)
class OwnValue:
    """What an open choice takes beside its listed values.

    Args:
        label: What it is called in the list.
        asks: What its text field is called.
        prefix: Written before the text, such as ``sim:``.
        example: A value that shows the form.
    """

    label: str
    asks: str
    prefix: str
    example: str

    def value(self, text: str) -> str:
        """Return the value that a text means; one that names its own kind, such as ``tpu:ADDRESS``, is whole."""
        return text if ":" in text else self.prefix + text


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field.

    Args:
        key: Dotted key in the configuration.
        group: The heading it stands under.
        label: What it is called.
        help: One line on what it means.
        kind: How it is asked for.
        choices: The listed values of a choice.
        own: What an open choice takes besides.
        default: The default as text; empty where there is none.
        empty_is_default: Whether an empty text means the default rather than an empty list.
        is_essential: Whether a newcomer sees it at once.
    """

    key: str
    group: str
    label: str
    help: str
    kind: Kind
    choices: tuple[str, ...] = ()
    own: OwnValue | None = None
    default: str = ""
    empty_is_default: bool = True
    is_essential: bool = False


ESSENTIAL = ("dataset", "model", "batch_size", "epochs", "optimizer.learning_rate", "accelerator")
"""The handful of keys that decide most of what a run does; what has no default joins them."""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """A table of the configuration whose keys depend on a choice.

    Args:
        key: The table's dotted key.
        chooser: Key of the choice.
        group: The heading its fields stand under.
        sections: The options of each name that has any.
        holder: The section whose docstring says what the table is.
    """

    key: str
    chooser: str
    group: str
    sections: Mapping[str, type[BaseModel]]
    holder: type[BaseModel]

    def slot(self, name: str) -> str:
        """Return under which name the options of a choice are remembered: all functions of one's own share one."""
        return name if name in self.sections else "own"


OPTION_TABLES = {
    table.key: table
    for table in (
        OptionTable("data.options", "dataset", "Data", DATA_OPTIONS, DataOptions),
        OptionTable("model_options", "model", "Model", MODEL_OPTIONS, RunConfig),
    )
}

_OWN_FUNCTION = OwnValue("custom function…", "Function", "", "package.module:function or file.py:function")
_OWN = {
    "dataset": _OWN_FUNCTION,
    "model": _OWN_FUNCTION,
    "accelerator": OwnValue("simulated replicas, or tpu:ADDRESS…", "Replicas", "sim:", "8"),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "dataset": DATASET_NAMES,
    "model": tuple(MODELS),
    "accelerator": ("auto", "cpu", "gpu", "tpu"),
    "loss": LOSSES,
}
_GROUPS = {
    "dataset": "Data",
    "data": "Data",
    "model": "Model",
    "model_options": "Model",
    "optimizer": "Optimizer and schedule",
    "fine_tuning": "Fine-tuning",
    "accelerator": "Accelerator",
    "backend": "Accelerator",
    "precision": "Accelerator",
    "steps_per_execution": "Accelerator",
    "augmentation": "Augmentation",
    "early_stopping": "Early stopping",
    "checkpoint": "Checkpoints",
    "tensorboard": "TensorBoard",
    "hosts": "Several hosts",
    "seed": "Seed and name",
    "name": "Seed and name",
}
_OTHER = "Training"
GROUPS = tuple(dict.fromkeys([*list(_GROUPS.values())[:4], _OTHER, *_GROUPS.values()]))
"""The headings in the order in which a person decides."""


@cache
def fields_of(section: type[BaseModel] = RunConfig, prefix: str = "") -> tuple[FieldSpec, ...]:
    """Return the fields of a configuration class and of the sections in it, by group, essential ones first.

    Args:
        section: The class.
        prefix: What stands before its keys, with the dot.
    """
    helps = _args_of(section)
    specs: list[FieldSpec] = []
    for name, info in section.model_fields.items():
        key = prefix + name
        if isinstance(info.default, BaseModel):
            specs += fields_of(type(info.default), f"{key}.")
        elif key not in OPTION_TABLES:  # their fields depend on a choice: see `option_fields`
            specs.append(_field(key, info, helps.get(name, "")))
    return tuple(sorted(specs, key=lambda spec: (_group_order(spec.group), not spec.is_essential)))


def option_fields(table: OptionTable, name: str) -> tuple[FieldSpec, ...]:
    """Return the fields of the options of a model or dataset.

    Args:
        table: The options' table.
        name: The chosen model or dataset. One of the person's own has one free field; one without options has none.
    """
    section = table.sections.get(name)
    if section is not None:
        return fields_of(section, f"{table.key}.")
    if not is_user_reference(name):
        return ()
    help_text = _args_of(table.holder).get(table.key.rpartition(".")[2], "")
    return (FieldSpec(table.key, table.group, "Keyword arguments", help_text, Kind.KEYWORDS),)


def _group_order(group: str) -> int:
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def _field(key: str, info: FieldInfo, help_text: str) -> FieldSpec:
    kind, choices = _kind(key, info.annotation)
    name = key.rpartition(".")[2]
    return FieldSpec(
        key=key,
        group=_GROUPS.get(key.partition(".")[0], _OTHER),
        label=name.replace("_", " ").capitalize(),
        help=help_text,
        kind=kind,
        choices=choices,
        own=_OWN.get(key),
        default="" if info.is_required() else to_text(info.default),
        empty_is_default=not _may_be_empty(info),
        is_essential=key in ESSENTIAL or info.is_required(),
    )


def _kind(key: str, annotation: Any) -> tuple[Kind, tuple[str, ...]]:
    if key in _CHOICES:
        return (Kind.OPEN_CHOICE if key in _OWN else Kind.CHOICE), _CHOICES[key]
    origin = get_origin(annotation)
    if origin is Literal:
        return Kind.CHOICE, tuple(str(value) for value in get_args(annotation))
    if annotation is bool:
        return Kind.SWITCH, ()
    if origin is tuple:
        return (Kind.NAMES if _is_text(get_args(annotation)[0]) else Kind.LIST), ()
    if origin is dict:
        return Kind.KEYWORDS, ()
    return (Kind.TEXT if annotation is str else Kind.NUMBER), ()


def _is_text(annotation: Any) -> bool:
    return annotation is str or (get_origin(annotation) is Annotated and get_args(annotation)[0] is str)


def _may_be_empty(info: FieldInfo) -> bool:
    """Whether an empty text is a value of its own: a list of any length, none included."""
    is_open = get_origin(info.annotation) is tuple and get_args(info.annotation)[-1] is Ellipsis
    return is_open and not any(getattr(m, "min_length", 0) for m in info.metadata)


@cache
def _args_of(section: type[BaseModel]) -> dict[str, str]:
    """Read the ``Args`` of a class's docstring, each as one line."""
    _, _, block = inspect.cleandoc(section.__doc__ or "").partition("Args:\n")
    entries: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        if (start := re.match(r" {4}(\w+): (.*)", line)) is not None:
            name = start[1]
            entries[name] = start[2]
        elif name and line.startswith("        "):
            entries[name] += " " + line.strip()
    return {name: text.replace("`", "") for name, text in entries.items()}


def to_text(value: object) -> str:
    """Write a plain configuration value as a field shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, list | tuple):
        return ", ".join(to_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={_toml(item)}" for key, item in value.items())
    return str(value)


def to_value(spec: FieldSpec, text: str) -> object:
    """Read a field's text as a plain value; what cannot be read stays text, and the configuration refuses it.

    Raises:
        ValueError: Keyword arguments are not written as such.
    """
    text = text.strip()
    if spec.kind is Kind.SWITCH:
        return text == "true"
    if spec.kind in {Kind.LIST, Kind.NAMES}:
        items = [item.strip() for item in text.split(",") if item.strip()]
        return items if spec.kind is Kind.NAMES else [_number(item) for item in items]
    if spec.kind is Kind.KEYWORDS:
        return _keywords(text)
    return _number(text) if spec.kind is Kind.NUMBER else text


def _number(text: str) -> int | float | str:
    # Thousands separators and digits of other scripts would be guessed at; only plain numbers are taken.
    if not re.fullmatch(r"[+-]?[0-9]*\.?[0-9]*([eE][+-]?[0-9]+)?", text):
        return text
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _keywords(text: str) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(f"value = {{{text}}}")["value"]
    except tomllib.TOMLDecodeError:
        pairs = [part.partition("=") for part in text.split(",")]
        if not all(key.strip().isidentifier() and value.strip() for key, _, value in pairs):
            raise ValueError("write name=value with commas between, such as units=64, wide=true") from None
        values = dict(parse_assignment(part.strip()) for part in text.split(","))
    return values


def _toml(value: object) -> str:
    """Write a value as inline TOML; but for tables JSON is TOML."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}={_toml(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
