"""What `inspect` found, recorded in `tests/record/texts/inspection.txt`, and pictures as a terminal shows them."""

import re
from pathlib import Path
from typing import Any

import pyte
import pytest
from rich.cells import cell_len

from tests.record import of_each, same_text
from tpu_console.engine.runs.class_report import Picture
from tpu_console.tui.text.inspection import Depth, depth_of, gallery, page


def images(height: tuple[int, ...], formats: dict[str, int], turned: int = 0) -> dict[str, Any]:
    sides = (dict(zip(("min", "median", "max"), side, strict=True)) for side in (height, (30, 30, 30)))
    figures = dict(zip(("height", "width"), sides, strict=True))
    return {"images": {"usable": 3, **figures, "formats": formats, "turned": turned, "bytes": 5000}}


BAD = [{"file": file, "problem": "is empty"} for file in (f"rose/{'l' * 200}.jpg", "a.jpg")]
PARTS = [{"what": "first epoch", "per_s": 500.0}, {"what": "later epochs", "per_s": 100_000.0}]
INPUTS = {"image": {"shape": [8, 8, 1], "dtype": "uint8"}, "age": {"shape": [], "dtype": "float32"}}
BINS = [{"low": 1, "high": 1, "count": 3}, {"low": 2, "high": 1200, "count": 5}]
WORDS = {"review": {"min": 1, "median": 4, "max": 1200, "cut": 0.125, "histogram": BINS}}
TEXTS = {"words": WORDS, "cut_at": 250, "samples": [{"review": "word " * 40, "label": "good"}]}
CASES: dict[str, dict[str, Any]] = {
    "many classes": {"classes": [{"name": f"class {n}", "train": n, "validation": 1} for n in range(100)]},
    "even classes": {"classes": [{"name": name, "train": 8, "validation": 2} for name in ("a", "b")]},
    "bad files": {"bad": {"count": 3, "first": BAD}},
    "speed": {"speed": {"unit": "images", "parts": PARTS, "advice": ["Cache it."]}},
    "images": images((20, 24, 60), {"JPEG": 2, "PNG": 1}, turned=1),
    "images of one size": images((20, 20, 20), {"PNG": 3}),
    "inputs": {"train": None, "validation": 1500, "inputs": INPUTS, "sizes": {"vocabulary_size": 10_000}},
    "facts": {"facts": {"label": "species"}, "notices": ["Something is odd."]},
    "texts": {"texts": TEXTS, "unknown_words": {"validation": {"review": 0.25}}},
}


def texts(_folder: Path) -> str:
    return of_each({name: page("mine.py:data", {"path": "data"}, found, 80) for name, found in CASES.items()})


def test_what_was_found_is_written_as_recorded(tmp_path: Path) -> None:
    same_text("inspection.txt", texts(tmp_path))


def halves(height: int = 16, width: int = 16) -> Picture:
    """A picture whose upper half is red and whose lower half is blue."""
    red, blue = bytes((255, 0, 0)) * width, bytes((0, 0, 255)) * width
    return Picture("halves", height, width, red * (height // 2) + blue * (height - height // 2))


def shown(lines: list[str], columns: int = 80) -> Any:
    screen = pyte.Screen(columns, max(24, len(lines) + 1))
    pyte.Stream(screen).feed("\r\n".join(lines))
    return screen


def test_colors_are_used_if_the_terminal_has_them() -> None:
    true = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for environment, expected in (
        (true, Depth.TRUE),
        ({"TERM": "xterm-direct"}, Depth.TRUE),
        ({"TERM": "xterm-256color"}, Depth.INDEXED),
        (true | {"NO_COLOR": "1"}, Depth.GREY),
        ({}, Depth.GREY),
    ):
        assert depth_of(environment, is_terminal=True, is_utf8=True) is expected
    assert {depth_of(true, is_terminal=one, is_utf8=not one) for one in (True, False)} == {Depth.GREY}


@pytest.mark.parametrize("depth", [Depth.TRUE, Depth.INDEXED])
def test_each_cell_shows_two_pixels_in_their_colors(depth: Depth) -> None:
    lines = gallery([halves()], 80, depth)
    assert ("38;2;255;0;0" in lines[0]) == (depth is Depth.TRUE)
    screen = shown(lines)
    cells = [[screen.buffer[row][column] for column in range(16)] for row in range(8)]
    assert {cell.data for row in cells for cell in row} == {"▀"}
    assert {(cell.fg, cell.bg) for row in cells[:4] for cell in row} == {("ff0000", "ff0000")}
    assert {(cell.fg, cell.bg) for row in cells[4:] for cell in row} == {("0000ff", "0000ff")}
    assert screen.buffer[0][16].bg == "default"
    assert screen.display[8].startswith("halves")


def test_without_color_light_and_dark_are_ascii_characters() -> None:
    rows = bytes((255, 255, 255)) * 8 * 4 + bytes(3) * 8 * 4
    assert gallery([Picture("x", 8, 8, rows)], 80, Depth.GREY) == ["@" * 16] * 4 + [""] * 4 + ["x"]
    lines = {level: gallery([Picture("", 4, 4, bytes([level]) * 48)], 16, Depth.GREY)[0] for level in (0, 128, 255)}
    assert lines == {0: "", 128: "+" * 16, 255: "@" * 16}


@pytest.mark.parametrize("depth", Depth)
def test_proportions_are_kept_as_closely_as_cells_allow(depth: Depth) -> None:
    for height, width in ((100, 50), (1, 48), (48, 1)):
        picture = Picture("", height, width, bytes((200, 10, 10)) * (height * width))
        screen = shown(gallery([picture], 80, depth))
        drawn = sum(screen.buffer[row][0].data != " " for row in range(20))
        across = sum(screen.buffer[0][column].data != " " for column in range(80))
        assert across == max(1, round(16 * width / max(height, width)))
        assert abs(2 * drawn - 16 * height / max(height, width)) <= 2


@pytest.mark.parametrize("width", [5, 40, 79, 220])
@pytest.mark.parametrize("depth", Depth)
def test_a_gallery_is_never_wider_than_its_width(width: int, depth: Depth) -> None:
    lines = gallery([Picture("健康な葉 of a plant", 5, 7, bytes(range(105)))] * 30, width, depth)
    assert lines
    assert all(cell_len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= width for line in lines)
