"""Writes a run as plain Keras, as the Keras docs would: a script, or a notebook with the same sections.

How its model is made is in `keras_code`; how it is fed, compiled and trained is here. Texts of a run are untrusted:
`engine.data.code` keeps them in strings.
"""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import keras
from msgspec import Struct

from ..config.catalog import is_user_reference
from ..config.options import CALLBACKS, LARGEST_SHUFFLE
from ..config.run_config import RunConfig
from ..config.values import Piece, parse_piece
from ..data.code import Code, DataCode, Imports, call, docstring, is_class, listed, literal, literals, write
from ..data.kinds.kind import not_exportable
from ..data.kinds.table import kind_of
from ..errors import ConsoleError, DataError
from ..input.augment import augmentation_layers
from ..input.pipeline import validation_batch
from ..models import compile as compiling
from ..models.build import TrainingPhase, training_phases
from ..runs.metrics import metric_called
from ..runs.state import RunState
from ..sanitize import printable
from .keras_code import ExportedRun, model_lines, object_code, unfrozen

_AUGMENT = '''

def augment(images, labels):
    """Change images at random, differently in each epoch."""
    for layer in augmentation:
        images = layer(images, training=True)
    return images, labels'''
_BATCHES = '''

def batches_of(epoch):
    """Return the batches of an epoch, whose order depends on seed and epoch."""
    shuffled = train.shuffle({}, seed=epoch, reshuffle_each_iteration=False)
    return shuffled.batch(BATCH_SIZE, drop_remainder=True)


train_batches = tf.data.Dataset.counter().flat_map(batches_of)'''


class Script(Struct):
    """A run as plain Keras."""

    title: str
    sections: dict[str, list[str]]  # the lines of each part, by its title
    differences: list[str]  # from the run, in sentences

    @property
    def text(self) -> str:
        """The script."""
        parts = [docstring(self._introduction()) + "\n"]
        for title, lines in self.sections.items():
            heading = f"# {title}\n\n" if title != "Set-up" else ""
            parts.append(heading + "\n".join(lines) + "\n")
        return re.sub(r"\n{4,}", "\n\n\n", "\n".join(parts))  # two empty lines around functions

    @property
    def notebook(self) -> str:
        """The same as a Jupyter notebook."""
        # In a notebook's text, nothing may be a link, a picture, HTML or a formula.
        plain = re.sub(r"[^\w\s.,:;()/-]|_", lambda match: f"&#{ord(match[0])};", self._introduction())
        cells: list[dict[str, Any]] = []

        def add(kind: str, source: str, **more: Any) -> None:
            lines = source.splitlines(keepends=True)
            cells.append({"cell_type": kind, "id": f"cell-{len(cells) + 1}", "metadata": {}, **more, "source": lines})

        add("markdown", f"# {plain}")
        for title, lines in self.sections.items():
            add("markdown", f"## {title}")
            add("code", "\n".join(lines).strip("\n"), execution_count=None, outputs=[])
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
        return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"

    def _introduction(self) -> str:
        same = "It trains on the same examples in the same order, with the same seed, and does not need tpu-console."
        paragraphs = [self.title, same, *(["What differs from the run:"] if self.differences else [])]
        text = "\n\n".join(textwrap.fill(printable(paragraph), 86) for paragraph in paragraphs)
        items = (textwrap.fill(f"- {printable(one)}", 86, subsequent_indent="  ") for one in self.differences)
        return "\n".join((text, *items))


