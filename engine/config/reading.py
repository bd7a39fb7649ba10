"""Reads configurations from TOML files, presets and command-line options, and reports all problems together."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from ..data.kinds.table import option_sections
from ..errors import ConfigError, Problem, did_you_mean
from ..models.table import model_sections
from ..sanitize import DEEPEST, unsafe_character
from ..storage.files import read_text
from .catalog import DATASETS
from .checks import cross_problems
from .options import ALERTS
from .pieces import listed
from .run_config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_RESIZING = {
    f"augmentation.{name}" for name in ("height", "width", "random_height", "random_width", "resize", "resizing")
}
"""What users may expect as keys, because Keras has layers of these names."""

_RESIZES = (
    "would change the size of images, but a TPU program is compiled for one size; "
    "augmentation.zoom and augmentation.crop keep the size"
)
_LARGEST = 256 << 10  # bytes of a file; deeper or longer ones only cost time
_LONGEST_KEY = 200
_MOST_PARTS = 1000
_NAME_RULE = (
    "use 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit"  # only names have a pattern
)


def parse_config(values: Mapping[str, Any], source: str = "") -> RunConfig:
    """Turn nested plain values, as read from TOML, into a configuration.

    `source` is the file or option of the values, for the error.

    Raises:
        ConfigError: With every problem found.
    """
    problems = _text_problems(values)
    if problems:
        raise ConfigError(problems, source)
    values = current_keys(values)
    config: RunConfig | None = None
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        problems += _problems(error, RunConfig)
    if "batch_size" not in values:  # only the user's own data does without it
        problems = [Problem(one.key, "is required") if one.key == "batch_size" else one for one in problems]
    data = values.get("data", {})
    own_options = data.get("options", {}) if isinstance(data, dict) else {}
    problems += _option_problems(
        model_sections(), values.get("model"), values.get("model_options", {}), "model_options."
    )
    problems += _option_problems(option_sections(), values.get("dataset"), own_options, "data.options.")
    if config is not None:
        problems += cross_problems(config)
    if problems or config is None:
        raise ConfigError(problems, source)
    return config


def current_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the keys of earlier versions, which runs and presets of then have; `--set` takes them for one release."""
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    _current_sinks(values)
    if isinstance(alerts := values.get("alerts"), dict):
        switches = {kind: alerts.pop(kind) for kind in ALERTS if isinstance(alerts.get(kind), bool)}
        if switches:
            kinds = _texts(alerts.get("kinds", ALERTS))
            alerts["kinds"] = [kind for kind in ALERTS if switches.get(kind, kind in kinds)]
        for gone in ("bell", "webhook_per_minute"):
            alerts.pop(gone, None)
    if isinstance(hosts := values.get("hosts"), dict):
        hosts.pop("wait_s", None)
    options = values.get("model_options")
    if values.get("model") == "application" and isinstance(options, dict):
        first = options.pop("from_layer", 0)
        if options.get("trainable") == "from":
            options["trainable"] = first
    return values


def _current_sinks(values: dict[str, Any]) -> None:
    tensorboard, project = values.get("tensorboard"), values.get("project")
    if isinstance(tensorboard, dict) or isinstance(project, str):
        sinks = {sink: sink for sink in _texts(values.get("sinks", ["tensorboard"]))}
        if isinstance(tensorboard, dict):
            del values["tensorboard"]
            sinks = {"tensorboard": "tensorboard"} | sinks
            if tensorboard.get("enabled") is False:
                del sinks["tensorboard"]
        if isinstance(project, str) and values.pop("project") != "tpu-console":
            sinks |= {sink: f'{sink}(project="{project}")' for sink in sinks.keys() & {"wandb", "mlflow"}}
        values["sinks"] = list(sinks.values())


def _texts(value: object) -> list[str]:
    texts = listed(value)
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list | tuple) else []


def _text_problems(value: Any, key: str = "", levels: int = DEEPEST) -> list[Problem]:
    """Find texts that are unsafe to show, and values that are nested too deeply.

    They are refused rather than cleaned, because values such as paths are used as they are.
    """
    if isinstance(value, str):
        found = unsafe_character(value)
        return [Problem(key, f"has the control or invisible character {found}; remove it")] if found else []
    if not isinstance(value, dict | list | tuple):
        return []
    if not levels:
        return [Problem(key[:_LONGEST_KEY], "is nested too deeply")]
    if isinstance(value, dict):
        parts = [(f"{key}.{name}" if key else str(name), inner) for name, inner in value.items()]
        what = "has a control or invisible character in its name"
        bad = [Problem(name, what) for name in value if unsafe_character(str(name))]
    else:
        parts, bad = [(key, inner) for inner in value], []
    return [*bad, *(problem for name, inner in parts for problem in _text_problems(inner, name, levels - 1))]


