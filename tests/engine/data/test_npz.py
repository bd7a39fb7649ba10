"""Arrays of NumPy: which are inputs and labels, how they are split and scaled, and files that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.helpers import small_config
from tpu_console.engine.data.examples import Task
from tpu_console.engine.data.kinds.table import load_examples, survey
from tpu_console.engine.data.survey.formats import config_for, first_run
from tpu_console.engine.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.data.examples import Examples

WORDS = np.array(["rose", "daisy", "tulip"])[np.arange(30) % 3]


def saved(folder: Path, **arrays: Any) -> str:
    np.savez_compressed(folder / "mine.npz", **arrays)
    return str(folder / "mine.npz")


def loaded(path: str, **options: str) -> Examples:
    return load_examples(
        small_config(dataset="npz", model="mlp", data={"options": {"path": path, **options}}), lambda _: None
    )


def values(dataset: Any) -> tuple[Any, Any]:
    inputs, labels = zip(*dataset.as_numpy_iterator(), strict=True)
    return np.stack(inputs), np.stack(labels)


def test_rows_are_scaled_by_the_training_rows_and_words_are_classes(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(5, 3, size=(30, 4))
    rows[:, 2] = 7
    examples = loaded(saved(tmp_path, X=rows, Y=WORDS))
    assert examples.class_names == ("daisy", "rose", "tulip")
    assert (examples.signature.shape, examples.pixel_range) == ((4,), 0)
    train, labels = values(examples.train)
    assert np.allclose(train.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(train.std(axis=0), [1, 1, 0, 1], atol=1e-5)
    assert {*labels.tolist()} == {0, 1, 2}
    assert len(labels) + len(values(examples.validation)[1]) == 30


def test_images_keep_their_bytes_and_the_file_s_own_validation_arrays_are_used(tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, size=(30, 12, 10), dtype=np.uint8)
    numbers = np.arange(30) % 3 + 5
    path = saved(tmp_path, x_train=images, y_train=numbers[:, None], x_test=images[:6], y_test=numbers[:6])
    examples = loaded(path)
    assert (examples.signature.shape, examples.pixel_range, examples.class_names) == ((12, 10, 1), 255, ("5", "6", "7"))
    inputs, labels = values(examples.validation)
    assert inputs.dtype == np.uint8
    assert (inputs[..., 0] == images[:6]).all()
    assert labels.tolist() == (numbers[:6] - 5).tolist()
    start = first_run(path).config
    assert (start.model, start.model_options["filters"]) == ("cnn", [32])


def test_arrays_with_other_names_are_named(tmp_path: Path) -> None:
    two = first_run(saved(tmp_path, a=np.zeros((30, 2)), b=WORDS))
    assert load_examples(two.config, lambda _: None).class_names == ("daisy", "rose", "tulip")
    path = saved(tmp_path, a=np.zeros((30, 2)), b=WORDS, c=np.zeros((30, 3)))
    found = survey(config_for("npz", {"path": path}))
    assert "data.options.inputs" in found.problems[0].message
    named = survey(config_for("npz", {"path": path, "inputs": "a", "labels": "b"}))
    assert (named.total, {*named.classes}) == (30, {*WORDS.tolist()})


@pytest.mark.parametrize("has_validation", [False, True])
def test_labels_with_fractions_are_numbers(tmp_path: Path, has_validation: bool) -> None:
    prices = np.linspace(1, 20.5, 40)
    arrays = {"x_train": np.stack([prices, -prices], axis=1), "y_train": prices[:, None]}
    more = {"x_val": np.zeros((4, 2)), "y_val": np.ones(4)} if has_validation else {}
    config = first_run(saved(tmp_path, **arrays, **more)).config
    assert (config.data.options["label_type"], config.loss) == ("number", "mean_squared_error")
    examples = load_examples(config, lambda _: None)
    labels = values(examples.train)[1]
    assert examples.signature.task is Task.NUMBER
    assert examples.signature.label_mean == pytest.approx(labels.mean())
    assert {*labels.tolist()} <= {*prices.astype("float32").tolist()}
    assert (examples.train_count, examples.validation_count) == ((40, 4) if has_validation else (32, 8))
    assert loaded(saved(tmp_path, x=np.zeros((30, 2)), y=np.arange(30) % 3.0)).class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"x": np.zeros((30, 2)), "y": WORDS[:9]}, "one label each"),
        (
            {"x_train": np.zeros((30, 2)), "y_train": WORDS, "x_test": np.zeros((9, 3)), "y_test": WORDS[:9]},
            "same shape",
        ),
        ({"x": np.zeros((30, 2)), "y": np.linspace(0, 1, 30)}, "whole number"),
        ({"x": np.zeros((30, 2)), "y": np.arange(30)}, "not classes"),
        ({"x": np.full((30, 2), np.nan), "y": WORDS}, "Example 0"),
        ({"x": np.zeros(30), "y": WORDS}, "shape"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(tmp_path: Path, arrays: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        loaded(saved(tmp_path, **arrays))


def test_pickled_labels_are_never_read_and_damage_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.zeros((30, 2)), y=np.array([{}] * 30))
    with pytest.raises(DataError, match="allow_pickle"):
        loaded(path)
    found = survey(small_config(dataset="npz", model="mlp", data={"options": {"path": path}}))
    assert "allow_pickle" in found.problems[0].message
    (tmp_path / "cut.npz").write_bytes((tmp_path / "mine.npz").read_bytes()[:200])
    with pytest.raises(DataError, match=r"cut\.npz cannot be read"):
        loaded(str(tmp_path / "cut.npz"))
