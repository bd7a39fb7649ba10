import errno
import os
from pathlib import Path

import pytest

from tests.helpers import gone_process, private_mode
from tpu_console.engine.storage import files
from tpu_console.engine.storage.files import (
    LinkError,
    NotAFileError,
    make_room,
    open_private,
    remove_drafts,
    whole_file,
    write_whole,
)


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


FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        *((OSError(number, ""), True) for number in (errno.ENOSPC, errno.EDQUOT)),
        *((error, True) for error in (OSError(f"a; {FULL}"), RuntimeError(FULL))),
        *((error, False) for error in (OSError(errno.EACCES, FULL), RuntimeError("a"))),
    ],
)
def test_a_full_disk_is_recognized_by_errno_or_else_by_the_message(error: Exception, is_full: bool) -> None:
    assert files.is_disk_full(error) is is_full


def test_a_path_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "real" / "deep").symlink_to("inner")
    for name in ("real/", "real/inner/a", "linked", "gone/a"):  # `open_private` does not follow the last part
        assert files.inside(tmp_path, name) == tmp_path / name
    for name in ("linked/", "linked/a", "real/deep/a"):
        with pytest.raises(LinkError):
            files.inside(tmp_path, name)
    with pytest.raises(LinkError):
        files.require_plain(tmp_path, ["gone", "real/"])
    (tmp_path / "real" / "deep").unlink()
    files.require_plain(tmp_path, ["gone", "real/"])


def test_hard_links_symbolic_links_and_oversized_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"mine")
    (tmp_path / "second").hardlink_to(tmp_path / "real")
    (tmp_path / "linked").symlink_to("real")
    files.require_plain(tmp_path, ["second"], are_written=False)
    with pytest.raises(NotAFileError, match="hard link"):
        files.require_plain(tmp_path, ["second"])
    for name, problem in (("second", "hard link"), ("linked", "it is a link")):
        with pytest.raises(NotAFileError, match=problem), open(tmp_path / name, "wb", opener=open_private):
            pass
    assert files.read_bytes(tmp_path / "second", 4) == b"mine"
    with pytest.raises(files.TooLargeError):
        files.read_bytes(tmp_path / "second", 3)
    assert files.folder_size(tmp_path) == 8 + len("real")


def test_the_least_recently_used_files_make_room_for_one_more(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for at, file in enumerate(files):
        file.write_bytes(bytes(100))
        os.utime(file, (at, at))
    os.utime(files[0], (9, 9))
    make_room([*files, tmp_path / "gone"], 300)
    assert all(file.exists() for file in files)
    make_room(files, 300, size=100)
    assert [file.exists() for file in files] == [True, False, True]