def _option_problems(
    sections: Mapping[str, type[BaseModel]], name: object, given: object, prefix: str
) -> list[Problem]:
    """Check the options that depend on the chosen model or dataset."""
    section = sections.get(str(name))
    if not isinstance(given, dict) or (section is None and str(name) not in DATASETS):
        return []
    if section is None:
        return [Problem(f"{prefix}{key}", f"{name} has no options") for key in given]
    try:
        section.model_validate(given)
    except ValidationError as error:
        return _problems(error, section, prefix)
    return []


def valid_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, Any]:
    """Return every dotted key that can be set, with its default (None for none).

    The keys of `model_options` and `data.options` are those of all built-in models and datasets.
    """
    keys: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        default = field.default
        if isinstance(default, BaseModel):
            keys |= valid_keys(type(default), f"{prefix}{name}.")
        else:
            keys[prefix + name] = None if field.is_required() else default
    if section is RunConfig:
        for options in model_sections().values():
            keys |= valid_keys(options, "model_options.")
        for options in option_sections().values():
            keys |= valid_keys(options, "data.options.")
    return keys


def _problems(error: ValidationError, section: type[BaseModel], prefix: str = "") -> list[Problem]:
    """Turn pydantic's errors into one sentence per key."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        parts = [str(part) for part in detail["loc"]]
        # A union such as "a count or 'auto'" reports each alternative separately.
        key = prefix + ".".join(p for p in parts if "[" not in p and p not in {"constrained-int", "int"})
        if detail["type"] == "extra_forbidden":
            choices = valid_keys(section, prefix)
            resizing = key in _RESIZING
            found[key] = _RESIZES if resizing else f"unknown key; {did_you_mean(key, choices)}"
        elif detail["type"] == "missing":
            found[key] = "is required"
        else:
            message = detail["msg"].removeprefix("Value error, ")
            if detail["type"] == "string_pattern_mismatch":
                message = _NAME_RULE
            if key in found and message not in found[key]:
                message = f"{found[key]}, or {message[0].lower()}{message[1:]}"
            elif detail["type"] != "value_error":
                message = f"{message} (got {_short(detail['input'])})"
            found[key] = message[0].lower() + message[1:]
    return [Problem(key, message) for key, message in found.items()]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"


def read_toml(path: Path, *, follows_links: bool = False) -> dict[str, Any]:
    """Read a TOML file; raise `ConfigError` if the file cannot be read or is not TOML; the problem names the line."""
    try:
        return _parsed_toml(read_text(path, _LARGEST, follows_links=follows_links))
    except OSError as error:
        raise ConfigError([Problem("", f"cannot be read: {error.strerror}")], str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", f"is not UTF-8 text: {error.reason}")], str(path)) from error
    except ValueError as error:  # also a whole number with thousands of digits
        raise ConfigError([Problem("", f"is not valid TOML: {error}")], str(path)) from error


def _parsed_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise `ValueError` if it is not TOML, or Python cannot parse it in reasonable time and depth."""
    if any(_has_endless_key(line) for line in text.splitlines()):
        raise ValueError(f"a key has more than {_MOST_PARTS:,} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("too many nested brackets") from None


def _has_endless_key(line: str) -> bool:
    """Return whether a key may have so many parts that the standard library takes minutes to read it."""
    keys = line if line.lstrip().startswith("[") else line.rpartition("=")[0]
    return keys.count(".") > _MOST_PARTS


def load_config(path: Path) -> RunConfig:
    """Read a configuration file, such as a run's ``config.toml``; raise `ConfigError` with every problem found."""
    return parse_config(read_toml(path), str(path))


def with_changes(config: RunConfig, changes: Sequence[tuple[str, Any]], source: str = "") -> RunConfig:
    """Return the configuration with some dotted keys changed, the last one winning, after checking it again.

    Raises:
        ConfigError: With every problem found.
    """
    values = config.model_dump(mode="json")
    if any(key == "model" and value != config.model for key, value in changes):
        values["model_options"] = {}
    if any(key == "dataset" and value != config.dataset for key, value in changes):
        values["data"]["options"] = {}
    problems = [problem for key, value in changes if (problem := _set(values, key, value)) is not None]
    if problems:
        raise ConfigError(problems, source)
    return parse_config(values, source)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse one ``key=value`` of ``--set``: TOML or else a plain string; raise `ConfigError` without ``=``."""
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError([Problem(text, "is not key=value, such as epochs=5")], "--set")
    try:
        return key, _parsed_toml(f"value = {raw}")["value"]
    except ValueError:
        return key, raw.strip()


def _set(values: dict[str, Any], dotted: str, value: object) -> Problem | None:
    """Set one dotted key in nested plain values; return a problem if part of the key is not a table."""
    *sections, last = dotted.split(".")
    for name in sections:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            return Problem(dotted, f"'{name}' is not a table; {did_you_mean(dotted, valid_keys())}")
        values = inner
    values[last] = value
    return None
