"""Shapes of batches that are told without loading anything, against those of the real pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from engine.config import RunConfig, parse_config
from engine.datasets import load_examples
from engine.examples import Task
from engine.pipeline import build_pipeline
from engine.preflight.inputs import ASSUMED_CLASSES, UnknownShapesError, batch_of
from tests.helpers import small_config

if TYPE_CHECKING:
    from pathlib import Path

    from engine.preflight.inputs import Batch


def _told(batch: Batch, size: int, weight: tuple[int, ...] | None) -> list[tuple[tuple[int | None, ...], str]]:
    parts = [*batch.inputs.values(), batch.label]
    told = [((size, *part.shape), part.dtype) for part in parts]
    return told if weight is None else [*told, ((size, *weight), "float32")]


def _real(dataset: Any) -> list[tuple[tuple[int | None, ...], str]]:
    return [(tuple(part.shape), part.dtype.name) for part in tf.nest.flatten(dataset.element_spec)]


def _check(config: RunConfig) -> Batch:
    """Compare what is told with what the pipeline gives; the order of inputs is that of their names."""
    data = build_pipeline(load_examples(config, lambda _: None), config, 1)
    batch = batch_of(config)
    size = config.batch_size
    assert sorted(_told(batch, size, batch.weight)) == sorted(_real(data.train))
    validation = sorted((shape[1:], kind) for shape, kind in _real(data.validation))
    assert validation == sorted((shape[1:], kind) for shape, kind in _told(batch, size, batch.validation_weight))
    return batch


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"label_smoothing": 0.1},
        {"class_weight": "balanced"},
        {"augmentation": {"mixup": 0.2, "flip": "horizontal"}},
        {"loss": "categorical_crossentropy"},
    ],
    ids=["plain", "smoothed", "balanced", "mixed", "one-hot"],
)
def test_digits(changes: dict[str, Any]) -> None:
    _check(small_config(**changes))


def test_pairs_of_sentences(tmp_path: Path) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text("".join(f"word{n} is here\tpalabra{n} esta aqui\n" for n in range(60)), encoding="utf-8")
    batch = _check(
        parse_config(
            {
                "dataset": "text-pairs",
                "model": "transformer",
                "batch_size": 8,
                "epochs": 1,
                "data": {"options": {"path": str(file), "vocabulary": 50, "length": 6}},
            }
        )
    )
    assert batch.signature.sizes == {"source_vocabulary": 50, "target_vocabulary": 50, "length": 6}


def test_ratings_are_sized_by_their_table(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    rows = [f"{user},{item},{(user + item) % 5 + 1}" for user in range(12) for item in range(8)]
    file.write_text("\n".join(["userId,movieId,rating", *rows]), encoding="utf-8")
    config = {
        "dataset": "ratings-csv",
        "model": "recommender",
        "batch_size": 8,
        "epochs": 1,
        "loss": "mean_squared_error",
        "metrics": ["root_mean_squared_error"],
        "data": {"options": {"path": str(file)}},
    }
    assert _check(parse_config(config)).signature.sizes == {"users": 13, "items": 9}
    file.unlink()
    with pytest.raises(UnknownShapesError, match="users and items"):
        batch_of(parse_config(config))


def _images(**options: Any) -> RunConfig:
    return parse_config(
        {
            "dataset": "image-csv",
            "model": "cnn",
            "batch_size": 8,
            "epochs": 1,
            "loss": "categorical_crossentropy",
            "data": {"options": {"image_size": [32, 24], **options}},
        }
    )


def test_images_whose_table_is_not_there_are_assumed_to_have_some_classes(tmp_path: Path) -> None:
    batch = batch_of(_images(path=str(tmp_path / "train.csv")))
    assert batch.signature.shape == (32, 24, 3)
    assert batch.label.shape == (ASSUMED_CLASSES,)
    assert "assumed" in batch.assumed


def test_columns_of_shares_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text("image,healthy,rust,scab\na,1,0,0\nb,0,1,0\n", encoding="utf-8")
    (tmp_path / "images").mkdir()
    batch = batch_of(_images(path=str(file)))
    assert (batch.signature.classes, batch.label.shape, batch.assumed) == (3, (3,), "")
    named = batch_of(_images(path=str(tmp_path / "gone.csv"), label_columns=["a", "b"]))
    assert (named.signature.task, named.signature.classes, named.assumed) == (Task.PROBABILITIES, 2, "")


def test_a_function_of_ones_own_is_not_called(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("raise SystemExit('it was loaded')\n", encoding="utf-8")
    with pytest.raises(UnknownShapesError, match="only when it is called"):
        batch_of(small_config(dataset=f"{file}:data"))
