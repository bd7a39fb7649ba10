"""What is known of a choice: shapes of batches, compared with the real pipeline, and verdicts that are kept."""

import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.helpers import known, private_mode, replace, run_python, small_config
from tests.made_verdicts import FITS
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.examples import Input, Nested, Task, map_nested
from tpu_console.engine.data.kinds.kind import ASSUMED_CLASSES, UnknownShapesError
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.input.pipeline import build_pipeline
from tpu_console.engine.jobs.preflight import call_dataset, preflight_choices
from tpu_console.engine.messages import Reporter
from tpu_console.engine.preflight.choice import (
    Batch,
    batch_of,
    cached_verdict,
    cached_verdicts,
    choices_of,
    save_verdict,
)
from tpu_console.engine.preflight.compile import shortage
from tpu_console.engine.preflight.result import Outcome
from tpu_console.engine.preflight.topologies import find_topology
from tpu_console.engine.storage.paths import cache_folder


def _expected(element: tuple[Nested, ...], size: int | None) -> Any:
    found = map_nested(lambda part: ((size, *part.shape), part.dtype), element)
    return found[0] if len(element) == 1 and isinstance(element[0], Input | dict) else found


def _real(dataset: Any, size: int | None) -> Any:
    """Return the shapes and types of a pipeline's batches as they are on a TPU."""
    return tf.nest.map_structure(
        lambda part: ((size, *part.shape[1:]), part.dtype.name.replace("64", "32")), dataset.element_spec
    )


def _check(config: RunConfig) -> Batch:
    """Compare the expected shapes with those of the pipeline."""
    data = build_pipeline(load_examples(config, lambda _: None), config, 1)
    batch, size = batch_of(config), config.batch_size
    assert all(part.shape[0] == size for part in tf.nest.flatten(data.train.element_spec))
    assert _expected(batch.train, size) == _real(data.train, size)
    assert _expected(batch.validation, None) == _real(data.validation, None)
    return batch


def _of_files(dataset: str, model: str, options: dict[str, Any], **changes: Any) -> RunConfig:
    values = {"dataset": dataset, "model": model, "data": {"options": options}, "batch_size": 8, "epochs": 1}
    return parse_config(values | changes)


@pytest.mark.parametrize(
    "changes",
    [{}, {"label_smoothing": 0.1}, {"class_weight": "balanced"}, {"loss": "categorical_crossentropy"}],
    ids=["plain", "smoothed", "balanced", "one-hot"],
)
def test_digits(changes: dict[str, Any]) -> None:
    _check(small_config(**changes))


def test_pairs_of_sentences(tmp_path: Path) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text("".join(f"word{n} is here\tpalabra{n} esta aqui\n" for n in range(60)), encoding="utf-8")
    options = {"path": str(file), "vocabulary": 50, "length": 6}
    batch = _check(_of_files("text-pairs", "transformer", options))
    assert batch.signature.sizes == {"source_vocabulary": 50, "target_vocabulary": 50, "length": 6}


