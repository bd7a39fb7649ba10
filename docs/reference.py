"""Writes ``configuration.md``, ``events.md`` and ``presets.md`` from the code: ``make docs``.

`tests/test_docs.py` fails if a page differs from what this script writes.
"""

# ruff: noqa: INP001  a script, not a package
from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpu_console.engine.config.options import LOSSES, METRICS
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.config.values import LARGEST_NUMBER
from tpu_console.engine.data.kinds.table import KINDS
from tpu_console.engine.models.table import MODELS
from tpu_console.engine.runs import events
from tpu_console.engine.runs.journal import EVENT_TYPES
from tpu_console.presets.catalog import all_presets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic.fields import FieldInfo

    from tpu_console.engine.config.values import Section
    from tpu_console.presets.catalog import Preset

DOCS = Path(__file__).parent
_SECTIONS = {
    "data": "How the examples are read",
    "model_options": "Options of the built-in models",
    "optimizer": "Optimizer and learning rate",
    "augmentation": "Random changes to training images",
    "fine_tuning": "Fine-tuning: a second phase that also trains layers of the base",
    "early_stopping": "Early stopping",
    "checkpoint": "Checkpoints",
    "profile": "Where the time of a step goes",
    "alerts": "Alerts",
    "hosts": "Several hosts, whose configurations differ only in the index",
}
_PRESETS_HEAD = """\
# Presets

A preset is a TOML file with a [configuration](configuration.md), and a table `[preset]` that describes it.
`tpu-console presets` lists all of them, yours included; `tpu-console run NAME` trains one. Where no time is given, none
was measured.
"""
_PRESETS_TAIL = """\
## Writing one

<kbd>Ctrl</kbd>+<kbd>S</kbd> on the setup screen saves the form as a preset. Any file in the [folder of
your presets](cli.md#where-things-are) is one, such as `digits-mlp.toml`. It replaces a built-in preset of the same
name.

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

A file elsewhere works too: `tpu-console run ./digits-mlp.toml`, or `tpu-console --preset-file ./digits-mlp.toml`.
"""
_CONFIGURATION_HEAD = """\
# Configuration

Preset files, a run's `config.toml`, the setup form and `--set` use the same keys. In a TOML file, the keys of a section
stand under `[section]`; `--set` writes them with a dot, as in `--set optimizer.learning_rate=0.01`.

Only `dataset`, `model`, `batch_size` and `epochs` are required. Unknown keys and invalid values are errors.

In brackets stands the default and its alternatives, or the type if the default is empty.
"""
_MODEL_OPTIONS_HEAD = """\
The options depend on `model`; a [function of yours](own-code.md) gets them as keyword arguments. Another model, as in
`--set model=…`, drops those of the previous one. The same holds for `dataset` and its options.
"""
_DATA_OPTIONS_HEAD = """\
The options depend on `dataset`; built-in [datasets](datasets.md) have none, and a [function of yours](own-code.md) gets
them as keyword arguments.
"""
_EVENTS_HEAD = """\
# The journal

A run's journal is `events.jsonl` in its folder. It is only appended to, one JSON object per line.
`tpu-console run … --json` and `tpu-console attach … --json` print the same lines.

Each line has the format's version (`v`), the Unix time in seconds (`t`), the event (`type`) and its fields:

```json
{"v":1,"t":1795180000.25,"type":"Progress","epoch":1,"epoch_step":40,"step":40,"elapsed_s":1.9,"logs":{"loss":1.2}}
```

- Fields without a type are numbers. Figures that are not known are null.
- Numbers may also be the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.
- A last line without a line feed is not complete yet.
- Skip types and fields you do not know, and lines that are not JSON.
- Epoch ends and the last event are synced to the disk.
"""
_COMMON_HEAD = "Fields of several events:\n"
_OFTEN = 3  # so many events that a field is described once, at the top


def configuration_page() -> str:
    """Return the page with every configuration key."""
    schema = RunConfig.model_json_schema()
    top = [name for name in RunConfig.model_fields if name not in _SECTIONS]
    parts = [_CONFIGURATION_HEAD, "## The run\n", _keys(RunConfig, schema, top)]
    for name, title in _SECTIONS.items():
        parts.append(f"## {title}: `[{name}]`\n")
        if name == "model_options":
            parts.append(_model_options())
            continue
        section = type(RunConfig.model_fields[name].default)
        parts.append(_keys(section, section.model_json_schema()))
        if name == "data":
            parts += ["## Options of your own files: `[data.options]`\n", _data_options()]
    parts.append(_names())
    return "\n".join(parts)


