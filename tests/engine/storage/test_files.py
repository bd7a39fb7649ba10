import os
from pathlib import Path

import pytest

from tests.helpers import gone_process, private_mode
from tpu_console.engine.storage.files import open_private, remove_drafts, whole_file, write_whole


def make(folder: Path, name: str, age_s: float) -> Path:
    path = folder / name
    path.write_text("half of it")
    os.utime(path, (path.stat().st_atime - age_s,) * 2)
    return path


def test_drafts_of_crashed_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    gone = gone_process()
    left = [
        make(tmp_path, f".draft-{gone}-speeds.json", 0),
        make(tmp_path, f".draft-{os.getpid()}-best.keras", 3600),  # the number was another process's before
    ]
    kept = [
        make(tmp_path, f".draft-{os.getpid()}-stop.json", 0),  # being written by a console
        make(tmp_path, "paces.json", 3600),
        make(tmp_path, ".gitignore", 3600),
        make(tmp_path, "mine.draft.toml", 3600),
    ]
    remove_drafts(tmp_path)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in kept)


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    steps: list[str] = []
    monkeypatch.setattr("os.fsync", lambda fd: steps.append(f"sync {path.exists()}"))
    write_whole(path, "text")
    assert steps == ["sync False", "sync True"]  # the file, and the folder once the name is in it


def test_a_file_that_others_could_read_becomes_private_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "errors.log"
    path.touch()
    path.chmod(0o644)
    with open(path, "a", encoding="utf-8", opener=open_private):
        pass
    assert private_mode(path) == 0o600


def test_a_draft_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine", encoding="utf-8")
    (tmp_path / f".draft-{os.getpid()}-a.json").symlink_to(other)
    write_whole(tmp_path / "a.json", "new")
    assert (other.read_text(encoding="utf-8"), (tmp_path / "a.json").read_text(encoding="utf-8")) == ("mine", "new")


def test_a_draft_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a", "half of it " * 10_000 + "\udcff")
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "a") as draft:
        draft.rename(tmp_path / "elsewhere")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "before")]
