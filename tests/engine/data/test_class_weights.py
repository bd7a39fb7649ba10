"""Class weights, smoothed and mixed labels, from the configuration to the compiled loss."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

from tests.helpers import all_of, run_host, small_config, the
from tpu_console.engine.data.examples import Examples, Input, Signature, Task
from tpu_console.engine.data.labels import training_weights
from tpu_console.engine.errors import DataError
from tpu_console.engine.input.pipeline import build_pipeline
from tpu_console.engine.models.compile import compile_model
from tpu_console.engine.runs.events import EpochEnded, RunFinished

LABELS = np.repeat(np.arange(4, dtype=np.int32), [40, 8, 12, 4])
CLASSES = 4


def examples(labels: Any = LABELS, record: dict[str, Any] | None = None, count: int | None = 64) -> Examples:
    """Small images; the validation data is the training data."""
    images = np.random.default_rng(0).integers(0, 255, (len(labels), 6, 6, 1)).astype(np.uint8)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    signature = Signature(Task.CLASSES, {"image": Input((6, 6, 1))}, CLASSES)
    return Examples(data, data, count, len(labels), signature, 255.0, record=record or {})


def weights_by_label(batches: Any, steps: int) -> dict[int, float]:
    """The weight that each label came with."""
    seen: dict[int, set[float]] = {}
    for _, labels, weights in batches.take(steps):
        numbers = labels.numpy().argmax(axis=1) if labels.shape[1:] == [CLASSES] else labels.numpy().ravel()
        for number, weight in zip(numbers, weights.numpy(), strict=True):
            seen.setdefault(int(number), set()).add(float(weight))
    return {number: only for number, (only,) in seen.items()}


BALANCED: Any = compute_class_weight("balanced", classes=np.arange(CLASSES), y=LABELS)


@pytest.mark.parametrize("form", ["numbers", "smoothed column", "one-hot", "counted"])
def test_balanced_weights_are_scikit_learn_s(form: str) -> None:
    labels = np.eye(CLASSES, dtype=np.float32)[LABELS] if form == "one-hot" else LABELS
    labels = labels[:, None] if "column" in form else labels
    record = {"class_counts": {"train": [40, 8, 12, 4], "validation": [1, 1, 1, 1]}} if form == "counted" else {}
    loss = "categorical_crossentropy" if form == "one-hot" else "sparse_categorical_crossentropy"
    config = small_config(batch_size=16, class_weight="balanced", loss=loss, label_smoothing=0.1 * ("smoothed" in form))
    pipeline = build_pipeline(examples(labels, record), config, 1)
    seen = weights_by_label(pipeline.train, 4)
    assert [seen[number] for number in range(CLASSES)] == pytest.approx(BALANCED)
    assert len(pipeline.validation.element_spec) == 2  # validation is never weighted
    assert pipeline.calibration().element_spec == pipeline.train.element_spec


def test_a_mixed_example_has_the_weight_of_its_classes() -> None:
    config = small_config(batch_size=16, class_weight="balanced", augmentation={"mixup": 1.0})
    for _, labels, weights in build_pipeline(examples(), config, 1).train.take(4):
        assert weights.numpy() == pytest.approx(labels.numpy() @ BALANCED, rel=1e-5)


def test_custom_sample_weights_are_kept() -> None:
    plain = examples()
    train = plain.train.map(lambda image, label: (image, label, 10.0))
    own = Examples(train, plain.validation, 64, 64, plain.signature, 255.0)
    seen = weights_by_label(build_pipeline(own, small_config(batch_size=16, class_weight="balanced"), 1).train, 4)
    assert [seen[number] for number in range(CLASSES)] == pytest.approx(10 * BALANCED)


def test_weights_without_classes_or_an_end_are_refused() -> None:
    with pytest.raises(DataError, match="class_weight=balanced needs labels that are class numbers"):
        training_weights(examples(np.linspace(0, 1, 64, dtype=np.float32)), "balanced")
    with pytest.raises(DataError, match="an unknown number of examples"):
        training_weights(examples(count=None), "balanced")
    counted = examples(count=None, record={"class_counts": {"train": [1, 1, 1, 1]}})
    assert np.array(training_weights(counted, "balanced")).tolist() == [1] * 4
    with pytest.raises(DataError, match="names class 4, but the data has classes 0 to 3"):
        training_weights(examples(), {"0": 1.0, "4": 2.0})


@pytest.mark.parametrize("form", ["column", "one-hot", "decimal"])
def test_a_table_weighs_the_classes_it_names_as_keras_does(form: str) -> None:
    labels: Any = {"numbers": LABELS, "column": LABELS[:, None], "one-hot": np.eye(CLASSES, dtype=np.float32)[LABELS],
                   "decimal": LABELS.astype("float32")}[form]  # fmt: skip
    config = small_config(batch_size=16, class_weight={"0": 0.5, "2": 3})
    seen = weights_by_label(build_pipeline(examples(labels), config, 1).train, 4)
    assert seen == {0: 0.5, 1: 1.0, 2: 3.0, 3: 1.0}
    assert small_config(class_weight="0=0.5, 2=3").class_weight == config.class_weight


def test_smoothing_reaches_the_loss_and_accuracy_stays_accuracy() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(CLASSES, activation="softmax")])
    compile_model(model, small_config(label_smoothing=0.2), examples().signature, 1, 10)
    rows = np.random.default_rng(1).random((32, 2)).astype(np.float32)
    numbers = np.arange(32) % CLASSES
    one_hot = np.eye(CLASSES, dtype=np.float32)[numbers]
    figures = model.evaluate(rows, one_hot, verbose=0, return_dict=True)
    probabilities = model.predict(rows, verbose=0)
    smooth = one_hot * 0.8 + 0.2 / CLASSES
    assert figures["loss"] == pytest.approx(-(smooth * np.log(probabilities)).sum(axis=1).mean(), rel=1e-4)
    assert figures["accuracy"] == pytest.approx((probabilities.argmax(axis=1) == numbers).mean())


@pytest.mark.slow
def test_a_run_with_everything_on_learns_on_several_replicas(tmp_path: Path) -> None:
    config = small_config(
        accelerator="sim:2",
        batch_size=32,
        epochs=3,
        model_options={"hidden": [64]},
        label_smoothing=0.05,
        class_weight="balanced",
        augmentation={"translation": 0.05, "rotation": 5.0, "contrast": 0.1, "mixup": 0.1, "erasing": 0.1},
    )
    run = run_host(config, tmp_path)
    assert the(run, RunFinished).outcome == "completed"
    assert all_of(run, EpochEnded)[-1].logs["val_accuracy"] > 0.5
