"""Files are looked at before training: each that cannot be used is found, with the reason, and none is that can."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.images import BAD_FILES, ODD_FILES, jpeg_claiming, png_claiming, smooth, write_bad, write_odd
from tpu_console.engine.data.images.check import check_image, check_images

if TYPE_CHECKING:
    from pathlib import Path

REASONS = {
    "empty": "is empty",
    "text": "is not an image of a known format",
    "cut jpeg": "is cut off or damaged: image file is truncated",
    "cut png": "is cut off or damaged: Truncated File Read",
    "cut webp": "cannot be read: could not create decoder object",
    "cut gif": "is cut off or damaged: image file is truncated",
    "cut bmp": "is cut off or damaged: image file is truncated",
    "moving gif": "is an animation of 3 pictures",
    "corrupt png": "is cut off or damaged: broken PNG file",
    "gigapixel png": "claims to have more than 100 million pixels",
    "gigapixel jpeg": "claims to have more than 100 million pixels",
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_problems_are_reported(tmp_path: Path, kind: str) -> None:
    assert check_image(str(write_bad(tmp_path, kind))).problem.startswith(REASONS[kind])


@pytest.mark.parametrize("kind", ODD_FILES)
def test_odd_files_can_be_used(tmp_path: Path, kind: str) -> None:
    facts = check_image(str(write_odd(tmp_path, kind)))
    assert (facts.problem, facts.height, facts.width) == ("", 40, 60)
    assert facts.orientation == (6 if kind == "turned jpeg" else 1)


def test_missing_files_and_folders_are_reported(tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    assert check_image(str(tmp_path / "none.jpg")).problem == "is not there"
    assert check_image(str(tmp_path / "folder.jpg")).problem == "is a folder, not a regular file"


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    smooth().save(tmp_path / "scan.jpg", "TIFF")
    assert check_image(str(tmp_path / "scan.jpg")).problem == "is a TIFF file; JPEG, PNG, GIF, BMP and WEBP are read"


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_000, 10_001])
def test_the_largest_claim_that_is_believed(tmp_path: Path, side: int) -> None:
    (tmp_path / "a.png").write_bytes(png_claiming(side, 10_000))
    jpeg_claiming(tmp_path / "a.jpg", side, 10_000)
    problems = [check_image(str(tmp_path / name)).problem for name in ("a.png", "a.jpg")]
    expected = "" if side == 10_000 else "claims to have 10,001 × 10,000 pixels"
    assert problems == [expected] * 2


def test_bytes_behind_the_end_of_a_jpeg_are_no_damage(tmp_path: Path) -> None:
    for name, tail in (("zeros", bytes(3000)), ("notes", b"camera" * 2000)):
        path = tmp_path / f"{name}.jpg"
        smooth().save(path)
        path.write_bytes(path.read_bytes() + tail)
        assert check_image(str(path)).problem == ""


def test_every_cut_of_a_jpeg_or_png_is_found(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.png"):
        path = tmp_path / name
        smooth().save(path)
        content = path.read_bytes()
        for length in range(0, len(content) - 1, 23):
            path.write_bytes(content[:length])
            assert check_image(str(path)).problem, f"{name} of {length} bytes"


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "a.bmp"])
def test_any_content_of_a_file_is_handled(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    smooth().save(path)
    content, dice = path.read_bytes(), random.Random(name)
    for _ in range(40):
        changed = bytearray(content)
        for _ in range(dice.randint(1, 8)):
            changed[dice.randrange(min(len(changed), 600))] = dice.randrange(256)
        path.write_bytes(changed)
        facts = check_image(str(path))
        assert facts.problem or facts.width * facts.height <= 100_000_000


def test_facts_have_the_order_of_the_files(tmp_path: Path) -> None:
    paths = []
    for number in range(20):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.new("RGB", (number + 1, 5)).save(paths[-1])
    told: list[str] = []
    facts = check_images(paths, told.append, check_image)
    assert [fact.path for fact in facts] == paths
    assert [fact.width for fact in facts] == list(range(1, 21))
    assert told[0] == "checking 20 images"  # on a slow machine, how many are checked comes after it
