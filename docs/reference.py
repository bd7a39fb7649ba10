"""Writes ``configuration.md``, ``events.md`` and ``presets.md`` of ``docs/`` from what they describe: ``make docs``.

`tests/test_docs.py` fails when a page is not what this script writes.
"""

# ruff: noqa: INP001  a script, not a package
from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tpu_console.engine.config.catalog import DATASETS, FORMATS, MODELS
from tpu_console.engine.config.data_options import DATA_OPTIONS
from tpu_console.engine.config.model_options import MODEL_OPTIONS
from tpu_console.engine.config.options import LOSSES, METRICS
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.config.values import LARGEST_NUMBER
from tpu_console.engine.runs import events
from tpu_console.presets.catalog import all_presets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from tpu_console.presets.catalog import Preset

DOCS = Path(__file__).parent
_SECTIONS = {
    "data": "How the examples are read",
    "model_options": "Options of the built-in models",
    "optimizer": "Optimizer and learning rate",
    "augmentation": "Augmentation",
    "fine_tuning": "Fine-tuning",
    "early_stopping": "Early stopping",
    "checkpoint": "Checkpoints",
    "tensorboard": "TensorBoard",
    "hosts": "Several hosts",
}
_PRESETS_HEAD = """\
# Presets

A preset is one TOML file: a [configuration](configuration.md) and a table `[preset]` that says what it reproduces, the
score and the time to expect, and the command. `tpu-console presets` lists them all, yours included.
"""
_PRESETS_TAIL = """\
## Writing one

The setup screen saves what its form says as a preset (<kbd>Ctrl</kbd>+<kbd>S</kbd>). By hand, put a file into
`~/.config/tpu-console/presets` (`$TPU_CONSOLE_HOME/presets` when that is set); its name without `.toml` is the
preset's.
A file of the same name as a preset that comes with `tpu-console` takes its place.

`~/.config/tpu-console/presets/digits-mlp.toml`:

```toml
dataset = "digits"
model = "mlp"
batch_size = 32
epochs = 30

[model_options]
hidden = [128, 64]

[optimizer]
schedule = "cosine"

[preset]
title = "Digits with dense layers"
expected_score = "validation accuracy about 0.97"
command = "tpu-console run digits-mlp"
```

```
tpu-console run digits-mlp
```

A file elsewhere is run by its path, or offered beside the others with `--preset-file`:

```
tpu-console run ./digits-mlp.toml
tpu-console --preset-file ./digits-mlp.toml
```
"""
_CONFIGURATION_HEAD = """\
# Configuration

A run is described by one configuration. A preset file, a run's `config.toml`, the form of the setup screen and `--set`
all speak of the same keys. A file is TOML: keys of a section stand under `[section]`, and on the command line they are
written with a dot, `--set optimizer.learning_rate=0.01`.

Only `dataset`, `model`, `batch_size` and `epochs` have to be given. Unknown keys and values that do not fit are errors;
all of a file's are reported together, with the nearest valid name.

A preset file may also hold a table `[preset]` with `title`, `reproduces`, `expected_score`, `expected_time` and
`command`: what the preset says of itself. They change nothing of the run; see [presets.md](presets.md).
"""
_MODEL_OPTIONS_HEAD = """\
What stands here depends on `model`. For a function of your own these are its keyword arguments, whatever they are.
When `--set model=…` chooses another model, the options of the one before are dropped.
"""
_DATA_OPTIONS_HEAD = """\
What stands here depends on `dataset`. The built-in datasets have no options; for a function of your own these are its
keyword arguments, whatever they are. When `--set dataset=…` chooses another dataset, the options of the one before are
dropped. [datasets.md](datasets.md) has what the files look like.
"""
_OWN_NAMES = """\
A dataset or model of your own is written `package.module:function` or `path/to/file.py:function`; see
[own-code.md](own-code.md).
"""
_EVENTS_HEAD = """\
# The journal

A run's journal is `events.jsonl` in its folder: text, only ever appended to, one event a line, each a JSON object.
`tpu-console run … --json` and `tpu-console attach … --json` print the same lines. Everything the console shows of a
run comes from this file, so any program that reads it can show the same.

Every line begins with three fields, and the event's own follow:

| field | JSON | meaning |
| --- | --- | --- |
| `v` | whole number | version of the format, 1 |
| `t` | number | when, as Unix time in seconds |
| `type` | text | one of the events below |

```json
{"v":1,"t":1795180000.25,"type":"Progress","epoch":1,"epoch_step":40,"step":40,"elapsed_s":1.9,"logs":{"loss":1.2}}
```

- Numbers that JSON cannot hold are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`.
- A last line without its line feed is not written completely yet: wait for the rest.
- Pass over types and fields you do not know; new ones may come without a new version. Pass over lines that are not
  JSON.
- Progress is written at most ten times a second, whatever the number of steps. Epoch ends and the last event are
  followed by an fsync, so they survive a power cut.
- The file is readable by its owner only.
"""


