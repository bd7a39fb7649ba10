"""Scores of the final model per class on the validation data, computed once after training.

A metric counts in one `evaluate`: it runs on any number of replicas, on the same batches as validation.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from msgspec.structs import replace

from ..data.describing import small_picture
from ..data.examples import Examples, Task
from ..errors import one_line
from ..models.outputs import ClassOutput, apply_activation
from ..runs.class_report import MOST_PICTURES, ClassReport, ClassScore, Mistake
from ..runs.events import Phase
from ..runs.recorder import Recorder
from ..storage.files import write_whole

_LONGEST_AFTER_STOP_S = 5.0
_LONGEST_BEFORE_PICTURES_S = 20.0  # pictures need about as long again: the model is compiled to predict
_MOST_MISTAKES = 10
_MOST_IMAGES, _MOST_BYTES = 2_000, 64 << 20  # in which pictures of mistakes are looked for


def report_classes(
    recorder: Recorder,
    model: Any,
    validation: Any,
    examples: Examples,
    outputs: Sequence[ClassOutput] | None = None,
    restored: int = 0,
    most_examples: int = 200_000,
) -> ClassReport | None:
    """Score every class with the saved model, and write the result to the run's ``report.json``.

    `outputs` are those that are classes; None for the only output of a built-in model, if the labels are classes. The
    report is that of the first, with those of the others; None without one or without validation data. `restored` is
    the epoch whose weights the model has; 0 if they are those of the last one. More than `most_examples` would hardly
    change the scores and take too long at the end of a run.

    This compiles the model again, so it comes last. An error here is reported and does not fail the run. A run that was
    asked to stop gets a report only if validation takes a few seconds at most.
    """
    if outputs is None:
        outputs = (ClassOutput(),) if examples.signature.task in {Task.CLASSES, Task.PROBABILITIES} else ()
    if validation is None or not outputs or _is_in_a_hurry(recorder):
        return None
    recorder.enter(Phase.VALIDATING, "scores per class")
    began_at, report = time.monotonic(), None
    try:
        report = _evaluated(recorder, model, validation, examples, outputs, most_examples)
        if report is not None:
            state = recorder.state()
            last, best = state.epochs[-1].epoch if state.epochs else 0, state.best_epoch()
            epoch = restored or last
            is_best = best is not None and best.epoch == epoch
            of_epoch: dict[str, Any] = {"epoch": epoch, "is_best": is_best, "is_last": 0 < epoch == last}
            report = replace(report, **of_epoch, others=tuple(replace(one, **of_epoch) for one in report.others))
            write_whole(recorder.run.report, json.dumps(report.as_dict()) + "\n")
            is_quick = time.monotonic() - began_at < _LONGEST_BEFORE_PICTURES_S
            if recorder.team is None and is_quick and not report.output and recorder.control.reason is None:
                names = [one.name for one in report.classes]
                if pictures := mistake_pictures(model, validation, examples, names, outputs[0].activation):
                    write_whole(recorder.run.mistakes, json.dumps(pictures) + "\n")
    except Exception as error:  # noqa: BLE001  a trained and saved run must not fail because of its report
        recorder.notice(f"Scores per class are missing or incomplete: {one_line(error, 200)}")
    return report


def _is_in_a_hurry(recorder: Recorder) -> bool:
    """Return whether someone waits for the run to stop, such as a user or a machine that is about to be preempted."""
    if recorder.control.reason is None:
        return False
    if recorder.team is not None:
        return True  # validation times differ between hosts, and all hosts must decide the same
    # A validation that was cut short by the stop has no metrics, and does not say how long one takes.
    ended = recorder.state().epochs
    measured = [epoch.validation_s for epoch in ended if any(name.startswith("val_") for name in epoch.logs)]
    return not measured or measured[-1] > _LONGEST_AFTER_STOP_S


def _evaluated(
    recorder: Recorder,
    model: Any,
    validation: Any,
    examples: Examples,
    outputs: Sequence[ClassOutput],
    most_examples: int,
) -> ClassReport | None:
    counted = {}
    for output in outputs:
        label = output.label_of(validation.element_spec[1])
        if (classes := _count_classes(model, output, label, examples.signature.classes)) is not None:
            counted[output.name] = Confusion(classes, output.activation)
    if not counted:
        return None
    # Keras needs a loss to evaluate, and the run's loss is known already.
    losses: Any = dict.fromkeys(getattr(model, "output_names", None) or ())
    losses |= dict.fromkeys(counted, lambda _, outputs: keras.ops.zeros_like(outputs[:, 0]))
    metrics: Any = {name: [confusion] for name, confusion in counted.items()}
    model.compile(loss=losses.get("", losses), metrics=metrics.get("", metrics), jit_compile=model.jit_compile)
    seen, most = validation, None  # the number of examples, if that is limited
    if examples.validation_count is None or examples.validation_count > most_examples:
        batch = batch_size(validation)
        batches = -(-most_examples // batch)
        seen, most = validation.take(batches), batches * batch
    was_asked = recorder.control.reason is not None

    def look(*_: object, **__: object) -> None:  # after each batch, because somebody may ask the run to stop
        model.stop_evaluating = recorder.control.reason is not None and not was_asked

    model.evaluate(seen, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_test_batch_end=look)])
    if model.stop_evaluating:
        return None
    reports = []
    for name, confusion in counted.items():
        counts = confusion.counts()
        known = examples.class_names if len(examples.class_names) == len(counts) else map(str, range(len(counts)))
        is_partial = most is not None and int(counts.sum()) >= most
        report = report_on(counts[:, :-1], [*known], not_numbers=counts[:, -1], is_partial=is_partial)
        reports.append(replace(report, output=name))
    return replace(reports[0], others=tuple(reports[1:]))


def _count_classes(model: Any, output: ClassOutput, label: Any, known: int) -> int | None:
    """Return the number of classes, `known` by the dataset or 0; None if there is not one class per example."""
    try:
        shape = (None, output.values) if output.values else model.output_shape
    except (AttributeError, ValueError):
        shape = (None, known)  # a subclassed model does not say
    if label is None or not (isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[1], int)):
        return None
    classes = 2 if shape[1] == 1 else shape[1]  # a single output is the probability of the second of two classes
    is_one_class = label.shape.rank == 1 or label.shape[1] in {1, classes}
    return classes if classes and is_one_class else None


class Confusion(keras.metrics.Metric):  # type: ignore[misc]  # Keras is untyped
    """Counts how often each class was predicted as which, as a Keras metric.

    Labels are class numbers or a value per class, outputs a value per class or one probability. The activation makes
    probabilities of outputs that are not.
    """

    def __init__(self, classes: int, activation: str = "") -> None:
        super().__init__(name="confusion", dtype="float32")
        self._classes, self._activation = classes, activation
        # The last column counts outputs that are not numbers.
        self.table = self.add_weight(shape=(classes, classes + 1), initializer="zeros", name="table")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # noqa: ARG002  each counts once
        """Count a batch."""
        ops, classes = keras.ops, self._classes
        outputs = ops.cast(apply_activation(self._activation, y_pred), "float32")
        is_number = ops.all(ops.isfinite(outputs), axis=-1)
        is_single, label = ops.shape(outputs)[-1] == 1, y_true
        guess = ops.cast(outputs[:, 0] > 0.5 if is_single else ops.argmax(outputs, axis=-1), "int32")
        guess = ops.where(is_number, guess, classes)
        if len(label.shape) == 2:
            label = label[:, 0] if label.shape[1] == 1 else ops.argmax(label, axis=-1)
        rows = ops.one_hot(ops.cast(label, "int32"), classes, dtype="float32")
        columns = ops.one_hot(guess, classes + 1, dtype="float32")
        self.table.assign_add(ops.matmul(ops.transpose(rows), columns))

    def result(self) -> Any:
        """Return the accuracy."""
        right = keras.ops.sum(keras.ops.diagonal(self.table))
        return right / keras.ops.maximum(keras.ops.sum(self.table), 1.0)

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the table; its last column counts outputs that are not numbers."""
        counts: npt.NDArray[np.int64] = np.rint(self.table.numpy()).astype(np.int64)
        return counts