def script_of(config: RunConfig, state: RunState, record: dict[str, Any], run_id: str) -> Script:
    """Write a run, whose ``inputs.json`` is the record, as plain Keras; raise `ConsoleError` if that is impossible."""
    if state.accelerator is None or state.data is None or state.fit is None:
        what = f"The run {run_id} has not begun to train."
        remedy = "Wait until it trains, or choose another run."
        raise ConsoleError(what, why="The script needs to know its data and its devices.", remedy=remedy)
    config = config.model_copy(update={"batch_size": state.fit.replica_batch or config.batch_size})
    is_compiled = state.model is not None and state.model.is_compiled
    run = ExportedRun(config, state.accelerator, state.data, state.fit, is_compiled, record)
    if len({replica.process for replica in run.accelerator.replicas}) > 1:
        raise not_exportable(f"{run_id} trained on several hosts, and `hosts`")
    keras.config.set_dtype_policy(config.precision)
    run.imports.add("keras")
    run.imports.add("tensorflow as tf")
    data = data_code(config, run.data.validation_examples or 0, record, run.imports)
    run.differences += data.differences
    top = 1.0 if config.data.pixels == "unit" else data.top or 1.0
    changes = augmentation_layers(config.augmentation, top, config.seed)
    in_model = run.data.augments_in_model
    inputs = input_lines(run, data, [] if in_model else changes)
    model = model_lines(run, changes if in_model else [])
    training = training_lines(run, data.labels)
    environment, devices = run.framework.code(run.accelerator.accelerator, run.replicas)
    batch = f"{config.batch_size}" + (f" * {run.replicas}  # per replica × replicas" if run.replicas > 1 else "")
    constants = ["", f"SEED = {config.seed}", f"BATCH_SIZE = {batch}", f"EPOCHS = {config.epochs}", ""]
    if config.precision != "float32":
        constants.append(f"keras.config.set_dtype_policy({literal(config.precision)})")
    constants.append("keras.utils.set_random_seed(SEED)")
    constants.append(f"tf.random.set_seed({config.seed % (2**31 - 2) + 1})  # for the shuffling below")
    if names := sorted({one.action for one in state.steered if not one.refused} & {"epochs", "learning_rate"}):
        text = f"The run was changed while it trained ({', '.join(names)}); here its first settings apply throughout."
        run.differences.append(text)
    sections = {
        "Set-up": [*run.imports.lines(environment), *constants, *(["", *devices] if devices else [])],
        "Data": [*data.lines, *inputs],
        "Model": model,
        "Training": training,
        "Results": [
            f'model.save("{file_name(config.name)}.keras")',
            "for name, values in history.history.items():",
            '    print(f"{name}: {values[-1]:.4f}")',
        ],
    }
    title = f"Train {config.name}, as in the run {run_id} of tpu-console."
    return Script(title, sections, [*dict.fromkeys(run.differences)])


