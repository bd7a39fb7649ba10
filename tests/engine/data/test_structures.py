"""Data of every structure that `model.fit` takes, as a custom dataset function may return it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tests.helpers import small_config
from tpu_console.engine.data.cached_facts import function_record_of
from tpu_console.engine.data.examples import Examples, Input, PassCalls, Signature, Task
from tpu_console.engine.data.function_data import Part, PartReader, split_parts
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import UserCodeError
from tpu_console.engine.input.pipeline import build_pipeline
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan

X = np.arange(28, dtype="float64").reshape(7, 4)
Y = np.arange(7)
CITIES = np.array(["rome", "oslo", "bern", "rome", "oslo", "bern", "rome"])
DICT = {"age": X[:, 0], "city": CITIES}
SLICES = tf.data.Dataset.from_tensor_slices
PAIRS = datasets.Dataset.from_dict({"x": X.tolist(), "label": Y})
PLAIN = datasets.Dataset.from_dict({"age": X[:, 0], "city": CITIES, "kind": Y % 2}).class_encode_column("kind")


class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras is untyped
    """Three batches; the last is smaller."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[index * 3 : index * 3 + 3], Y[index * 3 : index * 3 + 3]


class Endless(keras.utils.PyDataset):  # type: ignore[misc]
    """Has no end, which Keras writes this way."""

    num_batches = None

    def __getitem__(self, index: int) -> Any:
        return X[:2], Y[:2]


class Uneven(Batches):
    """Leaves out an example of its first batch."""

    def __getitem__(self, index: int) -> Any:
        return X[index * 3 + (index == 0) : index * 3 + 3], Y[index * 3 + (index == 0) : index * 3 + 3]


class Harder(Batches):
    """Gives labels that say how many epochs have begun and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.ended = 0

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x, y + 100 * self.begun + 10 * self.ended

    def on_epoch_begin(self) -> None:
        self.begun += 1

    def on_epoch_end(self) -> None:
        self.ended += 1


class Loader:
    """Gives lists of arrays and knows how many, as torch's DataLoader does."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return (list(batch) for batch in batches())


class Stream(Loader):
    """Has a length that it does not know, as torch's loader of a stream."""

    def __len__(self) -> int:
        raise TypeError


def batches() -> Iterator[Any]:
    for index in range(3):
        yield X[index * 3 : index * 3 + 3], Y[index * 3 : index * 3 + 3]


def singles() -> Iterator[Any]:
    yield from zip(X, Y, strict=True)


def read_part(part: Any, name: str = "mine", *, count: bool = True) -> Part:
    return PartReader(name, count=count).read(part)


def shapes_of(dataset: Any) -> Any:
    return keras.tree.map_structure(lambda spec: (*spec.shape, spec.dtype.name), dataset.element_spec)


@pytest.mark.parametrize(
    ("part", "count", "x", "y"),
    [
        ((X, Y), 7, (4, "float32"), ("int64",)),
        ((pd.DataFrame(X), pd.Series(Y)), 7, (4, "float32"), ("int64",)),
        ((pd.DataFrame(DICT), pd.Series(Y)), 7, {"age": ("float32",), "city": ("string",)}, ("int64",)),
        ((DICT, {"price": X, "kind": Y}), 7, {"age": ("float32",), "city": ("string",)},
         {"price": (4, "float32"), "kind": ("int64",)}),
        (((X[:, :2], X[:, 2:]), Y), 7, ((2, "float32"), (2, "float32")), ("int64",)),
        (SLICES((X, Y)).batch(3), 7, (4, "float64"), ("int64",)),
        (SLICES((X, Y)).batch(1, drop_remainder=True).prefetch(1), 7, (4, "float64"), ("int64",)),
        (SLICES((DICT, Y)).batch(2), 7, {"age": ("float64",), "city": ("string",)}, ("int64",)),
        (Batches(), 7, (4, "float32"), ("int64",)),
        (batches, 7, (4, "float32"), ("int64",)),
        (singles, 7, (4, "float32"), ("int64",)),
        (Loader(), 7, (4, "float32"), ("int64",)),
        (Stream(), 7, (4, "float32"), ("int64",)),
        (PAIRS.to_iterable_dataset(), 7, (4, "float32"), ("int64",)),
        (PLAIN, 7, {"age": ("float32",), "city": ("string",)}, ("int64",)),
    ],
)  # fmt: skip
def test_every_structure_becomes_single_examples(part: Any, count: int | None, x: Any, y: Any) -> None:
    found = read_part(part)
    assert found.count == count
    assert shapes_of(found.dataset) == (x, y)
    assert sum(1 for _ in found.dataset) == 7
    assert sum(1 for _ in found.dataset) == 7  # a second epoch


