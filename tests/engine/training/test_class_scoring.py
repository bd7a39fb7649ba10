import json
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import all_of, epoch_ended, has, report_of, small_config, the
from tpu_console.engine.data.examples import Examples, Input, Signature, Task
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.models.outputs import ClassOutput, class_outputs, outputs_by_name
from tpu_console.engine.runs.class_report import ClassReport, read_report
from tpu_console.engine.runs.events import Noticed, PhaseStarted
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.training.class_scoring import Confusion, report_classes, report_on
from tpu_console.tui.text.confusion import headline


def identity_model(width: int = 3, dtype: str = "float32") -> Any:
    """Answers with its inputs, so that a test says what the model says."""
    return keras.Sequential([keras.Input((width,), dtype=dtype), keras.layers.Activation("linear")])


def compiled(model: Any) -> Any:
    model.compile(loss="sparse_categorical_crossentropy")
    return model


def examples(outputs: Any, labels: Any, *, task: Task = Task.CLASSES, classes: int = 3, **changes: Any) -> Examples:
    pairs = tf.data.Dataset.from_tensor_slices((np.asarray(outputs, np.float32), np.asarray(labels)))
    count = changes.pop("count", len(labels))
    signature = Signature(task, {"x": Input((len(outputs[0]),))}, classes)
    return Examples(pairs, pairs, len(labels), count, signature, **changes)


def scored(
    recorder: Recorder, given: Examples, model: Any = None, most: int = 1000, **config: Any
) -> ClassReport | None:
    model = model if model is not None else compiled(identity_model())
    batches = given.validation.batch(2)
    outputs = None
    if given.signature.task is Task.OWN:
        outputs = class_outputs(model, small_config(**config), outputs_by_name(model), "", next(iter(batches))[1])
    return report_classes(recorder, model, batches, given, outputs, most_examples=most)


ONE, TWO, THREE = [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]


def test_every_figure_of_a_small_matrix() -> None:
    found = report_on(np.array([[3, 1, 0], [2, 2, 0], [0, 0, 0]]), ["ant", "bee", "cat"])
    assert (found.examples, found.accuracy, found.not_numbers) == (8, 5 / 8, 0)
    assert found.balanced_accuracy == (0.75 + 0.5) / 2
    ant, bee, cat = found.classes
    assert (ant.name, ant.precision, ant.recall, ant.examples) == ("ant", 0.6, 0.75, 4)
    assert (bee.precision, bee.recall) == (2 / 3, 0.5)
    assert [ant.f1, bee.f1] == pytest.approx([2 / 3, 4 / 7])
    assert (cat.precision, cat.recall, cat.f1, cat.examples) == (None, None, None, 0)
    assert [(one.label, one.taken_for) for one in found.mistakes] == [("bee", "ant"), ("ant", "bee")]
    assert (found.mistakes[0].count, found.mistakes[0].share) == (2, 0.5)


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        ([0, 1, 1, 2, 2], Task.CLASSES),
        ([[0], [1], [1], [2], [2]], Task.CLASSES),
        ([[1.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.1, 0.1, 0.8]], Task.PROBABILITIES),
        ([0, 1, 1, 2, 2], Task.OWN),
    ],
)
def test_labels_of_every_form(recorder: Recorder, labels: Any, task: Task) -> None:
    given = examples([ONE, TWO, THREE, THREE, THREE], labels, task=task, class_names=("ant", "bee", "cat"))
    assert scored(recorder, given) == (found := report_of(recorder.run))
    assert found.matrix == ((1, 0, 0), (0, 1, 1), (0, 0, 2))
    assert [one.name for one in found.classes] == ["ant", "bee", "cat"]
    assert found.accuracy == 0.8
    assert recorder.run.report.stat().st_mode & 0o077 == 0
    assert [event.detail for event in all_of(recorder.run, PhaseStarted)] == ["scores per class"]


def test_outputs_that_are_no_numbers_are_wrong_and_counted(recorder: Recorder) -> None:
    nan = [np.nan, 0.1, 0.1]
    scored(recorder, examples([nan, TWO, nan], [0, 1, 2]))
    found = report_of(recorder.run)
    assert (found.not_numbers, found.examples, found.accuracy) == (2, 3, 1 / 3)
    assert found.classes[0].recall == 0.0
    json.loads(recorder.run.report.read_text(), parse_constant=pytest.fail)