def _model_options() -> str:
    return _options(_MODEL_OPTIONS_HEAD, "model", {name: (model, model.title) for name, model in MODELS.items()})


def _data_options() -> str:
    kinds = {name: (kind.Options, kind.title) for name, kind in KINDS.items()}
    return _options(_DATA_OPTIONS_HEAD, "dataset", kinds)


def _options(head: str, key: str, choices: Mapping[str, tuple[type[Section], str]]) -> str:
    text, found = [head], dict[str, str]()
    for name, (section, title) in choices.items():
        lines = _keys(section, section.model_json_schema()).splitlines()
        as_before: dict[str, list[str]] = {}
        for line in lines[1:]:
            if line in found:
                as_before.setdefault(found[line], []).append(line.split("`")[1])
        own = [line for line in lines if line not in found or line == lines[0]]
        own += [f"- {_listed(names)}: as for `{first}`" for first, names in as_before.items()]
        found = dict.fromkeys(lines, name) | found
        text += [f'For `{key} = "{name}"`, {title}:\n', "".join(f"{line}\n" for line in own)]
    return "\n".join(text)


def _names() -> str:
    return f"## Names\n\nLosses: {_listed(LOSSES)}.\n\nMetrics: {_listed(METRICS)}.\n"


def _keys(section: type[Section], schema: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    lines = []
    for name in names or section.model_fields:
        meaning = section.description(name)
        value = _value(section.model_fields[name], schema["properties"][name], meaning)
        lines.append(f"- `{name}` ({value}): {meaning}\n")
    return "".join(lines)


def _value(field: FieldInfo, schema: Mapping[str, Any], meaning: str) -> str:
    """Return a field's default with the choices that its meaning does not name, or its type if the default is empty."""
    if field.is_required():
        return "required"
    if field.default in ("", (), {}):
        return _kind(schema)
    default = f"`{_toml(field.default)}`"
    others = [kind for kind in _choices(schema) if kind != default] if "anyOf" in schema or "enum" in schema else []
    others = [] if all(kind.replace('"', "") in meaning for kind in others) else others
    return " or ".join([", ".join([default, *others[:-1]]), *others[-1:]])


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(value)


def _kind(schema: Mapping[str, Any]) -> str:
    """Say in words what a JSON schema allows."""
    if "anyOf" in schema or "enum" in schema or "const" in schema:
        return " or ".join(_choices(schema))
    match schema.get("type"):
        case "boolean":
            return "boolean"
        case "integer" | "number" as kind:
            return f"{kind}{_bounds(schema)}"
        case "array" if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])} {_plural(_kind(schema['prefixItems'][0]))}"
        case "array":
            return f"list of {_plural(_kind(schema['items']))}"
        case "object":
            return "table"
    return "string"


def _choices(schema: Mapping[str, Any]) -> list[str]:
    if "anyOf" in schema:
        return [choice for option in schema["anyOf"] for choice in _choices(option)]
    if not schema.keys() & {"enum", "const"}:
        return [_kind(schema)]
    return [f'`"{value}"`' for value in schema.get("enum", [schema.get("const")])]


def _plural(kind: str) -> str:
    return re.sub(r"^(integer|number|string|Metric|Replica|Sample)\b", r"\1s", kind)


def _bounds(schema: Mapping[str, Any]) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    # The largest number of all is no bound that anybody meets.
    found = [
        f"{sign} {schema[key]:g}" for key, sign in signs.items() if schema.get(key, LARGEST_NUMBER) != LARGEST_NUMBER
    ]
    return f" {' and '.join(found)}" if found else ""


