"""Turns texts into word numbers and back."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PADDING, UNKNOWN, START, END = range(4)
"""Numbers with a special meaning: padding, an unknown word, the start and end of a sentence."""
PLAIN = ("", "[UNK]")  # what every vocabulary starts with
SENTENCES = (*PLAIN, "[start]", "[end]")
"""What the vocabulary of a model's output starts with. No text contains these: brackets are dropped."""
_ENDS = (SENTENCES[PADDING], SENTENCES[END])
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")
_APOSTROPHES = "'’ʼ`´"  # are dropped (don't → dont); all other punctuation separates words, ¿ and – included


class _Marks(dict[int, str | int | None]):
    """A table for `str.translate`. A character is added when a text has it, because there are a million."""

    def __missing__(self, number: int) -> str | int | None:
        is_mark = unicodedata.category(chr(number))[0] in "PS"
        self[number] = (None if chr(number) in _APOSTROPHES else " ") if is_mark else number
        return self[number]


_MARKS = _Marks()


def words_of(text: str) -> list[str]:
    """Split a text into its words, in lower case and without punctuation.

    A language written without spaces gives whole sentences.
    """
    return text.lower().translate(_MARKS).split()


def length_notice(numbers: NDArray[np.int32], texts: str) -> tuple[str, ...]:
    """Return a notice if 1% of the encoded texts or more may be cut off."""
    share = float(np.mean(numbers[:, -1] != PADDING))
    if share < 0.01:
        return ()
    length = numbers.shape[1]
    return (f"{share:.0%} of the {texts} fill all {length} words of data.options.length and may be cut off.",)


def without_markup(text: str) -> str:
    """Remove HTML tags from a text, such as the ``<br />`` in film reviews."""
    return _MARKUP.sub(" ", text) if "<" in text else text


class Vocabulary:
    """The words that have their own number, in that order, starting with `PLAIN` or `SENTENCES`."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words)}

    @classmethod
    def learn(cls, texts: Iterable[str], largest: int, first: tuple[str, ...] = PLAIN) -> Vocabulary:
        """Take the most frequent words of texts after some special entries; on a tie, the one that occurs first."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(words_of(text))
        common = counts.most_common(largest - len(first))
        return cls((*first, *(word for word, _ in common)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """Turn texts into numbers, cut or padded to a length: shape ``(texts, length)``."""
        numbers = np.full((len(texts), length), PADDING, np.int32)
        number_of = self._numbers.get
        for row, text in zip(numbers, texts, strict=True):
            known = [number_of(word, UNKNOWN) for word in words_of(text)[:length]]
            row[: len(known)] = known
        return numbers

    def encode_targets(self, texts: Sequence[str], length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Turn sentences into a decoder's inputs and labels, both of shape ``(texts, length)``.

        They are the words so far, after the start mark, and the words that follow, with the end mark unless cut off.
        """
        said = self.encode(texts, length)
        has_room = said[:, -1] == PADDING
        ends = np.argmax(said == PADDING, axis=1)
        following = said.copy()
        following[has_room, ends[has_room]] = END
        so_far = np.where(following == PADDING, PADDING, np.insert(said, 0, START, axis=1)[:, :-1])
        return so_far.astype(np.int32), following

    def decode(self, numbers: Iterable[int]) -> str:
        """Return a sentence's words, up to its end."""
        words = (self.words[number] for number in numbers)
        return " ".join(takewhile(lambda word: word not in _ENDS, words))
