"""Words and their numbers: real sentences, marks of many languages, what is unknown, and the way back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpu_console.engine.data.vocabulary import SENTENCES, Vocabulary, without_markup, words_of


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
