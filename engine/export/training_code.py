"""Writes how a run fed, compiled and trained its model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..code import Code, call, is_class, listed, literal, literals, write
from ..config.catalog import is_user_reference
from ..config.options import CALLBACKS
from ..config.pieces import parse_piece
from ..data.kinds.kind import not_exportable
from ..errors import DataError
from ..input.pipeline import validation_batch
from ..models import pieces
from ..models.compile import make_optimizer
from ..models.fine_tuning import training_phases
from ..runs.metrics import metric_called
from .keras_code import object_code, unfrozen

if TYPE_CHECKING:
    from ..config.pieces import Piece
    from ..data.data_code import DataCode
    from ..models.fine_tuning import TrainingPhase
    from .keras_code import ExportedRun


def training_lines(run: ExportedRun, labels: str) -> list[str]:
    """Return the lines that train `model`; `labels` is the variable with the class numbers, empty if there is none."""
    functions: dict[str, str] = {}  # definitions, by name
    lines: list[str] = []
    if run.config.class_weight == "balanced":
        if not labels:
            raise not_exportable("For a custom dataset, class_weight=balanced")
        run.imports.add("numpy as np")
        lines += [
            f"counts = np.bincount({labels})",
            "class_weight = {n: counts.sum() / (len(counts) * c) for n, c in enumerate(counts)}",
            "",
        ]
    elif run.config.class_weight != "none":
        table = {int(number): weight for number, weight in run.config.class_weight.items()}
        lines += [write(literal(table), 0, "class_weight = "), ""]
    for number, phase in enumerate(training_phases(run.config)):
        if number:
            first = run.config.fine_tuning.from_layer
            lines += ["", f"# Fine-tuning: the layers of the base from {first} on are trained too.", *unfrozen(first)]
        lines += _compiled(run, phase, functions)
        lines.append(_fitted(run, phase, number))
    return [*(["", ""] if functions else []), *functions.values(), *lines]


def file_name(name: str) -> str:
    """Return a name as that of a file in the working folder."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".") or "run"


def _compiled(run: ExportedRun, phase: TrainingPhase, functions: dict[str, str]) -> list[str]:
    # Keras chooses this itself on a machine with nothing but a CPU. On a TPU VM it would not, and tensorflow-tpu
    # compiles for TPUs only.
    on_cpu = run.framework.runs_tensorflow and run.accelerator.accelerator == "cpu"
    if run.is_compiled:
        return ["model.jit_compile = False"] if on_cpu else []
    given = {"optimizer": _optimizer(run, phase), "loss": _loss(run, functions)}
    if run.config.metrics:
        given["metrics"] = listed([_metric(run, text, functions) for text in run.config.metrics])
    if run.fit.steps_per_execution > 1:
        given["steps_per_execution"] = str(run.fit.steps_per_execution)
    if run.by_strategy or on_cpu:
        given["jit_compile"] = "False"
    return run.in_scope([write(call("model.compile", **given), run.indent)])


def _optimizer(run: ExportedRun, phase: TrainingPhase) -> Code:
    options = phase.config.optimizer
    for key, text in (("optimizer.name", options.name), ("optimizer.schedule", options.schedule)):
        if is_user_reference(parse_piece(text).name):
            raise DataError(
                f"{key}={text} cannot be exported as code: its arguments depend on the run.",
                remedy="Export a run with one of Keras's, and change it in the script.",
            )
    code = object_code(make_optimizer(phase.config, run.replicas, run.fit.steps_per_epoch or 1))
    if any(key == "learning_rate=" for key, _ in code.items):
        return code
    # The default, which readers want to see.
    given = {key.removesuffix("="): value for key, value in code.items}
    return call(code.opening[:-1], learning_rate=literal(float(options.learning_rate)), **given)


