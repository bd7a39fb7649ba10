import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from tests.helpers import gone_process, leave_dead, private_mode
from tests.hostile_runs import HOSTILE, UNSAFE, large, loop, nested, zeros
from tpu_console.engine.errors import ConsoleError, RunNotFoundError
from tpu_console.engine.runs import run_directory
from tpu_console.engine.runs.run_directory import NO_ANNOTATIONS, RunDirectory, create_run, find_run, is_run, list_runs
from tpu_console.engine.storage.files import write_whole
from tpu_console.engine.storage.paths import runs_folder, user_presets_folder

NOON = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


def make(folder: Path, label: str = "digits", seconds: int = 0) -> RunDirectory:
    run = create_run(label, folder, NOON + timedelta(seconds=seconds))
    write_whole(run.config, "")
    run.journal.touch()
    return run


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("digits-cnn", "20261120-120000-digits-cnn"),
        ("my run/é", "20261120-120000-my-run"),
        ("../../etc", "20261120-120000-etc"),
        ("", "20261120-120000-run"),
        ("x" * 200, "20261120-120000-" + "x" * 64),
    ],
)
def test_a_run_is_named_by_its_start_and_its_label(tmp_path: Path, label: str, name: str) -> None:
    run = create_run(label, tmp_path, NOON)
    assert run.run_id == name
    assert run.path == tmp_path / name


def test_runs_created_in_the_same_second_have_unique_names_with_their_label(tmp_path: Path) -> None:
    names = [create_run("ab", tmp_path, NOON).run_id for _ in range(3)]
    assert names == ["20261120-120000-ab", "20261120-120000-ab-2", "20261120-120000-ab-3"]
    assert all(run_directory.is_named(name, "ab") for name in names)
    others = ("20261120-120000-abc", "20261120-120000-ab-c", "20261120-120000-ab2", "20261120-120000-c-ab", "ab")
    assert not any(run_directory.is_named(name, "ab") for name in others)


def test_folders_and_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run = create_run("a", tmp_path / "deep" / "runs", NOON)
        write_whole(run.summary, "text")
    finally:
        os.umask(before)
    assert {private_mode(path) for path in (run.path, run.control, run.path.parent)} == {0o700}
    assert private_mode(run.summary) == 0o600


@pytest.mark.parametrize("place", ["runs", "runs/below"])
def test_a_folder_that_cannot_be_written_is_one_sentence_and_a_remedy(tmp_path: Path, place: str) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(ConsoleError) as caught:
        create_run("a", tmp_path / place)
    assert str(tmp_path / place) in caught.value.what
    assert caught.value.what.count(".") == str(tmp_path / place).count(".") + 1
    assert "TPU_CONSOLE_HOME" in caught.value.remedy


def test_runs_are_listed_newest_first_and_other_folders_left_out(tmp_path: Path) -> None:
    made = [make(tmp_path, label, seconds) for label, seconds in (("z", 0), ("a", 2), ("m", 1))]
    (tmp_path / "20990101-000000-not-a-run").mkdir()
    (tmp_path / "file").touch()
    assert [run.path for run in list_runs(tmp_path)] == [made[1].path, made[2].path, made[0].path]
    assert list_runs(tmp_path / "absent") == []


def test_runs_of_one_second_are_listed_by_when_they_were_made(tmp_path: Path) -> None:
    made = []
    for number, label in enumerate(["b", "a", "c", "c"]):
        made.append(make(tmp_path, label))
        # As far apart as the coarsest clock of a file system needs.
        os.utime(made[-1].config, (1000 + number, 1000 + number))
    assert [run.path for run in list_runs(tmp_path)] == [run.path for run in reversed(made)]
    assert find_run(None, tmp_path) == made[-1]


