"""Pairs of sentences and labelled texts: from files as people have them to numbers of fixed shapes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.engine.data.test_text_files import config
from tests.words import pairs, write_pairs, write_reviews
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.data.kinds.text_pairs import TextPairsOptions, read_pairs
from tpu_console.engine.data.vocabulary import Vocabulary, words_of

if TYPE_CHECKING:
    from pathlib import Path


def loaded(dataset: str, path: Path, options: dict[str, Any] | None = None, **changes: Any) -> Examples:
    return load_examples(config(dataset, path, options, **changes), lambda _: None)


@pytest.mark.parametrize("name", ["spa.txt", "spa.txt.gz"])
def test_pairs_are_read_without_their_attribution(tmp_path: Path, name: str) -> None:
    path = write_pairs(tmp_path / name, 50)
    assert read_pairs(TextPairsOptions(path=str(path))) == pairs(50)


def test_windows_line_ends_and_a_byte_order_mark_are_no_part_of_sentences(tmp_path: Path) -> None:
    path = tmp_path / "spa.txt"
    path.write_bytes("Go.\tVe.\r\nRun!\t¡Corre!\r\n\r\n".encode("utf-8-sig"))
    assert read_pairs(TextPairsOptions(path=str(path))) == [("Go.", "Ve."), ("Run!", "¡Corre!")]


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
    assert "of the target sentences fill all 4 words" in loaded("text-pairs", path, {"length": 4}).notices[0]
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


def test_class_numbers_follow_the_values_of_numbered_labels(tmp_path: Path) -> None:
    path = tmp_path / "stars.csv"
    path.write_text("text,label\n" + "".join(f"word,{n % 3 * 5}\n" for n in range(30)), encoding="utf-8")
    examples = loaded("text-csv", path)
    assert examples.class_names == ("0", "5", "10")
    assert sorted({int(label) for _, label in examples.train.as_numpy_iterator()}) == [0, 1, 2]