def _loss(run: ExportedRun, functions: dict[str, str]) -> Code:
    config = run.config
    piece = parse_piece(config.loss)
    if piece.is_own:
        return _own_piece(run, piece, functions)
    if run.needs_one_hot and not config.takes_shares:
        config = config.model_copy(update={"loss": config.loss.removeprefix("sparse_")})
    made = pieces.make_loss(config, str(run.record.get("activation", "")))
    return literal(made) if isinstance(made, str) else object_code(made)


def _metric(run: ExportedRun, text: str, functions: dict[str, str]) -> Code:
    piece = parse_piece(text)
    if piece.is_own:
        return _own_piece(run, piece, functions)
    if piece.name == "accuracy" and not piece.options:
        return literal("accuracy")
    if run.record.get("activation"):
        run.marks.append(f"metrics: {text} gets the model's logits here; the run gave it probabilities.")
    (made,) = pieces.make_metrics(run.config.model_copy(update={"metrics": (text,)}), "")
    return object_code(made)


def _own_piece(run: ExportedRun, piece: Piece, functions: dict[str, str]) -> Code:
    """Return the user's loss or metric; a function with options is wrapped in another one."""
    name = run.imports.own(piece.name)
    if is_class(piece.name):
        return call(name, **literals(piece.options))
    if not piece.options:
        return name
    given = write(call(name, "y_true", "y_pred", **literals(piece.options)), 4, "return ")
    functions[name] = f"def my_{name}(y_true, y_pred):\n    {given}\n\n"
    return f"my_{name}"


def _fitted(run: ExportedRun, phase: TrainingPhase, number: int) -> str:
    given: dict[str, Code] = {"initial_epoch": "len(history.epoch)"} if number else {}
    given["epochs"] = "EPOCHS" if phase.last_epoch == run.config.epochs else str(phase.last_epoch)
    given["steps_per_epoch"] = str(run.fit.steps_per_epoch)
    if run.data.validation_examples:
        given["validation_data"] = "validation_batches"
        if run.config.validation_freq > 1:
            given["validation_freq"] = str(run.config.validation_freq)
    if run.config.class_weight != "none":
        given["class_weight"] = "class_weight"
    if callbacks := _callbacks(run):
        given["callbacks"] = listed(callbacks)
    return write(call("model.fit", "train_batches", **given), 0, "history = ")


def _callbacks(run: ExportedRun) -> list[Code]:
    config, monitor = run.config, run.fit.monitor
    made: list[Code] = []
    if config.early_stopping.patience:
        options = config.early_stopping
        settings: dict[str, Any] = {"monitor": options.monitor, "patience": options.patience}
        if options.min_delta:
            settings["min_delta"] = options.min_delta
        settings["restore_best_weights"] = options.restore_best_weights
        made.append(call("keras.callbacks.EarlyStopping", **literals(settings)))
    if config.checkpoint.enabled and monitor:
        settings = {"monitor": monitor, "save_best_only": True}
        if not ("loss" in monitor or "acc" in monitor):
            settings["mode"] = "min" if metric_called(monitor, run.fit.metrics).lower_is_better else "max"
        best = literal(f"{file_name(config.name)}-best.keras")
        made.append(call("keras.callbacks.ModelCheckpoint", best, **literals(settings)))
    if "tensorboard" in config.sinks:
        made.append(call("keras.callbacks.TensorBoard", literal("tensorboard")))
    for piece in map(parse_piece, config.callbacks):
        if piece.is_own:
            made.append(call(run.imports.own(piece.name), **literals(piece.options)))
        else:
            made.append(call(f"keras.callbacks.{CALLBACKS[piece.name]}", **literals(_in_folder(run, piece))))
    return made


def _in_folder(run: ExportedRun, piece: Piece) -> dict[str, Any]:
    """Return the options of a callback of Keras, which writes its files in the working folder only."""
    options = dict(piece.options)
    for key in {"filename", "filepath"} & {*options}:
        name = Path(str(options[key])).name.lstrip(".") or piece.name
        if name != options[key]:
            run.marks.append(f"{piece.name} writes {name} in the working folder, not {options[key]}.")
        options[key] = name
    return options