def report_on(
    matrix: npt.NDArray[np.int64],
    names: Sequence[str],
    *,
    not_numbers: npt.NDArray[np.int64] | None = None,
    is_partial: bool = False,
) -> ClassReport:
    """Score every class of a confusion matrix: a row per label, a column per prediction, and those without any."""
    lost = np.zeros(len(names), np.int64) if not_numbers is None else not_numbers
    right, examples, guessed = np.diag(matrix), matrix.sum(axis=1) + lost, matrix.sum(axis=0)
    with np.errstate(invalid="ignore"):  # a class without examples, or one that was never predicted
        scores = np.array([right / guessed, right / examples, 2 * right / (guessed + examples)])
    shares = [[None if np.isnan(value) else value for value in row] for row in scores.T.tolist()]
    wrong = matrix - np.diag(right)
    mistakes = [
        Mistake(names[row], names[column], int(wrong[row, column]), float(wrong[row, column] / examples[row]))
        for row, column in np.argwhere(wrong)
    ]
    total = int(examples.sum())
    return ClassReport(
        examples=total,
        accuracy=float(right.sum() / total) if total else 0.0,
        balanced_accuracy=float(scores[1][examples > 0].mean()) if total else 0.0,
        not_numbers=int(lost.sum()),
        is_partial=is_partial,
        classes=tuple(map(ClassScore, names, *zip(*shares, strict=True), examples.tolist())),
        mistakes=tuple(sorted(mistakes, key=lambda one: (-one.count, -one.share))[:_MOST_MISTAKES]),
        matrix=tuple(map(tuple, matrix.tolist())),
    )


