"""Loads pairs of sentences, such as those of the Anki project: source, tab and target on each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from ...config.data_options import TextPairsOptions
from ...errors import DataError
from ..examples import Examples, Input, Signature, Task
from ..tables import read_text, refuse_class_options, refuse_lines, require, shown
from ..vocabulary import PADDING, SENTENCES, Vocabulary, length_notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...config.run_config import RunConfig

_SAMPLES = 4
_LOSSES = ("sparse_categorical_crossentropy",)
_METRICS = ("accuracy", "sparse_categorical_accuracy", "sparse_top_k_categorical_accuracy")
Pair = tuple[str, str]


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Read the pairs, learn both vocabularies from the training pairs, and turn all words into numbers.

    The model reads the source sentence and the target sentence so far; the label is the target shifted by one word.
    Padding in a label has the weight 0, so that metrics ignore it.

    Raises:
        DataError: The file cannot be used, or the model or loss does not fit it.
    """
    options = TextPairsOptions.model_validate(config.data.options)
    require(config, "transformer", _LOSSES, _METRICS)
    refuse_class_options(config)
    on_fetch(f"reading {shown(options.path)}")
    pairs = read_pairs(options)
    train, validation = _split(pairs, config)
    source = Vocabulary.learn((pair[0] for pair in train), options.vocabulary)
    target = Vocabulary.learn((pair[1] for pair in train), options.vocabulary, SENTENCES)
    trained, held_out = (_encoded(part, source, target, options.length) for part in (train, validation))
    return Examples(
        train=tf.data.Dataset.from_tensor_slices(trained),
        validation=tf.data.Dataset.from_tensor_slices(held_out),
        train_count=len(train),
        validation_count=len(validation),
        signature=Signature(
            Task.TRANSLATION,
            {name: Input((options.length,), "int32") for name in ("source", "target")},
            sizes={"source_vocabulary": len(source), "target_vocabulary": len(target), "length": options.length},
        ),
        record={
            "kind": config.dataset,
            "source": source.words,
            "target": target.words,
            "length": options.length,
            "samples": validation[:_SAMPLES],
        },
        notices=length_notice(trained[1], "target sentences"),
    )


def read_pairs(options: TextPairsOptions) -> list[Pair]:
    """Read pairs of sentences; further columns, such as Anki's attribution, are ignored.

    Raises:
        DataError: A file cannot be read or has a line without two sentences, or two files differ in length.
    """
    path, (lines, targets) = options.path, _lines(options)
    pairs, broken = [], []
    for number, (line, other) in enumerate(zip(lines, targets, strict=True), 1):
        if not line.strip() and not other.strip():
            continue
        source, _, rest = line.partition("\t")
        target = other if options.target_path else rest.partition("\t")[0]
        if source.strip() and target.strip():
            pairs.append((source.strip(), target.strip()))
        else:
            broken.append(number)
    remedy = "Each line is a source sentence, a tab and a target sentence."
    refuse_lines(shown(path), broken, "no source and target sentence", remedy)
    return pairs


def _lines(options: TextPairsOptions) -> tuple[list[str], list[str]]:
    """Return the lines of the file, and of the file of targets; without that file, empty targets."""
    lines = read_text(options.path).rstrip("\n").split("\n")
    targets = read_text(options.target_path).rstrip("\n").split("\n") if options.target_path else [""] * len(lines)
    if len(lines) != len(targets):
        raise DataError(
            f"{shown(options.path)} has {len(lines):,} lines, and {shown(options.target_path)} {len(targets):,}.",
            remedy="Each line of one is the translation of the same line of the other.",
        )
    return lines[: options.limit or None], targets[: options.limit or None]


def _split(pairs: Sequence[Pair], config: RunConfig) -> tuple[list[Pair], list[Pair]]:
    held_out = max(1, round(len(pairs) * config.data.validation_fraction))
    if held_out >= len(pairs):
        raise DataError(
            f"{len(pairs):,} pairs of sentences are too few to split into training and validation data with "
            f"data.validation_fraction={config.data.validation_fraction}."
        )
    order = np.random.default_rng(config.seed).permutation(len(pairs))
    validation = [pairs[index] for index in order[:held_out]]
    train = [pairs[index] for index in order[held_out:]]
    return train[: config.data.train_limit or None], validation


def _encoded(
    pairs: Sequence[Pair], source: Vocabulary, target: Vocabulary, length: int
) -> tuple[dict[str, NDArray[np.int32]], NDArray[np.int32], NDArray[np.float32]]:
    """Return inputs, labels and the weight of each word of a label."""
    so_far, following = target.encode_targets([pair[1] for pair in pairs], length)
    inputs = {"source": source.encode([pair[0] for pair in pairs], length), "target": so_far}
    return inputs, following, (following != PADDING).astype(np.float32)
