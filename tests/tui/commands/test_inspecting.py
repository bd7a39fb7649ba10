"""`tpu-console inspect` on real files, in its own job process as a person starts it."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.images import BAD_FILES, ODD_FILES, write_bad, write_image_folder, write_odd, write_plant_pathology
from tests.tui.calling import Call
from tests.words import write_pairs, write_ratings, write_text_folder
from tpu_console.engine.data.kinds.formats import config_for, guess
from tpu_console.engine.data.kinds.table import survey
from tpu_console.engine.data.kinds.text_pairs import TextPairsOptions, read_pairs
from tpu_console.engine.errors import DataError
from tpu_console.presets.catalog import load_preset
from tpu_console.tui.text.inspection import page

pytestmark = pytest.mark.usefixtures("forked_jobs")


def test_texts_parts_of_a_dataset_and_two_texts_side_by_side_are_found(tmp_path: Path) -> None:
    reviews = str(write_text_folder(tmp_path / "reviews", 3))
    assert guess(reviews) == ("text-folder", {"path": reviews})
    for name in ("train", "Test", "val"):
        write_image_folder(tmp_path / "photos" / name, per_class=1)
    train, val = (str(tmp_path / "photos" / name) for name in ("train", "val"))
    assert guess(str(tmp_path / "photos")) == ("image-folder", {"path": train, "validation_path": val})
    for name in ("seg_train", "seg_test"):
        write_image_folder(tmp_path / "intel" / "archive" / name / name, per_class=1)
    inner = tmp_path / "intel" / "archive"
    parts = {"path": inner / "seg_train" / "seg_train", "validation_path": inner / "seg_test" / "seg_test"}
    assert guess(str(tmp_path / "intel")) == ("image-folder", {option: str(path) for option, path in parts.items()})
    (tmp_path / "texts").mkdir()
    for name in ("train.de", "train.en", "val.de", "README.md"):
        (tmp_path / "texts" / name).write_text("a\nb\n", encoding="utf-8")
    both = {"path": str(tmp_path / "texts" / "train.en"), "target_path": str(tmp_path / "texts" / "train.de")}
    assert guess(str(tmp_path / "texts")) == ("text-pairs", both)
    config = config_for("text-pairs", both)
    found = survey(config)
    assert (found.total, found.problems) == (2, ())
    assert read_pairs(TextPairsOptions(**both)) == [("a", "a"), ("b", "b")]
    (tmp_path / "texts" / "train.de").write_text("a\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"train\.en has 2 lines, and .*train\.de 1"):
        read_pairs(TextPairsOptions(**both))


def test_other_files_are_not_taken_for_sentences_and_it_is_said_how_to_name_the_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)is not in a known format.*with a function of yours"):
        guess(str(tmp_path))
    for name, content in (("x.parquet", b"PAR1\x15\t\x04"), ("x.npy", b"\x93NUMPY\t"), ("x.bin", b"a\tb\0\xff")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as caught:
            guess(str(tmp_path / name))
        assert "iconv" not in str(caught.value)
        assert ("savez" in caught.value.remedy) == (name == "x.npy")
    for content in (b"", b"\x1f\x8bnonsense"):
        (tmp_path / "data.csv").write_bytes(content)
        with pytest.raises(DataError, match=re.escape(str(tmp_path / "data.csv"))):
            guess(str(tmp_path / "data.csv"))


def test_an_unknown_name_and_a_format_without_its_path_are_refused(call: Call) -> None:
    assert "'digits'" in call.refused("inspect", "digts")
    assert "data.options.path:" in call.refused("inspect", "image-csv")


def test_digits_are_described_in_plain_text(call: Call) -> None:
    out = call.out("inspect", "digits")
    lines = out.splitlines()
    assert "examples     1,437 training, 360 validation" in lines
    assert "inputs       image 8×8×1, float32" in lines
    assert [line for line in lines if line.startswith("3        146          37  10.2%  ██")]
    assert "\x1b" not in out
    assert max(map(len, lines)) <= 100
    # One picture of each class, in ASCII.
    assert lines[-1].split()[:5] == ["5", "6", "7", "8", "9"]
    assert any("@@" in line for line in lines[-9:])


@pytest.mark.slow
def test_bad_files_are_shown_and_nothing_is_refused(call: Call, tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "photos", per_class=8, size=(20, 30))
    for kind in ODD_FILES:
        write_odd(folder / "rose", kind)
    for kind in BAD_FILES:
        write_bad(folder / "tulip", kind)
    code, out, err = call("inspect", str(folder), "--json", "--set", "data.options.image_size=[32,32]")
    assert code == 0
    assert "image-folder" in err
    found = json.loads(out)
    assert found["bad"]["count"] > 8
    assert len(found["bad"]["first"]) == 10
    assert {"file": "tulip/empty.jpg", "problem": "is empty"} in found["bad"]["first"]
    assert found["images"]["turned"] == 1
    assert found["images"]["formats"]["JPEG"] > 24
    assert (found["images"]["height"]["min"], found["images"]["width"]["max"]) == (20, 60)
    assert found["train"] + found["validation"] == found["images"]["usable"]
    assert sum(entry["train"] + entry["validation"] for entry in found["classes"]) == found["images"]["usable"]
    assert {entry["caption"] for entry in found["pictures"]} == {"daisy", "rose", "tulip"}
    lines = page("image-folder", {"path": str(folder)}, found, 80)
    assert any(line.startswith("  tulip/empty.jpg ") for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_tables_of_images_texts_pairs_and_ratings_are_described(call: Call, tmp_path: Path) -> None:
    table = write_plant_pathology(tmp_path, 5)
    out = call.out("inspect", str(table), "--set", "data.options.image_size=[16,16]")
    assert all(part in out for part in ("4, of 5 examples each", "all 48×64", "multiple_diseases"))
    rows = [("loved every minute of it", "positive"), ("a very long and boring film", "negative")] * 20
    lines = [f"{text} {number},{label}\n" for number, (text, label) in enumerate(rows)]
    (tmp_path / "reviews.csv").write_text("".join(["review,sentiment\n", *lines]))
    texts = call.json("inspect", str(tmp_path / "reviews.csv"))
    assert texts["texts"]["words"]["text"]["max"] == 7
    assert {sample["label"] for sample in texts["texts"]["samples"]} <= {"positive", "negative"}
    assert 0 < texts["unknown_words"]["validation"]["text"] < 0.5
    ratings = [(n % 20, n % 31, n % 5 + 1.0, n) for n in range(400)]
    out = call.out("inspect", str(write_ratings(tmp_path / "ratings.csv", ratings)))
    assert all(part in out for part in ("400 by 20 users", "31 items", "64.52%", "mean 3.00"))
    out = call.out("inspect", str(write_pairs(tmp_path / "pairs.txt", 60)))
    assert "48 training, 12 validation" in out
    assert re.search(r"^source +\w", out, re.M)
    assert f" run {tmp_path / 'pairs.txt'}\n" in out
    preset = tmp_path / "mine.toml"
    out = call.out("inspect", str(tmp_path / "pairs.txt"), "--save", str(preset))
    assert out.splitlines()[-1].endswith(f" run {preset}")
    assert load_preset(preset).config.data.options == {"path": str(tmp_path / "pairs.txt"), "length": 10}


@pytest.mark.slow
def test_what_cannot_be_loaded_says_why_after_what_was_found_and_a_preset_where_its_data_comes_from(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("Go.\tVe.\nno tab\n")
    code, out, err = call("inspect", str(path))
    assert (code, "text-pairs" in out, "line 2" in err) == (1, True, True)
    assert "line 2" in json.loads(call("inspect", str(path), "--json")[1])["trouble"]["what"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    assert "Data source" in call("inspect", "nmt-transformer")[2]


def test_pipes_and_devices_among_the_images_are_named_and_do_not_hold_it_up(call: Call, tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "photos", ["a", "b"], per_class=4)
    os.mkfifo(folder / "a" / "pipe.jpg")
    (folder / "b" / "zero.png").symlink_to("/dev/zero")
    _, out, err = call("inspect", str(folder), "--json")
    bad = json.loads(out)["bad"]
    assert bad["count"] == 2, err
    assert {entry["file"]: entry["problem"].partition(",")[0] for entry in bad["first"]} == {
        "a/pipe.jpg": "is a pipe",
        "b/zero.png": "is a device",
    }
