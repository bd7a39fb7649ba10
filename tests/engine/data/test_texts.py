"""Texts: words and their numbers, pairs of sentences, labeled texts as people have them, and files that are refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.words import MODELS, config, pairs, write_pairs, write_reviews, write_text_folder
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.formats import config_for, first_run
from tpu_console.engine.data.kinds.table import KINDS, load_examples
from tpu_console.engine.data.kinds.text_pairs import TextPairsOptions, read_pairs
from tpu_console.engine.data.vocabulary import SENTENCES, Vocabulary, without_markup, words_of
from tpu_console.engine.errors import DataError
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan


def loaded(dataset: str, path: Path, options: dict[str, Any] | None = None, **changes: Any) -> Examples:
    return load_examples(config(dataset, path, options, **changes), lambda _: None)


@pytest.mark.parametrize("name", ["spa.txt", "spa.txt.gz"])
def test_pairs_are_read_without_their_attribution(tmp_path: Path, name: str) -> None:
    path = write_pairs(tmp_path / name, 50)
    assert read_pairs(TextPairsOptions(path=str(path))) == pairs(50)
    as_windows_writes = "Go.\tVe.\r\nRun!\t¡Corre!\r\n\r\n".encode("utf-8-sig")
    (tmp_path / "spa.txt").write_bytes(as_windows_writes)
    assert read_pairs(TextPairsOptions(path=str(tmp_path / "spa.txt"))) == [("Go.", "Ve."), ("Run!", "¡Corre!")]


def test_pairs_become_numbers_and_back(tmp_path: Path) -> None:
    examples = loaded("text-pairs", write_pairs(tmp_path / "spa.txt", 400), {"length": 8})
    assert (examples.train_count, examples.validation_count) == (320, 80)
    signature = examples.signature
    assert signature.task is Task.TRANSLATION
    assert {name: (part.shape, part.dtype) for name, part in signature.inputs.items()} == {
        "source": ((8,), "int32"),
        "target": ((8,), "int32"),
    }
    record = json.loads(json.dumps(examples.record))
    source, target = Vocabulary(record["source"]), Vocabulary(record["target"])
    assert signature.sizes == {"source_vocabulary": len(source), "target_vocabulary": len(target), "length": 8}
    known = dict(pairs(400))
    translations = {" ".join(words_of(said)): " ".join(words_of(translated)) for said, translated in known.items()}
    for inputs, label, weight in examples.train.concatenate(examples.validation).as_numpy_iterator():
        assert translations[source.decode(inputs["source"])] == target.decode(label)
        assert weight.tolist() == [1.0] * (len(words_of(target.decode(label))) + 1) + [0.0] * int((label == 0).sum())
        assert label.dtype == inputs["source"].dtype == np.int32
    assert [tuple(sample) for sample in record["samples"]] == [(said, known[said]) for said, _ in record["samples"]]
    assert len(record["samples"]) == 4


def test_the_split_of_pairs_comes_from_the_seed_and_the_vocabulary_from_training_pairs(tmp_path: Path) -> None:
    path = tmp_path / "spa.txt"
    path.write_text("".join(f"source{n} here\ttarget{n} aquí\n" for n in range(20)), encoding="utf-8")
    first, again, other = (loaded("text-pairs", path, seed=seed) for seed in (1, 1, 2))
    assert first.record == again.record != other.record
    held_out = {words_of(source)[0] for source, _ in first.record["samples"]}
    assert held_out.isdisjoint(first.record["source"])
    limited = loaded("text-pairs", path, data={"options": {"path": str(path)}, "train_limit": 5})
    assert limited.train_count == 5
    assert len(limited.record["source"]) == 2 + 1 + 5


def test_cut_sentences_are_reported(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "spa.txt", 100)
    assert len(loaded("text-pairs", path, {"length": 4}).notices) == 1
    assert loaded("text-pairs", path).notices == ()


def test_reviews_become_numbers_class_by_class(tmp_path: Path) -> None:
    path = write_reviews(tmp_path / "IMDB Dataset.csv", 200)
    options = {"inputs": "review", "label": "sentiment", "length": 70, "vocabulary": 60}
    examples = loaded("text-csv", path, options)
    assert examples.class_names == ("negative", "positive")
    assert (examples.train_count, examples.validation_count) == (160, 40)
    assert examples.record["class_counts"] == {"train": [80, 80], "validation": [20, 20]}
    assert (examples.signature.shape, examples.signature.classes) == ((70,), 2)
    vocabulary = Vocabulary(examples.record["words"])
    assert examples.signature.sizes == {"vocabulary": len(vocabulary)}
    assert "br" not in vocabulary.words
    assert "wasnt" in vocabulary.words
    praise = {"wonderful", "moving", "brilliant", "superb", "delightful", "gripping"}
    for numbers, label in examples.validation.as_numpy_iterator():
        assert bool(praise & set(vocabulary.decode(numbers).split())) == bool(label)


REVIEWS = "text,label\n" + "".join(f'"film {n}, seen",{"good" if n % 2 else "bad"}\n' for n in range(20))


def refusal(tmp_path: Path, dataset: str, content: bytes | str, **options: Any) -> str:
    path = tmp_path / "file.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        load_examples(config(dataset, path, options), lambda _: None)
    return str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize("dataset", MODELS)
@pytest.mark.parametrize("content", [b"\n \r\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file(tmp_path: Path, dataset: str, content: bytes) -> None:
    assert refusal(tmp_path, dataset, content) == "FILE is empty."


TEXTS = {
    "text-pairs": "".join(f"{word} no {n}.\tel {word} n.º {n}.\n" for n in range(9) for word in ("niño", "año")),
    "text-csv": "text,label\n" + "".join(f"el {word} {n},{word}\n" for n in range(9) for word in ("niño", "año")),
    "ratings-csv": "userId,movieId,rating\n" + "".join(f"niño {n % 4},{n},{n % 5}\n" for n in range(20)),
    "table-csv": "año,label\n" + "".join(f"{n},{word}\n" for n in range(9) for word in ("niño", "otro")),
    "x.jsonl": "".join(f'{{"text": "el {word} {n}", "label": "{word}"}}\n' for n in range(9) for word in ("niño", "a")),
}


@pytest.mark.parametrize(("encoding", "told"), [("cp1252", "Windows-1252"), ("utf-16", "UTF-16"), ("utf-8-sig", "")])
@pytest.mark.parametrize("name", TEXTS)
def test_texts_in_any_encoding_are_read_and_what_is_unusual_is_said(
    tmp_path: Path, name: str, encoding: str, told: str
) -> None:
    dataset = name if name in KINDS else "text-csv"
    usual, path = (tmp_path / part / (name if "." in name else "data.csv") for part in ("usual", "other"))
    for file, written_in in ((usual, "utf-8"), (path, encoding)):
        file.parent.mkdir()
        file.write_bytes(TEXTS[name].encode(written_in))
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
        assert [said.count(part) for part in ("1 of 12 texts", "Windows-1252", "UTF-16")] == [2, 1, 1]


LONG = "x" * 200_000


@pytest.mark.parametrize(
    ("dataset", "content", "options", "says"),
    [
        ("text-csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", {}, "its byte 9"),
        ("text-csv", REVIEWS, {"inputs": "texts"}, "'texts'; did you mean 'text'?"),
        ("ratings-csv", "userId,movie_id,rating\n1,2,3\n", {}, "'movieId'; did you mean"),
        (
            "ratings-csv",
            "who,what,rating\n1,2,3\n",
            {},
            "'userId'; valid: rating, what, who. Set data.options.columns.",
        ),
        ("text-csv", "text,label\na,b\nc,d,e,f\n", {}, "line 3: 4 cells"),
        ("text-csv", "text,label\n", {}, "has a header but no rows"),
        ("text-csv", REVIEWS + ",good\nfine,\n", {}, "line 22: nothing in"),
        ("text-csv", REVIEWS + "fine,\nfine, \n", {}, "2 lines: 22, 23: nothing in"),
        # Lines are numbered as an editor shows them.
        ("text-csv", f'text,label\n"two\nlines",good\n\n  \n{LONG},bad\nfine,\nfine,bad\n', {}, "line 7: nothing in"),
        ("text-pairs", "Go.\tVe.\r\n\r\nonly one\nRun!\t\n\tVete\tcredit\n", {}, "FILE, 3 lines: 3, 4, 5: "),
        ("text-pairs", "alone\n" * 2000, {}, "FILE, 2,000 lines: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 1,990 more: "),
        *(
            ("ratings-csv", content.format(rating), {}, "line 3: no number")
            for rating in ("", "five", "inf")
            for content in ("userId,movieId,rating,timestamp\n1,2,3.5,9\n1,3,{},9\n", "1::2::3.5::9\n\n1::3::{}::9\n")
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_or_column(
    tmp_path: Path, dataset: str, content: bytes | str, options: dict[str, Any], says: str
) -> None:
    assert says in refusal(tmp_path, dataset, content, **options)


@pytest.mark.parametrize(
    ("dataset", "changes", "told"),
    [
        ("text-pairs", {"model": "mlp"}, "text-pairs does not work with model = 'mlp'. Set model to transformer"),
        ("text-csv", {"loss": "mean_squared_error"}, "categorical_crossentropy"),
        ("ratings-csv", {"class_weight": "balanced"}, "ratings-csv has no classes, which class_weight needs."),
    ],
)
def test_settings_that_do_not_suit_the_data_are_refused_before_reading(
    tmp_path: Path, dataset: str, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_examples(config(dataset, tmp_path / "not there", **changes), lambda _: None)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("¿Puedes bailar, ¿verdad?", ["puedes", "bailar", "verdad"]),
        ("Don't — it’s ‘Tom’!", ["dont", "its", "tom"]),
        ("ÉCOLE d'été; Straße (naïve)", ["école", "dété", "straße", "naïve"]),
        ("1,000 £ + 10/10 «très»…", ["1", "000", "10", "10", "très"]),
        ("[start] of [UNK] [end]", ["start", "of", "unk", "end"]),
        ("\u3000日本語。\u00a0はい！", ["日本語", "はい"]),
        ("?!", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_markup_is_dropped_and_comparisons_stay() -> None:
    assert words_of(without_markup("Good.<br /><br />Really<b>!</b>")) == ["good", "really"]
    assert without_markup("1 < 2 and 3 > 2") == "1 < 2 and 3 > 2"


def test_frequent_words_come_first_and_rare_ones_are_unknown() -> None:
    vocabulary = Vocabulary.learn(["a b a c", "c a d"], 5)
    assert vocabulary.words == ("", "[UNK]", "a", "c", "b")
    assert vocabulary.encode(["A d! b", "c a b a c", ""], 4).tolist() == [[2, 1, 4, 0], [3, 2, 4, 2], [0, 0, 0, 0]]


def test_a_target_sentence_becomes_inputs_and_labels_shifted_by_one_word() -> None:
    vocabulary = Vocabulary.learn(["yo leo libros"], 10, SENTENCES)
    so_far, following = vocabulary.encode_targets(["yo leo", "leo libros yo", "yo leo libros yo", "¡!"], 3)
    yo, leo, libros = 4, 5, 6
    assert following.tolist() == [[yo, leo, 3], [leo, libros, yo], [yo, leo, libros], [3, 0, 0]]
    assert so_far.tolist() == [[2, yo, leo], [2, leo, libros], [2, yo, leo], [2, 0, 0]]
    assert so_far.dtype == following.dtype == np.int32


@settings(max_examples=30)
@given(st.lists(st.text(max_size=30), max_size=6), st.integers(2, 8))
def test_every_encoded_number_belongs_to_a_word(texts: list[str], length: int) -> None:
    vocabulary = Vocabulary.learn(texts, 12, SENTENCES)
    numbers = vocabulary.encode(texts, length)
    assert numbers.shape == (len(texts), length)
    assert not np.isin(numbers, [2, 3]).any(), "the marks of start and end come from no text"
    assert numbers.max(initial=0) < len(vocabulary) <= 12
    so_far, following = vocabulary.encode_targets(texts, length)
    assert ((following != 0) == (so_far != 0)).all()
    for row, text in zip(numbers, texts, strict=True):
        known = [word if word in vocabulary.words else "[UNK]" for word in words_of(text)[:length]]
        assert vocabulary.decode(row) == " ".join(known)