def configuration_page() -> str:
    """Write the page on every key of the configuration."""
    schema = RunConfig.model_json_schema()
    top = [name for name in RunConfig.model_fields if name not in _SECTIONS]
    parts = [_CONFIGURATION_HEAD, "## The run\n", _keys(RunConfig, schema, top)]
    for name, title in _SECTIONS.items():
        parts.append(f"## {title}: `[{name}]`\n")
        if name == "model_options":
            parts.append(_model_options())
            continue
        section = type(RunConfig.model_fields[name].default)
        parts += [f"{_summary(section)}\n", _keys(section, section.model_json_schema())]
        if name == "data":
            parts += ["## Options of the datasets of files: `[data.options]`\n", _data_options()]
    parts.append(_names())
    return "\n".join(parts)


def _model_options() -> str:
    text = [_MODEL_OPTIONS_HEAD]
    for name, options in MODEL_OPTIONS.items():
        text += [f'For `model = "{name}"`, {MODELS[name]}:\n', _keys(options, options.model_json_schema())]
    return "\n".join(text)


def _data_options() -> str:
    text = [_DATA_OPTIONS_HEAD]
    for name, options in DATA_OPTIONS.items():
        text += [f'For `dataset = "{name}"`, {FORMATS[name]}:\n', _keys(options, options.model_json_schema())]
    return "\n".join(text)


def _names() -> str:
    data = [(f"`{info.name}`", info.title, f"{info.download_bytes / 1e6:.0f} MB") for info in DATASETS.values()]
    return "\n".join(
        [
            "## Names\n",
            f"Losses: {_listed(LOSSES)}.\n",
            f"Metrics: {_listed(METRICS)}.\n",
            "Datasets:\n",
            _table(("dataset", "what", "download"), data),
            "Formats of your own files, see [datasets.md](datasets.md):\n",
            _table(("dataset", "what"), [(f"`{name}`", what) for name, what in FORMATS.items()]),
            "Models:\n",
            _table(("model", "what"), [(f"`{name}`", what) for name, what in MODELS.items()]),
            _OWN_NAMES,
        ]
    )


def _keys(section: type[BaseModel], schema: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    meanings = _arguments(section)
    rows = []
    for name in names or section.model_fields:
        field = section.model_fields[name]
        default = "required" if field.is_required() else f"`{_toml(field.default)}`"
        rows.append((f"`{name}`", _kind(schema["properties"][name]), default, meanings[name]))
    return _table(("key", "type", "default", "meaning"), rows)


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(value)


def _kind(schema: Mapping[str, Any]) -> str:
    """Say in words what a JSON schema allows."""
    if "anyOf" in schema:
        return " or ".join(_kind(option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return _listed([f'"{value}"' for value in schema.get("enum", [schema.get("const")])], last=" or ")
    match schema.get("type"):
        case "boolean":
            return "`true` or `false`"
        case "integer":
            return f"whole number{_bounds(schema)}"
        case "number":
            return f"number{_bounds(schema)}"
        case "array" if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])}, each a {_kind(schema['prefixItems'][0])}"
        case "array":
            return f"list of {_kind(schema['items'])}"
        case "object":
            return "table"
    return "text"