def test_one_probability_tells_two_classes(recorder: Recorder) -> None:
    given = examples([[0.9], [0.2], [0.6]], [1, 0, 0], classes=2)
    scored(recorder, given, compiled(identity_model(1)))
    assert report_of(recorder.run).matrix == ((1, 1), (0, 1))


@pytest.mark.parametrize("form", [dict, tuple])
def test_every_output_that_is_classes_has_a_report(recorder: Recorder, form: type) -> None:
    inputs = keras.Input((3,))
    kind = keras.layers.Activation("linear", name="kind")(inputs)
    price, side = (keras.layers.Dense(1, name=name)(inputs) for name in ("price", "side"))
    model = keras.Model(inputs, {"kind": kind, "price": price, "side": side} if form is dict else [kind, price, side])
    given = {"kind": [0, 1, 1], "price": [0.5, 1.5, 2.5], "side": [0, 1, 1]}
    arrays = {name: np.array(values) for name, values in given.items()}
    labels = arrays if form is dict else tuple(arrays.values())
    pairs = tf.data.Dataset.from_tensor_slices((np.array([ONE, TWO, THREE], np.float32), labels))
    outputs = (ClassOutput("kind", 0, 3), ClassOutput("side", 2, 1, "sigmoid"))
    data = Examples(pairs, pairs, 3, 3, Signature(Task.OWN, {"x": Input((3,))}))
    model.compile(loss="mse")
    assert report_classes(recorder, model, pairs.batch(2), data, outputs) == (found := report_of(recorder.run))
    assert (found.output, found.matrix) == ("kind", ((1, 0, 0), (0, 1, 1), (0, 0, 0)))
    assert [(one.output, one.examples, len(one.classes)) for one in found.others] == [("side", 3, 2)]
    assert [one["output"] for one in found.as_dict(is_brief=True)["others"]] == ["side"]


def test_weights_are_not_counts_and_what_is_never_guessed_has_no_precision(recorder: Recorder) -> None:
    given = examples([ONE, TWO, THREE], [0, 1, 1])
    batches = given.validation.map(lambda x, y: (x, y, 5.0)).batch(2)
    report_classes(recorder, compiled(identity_model()), batches, given)
    assert report_of(recorder.run).matrix == ((1, 0, 0), (0, 1, 1), (0, 0, 0))
    one = report_on(np.array([[2, 0], [2, 0]]), ["a", "b"]).classes[1]
    assert (one.precision, one.recall, one.f1) == (None, 0.0, 0.0)
    many = report_on(np.eye(150, dtype=np.int64), [str(n) for n in range(150)])
    assert len(many.matrix) == 150
    assert {"matrix", "classes"}.isdisjoint(many.as_dict(is_brief=True))


def test_without_classes_or_validation_or_time_there_is_no_report(recorder: Recorder) -> None:
    numbers = examples([ONE, TWO], np.array([0.3, 0.7], np.float32), task=Task.OWN, classes=0)
    assert scored(recorder, numbers, loss="mean_squared_error") is None
    for task in (Task.TRANSLATION, Task.RATINGS):
        assert scored(recorder, examples([ONE], [0], task=task)) is None
    assert report_classes(recorder, compiled(identity_model()), None, examples([ONE], [0])) is None
    recorder.control.stop("asked by SIGTERM")  # how long a validation takes is unknown
    assert scored(recorder, examples([ONE], [0])) is None
    assert not has(recorder.run, Noticed)
    assert not recorder.run.report.exists()


@pytest.mark.parametrize("count", [7, None])
def test_only_so_much_is_looked_at(recorder: Recorder, count: int | None) -> None:
    scored(recorder, examples([ONE] * 7, [0] * 7, count=count), most=3)
    assert (report_of(recorder.run).examples, report_of(recorder.run).is_partial) == (4, True)


def test_an_error_is_reported_and_does_not_fail_the_run(recorder: Recorder) -> None:
    given = examples([ONE, [np.nan] * 3], [0, 1])
    batches = given.validation.map(lambda x, y: (tf.debugging.check_numerics(x, "a bad\nfile"), y)).batch(2)
    assert report_classes(recorder, compiled(identity_model()), batches, given) is None
    assert "Scores per class" in the(recorder.run, Noticed).message


