"""Arrays of NumPy: what is read of a file, and that a kind of dataset is known everywhere because it is one class."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.data.scripting import inspected
from tests.engine.jobs.predicting import Job, train
from tests.helpers import run_forked, small_config
from tpu_console.engine.config.reading import parse_config, valid_keys
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.formats import config_for, first_run, guess
from tpu_console.engine.data.kinds.skimming import Survey
from tpu_console.engine.data.kinds.table import load_examples, survey
from tpu_console.engine.errors import ConfigError, DataError
from tpu_console.engine.export.export import export_run
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.messages import Reporter
from tpu_console.engine.planning import make_plan
from tpu_console.engine.preflight.choice import batch_of
from tpu_console.tui.forms.fields import OPTION_TABLES, fields_of, option_fields
from tpu_console.tui.text.inspection import page

WORDS = np.array(["rose", "daisy", "tulip"])[np.arange(30) % 3]


def saved(folder: Path, **arrays: Any) -> str:
    np.savez_compressed(folder / "mine.npz", **arrays)
    return str(folder / "mine.npz")


def loaded(path: str, **options: str) -> Examples:
    return load_examples(
        small_config(dataset="npz", model="mlp", data={"options": {"path": path, **options}}), lambda _: None
    )


def surveyed(path: str, **options: str) -> Survey:
    return survey(config_for("npz", {"path": path, **options}))


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
    assert "data.options.inputs" in surveyed(path).problems[0].message
    named = surveyed(path, inputs="a", labels="b")
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
        ({"x_train": np.ones((30, 2)), "y_train": WORDS, "x_val": np.ones((9, 3)), "y_val": WORDS[:9]}, "same shape"),
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
    assert "allow_pickle" in surveyed(path).problems[0].message
    (tmp_path / "cut.npz").write_bytes((tmp_path / "mine.npz").read_bytes()[:200])
    with pytest.raises(DataError, match=r"cut\.npz cannot be read"):
        loaded(str(tmp_path / "cut.npz"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    numbers = np.random.default_rng(1).normal(size=(120, 4)).astype("float32")
    np.savez(tmp_path / "mine.npz", x=numbers, y=(numbers.sum(axis=1) > 0).astype("int32"))
    return tmp_path / "mine.npz"


def test_a_kind_is_recognized_planned_and_in_the_form(file: Path) -> None:
    assert guess(str(file)) == ("npz", {"path": str(file)})
    config = config_for("npz", {"path": str(file), "inputs": "x", "labels": "y"})
    assert (config.model, "data.options.inputs" in valid_keys()) == ("mlp", True)
    plan = make_plan(config, Hardware())
    assert (plan.train_examples, plan.unit, plan.steps_per_epoch) == (96, "example", 3)
    batch = batch_of(config)
    assert (batch.signature.shape, batch.signature.classes, batch.assumed) == ((4,), 2, "")
    (choice,) = [spec for spec in fields_of() if spec.key == "dataset"]
    assert "npz" in choice.choices
    fields = {spec.key: spec.help for spec in option_fields(OPTION_TABLES["data.options"], "npz")}
    assert "x_train" in fields["data.options.inputs"]
    with pytest.raises(ConfigError, match="inputs"):
        parse_config(config.model_dump(mode="json") | {"data": {"options": {"path": str(file), "input": "x"}}})


@pytest.mark.slow
def test_a_kind_is_inspected_trained_predicted_and_exported(file: Path, job: Job, tmp_path: Path) -> None:
    guessed = config_for(*guess(str(file)))
    found = inspected(guessed)
    counts = [entry["train"] + entry["validation"] for entry in found["classes"]]
    assert counts == np.bincount(np.load(file)["y"]).tolist()
    assert "npz: NumPy arrays" in "\n".join(page("npz", guessed.data.options, found, 80))
    wanted = first_run(str(file)).config
    assert (wanted.name, wanted.model, wanted.batch_size) == ("mine", "mlp", 8)
    run = train(small_config(dataset="npz", data=wanted.data.model_dump(mode="json"), epochs=1), tmp_path)
    rows = job(run, file)
    assert len(rows) == 120
    assert {row["label"] for row in rows} <= {"0", "1"}
    script = tmp_path / "plain.py"
    export_run(Reporter(io.StringIO()), str(run.path), str(script), "script")
    assert "loss:" in run_forked(script.read_text(), cwd=tmp_path)


def test_a_bad_file_of_a_kind_is_refused_with_its_sentence_everywhere(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.npz"
    np.savez(bad, images=np.zeros(3))
    config = config_for("npz", {"path": str(bad)})
    said = "which are the inputs and the labels is unclear"
    assert any(said in finding.text for finding in make_plan(config, Hardware()).advice)
    with pytest.raises(DataError, match=said):
        batch_of(config)
    assert said in inspected(config)["trouble"]["what"]