def data_code(config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
    """Return the code that reads a run's examples, and add its imports; raise `DataError` if there is no such code."""
    kind = kind_of(config.dataset)
    if missing := [name for name in kind.code_needs if record.get(name) is None]:
        raise DataError(f"The run's inputs.json does not contain its {' and '.join(missing)}.")
    code = DataCode(config, held_out, record, imports)
    kind.write_code(code)
    if any(sum(pair) == 1 for pair in zip(*record.get("class_counts", {}).values(), strict=False)):
        code.differences.append(
            "A class has only one example: the run used it for training, but the split here will fail."
        )
    return code


def training_lines(run: ExportedRun, labels: str) -> list[str]:
    """Return the lines that train `model`; `labels` is the variable with the class numbers, empty if there is none."""
    functions: dict[str, str] = {}  # definitions, by name
    lines: list[str] = []
    if run.config.class_weight == "balanced":
        if not labels:
            raise not_exportable("For a custom dataset, class_weight=balanced")
        run.imports.add("numpy as np")
        weights = "class_weight = {n: counts.sum() / (len(counts) * c) for n, c in enumerate(counts)}"
        lines += [f"counts = np.bincount({labels})", weights, ""]
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
    config, piece = run.config, parse_piece(run.config.loss)
    if piece.is_own:
        loss = _own_piece(run, piece, functions)
    else:
        if run.needs_one_hot and not config.takes_shares:
            config = config.model_copy(update={"loss": config.loss.removeprefix("sparse_")})
        made = compiling.make_loss(config, str(run.record.get("activation", "")))
        loss = literal(made) if isinstance(made, str) else object_code(made)
    given = {"optimizer": _optimizer(run, phase), "loss": loss}
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
            what = f"{key}={text} cannot be exported as code: its arguments depend on the run."
            raise DataError(what, remedy="Export a run with one of Keras's, and change it in the script.")
    code = object_code(compiling.make_optimizer(phase.config, run.replicas, run.fit.steps_per_epoch or 1))
    if any(key == "learning_rate=" for key, _ in code.items):
        return code
    # The default, which readers want to see.
    given = {key.removesuffix("="): value for key, value in code.items}
    return call(code.opening[:-1], learning_rate=literal(float(options.learning_rate)), **given)


def _metric(run: ExportedRun, text: str, functions: dict[str, str]) -> Code:
    piece = parse_piece(text)
    if piece.is_own:
        return _own_piece(run, piece, functions)
    if piece.name == "accuracy" and not piece.options:
        return literal("accuracy")
    if run.record.get("activation"):
        run.differences.append(f"metrics: {text} gets the model's logits here; the run gave it probabilities.")
    (made,) = compiling.make_metrics(run.config.model_copy(update={"metrics": (text,)}), "")
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
    if config.checkpoint.monitor != "none" and monitor:
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
            continue
        chosen = dict(piece.options)
        for key in {"filename", "filepath"} & {*chosen}:  # in the working folder only
            chosen[key] = name = Path(str(chosen[key])).name.lstrip(".") or piece.name
            if name != piece.options[key]:
                run.differences.append(f"{piece.name} writes {name} in the working folder, not {piece.options[key]}.")
        made.append(call(f"keras.callbacks.{CALLBACKS[piece.name]}", **literals(chosen)))
    return made


def _fitted(run: ExportedRun, phase: TrainingPhase, number: int) -> str:
    config = run.config
    given: dict[str, Code] = {"initial_epoch": "len(history.epoch)"} if number else {}
    given["epochs"] = "EPOCHS" if phase.last_epoch == config.epochs else str(phase.last_epoch)
    given["steps_per_epoch"] = str(run.fit.steps_per_epoch)
    if run.data.validation_examples:
        given["validation_data"] = "validation_batches"
        if config.validation_freq > 1:
            given["validation_freq"] = str(config.validation_freq)
    if config.class_weight != "none":
        given["class_weight"] = "class_weight"
    if callbacks := _callbacks(run):
        given["callbacks"] = listed(callbacks)
    return write(call("model.fit", "train_batches", **given), 0, "history = ")


def input_lines(run: ExportedRun, data: DataCode, augmentation: list[Any]) -> list[str]:
    """Return the lines that make `train_batches` and `validation_batches`, with layers that augment the former."""
    lines, maps, steps = list[str](), list[str](), list[str]()
    if data.top:
        scale = f" / {data.top:g}" if run.config.data.pixels == "unit" else ""
        steps.append(f"    inputs = tf.cast(inputs, tf.float32){scale}")
    if run.needs_one_hot and not data.are_shares:
        steps.append(f"    labels = tf.one_hot(labels, {run.data.classes})")
    if steps:
        maps.append("prepare")
        said = '    """Return inputs and labels as the model and its loss take them."""'
        lines += ["", "", "def prepare(inputs, labels):", said, *steps, "    return inputs, labels"]
    for name, why in run.config.augmentation.without_layer.items():
        run.differences.append(f"augmentation.{name} is not done here: {why}.")
    if augmentation:
        maps.append("augment")
        run.imports.add("layers", "keras")
        run.differences.append("Images are changed at random in the same ways, but with other random numbers.")
        made = write(listed([object_code(layer) for layer in augmentation]), 0, "augmentation = ")
        lines += ["", "", made, *_AUGMENT.split("\n")]
    if run.keeps_batches(0):
        if run.replicas > 1:
            run.differences.append(f"The run cut batches that {run.replicas} replicas cannot share equally.")
        lines += ["", "train_batches = train.repeat()"]
    else:
        most = run.data.train_examples or LARGEST_SHUFFLE
        buffer = run.data.shuffle_buffer or run.config.data.shuffle_buffer or min(most, LARGEST_SHUFFLE)
        lines += _BATCHES.format(buffer).split("\n")
    lines += [f"train_batches = train_batches.map({name}, num_parallel_calls=tf.data.AUTOTUNE)" for name in maps]
    lines.append("train_batches = train_batches.prefetch(tf.data.AUTOTUNE)")
    if run.data.validation_examples:
        lines.append(_validation(run, ".map(prepare)" if steps else ""))
    return lines


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
