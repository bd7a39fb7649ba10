"""Reads configurations from TOML files, presets and the command line, checks them, and reports all problems at once."""

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..accelerators.backend import FRAMEWORKS
from ..data.kinds.table import KINDS, option_sections
from ..errors import ConfigError, Problem, did_you_mean
from ..models.table import MODELS
from ..sanitize import DEEPEST, unsafe_character
from ..storage.files import read_text
from .catalog import DATASETS, is_user_reference
from .options import ALERTS, DECAYS
from .run_config import RunConfig, flat_values
from .values import flattened, listed, parse_piece, piece_from_table, split_output

SectionT = TypeVar("SectionT", bound=BaseModel)

_RESIZES = (
    "would change the size of images, but a TPU program is compiled for one size; "
    "augmentation.zoom and augmentation.crop keep the size"
)
_RESIZING = ("height", "width", "random_height", "random_width", "resize", "resizing")
_NO_KEYS = {f"augmentation.{name}": _RESIZES for name in _RESIZING}
_NO_KEYS["model_options.pooling"] = "is always avg; for another one, set model to your function that builds the model"
"""What users may expect as keys, because Keras has layers of these names, or earlier versions had the keys."""

EARLIER_OPTIONS = {"label_column": "label", "label_columns": "label", "labels": "label"}
EARLIER_OPTIONS |= {"text_column": "inputs", "id_column": "inputs"}
"""The options of built-in datasets by the names that they had."""
EARLIER_KEYS = ("checkpoint.enabled", "optimizer.clip_norm", "optimizer.final_fraction", "optimizer.momentum")
"""Keys that an earlier sweep may go through, which `with_changes` still takes."""
_EARLIER_COLUMNS = {"user_column": "userId", "item_column": "movieId", "rating_column": "rating"}
_LARGEST = 256 << 10  # bytes of a file; deeper or longer ones only cost time
ALL_KEYS = "docs/configuration.md lists all keys, and / in the console finds them"
_LONGEST_KEY = 200
_MOST_PARTS = 1000


def parse_config(values: Mapping[str, Any], source: str = "") -> RunConfig:
    """Turn nested plain values, as read from TOML, into a configuration.

    `source` is the file or option of the values, for the `ConfigError` with every problem found.
    """
    if problems := _text_problems(values):
        raise ConfigError(problems, source)
    values = current_keys(values)
    config, problems = validated(RunConfig, values)
    if "batch_size" not in values:  # only the user's own data does without it
        problems = [Problem(one.key, "is required") if one.key == "batch_size" else one for one in problems]
    for sections, chooser, given, prefix in (
        (MODELS, "model", values.get("model_options", {}), "model_options."),
        (option_sections(), "dataset", _table(values, "data").get("options", {}), "data.options."),
    ):
        choice = str(values.get(chooser))
        if isinstance(given, dict) and choice in sections:
            problems += validated(sections[choice], given, prefix)[1]
        elif isinstance(given, dict) and choice in DATASETS:
            problems += [Problem(f"{prefix}{key}", f"{choice} has no options") for key in given]
    if config is not None:
        problems += cross_problems(config)
    if problems or config is None:
        raise ConfigError(problems, source)
    return config


def validated(section: type[SectionT], values: object, prefix: str = "") -> tuple[SectionT | None, list[Problem]]:
    """Return plain values as a table of the configuration, or None and a problem per key; a prefix ends in a dot."""
    try:
        return section.model_validate(values), []
    except ValidationError as error:
        found: dict[str, str] = {}
        for detail in error.errors(include_url=False):
            parts = [str(part) for part in detail["loc"]]
            # A union such as "a count or 'auto'" reports each alternative separately.
            key = prefix + ".".join(p for p in parts if "[" not in p and p not in {"constrained-int", "int"})
            if detail["type"] == "extra_forbidden":
                valid = valid_keys(section, prefix)
                for name in flattened({key: detail["input"]}) or [key]:
                    alike = [one for one in valid if one.rpartition(".")[2] == name.rpartition(".")[2]]
                    found[name] = _NO_KEYS.get(name) or f"unknown key; {did_you_mean(name, alike or valid, ALL_KEYS)}"
            elif detail["type"] == "missing":
                found[key] = "is required"
            else:
                message = detail["msg"].removeprefix("Value error, ")
                if detail["type"] == "string_pattern_mismatch":  # only names have a pattern
                    message = "use 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit"
                if key in found and message not in found[key]:
                    message = f"{found[key]}, or {message[0].lower()}{message[1:]}"
                elif detail["type"] != "value_error":
                    given = repr(detail["input"])
                    message += f" (got {given[:_LONGEST_KEY]}{'…' if len(given) > _LONGEST_KEY else ''})"
                found[key] = message[0].lower() + message[1:]
        return None, [Problem(key, message) for key, message in found.items()]