def events_page() -> str:
    """Return the page on the journal."""
    described = tuple(EVENT_TYPES.values())
    inside = (events.Metric, events.Replica, events.ReplicaMemory, events.Sample)
    uses = Counter(line for event in (*described, *inside) for line in _fields(event))
    common = {line for line, count in uses.items() if count >= _OFTEN}
    parts = [_EVENTS_HEAD, f"Phases, in order: {_listed(events.Phase)}.\n", _COMMON_HEAD, "".join(sorted(common))]
    for event in (*described, *inside):
        fields = _fields(event)
        shared = [line.split("`")[1] for line in fields if line in common]
        parts.append(f"## {event.__name__}{', inside other events' if event in inside else ''}\n")
        parts.append(f"{_summary(event)}{f' With {_listed(shared)}.' if shared else ''}\n")
        if own := "".join(line for line in fields if line not in common):
            parts.append(own)
    return "\n".join(parts)


def _fields(cls: type[Any]) -> list[str]:
    """Return a line for each field of an event."""
    meanings = _comments(cls)
    return [
        f"- `{name}`{_stated(_json_kind(cls.__annotations__[name]))}: {_in_json(meanings[name])}\n"
        for name in cls.__struct_fields__
    ]


def _stated(kind: str) -> str:
    return "" if kind in {"integer", "number"} else f" ({kind})"


def _json_kind(annotation: str) -> str:
    """Say in JSON's words what a Python annotation is."""
    annotation = re.sub(r"Annotated\[(.+), Meta\(.*", r"\1", annotation).replace("Logs", "dict[str, float]")
    plain = {"str": "string", "Count": "integer", "Measure": "number", "float": "number", "bool": "boolean"}
    if inner := re.fullmatch(r"tuple\[(.+), \.\.\.\]", annotation):
        return f"list of {_plural(_json_kind(inner[1]))}"
    if inner := re.fullmatch(r"dict\[str, (.+)\]", annotation):
        return {"float": "object of numbers", "str": "object of strings"}.get(inner[1], "object")
    names = [name for name in annotation.split(" | ") if name != "None"]
    return " or ".join("string" if _is_word(name) else plain.get(name, name) for name in names)


def _is_word(annotation: str) -> bool:
    """Return whether an annotation names a set of words, which JSON holds as strings."""
    kind = getattr(events, annotation, None)
    return isinstance(kind, type) and issubclass(kind, str)


def _in_json(meaning: str) -> str:
    return re.sub(r"\bNone\b", "null", meaning.replace("; None if unknown", ""))


def _summary(cls: type[Any]) -> str:
    return _markdown((inspect.getdoc(cls) or "").split("\n\n", 1)[0])


def _comments(cls: type[Any]) -> dict[str, str]:
    """Read the comment above or beside each field of a class, as a sentence."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(cls).splitlines():
        if comment := re.match(r"    # (.+)", line):
            above.append(comment[1])
        elif field := re.match(r"    (\w+): .+?(?:  # (.+))?$", line):
            text = field[2] or " ".join(above)
            if text:
                found[field[1]] = _markdown(f"{text[0].upper()}{text[1:].removesuffix('.')}.")
            above = []
    return found


def _markdown(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split()))


def _listed(names: Iterable[str], last: str = ", ") -> str:
    *first, final = [f"`{name}`" for name in names]
    return last.join([", ".join(first), final] if first else [final])


def presets_page() -> str:
    """Return the page on the built-in presets."""
    found, _ = all_presets()
    built_in = [preset for preset in found if preset.is_builtin]
    sources: dict[str, str] = {}  # what was said about data, and the preset that said it
    return "\n".join([_PRESETS_HEAD, *(_preset(preset, sources) for preset in built_in), _PRESETS_TAIL])


def _preset(preset: Preset, sources: dict[str, str]) -> str:
    about, config = preset.about, preset.config
    data = about.data
    for said, first in sources.items():
        if data.startswith(said):
            data = f"as for `{first}`{data.removeprefix(said)}"
    sources.setdefault(about.data, preset.name)
    facts = {
        "Reproduces": about.reproduces,
        "Expected score": about.expected_score,
        "Expected time": about.expected_time,
        "Data": data,
    }
    trains = f"`{config.model}` on `{config.dataset}`, batch {config.batch_size}, {config.epochs} epochs at most"
    listed = "".join(f"- {name}: {text}.\n" for name, text in facts.items() if not text.startswith("not timed"))
    return f"## {preset.name}\n\n{about.title}. Trains {trains}.\n\n{listed}"


PAGES = {"configuration.md": configuration_page, "events.md": events_page, "presets.md": presets_page}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"Written {DOCS / name}")


if __name__ == "__main__":
    main()
