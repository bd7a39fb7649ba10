"""What a person writes on a run, and what a stranger may have written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from tests.helpers import private_mode
from tests.hostile_runs import HOSTILE, UNSAFE, large, loop, nested, zeros
from tpu_console.engine.runs.run_directory import (
    NO_ANNOTATIONS,
    Annotations,
    RunDirectory,
    cleaned,
    create_run,
    read_annotations,
    write_annotations,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITTEN = Annotations("my best", ("baseline", "b"), "as in the paper", archived=True)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return create_run("run", tmp_path)


def test_what_is_written_is_read_and_private(run: RunDirectory) -> None:
    assert read_annotations(run.path) == NO_ANNOTATIONS
    write_annotations(run.path, WRITTEN)
    assert read_annotations(run.path) == WRITTEN
    assert private_mode(run.annotations) == 0o600
    write_annotations(run.path, NO_ANNOTATIONS)
    assert not run.annotations.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", nested(100_000).encode(), zeros, loop, large])
def test_a_damaged_file_is_as_none(run: RunDirectory, content: bytes | Callable[[Path], object]) -> None:
    content(run.annotations) if callable(content) else run.annotations.write_bytes(content)
    assert read_annotations(run.path) == NO_ANNOTATIONS


def test_hostile_text_is_cleaned_and_cut_off(run: RunDirectory) -> None:
    values = {"title": HOSTILE * 9, "tags": [HOSTILE, 7, "", "a, b", *map(str, range(99))], "note": HOSTILE * 99}
    run.annotations.write_text(json.dumps(values | {"archived": "yes", "new": 1}))
    found = read_annotations(run.path)
    assert not UNSAFE & {*found.title, *found.note, *"".join(found.tags)}
    assert (len(found.title), len(found.note), len(found.tags)) == (80, 2000, 20)
    assert all(len(tag) <= 40 and not set(" ,") & {*tag} for tag in found.tags)
    assert "a-b" in found.tags
    assert found.archived is False


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(
    st.sampled_from(["title", "tags", "note", "archived"]), v)))  # fmt: skip
def test_cleaning_takes_anything_and_changes_nothing_the_second_time(values: Any) -> None:
    once = cleaned(values)
    assert cleaned(asdict(once)) == once