def test_a_run_is_found_by_path_name_part_or_as_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make(tmp_path, "digits"), make(tmp_path, "mnist", 1)
    assert find_run(None, tmp_path) == second
    assert find_run(first.run_id, tmp_path) == first
    assert find_run("digits", tmp_path) == first
    assert find_run(str(first.path), tmp_path / "elsewhere") == first
    monkeypatch.chdir(tmp_path)
    assert find_run(f"./{first.run_id}") == first
    for run, title in ((first, "best"), (second, "best of all")):
        run_directory.write_annotations(run.path, run_directory.Annotations(title))
    assert [find_run(title, tmp_path) for title in ("best", "of all")] == [first, second]


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        ("20261120", "matches 2 runs", "20261120-120001-mnist, 20261120-120000-digits"),
        ("20261120-120000-digit5", "did you mean '20261120-120000-digits'", "tpu-console runs"),
        ("nothing", "There is no run named 'nothing'", "tpu-console runs"),
        ("./absent", "./absent does not exist", "tpu-console runs"),
        ("{folder}/empty", "empty is not a run: it has no events.jsonl", "tpu-console runs"),
        ("..", ".. is not a run", "tpu-console runs"),
    ],
)
def test_a_run_that_is_not_found_says_why_and_what_to_do(tmp_path: Path, name: str, what: str, remedy: str) -> None:
    make(tmp_path, "digits")
    make(tmp_path, "mnist", 1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunNotFoundError) as caught:
        find_run(name.format(folder=tmp_path), tmp_path)
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_one_variable_moves_runs_and_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))
    assert (runs_folder(), user_presets_folder()) == (tmp_path / "runs", tmp_path / "presets")
    monkeypatch.delenv("TPU_CONSOLE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert runs_folder() == tmp_path / "data" / "tpu-console" / "runs"
    assert user_presets_folder() == tmp_path / "config" / "tpu-console" / "presets"


def test_a_journal_or_a_configuration_makes_a_folder_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="tpu-console run digits-cnn"):
        find_run(None, tmp_path)
    run = create_run("a", tmp_path)
    assert not is_run(run.path)
    for path in (run.journal, run.config):
        path.touch()
        assert is_run(run.path)
        assert not is_run(path)
        path.unlink()


@pytest.fixture
def killed(run: RunDirectory) -> RunDirectory:
    run.journal.touch()
    run.cache.mkdir()
    (run.cache / "train_0.data").write_bytes(b"images")
    run.checkpoints.mkdir()
    leave_dead(run)
    return run


def test_the_process_that_trains_a_run_removes_what_the_one_before_left(killed: RunDirectory) -> None:
    left = [folder / f".draft-{gone_process()}-x" for folder in (killed.path, killed.checkpoints, killed.control)]
    reused = killed.path / f".draft-{os.getpid()}-model.keras"
    for path in (*left, reused):
        path.touch()
    os.utime(reused, (1e9, 1e9))
    written = killed.control / f".draft-{os.getpid()}-stop.json"  # by a console that runs
    written.touch()
    run_directory.discard_leftovers(killed)
    assert {path.name for path in killed.path.rglob("*")} == {
        "events.jsonl", "heartbeat.json", "reserved-space", "checkpoints", "control", written.name,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["checkpoints", "control", "cache"])
def test_nothing_is_removed_through_a_link(killed: RunDirectory, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in (".bashrc.1", "notes.7.draft", f".draft-{gone_process()}-x"):
        (elsewhere / file).touch()
    (killed.path / name).rename(tmp_path / "moved")
    (killed.path / name).symlink_to(elsewhere)
    run_directory.discard_leftovers(killed)
    assert len([*elsewhere.iterdir()]) == 3


WRITTEN = run_directory.Annotations("my best", ("baseline", "b"), "as in the paper", archived=True)


def test_what_is_written_is_read_and_private(run: RunDirectory) -> None:
    assert run_directory.read_annotations(run.path) == NO_ANNOTATIONS
    run_directory.write_annotations(run.path, WRITTEN)
    assert run_directory.read_annotations(run.path) == WRITTEN
    assert private_mode(run.annotations) == 0o600
    for _ in range(2):
        run_directory.write_annotations(run.path, NO_ANNOTATIONS)
        assert not run.annotations.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", nested(100_000).encode(), zeros, loop, large])
def test_a_damaged_file_is_as_none(run: RunDirectory, content: bytes | Callable[[Path], object]) -> None:
    content(run.annotations) if callable(content) else run.annotations.write_bytes(content)
    assert run_directory.read_annotations(run.path) == NO_ANNOTATIONS


def test_hostile_text_is_cleaned_and_cut_off(run: RunDirectory) -> None:
    values = {"title": HOSTILE * 9, "tags": [HOSTILE, 7, "", "a, b", *map(str, range(99))], "note": HOSTILE * 99}
    run.annotations.write_text(json.dumps(values | {"archived": "yes", "new": 1}))
    found = run_directory.read_annotations(run.path)
    assert not UNSAFE & {*found.title, *found.note, *"".join(found.tags)}
    assert (len(found.title), len(found.note), len(found.tags)) == (80, 2000, 20)
    assert all(len(tag) <= 40 and not set(" ,") & {*tag} for tag in found.tags)
    assert "a-b" in found.tags
    assert found.archived is False


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(
    st.sampled_from(["title", "tags", "note", "archived"]), v)))  # fmt: skip
def test_cleaning_takes_anything_and_changes_nothing_the_second_time(values: Any) -> None:
    once = run_directory.cleaned(values)
    assert run_directory.cleaned(asdict(once)) == once