def _bounds(schema: Mapping[str, Any]) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    # The largest number of all is no bound that anybody meets.
    found = [
        f"{sign} {schema[key]:g}" for key, sign in signs.items() if schema.get(key, LARGEST_NUMBER) != LARGEST_NUMBER
    ]
    return f" {' and '.join(found)}" if found else ""


def events_page() -> str:
    """Write the page on the journal."""
    parts = [_EVENTS_HEAD, f"Phases, in their order: {_listed(events.Phase)}.\n"]
    for event in get_args(events.Event):
        parts += [f"## {event.__name__}\n", f"{_summary(event)}\n", _fields(event)]
    for part in (events.Replica, events.ReplicaMemory, events.Sample):
        parts += [f"## {part.__name__}, inside other events\n", f"{_summary(part)}\n", _fields(part)]
    return "\n".join(parts)


def _fields(cls: type[Any]) -> str:
    meanings = _arguments(cls)
    rows = [
        (f"`{field.name}`", _json_kind(str(field.type)), _in_json(meanings.get(field.name, "One entry a replica.")))
        for field in dataclasses.fields(cls)
    ]
    return _table(("field", "JSON", "meaning"), rows)


def _json_kind(annotation: str) -> str:
    """Say in JSON's words what a Python annotation is."""
    plain = {"str": "text", "int": "whole number", "float": "number", "None": "null"}
    if inner := re.fullmatch(r"tuple\[(.+), \.\.\.\]", annotation):
        return f"list of {_json_kind(inner[1])}"
    if inner := re.fullmatch(r"dict\[str, (.+)\]", annotation):
        return {"float": "object of numbers", "str": "object of texts"}.get(inner[1], "object")
    return " or ".join(plain.get(name, name) for name in annotation.split(" | "))


def _in_json(meaning: str) -> str:
    return re.sub(r"\bNone\b", "null", meaning)


def _summary(cls: type[Any]) -> str:
    return _markdown((inspect.getdoc(cls) or "").split("\n\n", 1)[0])


def _arguments(cls: type[Any]) -> dict[str, str]:
    """Read the ``Args`` of a class's docstring."""
    _, _, section = (inspect.getdoc(cls) or "").partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if begun := re.match(r"    (\w+): (.+)", line):
            name, found[begun[1]] = begun[1], begun[2]
        elif line.startswith("     ") and name:
            found[name] += f" {line.strip()}"
        else:
            break
    return {name: _markdown(text) for name, text in found.items()}


def _markdown(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split())).replace("|", "\\|")


def _listed(names: Iterable[str], last: str = ", ") -> str:
    *first, final = [f"`{name}`" for name in names]
    return last.join([", ".join(first), final] if first else [final])


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def presets_page() -> str:
    """Write the page on the presets from what each says of itself."""
    found, _ = all_presets()
    own = [preset for preset in found if preset.is_builtin]
    return "\n".join([_PRESETS_HEAD, *(_preset(preset) for preset in own), _PRESETS_TAIL])


def _preset(preset: Preset) -> str:
    about, config = preset.about, preset.config
    size = f"{config.batch_size} a replica, {config.epochs} epochs at most"
    facts = {
        "Reproduces": about.reproduces,
        "Expected score": about.expected_score,
        "Expected time": about.expected_time,
        "Data": about.data,
        "Trains": f"`{config.model}` on `{config.dataset}`, {size}",
    }
    listed = "".join(f"- {name}: {text}.\n" for name, text in facts.items())
    return f"## {preset.name}\n\n{about.title}.\n\n{listed}\n```\n{about.command}\n```\n"


PAGES = {"configuration.md": configuration_page, "events.md": events_page, "presets.md": presets_page}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"Written {DOCS / name}")


if __name__ == "__main__":
    main()