def test_ratings_are_sized_by_their_table(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    rows = [f"{user},{item},{(user + item) % 5 + 1}" for user in range(12) for item in range(8)]
    file.write_text("\n".join(["userId,movieId,rating", *rows]), encoding="utf-8")
    numbers = {"loss": "mean_squared_error", "metrics": ["root_mean_squared_error"]}
    config = _of_files("ratings-csv", "recommender", {"path": str(file)}, **numbers)
    assert _check(config).signature.sizes == {"users": 13, "items": 9}
    file.unlink()
    with pytest.raises(UnknownShapesError, match=r"ratings\.csv"):
        batch_of(config)


def _images(**options: Any) -> RunConfig:
    return _of_files("image-csv", "cnn", {"image_size": [32, 24], **options}, loss="categorical_crossentropy")


def test_images_whose_table_is_not_there_are_assumed_to_have_some_classes(tmp_path: Path) -> None:
    batch = batch_of(_images(path=str(tmp_path / "train.csv")))
    assert batch.signature.shape == (32, 24, 3)
    assert batch.train[1] == Input((ASSUMED_CLASSES,))
    assert "assumed" in batch.assumed


def test_columns_of_shares_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text("image,healthy,rust,scab\na,1,0,0\nb,0,1,0\n", encoding="utf-8")
    (tmp_path / "images").mkdir()
    batch = batch_of(_images(path=str(file)))
    assert (batch.signature.classes, batch.train[1], batch.assumed) == (3, Input((3,)), "")
    named = batch_of(_images(path=str(tmp_path / "gone.csv"), label=["a", "b"]))
    assert (named.signature.task, named.signature.classes, named.assumed) == (Task.PROBABILITIES, 2, "")


def test_a_dataset_function_is_not_called(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("raise SystemExit('it was loaded')\n", encoding="utf-8")
    with pytest.raises(UnknownShapesError, match="unknown until it is called") as caught:
        batch_of(small_config(dataset=f"{file}:data"))
    assert f"`tpu-console inspect {file}:data`" in caught.value.remedy
    with pytest.raises(UnknownShapesError) as caught:
        batch_of(small_config(dataset=f"{file}:data", data={"options": {"size": [4, 4], "kind": "a b"}}))
    command = shlex.split(caught.value.remedy.partition("`")[2].partition("`")[0])
    assert command[-4:] == ["--set", "data.options.size=[4, 4]", "--set", "data.options.kind=a b"]


_NESTED = """
import numpy as np
import tensorflow as tf

def data():
    ids, mask, number = np.arange(400).reshape(40, 10), np.ones((40, 10), bool), np.arange(40) % 3
    tokens, weight, decimal = ids % 7, np.ones(40, "float32"), np.ones((40, 1))
    examples = tf.data.Dataset.from_tensor_slices((RETURNED))
    return examples, examples.take(16)

def build(shapes, classes): ...
"""

_OWN = """
import numpy as np
import tensorflow as tf

def data(kind="float32", labels="int64", weighted=False, size=(12, 12, 3)):
    images = np.zeros((40, *size), kind)
    numbers = np.arange(40) % 3
    numbers = np.eye(3, dtype=labels)[numbers] if labels == "float32" else numbers.astype(labels)
    parts = (images, numbers, np.ones(40, "float32")) if weighted else (images, numbers)
    examples = tf.data.Dataset.from_tensor_slices(parts)
    return examples, examples.take(16)

def varied():
    examples = tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros((4, 4, 3), "float32"), 1), (np.zeros((6, 4, 3), "float32"), 0)]),
        output_signature=(tf.TensorSpec((None, None, 3)), tf.TensorSpec((), "int32")),
    )
    return examples, None

def words():
    return tf.data.Dataset.from_tensor_slices((["a", "b"], [0, 1])), None
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(_OWN, encoding="utf-8")
    return f"{tmp_path / 'own.py'}:"


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"kind": "uint8", "labels": "int32"}, {}),
        ({"labels": "float32"}, {"loss": "categorical_crossentropy", "metrics": ["categorical_accuracy"]}),
        ({"weighted": True}, {"augmentation": {"flip": "horizontal"}}),
    ],
    ids=["plain", "bytes", "one-hot", "weighted"],
)
def test_a_dataset_function_has_the_shapes_of_its_last_call(
    own: str, options: dict[str, Any], changes: dict[str, Any]
) -> None:
    batch = _check(
        small_config(dataset=f"{own}data", model="cnn", model_options={}, data={"options": options}, **changes)
    )
    assert batch.signature.classes == 3
    assert "last call of" in batch.assumed


@pytest.mark.parametrize(
    ("returned", "classes"),
    [
        ("({'ids': ids, 'mask': mask}, number, weight)", 3),
        ("((ids, {'mask': mask}), ids)", 0),
        ("({'ids': ids, 'mask': mask}, {'price': decimal, 'kind': number})", 0),
        ("(ids, (decimal, number), (weight, weight))", 0),
        ("{'ids': ids, 'mask': mask},", 0),
        ("(ids, mask),", 0),
    ],
)
def test_every_structure_that_fit_takes_has_the_shapes_of_the_pipeline(
    tmp_path: Path, returned: str, classes: int
) -> None:
    (tmp_path / "own.py").write_text(_NESTED.replace("RETURNED", returned), encoding="utf-8")
    batch = _check(small_config(dataset=f"{tmp_path / 'own.py'}:data", model=f"{tmp_path / 'own.py'}:build"))
    assert batch.signature.classes == classes


def test_a_preflight_can_call_the_dataset_function(own: str) -> None:
    config = small_config(dataset=f"{own}data", model="cnn", model_options={})
    output = io.StringIO()
    assert call_dataset(Reporter(output), config.model_dump(mode="json")) == {}
    assert json.loads(output.getvalue().splitlines()[0])["what"] == f"calling {own}data"
    assert batch_of(config).train == (Input((12, 12, 3)), Input((), "int32"))


@pytest.mark.parametrize(("function", "says"), [("varied", "differ in size"), ("words", "no TPU supports")])
def test_what_no_tpu_supports_is_refused(own: str, function: str, says: str) -> None:
    config = small_config(dataset=f"{own}{function}")
    load_examples(config, lambda _: None)
    with pytest.raises(UnknownShapesError, match=says):
        batch_of(config)


def test_a_saved_verdict_is_read_back() -> None:
    save_verdict(small_config(), FITS)
    found = cached_verdict(small_config(), "v5e-8")
    assert found == replace(FITS, is_remembered=True)
    assert private_mode(cache_folder() / "preflight.json") == 0o600


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"batch_size": 64}, False),
        ({"precision": "mixed_bfloat16"}, False),
        ({"model_options": {"hidden": [16]}}, False),
        ({"optimizer": {"name": "sgd"}}, False),
        ({"data": {"train_limit": 100}}, False),
        ({"backend": "tensorflow"}, False),
        ({"name": "other", "accelerator": "auto", "checkpoint": {"monitor": "auto"}}, True),
    ],
)
def test_a_verdict_holds_for_what_its_program_depends_on(changes: dict[str, Any], is_same: bool) -> None:
    save_verdict(small_config(), FITS)
    assert (cached_verdict(small_config(**changes), "v5e-8") is not None) == is_same
    assert cached_verdict(small_config(), "v6e-8") is None


def test_a_search_also_answers_without_one() -> None:
    save_verdict(small_config(), FITS)
    assert cached_verdict(small_config(), "v5e-8", search=True) is None
    save_verdict(small_config(), replace(FITS, largest_batch=100), search=True)
    assert known(cached_verdict(small_config(), "v5e-8")).largest_batch == 100


def test_an_unknown_verdict_is_not_cached() -> None:
    save_verdict(small_config(), replace(FITS, outcome=Outcome.UNKNOWN))
    assert cached_verdict(small_config(), "v5e-8") is None


@pytest.mark.parametrize(
    ("changes", "edited"),
    [({"model": "{0}/own.py:model"}, "parts.py"), ({"dataset": "cifar10", "model": "hub"}, "saved_model.pb")],
)
def test_a_model_is_compiled_again_if_a_file_of_it_changes(
    tmp_path: Path, changes: dict[str, str], edited: str
) -> None:
    (tmp_path / "own.py").write_text("from parts import WIDTH\n", encoding="utf-8")
    (tmp_path / edited).write_text("WIDTH = 8\n", encoding="utf-8")
    options = {"path": str(tmp_path)} if changes["model"] == "hub" else {}
    config = small_config(**{key: text.format(tmp_path) for key, text in changes.items()}, model_options=options)
    save_verdict(config, FITS)
    assert cached_verdict(config, "v5e-8") is not None
    (tmp_path / edited).write_text("WIDTH = 9\n", encoding="utf-8")
    assert cached_verdict(config, "v5e-8") is None


def test_a_damaged_cache_file_counts_as_empty() -> None:
    save_verdict(small_config(), FITS)
    file = cache_folder() / "preflight.json"
    whole = file.read_text(encoding="utf-8")
    wrong = [
        whole.replace(before, after) for before, after in (('"fits"', '"perhaps"'), ('"devices": 8', '"devices": "8"'))
    ]
    assert whole not in wrong
    for text in ("", "[]", '{"tpu": 1}', whole[:100], *wrong):
        file.write_text(text, encoding="utf-8")
        assert cached_verdict(small_config(), "v5e-8") is None


def test_all_or_nothing_is_recalled() -> None:
    choices = choices_of(small_config(), [find_topology("v5e-8")], [32, 64], ["float32", "mixed_bfloat16"])
    assert [choice.label for choice in choices][:2] == ["v5e-8, batch 32, float32", "v5e-8, batch 64, float32"]
    assert len(choices) == 4
    for choice in choices[:3]:
        save_verdict(choice.config, FITS)
    assert cached_verdicts(choices) is None
    save_verdict(choices[3].config, FITS)
    assert cached_verdicts(choices) is not None


def test_an_unknown_tpu_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConsoleError, match="no TPU 'v5e-7'"):
        preflight_choices(Reporter(sys.stdout), small_config().model_dump(mode="json"), ["v5e-7"])


def test_the_job_answers_from_the_cache_without_a_framework(tmp_path: Path, private_home: Path) -> None:
    config = small_config()
    save_verdict(config, FITS)
    code = (
        "import json, sys; from tpu_console.engine.jobs.preflight import preflight_choices\n"
        "found = preflight_choices(None, json.loads(sys.argv[1]), ['v5e-8'])\n"
        "loaded = [name for name in ('tensorflow', 'keras', 'jax', 'numpy') if name in sys.modules]\n"
        "print(json.dumps([found['verdicts'][0]['reason'], loaded]))"
    )
    said = run_python(code, config.model_dump_json(), cwd=tmp_path, env={"TPU_CONSOLE_HOME": str(private_home)})
    assert json.loads(said) == [FITS.reason, []]


def test_too_little_memory_to_compile_is_reported() -> None:
    assert shortage(13_600, 10 * 10**9) == ""
    assert "needs about 1.8 GB" in shortage(13_600, 10**8)