def test_a_stop_while_it_is_made_leaves_it_out(recorder: Recorder) -> None:
    given = examples([ONE, TWO, THREE, ONE], [0, 1, 2, 0])

    def stop(x: Any, y: Any) -> Any:
        tf.py_function(partial(recorder.control.stop, "asked from the console"), [], [])
        return x, y

    batches = given.validation.map(stop).batch(2)
    assert report_classes(recorder, compiled(identity_model()), batches, given) is None
    assert not recorder.run.report.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"classes": [{}], "matrix": [], "mistakes": []}'])
def test_a_damaged_report_is_an_error_that_names_it(recorder: Recorder, text: str) -> None:
    assert read_report(recorder.run) is None
    recorder.run.report.write_text(text)
    with pytest.raises(ConsoleError, match=r"report.json of .*damaged"):
        read_report(recorder.run)


def test_the_counts_survive_half_precision() -> None:
    table = Confusion(3)
    outputs = tf.cast(tf.tile([THREE], [300, 1]), tf.bfloat16)
    table.update_state(tf.ones(300, tf.int32), outputs)
    assert table.counts()[1].tolist() == [0, 0, 300, 0]


def images(outputs: list[list[float]], labels: Any) -> Examples:
    """Images of one row of pixels, which are what `image_model` returns."""
    pixels = np.asarray(outputs, np.float32)[:, None, :, None]
    pairs = tf.data.Dataset.from_tensor_slices((pixels, np.asarray(labels)))
    signature = Signature(Task.CLASSES, {"x": Input((1, len(outputs[0]), 1))}, 3)
    return Examples(pairs, pairs, len(labels), len(labels), signature, class_names=("ant", "bee", "cat"))


def image_model(pixels: int = 3) -> Any:
    return compiled(keras.Sequential([keras.Input((1, pixels, 1)), keras.layers.Flatten()]))


def test_the_surest_mistakes_are_kept_as_pictures(recorder: Recorder) -> None:
    sure = [-1.0, 1.0, -1.0]  # also the range of the pixels
    scored(recorder, images([ONE, TWO, sure, THREE, THREE], [0, 0, 2, 2, 1]), image_model())
    found = report_of(recorder.run)
    assert [picture.caption for picture in found.pictures] == ["cat → bee", "ant → bee", "bee → cat"]
    assert (found.pictures[0].height, found.pictures[0].width) == (1, 3)
    assert found.pictures[0].rgb == bytes([0] * 3 + [255] * 3 + [0] * 3)
    assert found.pictures[1].rgb[:6] == bytes([140] * 3 + [229] * 3)
    chances = [[0.9], [0.2], [0.4]]  # of the second class
    scored(recorder, images(chances, np.eye(2)[[0, 0, 1]]), image_model(1))
    assert [picture.caption for picture in report_of(recorder.run).pictures] == ["0 → 1", "1 → 0"]


@pytest.mark.parametrize(("restored", "epoch", "is_last", "is_best"), [(0, 3, True, False), (2, 2, False, True)])
def test_a_report_says_which_model_it_judges(
    recorder: Recorder, restored: int, epoch: int, is_last: bool, is_best: bool
) -> None:
    for number, loss in enumerate((0.9, 0.1, 0.5), 1):
        recorder.emit(epoch_ended(number, {"loss": loss, "val_loss": loss}))
    given = examples([ONE, TWO, THREE], [0, 1, 1])
    report_classes(recorder, compiled(identity_model()), given.validation.batch(2), given, restored=restored)
    found = report_of(recorder.run)
    assert (found.epoch, found.is_last, found.is_best) == (epoch, is_last, is_best)
    assert f"model (epoch {epoch})" in headline(found)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '[{"caption": "a", "height": Infinity, "width": 1, "rgb": "AAAA"}]',
        '[{"caption": "a", "height": 2, "width": 2, "rgb": "AAAA"}]',
        '[{"caption": "a", "height": -1, "width": -1, "rgb": "AAAA"}]',
        "[" * 100_000,
        '{"a": 1}',
    ],
)
def test_damaged_pictures_leave_the_scores(recorder: Recorder, content: str) -> None:
    scored(recorder, images([ONE, TWO], [1, 1]), image_model())
    recorder.run.mistakes.write_text(content, encoding="utf-8")
    assert (report_of(recorder.run).pictures, report_of(recorder.run).accuracy) == ((), 0.5)
