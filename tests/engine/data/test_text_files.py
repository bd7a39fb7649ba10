"""Text files and tables that cannot be used are refused with the file, the line and what to do."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from tests.words import write_text_folder
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.kinds.table import KINDS, load_examples
from tpu_console.engine.data.survey.formats import config_for, first_run
from tpu_console.engine.errors import DataError
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig

_MODELS = {"text-pairs": "transformer", "text-csv": "text", "ratings-csv": "recommender"}
_RATINGS = {"loss": "mean_squared_error", "metrics": ["root_mean_squared_error"]}
REVIEWS = "text,label\n" + "".join(f'"film {n}, seen",{"good" if n % 2 else "bad"}\n' for n in range(20))


def config(dataset: str, path: Path | str, options: dict[str, Any] | None = None, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {"model": _MODELS[dataset], "batch_size": 4, "epochs": 1, "accelerator": "cpu"}
    if dataset == "ratings-csv":
        values |= _RATINGS
    data = {"options": {"path": str(path), **(options or {})}}
    return parse_config(values | {"dataset": dataset, "data": data} | changes)


def refusal(tmp_path: Path, dataset: str, content: bytes | str, **options: Any) -> str:
    path = tmp_path / "file.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        load_examples(config(dataset, path, options), lambda _: None)
    return str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize("dataset", _MODELS)
@pytest.mark.parametrize("content", [b"\n \r\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file(tmp_path: Path, dataset: str, content: bytes) -> None:
    assert refusal(tmp_path, dataset, content) == "FILE is empty."


_TEXTS = {
    "text-pairs": "".join(f"{word} no {n}.\tel {word} n.º {n}.\n" for n in range(9) for word in ("niño", "año")),
    "text-csv": "text,label\n" + "".join(f"el {word} {n},{word}\n" for n in range(9) for word in ("niño", "año")),
    "ratings-csv": "userId,movieId,rating\n" + "".join(f"niño {n % 4},{n},{n % 5}\n" for n in range(20)),
    "table-csv": "año,label\n" + "".join(f"{n},{word}\n" for n in range(9) for word in ("niño", "otro")),
    "x.jsonl": "".join(f'{{"text": "el {word} {n}", "label": "{word}"}}\n' for n in range(9) for word in ("niño", "a")),
}


@pytest.mark.parametrize(("encoding", "told"), [("cp1252", "Windows-1252"), ("utf-16", "UTF-16"), ("utf-8-sig", "")])
@pytest.mark.parametrize("name", _TEXTS)
def test_texts_in_any_encoding_are_read_and_what_is_unusual_is_said(
    tmp_path: Path, name: str, encoding: str, told: str
) -> None:
    dataset = name if name in KINDS else "text-csv"
    usual, path = (tmp_path / part / (name if "." in name else "data.csv") for part in ("usual", "other"))
    for file, written_in in ((usual, "utf-8"), (path, encoding)):
        file.parent.mkdir()
        file.write_bytes(_TEXTS[name].encode(written_in))
    (config, examples), (_, wanted) = (
        (one, load_examples(one, lambda _: None))
        for one in (config_for(dataset, {"path": str(at)}) for at in (path, usual))
    )
    assert {key: value for key, value in examples.record.items() if key != "encoding"} == wanted.record
    assert (examples.train_count, examples.class_names) == (wanted.train_count, wanted.class_names)
    notes = [text for _, text in first_run(str(path), [("dataset", dataset)]).notes]
    for texts in ([finding.text for finding in make_plan(config, Hardware()).advice], examples.notices, notes):
        said = [text for text in texts if "is read as" in text]
        assert len(said) == bool(told)
        assert all(told in text and path.name in text for text in said)


def test_a_folder_of_texts_may_have_several_encodings(tmp_path: Path) -> None:
    folder = write_text_folder(tmp_path / "texts", 6)
    first, second, *_ = sorted(folder.rglob("*.txt"))
    first.write_bytes("el niño".encode("cp1252"))
    second.write_bytes("el niño".encode("utf-16"))
    start = first_run(str(folder))
    examples = load_examples(start.config, lambda _: None)
    assert "niño" in examples.record["words"]
    for said in (" ".join(examples.notices), " ".join(text for _, text in start.notes)):
        assert "1 of 12 texts are read as Windows-1252" in said
        assert "1 of 12 texts are read as UTF-16" in said


def test_a_file_that_is_no_text_is_refused_with_the_byte(tmp_path: Path) -> None:
    assert "its byte 9" in refusal(tmp_path, "text-csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")


@pytest.mark.parametrize("dataset", _MODELS)
def test_a_missing_file_is_named_with_its_option(tmp_path: Path, dataset: str) -> None:
    with pytest.raises(DataError, match=r"There is no file .*spa\.txt") as caught:
        load_examples(config(dataset, tmp_path / "spa.txt"), lambda _: None)
    assert "data.options.path" in caught.value.remedy
    with pytest.raises(DataError, match="cannot be read: it is a folder, not a regular file"):
        load_examples(config(dataset, tmp_path), lambda _: None)


def test_lines_without_two_sentences_are_counted_and_named(tmp_path: Path) -> None:
    told = refusal(tmp_path, "text-pairs", "Go.\tVe.\r\n\r\nonly one\nRun!\t\n\tVete\tcredit\n")
    assert "FILE, 3 lines: 3, 4, 5: " in told
    told = refusal(tmp_path, "text-pairs", "".join(f"line {n}\n" for n in range(1, 2001)))
    assert ", 2,000 lines: " in told
    assert told.count(",") < 20
    assert "10 and 1,990 more" in told


def test_columns_that_are_not_there_name_the_nearest(tmp_path: Path) -> None:
    told = refusal(tmp_path, "text-csv", REVIEWS, inputs="texts")
    assert "'texts'; did you mean 'text'?" in told
    told = refusal(tmp_path, "ratings-csv", "userId,movie_id,rating\n1,2,3\n")
    assert "'movieId'; did you mean" in told
    told = refusal(tmp_path, "ratings-csv", "who,what,rating\n1,2,3\n")
    assert "has no column 'userId'; valid: rating, what, who. Set data.options.columns." in told


def test_rows_that_cannot_be_read(tmp_path: Path) -> None:
    assert "line 3: 4 cells" in refusal(tmp_path, "text-csv", "text,label\na,b\nc,d,e,f\n")
    assert "no rows" in refusal(tmp_path, "text-csv", "text,label\n")
    told = refusal(tmp_path, "text-csv", REVIEWS + ",good\nfine,\n")
    assert "line 22: nothing in" in told
    told = refusal(tmp_path, "text-csv", REVIEWS + "fine,\nfine, \n")
    assert "2 lines: 22, 23: nothing in" in told


def test_lines_are_numbered_as_an_editor_shows_them(tmp_path: Path) -> None:
    long = "x" * 200_000
    told = refusal(tmp_path, "text-csv", f'text,label\n"two\nlines",good\n\n  \n{long},bad\nfine,\nfine,bad\n')
    assert "line 7: nothing in" in told


@pytest.mark.parametrize("rating", ["", "five", "inf"])
def test_ratings_that_are_no_numbers(tmp_path: Path, rating: str) -> None:
    told = refusal(tmp_path, "ratings-csv", f"userId,movieId,rating,timestamp\n1,2,3.5,9\n1,3,{rating},9\n")
    assert "line 3: no number" in told
    told = refusal(tmp_path, "ratings-csv", f"1::2::3.5::9\n\n1::3::{rating}::9\n")
    assert "line 3: no number" in told


@pytest.mark.parametrize(
    ("dataset", "changes", "told"),
    [
        ("text-pairs", {"model": "mlp"}, "text-pairs does not work with model = 'mlp'. Set model to transformer"),
        ("text-csv", {"loss": "mean_squared_error"}, "categorical_crossentropy"),
        ("ratings-csv", {"metrics": ["accuracy"]}, "'accuracy'"),
        ("ratings-csv", {"class_weight": "balanced"}, "ratings-csv has no classes, which class_weight needs."),
    ],
)
def test_settings_that_do_not_suit_the_data_are_refused_before_reading(
    tmp_path: Path, dataset: str, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_examples(config(dataset, tmp_path / "not there", **changes), lambda _: None)
    assert told in str(caught.value)