def mistake_pictures(
    model: Any, validation: Any, examples: Examples, names: Sequence[str], activation: str
) -> list[dict[str, Any]]:
    """Return the mistakes among the first examples that the model was most sure of; empty if they are not images."""
    shape = examples.signature.shape
    if len(shape) != 3 or shape[-1] not in {1, 3}:
        return []
    size = batch_size(validation)
    batches: list[tuple[Any, Any]] = []
    for batch, label, *_ in validation:
        batches.append((batch.numpy(), label.numpy()))
        if len(batches) * max(size, batches[0][0].nbytes * _MOST_IMAGES // _MOST_BYTES) >= _MOST_IMAGES:
            break
    images = np.concatenate([batch for batch, _ in batches]).astype(np.float32)
    labels = np.concatenate([label for _, label in batches])
    if labels.ndim == 2:
        labels = labels.argmax(axis=1) if labels.shape[1] > 1 else labels[:, 0]
    labels = labels.astype(np.int64)
    # Replicas can share only whole batches, so the last one is filled up with its last image.
    filler = images[-1:].repeat(-len(images) % size, axis=0)
    given = model.predict(np.concatenate([images, filler]), batch_size=size, verbose=0)[: len(images)]
    outputs = np.asarray(apply_activation(activation, given), np.float32)
    if outputs.shape[1] == 1:
        outputs = np.hstack([1 - outputs, outputs])
    guesses, sure = outputs.argmax(axis=1), outputs.max(axis=1)
    wrong = np.flatnonzero((guesses != labels) & np.isfinite(outputs).all(axis=1))
    surest = wrong[np.argsort(-sure[wrong], kind="stable")][:MOST_PICTURES]
    # The pipeline may have scaled the pixels: what counts is their range now.
    low, high = float(images.min()), float(images.max())
    return [
        small_picture(f"{names[labels[at]]} → {names[guesses[at]]}", images[at] - low, high - low or 1.0)
        for at in surest.tolist()
    ]


def batch_size(validation: Any) -> int:
    """Return the number of examples in the first batch of (inputs, labels)."""
    return int(tf.nest.flatten(next(iter(validation)))[0].shape[0])
