"""Words and their numbers: how texts become what a model reads, and back."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

PADDING, UNKNOWN, START, END = range(4)
"""Numbers that are no words: what fills a text up, a word that is not in the vocabulary, a sentence's ends."""

_UNKNOWN_WORD = "[UNK]"
PLAIN = ("", _UNKNOWN_WORD)
"""What every vocabulary begins with."""

SENTENCES = (*PLAIN, "[start]", "[end]")
"""What the vocabulary of sentences that a model writes begins with. No text holds these: brackets are dropped."""

_ENDS = (SENTENCES[PADDING], SENTENCES[END])

_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")

# Apostrophes join what they stand between (don't → dont), every other mark separates, ¿ and – included.
_APOSTROPHES = "'’ʼ`´"
_MARKS = {
    number: None if chr(number) in _APOSTROPHES else " "
    for number in range(sys.maxunicode + 1)
    if unicodedata.category(chr(number))[0] in "PS"
}


def words_of(text: str) -> list[str]:
    """Split a text into its words, in lower case and without punctuation.

    Words are what spaces and punctuation separate; a language written without spaces gives whole sentences.
    """
    return text.lower().translate(_MARKS).split()


def length_notice(numbers: NDArray[np.int32], texts: str) -> tuple[str, ...]:
    """Return a notice if 1% of the texts or more may be cut off.

    Args:
        numbers: What `Vocabulary.encode` returned.
        texts: What the texts are called.
    """
    share = float(np.mean(numbers[:, -1] != PADDING))
    if share < 0.01:
        return ()
    length = numbers.shape[1]
    return (f"{share:.0%} of the {texts} fill all {length} words of data.options.length and may be cut off.",)


def without_markup(text: str) -> str:
    """Return a text without HTML tags, such as the ``<br />`` of film reviews."""
    return _MARKUP.sub(" ", text) if "<" in text else text


class Vocabulary:
    """The words that have a number of their own.

    Args:
        words: All of them by number; the first ones are `PLAIN` or `SENTENCES`.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words)}

    @classmethod
    def learn(cls, texts: Iterable[str], largest: int, first: tuple[str, ...] = PLAIN) -> Vocabulary:
        """Take the most frequent words of texts; of two equally frequent ones the one that came first.

        Args:
            texts: The texts.
            largest: How many numbers there are at most, those of `first` included.
            first: The numbers that are no words.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(words_of(text))
        common = counts.most_common(largest - len(first))
        return cls((*first, *(word for word, _ in common)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """Write texts as numbers, cut or filled up to a length.

        Args:
            texts: The texts.
            length: Numbers a text.

        Returns:
            Shape ``(texts, length)``.
        """
        numbers = np.full((len(texts), length), PADDING, np.int32)
        number_of = self._numbers.get
        for row, text in zip(numbers, texts, strict=True):
            known = [number_of(word, UNKNOWN) for word in words_of(text)[:length]]
            row[: len(known)] = known
        return numbers

    def encode_targets(self, texts: Sequence[str], length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Write sentences as what a model reads of them and what it has to say next.

        Returns:
            The words so far, with the mark of the start before them, and the words that follow, with the mark of
            the end behind them, unless they were cut; both of shape ``(texts, length)``.
        """
        said = self.encode(texts, length)
        has_room = said[:, -1] == PADDING
        ends = np.argmax(said == PADDING, axis=1)
        following = said.copy()
        following[has_room, ends[has_room]] = END
        so_far = np.where(following == PADDING, PADDING, np.insert(said, 0, START, axis=1)[:, :-1])
        return so_far.astype(np.int32), following

    def decode(self, numbers: Iterable[int]) -> str:
        """Write the words of a sentence, up to its end."""
        words = (self.words[number] for number in numbers)
        return " ".join(takewhile(lambda word: word not in _ENDS, words))
