"""What is no file among those of a dataset, of whatever kind: it is named, and nothing waits for it."""

import os
from pathlib import Path

import pytest

from tests.images import write_image_folder
from tpu_console.engine.data.images.check import check_image
from tpu_console.engine.data.kinds.formats import config_for, guess
from tpu_console.engine.data.kinds.image_files import ImageFolder
from tpu_console.engine.data.kinds.skimming import Survey
from tpu_console.engine.data.kinds.table import KINDS, load_examples, survey
from tpu_console.engine.data.row_files import decoded
from tpu_console.engine.errors import ConfigError, DataError
from tpu_console.engine.jobs.tfrecord import read_bytes
from tpu_console.engine.storage.files import NotAFileError, open_regular

ODD = {"pipe": "a pipe", "folder": "a folder", "zero": "a device", "full": "a device"}
FORMATS = sorted(name for name, kind in KINDS.items() if "path" in kind.Options.model_fields)


def make(path: Path, kind: str) -> Path:
    """Make something that is no file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "nothing":
        path.symlink_to(path.name if kind == "loop" else f"/dev/{kind}")
    return path


def surveyed(dataset: str, path: Path) -> Survey:
    return survey(config_for(dataset, {"path": str(path)}))


@pytest.mark.parametrize("kind", ODD)
def test_only_a_regular_file_is_opened(tmp_path: Path, kind: str) -> None:
    path, said = make(tmp_path / "x.jpg", kind), f"is {ODD[kind]}, not a regular file"
    with pytest.raises(NotAFileError) as caught:
        open_regular(path, follows_links=True)
    assert caught.value.strerror == f"it {said}"
    assert check_image(str(path)).problem == said
    for read in (decoded, read_bytes):
        with pytest.raises(DataError, match=f"cannot be read: it {said}"):
            read(str(path))


@pytest.mark.parametrize("kind", ["pipe", "folder", "zero", "loop", "nothing"])
@pytest.mark.parametrize("dataset", FORMATS)
def test_a_dataset_that_is_not_there_or_no_file_is_refused_in_one_sentence(
    tmp_path: Path, dataset: str, kind: str
) -> None:
    path = make(tmp_path / "data.csv", kind)
    (tmp_path / "images").mkdir()
    (problem,) = surveyed(dataset, path).problems
    assert problem.key == "data.options.path"
    assert "\n" not in problem.message
    assert str(path) in problem.message
    with pytest.raises(DataError) as caught:
        load_examples(config_for(dataset, {"path": str(path)}), lambda _: None)
    assert "\n" not in caught.value.what
    assert str(path) in caught.value.what
    assert "Errno" not in str(caught.value)
    if kind == "nothing":
        assert "data.options.path" in caught.value.remedy


@pytest.mark.parametrize("kind", [*ODD, "loop"])
def test_the_format_of_something_that_is_not_a_file_is_not_guessed(tmp_path: Path, kind: str) -> None:
    path = make(tmp_path / "data.csv", kind)
    with pytest.raises((ConfigError, DataError), match=r"cannot be read|does not exist|not in a known format"):
        guess(str(path))


def test_folders_named_like_images_and_loops_of_folders_are_walked_once(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "photos", ["a", "b"], per_class=3)
    (folder / "a" / "x.jpg").mkdir()
    (folder / "a" / "back").symlink_to(folder)
    assert surveyed("image-folder", folder).total == 6
    source = ImageFolder().read_source(
        config_for("image-folder", {"path": str(folder), "image_size": [8, 8]}), lambda _: None
    )
    assert len(source.paths) == 6


def test_a_file_without_line_feeds_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros.csv"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    for dataset in ("text-csv", "text-pairs", "ratings-csv"):
        assert surveyed(dataset, path).unknown == "is too large to count quickly"
    with pytest.raises(DataError, match="is not in a known format"):
        guess(str(path))