_PARALLEL = "num_parallel_calls=tf.data.AUTOTUNE"


def input_lines(run: ExportedRun, data: DataCode, augmentation: list[Any]) -> list[str]:
    """Return the lines that make `train_batches` and `validation_batches`, with layers that augment the former."""
    maps = []
    lines = _preparation(run, data)
    if lines:
        maps.append("prepare")
    for name, why in run.config.augmentation.without_layer.items():
        run.marks.append(f"augmentation.{name} is not done here: {why}.")
    if augmentation:
        maps.append("augment")
        run.imports.add("layers", "keras")
        run.marks.append("Images are changed at random in the same ways, but with other random numbers.")
        lines += [
            "",
            "",
            write(listed([object_code(layer) for layer in augmentation]), 0, "augmentation = "),
            "",
            "",
            "def augment(images, labels):",
            '    """Change images at random, differently in each epoch."""',
            "    for layer in augmentation:",
            "        images = layer(images, training=True)",
            "    return images, labels",
        ]
    lines += [
        *_endless(run),
        *(f"train_batches = train_batches.map({name}, {_PARALLEL})" for name in maps),
        "train_batches = train_batches.prefetch(tf.data.AUTOTUNE)",
    ]
    if run.data.validation_examples:
        lines.append(_validation(run, ".map(prepare)" if "prepare" in maps else ""))
    return lines


def _endless(run: ExportedRun) -> list[str]:
    """Return the lines that make endless training batches of the examples."""
    if run.keeps_batches(0):
        if run.replicas > 1:
            run.marks.append(f"The run cut batches that {run.replicas} replicas cannot share equally.")
        return ["", "train_batches = train.repeat()"]
    buffer = (
        run.data.shuffle_buffer or run.config.data.shuffle_buffer or min(run.data.train_examples or 100_000, 100_000)
    )
    return [
        "",
        "",
        "def batches_of(epoch):",
        '    """Return the batches of an epoch, whose order depends on seed and epoch."""',
        f"    shuffled = train.shuffle({buffer}, seed=epoch, reshuffle_each_iteration=False)",
        "    return shuffled.batch(BATCH_SIZE, drop_remainder=True)",
        "",
        "",
        "train_batches = tf.data.Dataset.counter().flat_map(batches_of)",
    ]


def _preparation(run: ExportedRun, data: DataCode) -> list[str]:
    """Return a function `prepare` of inputs and labels, if they need one."""
    steps, said = [], []
    if data.top:
        is_scaled = run.config.data.pixels == "unit"
        said.append("scale the pixels to 0–1" if is_scaled else "convert the pixels")
        steps.append(f"    inputs = tf.cast(inputs, tf.float32){f' / {data.top:g}' if is_scaled else ''}")
    if run.needs_one_hot and not data.are_shares:
        said.append("write labels as a value per class")
        steps.append(f"    labels = tf.one_hot(labels, {run.data.classes})")
    if not steps:
        return []
    head = ["", "", "def prepare(inputs, labels):", f'    """{" and ".join(said).capitalize()}."""']
    return [*head, *steps, "    return inputs, labels"]


def _validation(run: ExportedRun, prepared: str) -> str:
    keeps = run.keeps_batches(1)
    if keeps and run.replicas == 1:
        return f"validation_batches = validation{prepared}"
    held_out, taken = run.data.validation_examples or 0, ""
    batch = whole = run.config.batch_size * run.replicas
    if run.replicas > 1:
        if run.framework.splits_evenly and (rest := held_out % run.replicas):
            held_out -= rest
            taken = f".take({held_out})"
        # Keras builds the metrics from the first batch, which all replicas must share equally.
        batch = min(batch, max(1, held_out // run.replicas) * run.replicas)
        batch = validation_batch(held_out, batch, run.replicas)
    size = "BATCH_SIZE" if batch == whole else str(batch)
    single = ".unbatch()" if keeps else ""
    return f"validation_batches = validation{single}{taken}.batch({size}){prepared}"