def test_data_of_unknown_length_is_counted_unless_it_never_ends() -> None:
    assert read_part(Uneven()).count == 6
    assert read_part(batches, count=False).count is None
    endless = read_part(Endless())
    assert endless.count is None
    assert sum(1 for _ in endless.dataset.take(20)) == 20


def test_the_methods_of_a_py_dataset_are_called_before_and_after_each_pass() -> None:
    found, held_out = read_part(Harder()), read_part(Harder())
    examples = Examples(
        found.dataset,
        held_out.dataset,
        found.count,
        held_out.count,
        Signature(Task.OWN, {"example": Input((4,))}),
        is_fixed=False,
        pass_calls=(found.pass_calls, held_out.pass_calls),
    )
    data = build_pipeline(examples, small_config(batch_size=7), 1)
    assert [{int(label) // 10 for label in labels} for _, labels in data.train.take(3)] == [{10}, {21}, {32}]
    next(iter(data.calibration()))
    for epoch in range(2):
        assert {int(label) // 10 for _, labels in data.validation for label in labels} == {11 * epoch + 10}
    endless = read_part(type("Worse", (Endless,), {"on_epoch_end": print})())
    assert endless.notice.startswith("on_epoch_end of Worse")
    assert (endless.pass_calls, read_part(Endless()).notice) == (PassCalls(), "")


def test_windows_of_a_time_series_get_the_size_that_their_dataset_does_not_state() -> None:
    waves = np.arange(40.0)
    found = read_part(keras.utils.timeseries_dataset_from_array(waves[:-6, None], waves[6:], 6, batch_size=8))
    assert [tuple(spec.shape) for spec in found.dataset.element_spec] == [(6, 1), ()]
    assert found.count == len(list(found.dataset)) == 29


def test_a_generator_is_read_on_and_its_end_is_explained() -> None:
    dataset = read_part(batches(), "mine.py:data").dataset
    first = [int(label) for _, label in dataset.take(3)]
    assert first == [0, 1, 2]
    with pytest.raises(tf.errors.UnknownError, match=r"mine\.py:data ended; return its function"):
        list(dataset)


@pytest.mark.parametrize(
    ("returned", "has_validation"),
    [
        (((X, Y), (X, Y)), True),
        (((X, Y), None), False),
        ((X, Y), False),
        ((SLICES((X, Y)), SLICES((X, Y))), True),
        ((batches, batches), True),
        ((Batches(), None), False),
        ((DICT, Y), False),
        (((X, X), Y), False),
        (SLICES((X, Y)), False),
        (PAIRS, False),
        ((PAIRS, PAIRS.to_iterable_dataset()), True),
        (datasets.DatasetDict(train=PAIRS), False),
        (datasets.DatasetDict(test=PAIRS, train=PAIRS), True),
    ],
)
def test_two_parts_are_training_and_validation_and_arrays_are_not(returned: Any, has_validation: bool) -> None:
    assert (split_parts(returned)[1] is not None) == has_validation


@pytest.mark.parametrize(
    ("part", "says"), [((X, Y[:3]), "3 and 7 examples"), ("a.csv", "str"), (lambda: iter(()), "function")]
)
def test_what_fit_does_not_take_is_refused(part: Any, says: str) -> None:
    with pytest.raises(UserCodeError, match=says):
        read_part(part)


MINE = """
import datasets
import numpy as np
import tensorflow as tf
NAMES = ["ant", "bee", "cat"]
number = np.arange(9) % 3

def labeled(form):
    return number * 1.0, eval(form)

def keras():
    part = tf.data.Dataset.from_tensor_slices((number * 1.0, number)).batch(3)
    part.class_names = NAMES
    return part, part

def hub():
    features = datasets.Features({"image": datasets.Image(), "kind": datasets.ClassLabel(names=NAMES)})
    rows = {"image": [np.full((4, 4, 3), n, "uint8") for n in range(9)], "kind": number}
    return datasets.Dataset.from_dict(rows, features).train_test_split(3, shuffle=False)

def towns():
    x = {"age": np.ones(5), "city": np.array(["a"] * 5)}
    return x, {"price": np.ones((5, 2)), "kind": np.arange(5)}, np.ones(5)

def padded():
    lengths = tf.data.Dataset.from_tensor_slices(np.array([3, 3, 3, 3, 5, 6, 7, 8, 2, 9, 1]))
    return lengths.map(lambda length: (tf.range(length), tf.range(length) % 2)).padded_batch(4)

def ragged():
    tokens = tf.ragged.constant([[1, 2], [3], [4, 5, 6], [7], [8, 9], [10], [11], [12]])
    return tf.data.Dataset.from_tensor_slices((tokens, np.arange(8) % 2)).batch(4)

def both():
    part = tf.data.Dataset.from_tensor_slices((np.arange(22.0)[:, None], np.arange(22) % 2))
    return [part.batch(4), part.batch(5, drop_remainder=True)]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")


def loaded(name: str, **options: str) -> Examples:
    return load_examples(small_config(dataset=f"mine.py:{name}", data={"options": options}), lambda _: None)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("labels", "classes"),
    [("number", 3), ("number[:, None]", 3), ("np.eye(4)[number]", 4), ("number / 2", 0), ("(number / 2, number)", 0)],
)
def test_classes_are_counted(labels: str, classes: int) -> None:
    assert loaded("labeled", form=labels).signature.classes == classes


@pytest.mark.usefixtures("mine")
def test_classes_are_named_as_keras_and_the_hub_name_them() -> None:
    examples = loaded("keras")
    assert examples.class_names == examples.record["class_names"] == ("ant", "bee", "cat")
    examples = loaded("hub")
    assert (examples.class_names, examples.signature.classes) == (("ant", "bee", "cat"), 3)
    assert (examples.train_count, examples.validation_count) == (6, 3)
    assert [int(image[0, 0, 0]) for image, _ in examples.validation] == [6, 7, 8]


@pytest.mark.usefixtures("mine")
def test_the_plan_describes_the_structure() -> None:
    assert loaded("towns").signature.structure == {"age": (), "city": ()}
    record = function_record_of(small_config(dataset="mine.py:towns"))
    assert record is not None
    structure = "inputs age (float32), city (string); labels price 2 (float32), kind (int64); sample weight (float32)"
    assert record.structure == structure


def pipeline_of(name: str, batch_size: int, replicas: int = 1) -> Any:
    config = small_config(dataset=f"mine.py:{name}", batch_size=batch_size)
    return build_pipeline(load_examples(config, lambda _: None), config, replicas)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("name", ["padded", "ragged"])
@pytest.mark.parametrize("batch_size", [0, 8])
def test_batches_of_different_lengths_stay_as_they_are(name: str, batch_size: int) -> None:
    data = pipeline_of(name, batch_size)
    shapes = {"padded": [(4, 3), (4, 8), (3, 9)], "ragged": [(4, 3), (4, 2)]}[name]
    assert data.steps_per_epoch == len(shapes)
    seen = [x.bounding_shape() if name == "ragged" else tf.shape(x) for x, _ in data.train.take(2 * len(shapes))]
    assert [tuple(shape.numpy()) for shape in seen] == shapes * 2
    assert next(iter(data.train_from(1)))[0].shape == next(iter(data.train.skip(1)))[0].shape
    assert bool(data.examples.notices) == (batch_size > 0)


@pytest.mark.usefixtures("mine")
def test_other_batches_are_made_if_a_size_is_asked_for_and_validation_keeps_its_own() -> None:
    asked, as_it_is, shared = pipeline_of("both", 8), pipeline_of("both", 0), pipeline_of("both", 0, replicas=2)
    sizes = [[len(y) for _, y in data.train.take(data.steps_per_epoch)] for data in (asked, as_it_is, shared)]
    assert sizes == [[8, 8], [4, 4, 4, 4, 4, 2], [4, 4, 4, 4, 4, 2]]
    assert [int(x[0]) for batch, _ in as_it_is.train.take(6) for x in batch] == list(range(22))
    assert [data.validation.element_spec[0].shape[0] for data in (asked, as_it_is)] == [5, 5]
    assert {len(y) % 2 for _, y in shared.validation} == {0}
    plan = make_plan(small_config(dataset="mine.py:both", batch_size=0), Hardware())
    assert (plan.replica_batch, plan.steps_per_epoch, plan.images_per_epoch) == (4, 6, None)
