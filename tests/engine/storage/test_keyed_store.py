import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import private_mode
from tpu_console.engine.storage.keyed_store import KeyedStore


@dataclass(frozen=True, slots=True)
class Size:
    shape: tuple[int | None, ...]
    name: str = ""


@pytest.fixture
def sizes(tmp_path: Path) -> KeyedStore[Size]:
    return KeyedStore("sizes.json", Size, lambda: tmp_path)


def test_a_value_is_read_back_unchanged(sizes: KeyedStore[Size], tmp_path: Path) -> None:
    assert sizes.get("a") is None
    sizes.put("a", Size((2, None)))
    sizes.put("b", Size((3,)))
    sizes.put("a", Size((4,)))
    assert (sizes.get("a"), sizes.get("b")) == (Size((4,)), Size((3,)))
    assert private_mode(tmp_path / "sizes.json") == 0o600


@pytest.mark.parametrize(
    "value",
    [3, [], {}, {"shape": "12"}, {"shape": ["1"]}, {"shape": [1.5]}, {"shape": [1], "name": 4}, {"shape": [True]}],
)
def test_a_value_of_another_type_counts_as_missing(sizes: KeyedStore[Size], tmp_path: Path, value: object) -> None:
    (tmp_path / "sizes.json").write_text(json.dumps({"a": value, "b": {"shape": [1]}}), encoding="utf-8")
    assert sizes.get("a") is None
    assert sizes.get("b") == Size((1,))


def test_texts_are_safe_to_show(sizes: KeyedStore[Size], tmp_path: Path) -> None:
    (tmp_path / "sizes.json").write_text('{"a": {"shape": [1], "name": "\\u001b[2J"}}', encoding="utf-8")
    assert sizes.get("a") == Size((1,), "\ufffd[2J")


def test_only_the_newest_values_stay(sizes: KeyedStore[Size], tmp_path: Path) -> None:
    values = {str(n): {"shape": [n]} for n in range(300)}
    (tmp_path / "sizes.json").write_text(json.dumps(values), encoding="utf-8")
    sizes.put("new", Size((0,)))
    assert len(json.loads((tmp_path / "sizes.json").read_text(encoding="utf-8"))) == 200
    assert sizes.get("new") is not None
    assert sizes.get("100") is None


def test_a_folder_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = KeyedStore[Size]("sizes.json", Size, lambda: tmp_path / "file")
    store.put("a", Size((1,)))
    assert store.get("a") is None
