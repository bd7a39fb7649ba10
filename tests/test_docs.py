import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tui.calling import all_commands
from tpu_console.engine.config.reading import parse_config, valid_keys
from tpu_console.engine.runs.journal import EVENT_TYPES
from tpu_console.presets.catalog import all_presets

ROOT = Path(__file__).parent.parent
_FREE_KEYS = ("model_options.", "data.options.")  # these depend on the model and the dataset
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return _script("reference")


def test_the_hardware_of_the_preflight_is_what_the_code_says() -> None:
    script: Any = _script("preflight")
    page = script.PAGE.read_text(encoding="utf-8")
    assert page == script.filled(page, "hardware", script.hardware()), "docs/preflight.md is out of date"


@pytest.mark.parametrize("name", ["configuration.md", "events.md", "presets.md"])
def test_generated_pages_are_what_the_code_says(reference: Any, name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == reference.PAGES[name](), f"docs/{name} is out of date: run `make docs`"


def test_every_key_and_every_event_is_described(reference: Any) -> None:
    configuration, events = reference.configuration_page(), reference.events_page()
    keys = [key for key in valid_keys() if key != "model_options"]  # it has a heading of its own
    assert [key for key in keys if f"- `{key.rpartition('.')[2]}` (" not in configuration] == []
    assert [name for name in EVENT_TYPES if f"## {name}\n" not in events] == []
    assert re.findall(r"^- `.*\):\s*$", configuration + events, re.MULTILINE) == []  # described in no docstring


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    written = set(re.findall(r"tpu-console ([a-z]+)\b(?! trains| is)", _code(page)))
    written |= {f"runs {name}" for name in re.findall(r"tpu-console runs ([a-z]+)\b", _code(page))}
    assert written - all_commands().keys() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_and_keys_exist(page: Path) -> None:
    unknown = []
    for line in _code(page).replace("\\\n", " ").splitlines():
        for words, rest in re.findall(r"tpu-console ((?:runs )?[a-z]+)\b([^#|`]*)", line):
            name = "runs list" if words == "runs" else words
            command = all_commands().get(name)
            allowed = {option for parameter in command.params for option in parameter.opts} if command else set()
            unknown += [f"{name} {option}" for option in re.findall(r"(?<!\S)--[a-z-]+", rest) if option not in allowed]
        keys = [] if line.startswith("$ ") else re.findall(r"--set ([a-z_.]+)=", line)  # $ shows an error on purpose
        unknown += [key for key in keys if key not in valid_keys() and not key.startswith(_FREE_KEYS)]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_presets_are_valid(page: Path) -> None:
    for example in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        values = tomllib.loads(example)
        values.pop("preset", None)
        parse_config(values)


def test_every_preset_has_its_section() -> None:
    found, _ = all_presets()
    text = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
    assert [preset.name for preset in found if f"## {preset.name}\n" not in text] == []


@pytest.mark.parametrize("part", ["engine", "tui"])
def test_the_architecture_page_names_every_folder(part: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = {path.stem for path in (ROOT / part).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert [name for name in sorted(names - {"__init__"}) if f"`{name}`" not in text] == []


def test_the_pages_for_contributors_name_files_that_exist() -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("docs/architecture.md", "CONTRIBUTING.md"))
    named = set(re.findall(r"`((?:engine|tui|presets|tests)/[\w/.-]+)`", text))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def _code(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```.*?```", text, flags=re.DOTALL)
    quoted = re.findall(r"`[^`\n]+`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return "\n".join(line for part in [*blocks, *quoted] for line in part.splitlines())