def current_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the keys of earlier versions, which runs and presets of then have; `--set` takes them for one release."""
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    _current_sinks(values)
    alerts, checkpoint, optimizer = (_table(values, name) for name in ("alerts", "checkpoint", "optimizer"))
    if switches := {kind: alerts.pop(kind) for kind in ALERTS if isinstance(alerts.get(kind), bool)}:
        kinds = _texts(alerts.get("kinds", ALERTS))
        alerts["kinds"] = [kind for kind in ALERTS if switches.get(kind, kind in kinds)]
    for table, gone in ((alerts, "bell"), (alerts, "webhook_per_minute"), (_table(values, "hosts"), "wait_s")):
        table.pop(gone, None)
    if checkpoint.pop("enabled", True) is False:
        checkpoint["monitor"] = "none"
    _into_piece(optimizer, "clip_norm", 0, "name", "clipnorm")
    _into_piece(optimizer, "momentum", 0, "name", "momentum", only=("sgd", "rmsprop"))
    _into_piece(optimizer, "final_fraction", 0.01, "schedule", "final_fraction", only=DECAYS)
    model, options = values.get("model"), _table(values, "model_options")
    if model == "application":
        first = options.pop("from_layer", 0)
        if options.get("trainable") == "from":
            options["trainable"] = first
        if options.get("pooling") == "avg":
            del options["pooling"]
    if model == "recommender" and (kind := options.pop("kind", "")):
        hidden = options.pop("hidden", [64, 32])
        options |= {"hidden": hidden} if kind == "towers" else {}
    if str(values.get("dataset")) in KINDS and (given := _table(_table(values, "data"), "options")):
        options = {EARLIER_OPTIONS.get(key, key): value for key, value in given.items()}
        values["data"]["options"] = options
        if values["dataset"] == "ratings-csv":
            _current_ratings(options)
    return values


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a table in plain values; another one, which nobody keeps, if there is none."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _into_piece(
    table: dict[str, Any], key: str, off: float, holder: str, option: str, only: Sequence[str] = ()
) -> None:
    """Make an earlier key an option of the optimizer or schedule that another one names, if that is one of some."""
    value, given = table.pop(key, off), table.get(holder, "adam")
    with suppress(ValueError):  # which reading the other key reports
        piece = parse_piece(piece_from_table(given) if isinstance(given, dict) else str(given))
        if value != off and (not only or piece.name.lower() in only):
            table[holder] = piece_from_table({"name": piece.name, **piece.options, option: value})


def _current_ratings(options: dict[str, Any]) -> None:
    if options.get("split", "random") == "random":  # the only way that is left
        for gone in ("split", "time_column"):
            options.pop(gone, None)
    if options.keys() & _EARLIER_COLUMNS.keys():
        known = _texts(options.get("columns", ()))
        known += [*_EARLIER_COLUMNS.values()][len(known) :]
        options["columns"] = [options.pop(*pair) for pair in zip(_EARLIER_COLUMNS, known, strict=False)]


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
    """Find unsafe texts and values nested too deeply; they are not cleaned, because paths are used as they are."""
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


def valid_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, Any]:
    """Return every dotted key that can be set, including those of all built-in models and datasets, and its default."""
    keys: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            keys |= valid_keys(type(field.default), f"{prefix}{name}.")
        else:
            keys[prefix + name] = None if field.is_required() else field.default
    if section is RunConfig:
        for table, sections in (("model_options.", MODELS), ("data.options.", option_sections())):
            for options in sections.values():
                keys |= valid_keys(options, table)
    return keys


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
    for line in text.splitlines():  # of so many parts that the standard library takes minutes to read the key
        key = line if line.lstrip().startswith("[") else line.rpartition("=")[0]
        if key.count(".") > _MOST_PARTS:
            raise ValueError(f"a key has more than {_MOST_PARTS:,} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("too many nested brackets") from None


def load_config(path: Path) -> RunConfig:
    """Read a configuration file, such as a run's ``config.toml``; raise `ConfigError` with every problem found."""
    return parse_config(read_toml(path), str(path))


def with_changes(config: RunConfig, changes: Sequence[tuple[str, Any]], source: str = "") -> RunConfig:
    """Change some dotted keys, the last one winning, and check all; raise `ConfigError` with every problem found."""
    values = config.model_dump(mode="json")
    if any(key == "model" and value != config.model for key, value in changes):
        values["model_options"] = {}
    if any(key == "dataset" and value != config.dataset for key, value in changes):
        values["data"]["options"] = {}
    problems = []
    for key, value in changes:
        *sections, last = key.split(".")
        table: Any = values
        for name in sections:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                problems.append(Problem(key, f"'{name}' is not a table; {did_you_mean(key, valid_keys())}"))
                break
        else:
            table[last] = value
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
    """Write a value in the shortest form that `parse_assignment` reads back unchanged: nearly all JSON is TOML."""
    import tomli_w

    forms = [*([value] if isinstance(value, str) else []), json.dumps(value, ensure_ascii=False)]
    toml = tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
    return next((form for form in forms if parse_assignment(f"{key}={form}") == (key, value)), toml)


def cross_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield all problems of keys that do not fit together."""
    if config.optimizer.warmup_epochs and config.optimizer.decay[0] not in {"constant", "cosine"}:
        message = f"works only with the schedules constant and cosine, not {config.optimizer.schedule}"
        yield Problem("optimizer.warmup_epochs", message)
    yield from _label_problems(config)
    if config.augmentation.placement == "model":
        for name, why in config.augmentation.without_layer.items():
            message = f"cannot be placed in the model: {why}; set augmentation.placement to pipeline or auto"
            yield Problem(f"augmentation.{name}", message)
    yield from _fine_tuning_problems(config)
    yield from _backend_problems(config)
    rates = [name for name in config.callbacks if parse_piece(name).name == "reduce_lr_on_plateau"]
    if rates and (config.optimizer.schedule != "constant" or config.optimizer.warmup_epochs):
        yield Problem("callbacks", "reduce_lr_on_plateau needs a constant learning rate, without schedule or warm-up")
    measured = ["loss", *config.metric_names]
    names = [*measured, *(f"val_{name}" for name in measured)]
    watched = {"early_stopping.monitor": config.early_stopping.monitor, "checkpoint.monitor": config.checkpoint.monitor}
    for key, name in watched.items():
        # A custom model may have more metrics; its run warns if this one is missing.
        own = [config.model, *(parse_piece(split_output(metric)[1]).name for metric in config.metrics)]
        known = [*names, "auto", "none"] if key == "checkpoint.monitor" else names
        if name not in known and not any(map(is_user_reference, own)):
            yield Problem(key, f"'{name}' is not a metric of this run; {did_you_mean(name, names)}")


def _label_problems(config: RunConfig) -> Iterator[Problem]:
    fitting = ("binary_crossentropy", "categorical_crossentropy")
    if config.label_smoothing and config.effective_loss not in fitting:
        yield Problem("label_smoothing", f"works only with crossentropy losses, not {config.loss}")
    if not is_user_reference(config.model):
        named = {"loss": [*config.losses], "metrics": [split_output(metric)[0] for metric in config.metrics]}
        for key, outputs in (named | {"loss_weights": [*config.loss_weights]}).items():
            if name := next(filter(None, outputs), ""):
                yield Problem(key, f"names the output '{name}', but {config.model} has a single one, without a name")
    if "" not in config.losses and config.augmentation.mixes_labels:
        yield Problem("augmentation", "mixup and cutmix work only with one loss, not with one for each output")
    if unknown := [name for name in config.loss_weights if name not in config.losses and "" not in config.losses]:
        yield Problem("loss_weights", f"'{unknown[0]}' has no loss; {did_you_mean(unknown[0], config.losses)}")
    sparse = [name for name in config.metrics if name.startswith("sparse_")]
    if sparse and config.effective_loss != config.loss_name:
        cause = "label_smoothing" if config.label_smoothing else "augmentation.mixup and cutmix"
        message = f"'{sparse[0]}' does not work with {cause}, because labels are then shares; use "
        yield Problem("metrics", f"{message}'{sparse[0].removeprefix('sparse_')}'")


def _fine_tuning_problems(config: RunConfig) -> Iterator[Problem]:
    key, first = "fine_tuning.after_epochs", config.fine_tuning.after_epochs
    if not first:
        return
    pretrained = [name for name, model in MODELS.items() if model.is_pretrained]
    if config.model not in pretrained:
        yield Problem(key, f"needs a pretrained model ({' or '.join(pretrained)}), not {config.model}")
    elif config.model_options.get("trainable", "none") not in ("none", False):
        yield Problem(key, "needs a base that is frozen at first; remove model_options.trainable")
    if config.model == "hub" and config.fine_tuning.from_layer:
        yield Problem("fine_tuning.from_layer", "a SavedModel is trained as a whole; its layers cannot be chosen")
    if first >= config.epochs:
        yield Problem(key, f"is {first}, but the run has only {config.epochs} epochs")


def _backend_problems(config: RunConfig) -> Iterator[Problem]:
    needed, why = config.only_backend
    asked = FRAMEWORKS.get(config.backend)
    if asked is not None and needed not in {"", asked.name}:
        yield Problem("backend", f"cannot be {asked.name}: {why}")
    if asked is not None and config.requested.address and not asked.reaches_other_machines:
        yield Problem("backend", f"cannot be {asked.name}: only TensorFlow can use a TPU on another machine")
    hosts = config.hosts
    if hosts.count == "auto":
        return
    if hosts.index != "auto" and hosts.index >= hosts.count:
        yield Problem("hosts.index", f"is {hosts.index}, but {hosts.count} hosts are numbered 0 to {hosts.count - 1}")
    if hosts.is_several and asked is not None and not asked.joins_hosts:
        yield Problem("backend", f"cannot be {asked.name}: Keras trains on several hosts only with JAX")
    if hosts.is_several and needed and not FRAMEWORKS[needed].joins_hosts:
        yield Problem("hosts.count", f"cannot be {hosts.count}: {why}")
    if (count := config.requested.simulated) and count % hosts.count:
        yield Problem("accelerator", f"{count} simulated replicas cannot be split evenly between {hosts.count} hosts")
