"""Writes a run as plain Keras, as the Keras docs would: a script, or a notebook with the same sections."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import keras

from ..config.catalog import is_user_reference
from ..config.model_options import ApplicationOptions
from ..config.options import CALLBACKS
from ..config.pieces import parse_piece
from ..data.examples import Input, Signature, Task
from ..data.places import locate
from ..errors import ConsoleError, DataError
from ..input.augmentation.placement import augmentation_layers
from ..input.pipeline import validation_batch
from ..models import pieces
from ..models.build import build_model
from ..models.compile import make_optimizer
from ..models.fine_tuning import training_phases
from ..runs.state import lower_is_better
from .code import Code, call, listed, literal, literals, write
from .data_code import data_code, not_exportable
from .imports import Imports, is_class
from .keras_code import call_code, functional_lines, object_code, sequential_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config.run_config import RunConfig
    from ..models.fine_tuning import TrainingPhase
    from ..runs.events import AcceleratorReady, DataReady, FitStarted
    from ..runs.state import RunState
    from .data_code import DataCode


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a script."""

    title: str
    lines: list[str]


@dataclass(slots=True)
class Script:
    """A run as plain Keras."""

    title: str
    sections: list[Section]
    marks: list[str]  # what differs from the run, in sentences

    @property
    def text(self) -> str:
        """The script."""
        parts = [f'"""{self._introduction()}\n"""\n']
        for section in self.sections:
            heading = f"# {section.title}\n\n" if section.title != "Set-up" else ""
            parts.append(heading + "\n".join(section.lines) + "\n")
        return re.sub(r"\n{4,}", "\n\n\n", "\n".join(parts))  # two empty lines around functions

    @property
    def notebook(self) -> str:
        """The same as a Jupyter notebook."""
        numbers = count(1)
        cells = [_cell(numbers, "markdown", f"# {self._introduction()}")]
        for section in self.sections:
            cells.append(_cell(numbers, "markdown", f"## {section.title}"))
            cells.append(_cell(numbers, "code", "\n".join(section.lines).strip("\n")))
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
        return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"

    def _introduction(self) -> str:
        same = "It trains on the same examples in the same order, with the same seed, and does not need tpu-console."
        paragraphs = [self.title, same]
        if self.marks:
            paragraphs.append("What differs from the run:")
            marks = [textwrap.fill(f"- {mark}", 86, subsequent_indent="  ") for mark in self.marks]
            return "\n\n".join(textwrap.fill(text, 86) for text in paragraphs) + "\n" + "\n".join(marks)
        return "\n\n".join(textwrap.fill(text, 86) for text in paragraphs)


def _cell(numbers: Iterator[int], kind: str, source: str) -> dict[str, Any]:
    more: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    lines = source.splitlines(keepends=True)
    return {"cell_type": kind, "id": f"cell-{next(numbers)}", "metadata": {}, **more, "source": lines}


def script_of(config: RunConfig, state: RunState, record: dict[str, Any], run_id: str) -> Script:
    """Write a run as plain Keras; raise `ConsoleError` if it has not begun to train, or cannot be exported as code.

    The record is its ``inputs.json``.
    """
    if state.accelerator is None or state.data is None or state.fit is None:
        raise ConsoleError(
            f"The run {run_id} has not begun to train.",
            why="The script needs to know its data and its devices.",
            remedy="Wait until it trains, or choose another run.",
        )
    return _Writer(config, state, state.accelerator, state.data, state.fit, record).script(run_id)


@dataclass(slots=True)
class _Writer:
    config: RunConfig
    state: RunState
    accelerator: AcceleratorReady
    data: DataReady
    fit: FitStarted
    record: dict[str, Any]
    imports: Imports = field(default_factory=Imports)
    marks: list[str] = field(default_factory=list)
    _functions: list[str] = field(default_factory=list)  # definitions for the training section

    def script(self, run_id: str) -> Script:
        keras.config.set_dtype_policy(self.config.precision)
        self.imports.add("keras")
        self.imports.add("tensorflow as tf")
        if len({replica.process for replica in self.accelerator.replicas}) > 1:
            raise not_exportable(f"{run_id} trained on several hosts, and `hosts`")
        data = data_code(self.config, self.data.validation_examples or 0, self.record, self.imports)
        self.marks += data.marks
        inputs = self._inputs(data)
        model = self._model()
        training = self._training(data)
        environment, devices = self._devices()
        head = [*self.imports.lines(environment), "", *self._constants(), *(["", *devices] if devices else [])]
        results = [
            f'model.save("{_file_name(self.config.name)}.keras")',
            "for name, values in history.history.items():",
            '    print(f"{name}: {values[-1]:.4f}")',
        ]
        self._mark_steering()
        sections = [
            Section("Set-up", head),
            Section("Data", [*data.lines, *inputs]),
            Section("Model", model),
            Section("Training", [*self._functions, *training]),
            Section("Results", results),
        ]
        title = f"Train {self.config.name}, as in the run {run_id} of tpu-console."
        return Script(title, sections, self.marks)

    @property
    def _replicas(self) -> int:
        return len(self.accelerator.replicas)

    @property
    def _by_strategy(self) -> bool:
        return self.accelerator.backend == "tensorflow" and (
            self._replicas > 1 or self.accelerator.accelerator == "tpu"
        )

    def _constants(self) -> list[str]:
        batch = str(self.config.batch_size)
        if self._replicas > 1:
            batch += f" * {self._replicas}  # per replica × replicas"
        lines = [f"SEED = {self.config.seed}", f"BATCH_SIZE = {batch}", f"EPOCHS = {self.config.epochs}", ""]
        if self.config.precision != "float32":
            lines.append(f'keras.config.set_dtype_policy("{self.config.precision}")')
        shuffling = self.config.seed % (2**31 - 2) + 1
        lines += ["keras.utils.set_random_seed(SEED)", f"tf.random.set_seed({shuffling})  # for the shuffling below"]
        return lines

    def _devices(self) -> tuple[dict[str, str], list[str]]:
        """Return the variables to set before Keras is imported, and the lines that set up the devices."""
        name, backend = self.accelerator.accelerator, self.accelerator.backend
        environment = {"KERAS_BACKEND": backend}
        simulated = name.startswith("sim:")
        if backend == "jax":
            if simulated:
                environment["JAX_PLATFORMS"] = "cpu"
                flags = f"--xla_force_host_platform_device_count={self._replicas}"
                environment["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"
                environment["PJRT_NPROC"] = str(8 * self._replicas)
            elif name == "cpu":
                environment["JAX_PLATFORMS"] = "cpu"
            hidden = []
            if name in {"gpu", "tpu"}:
                hidden = [
                    "# TensorFlow only reads the data, so tensorflow-cpu is enough. JAX has the devices.",
                    f'tf.config.set_visible_devices([], "{name.upper()}")',
                ]
            if self._replicas == 1:
                return environment, hidden
            return environment, [
                *hidden,
                "# Each device gets a part of every batch.",
                "distribution = keras.distribution.DataParallel(auto_shard_dataset=False)",
                "keras.distribution.set_distribution(distribution)",
            ]
        if self._replicas == 1 and name != "tpu":
            return environment, []
        if name == "tpu":
            return environment, [
                "resolver = tf.distribute.cluster_resolver.TPUClusterResolver()",
                "tf.config.experimental_connect_to_cluster(resolver)",
                "tf.tpu.experimental.initialize_tpu_system(resolver)",
                "strategy = tf.distribute.TPUStrategy(resolver)",
            ]
        if not simulated:
            return environment, ["strategy = tf.distribute.MirroredStrategy()  # all GPUs"]
        return environment, [
            f"# {self._replicas} replicas, simulated on the CPU.",
            'cpu = tf.config.list_physical_devices("CPU")[0]',
            f"devices = [tf.config.LogicalDeviceConfiguration()] * {self._replicas}",
            "tf.config.set_logical_device_configuration(cpu, devices)",
            f'names = [f"/CPU:{{number}}" for number in range({self._replicas})]',
            "strategy = tf.distribute.MirroredStrategy(names)",
        ]

    @property
    def _needs_one_hot(self) -> bool:
        """Whether labels become a value per class: for the loss, or for metrics that compare such values."""
        by_class = any(parse_piece(text).name in pieces.BY_CLASS for text in self.config.metrics)
        return self.config.takes_shares or (
            by_class and self.config.effective_loss.startswith("sparse_") and not self._is_compiled
        )

    def _inputs(self, data: DataCode) -> list[str]:
        """Return the lines that make batches of the examples."""
        prepared = []
        unit = data.top and self.config.data.pixels == "unit"
        if data.top:
            scaled = f" / {data.top:g}" if unit else ""
            prepared.append(f"    inputs = tf.cast(inputs, tf.float32){scaled}")
        if self._needs_one_hot and not data.are_shares:
            prepared.append(f"    labels = tf.one_hot(labels, {self.data.classes})")
        lines: list[str] = []
        if prepared:
            what = " and ".join(
                [
                    *(["scale the pixels to 0–1"] if unit else ["convert the pixels"] if data.top else []),
                    *(["write labels as a value per class"] if len(prepared) == 2 or not data.top else []),
                ]
            )
            lines += ["", "", "def prepare(inputs, labels):", f'    """{what.capitalize()}."""', *prepared]
            lines += ["    return inputs, labels"]
        lines += self._augmentation(1.0 if unit else data.top or 1.0)
        lines += [*self._epochs(), "", ""]
        return lines + self._batches(is_prepared=bool(prepared), has_validation=bool(self.data.validation_examples))

    def _augmentation(self, top: float) -> list[str]:
        options = self.config.augmentation
        for name, why in options.without_layer.items():
            self.marks.append(f"augmentation.{name} is not done here: {why}.")
        if not options.is_active or self._augments_in_model:
            return []
        layers = augmentation_layers(options, top, self.config.seed)
        if not layers:
            return []
        self.imports.add("layers", "keras")
        self.marks.append("Images are changed at random in the same ways, but with other random numbers.")
        return [
            "",
            "",
            write(listed([object_code(layer) for layer in layers]), 0, "augmentation = "),
            "",
            "",
            "def augment(images, labels):",
            '    """Change images at random, differently in each epoch."""',
            "    for layer in augmentation:",
            "        images = layer(images, training=True)",
            "    return images, labels",
        ]

    @property
    def _augments_in_model(self) -> bool:
        return self.data.augmentation.startswith("in the model")

    def _epochs(self) -> list[str]:
        count = self.data.train_examples
        matches = (re.match(r"The shuffle buffer holds ([\d,]+) ", text) for text in self.state.notices)
        smaller = next(filter(None, matches), None)
        buffer = int(smaller[1].replace(",", "")) if smaller else self.config.data.shuffle_buffer
        buffer = buffer or min(count or 100_000, 100_000)
        return [
            "",
            "",
            "def batches_of(epoch):",
            '    """Return the batches of an epoch, whose order depends on seed and epoch."""',
            f"    shuffled = train.shuffle({buffer}, seed=epoch, reshuffle_each_iteration=False)",
            "    return shuffled.batch(BATCH_SIZE, drop_remainder=True)",
        ]

    def _batches(self, *, is_prepared: bool, has_validation: bool) -> list[str]:
        parallel = "num_parallel_calls=tf.data.AUTOTUNE"
        steps = ["train_batches = tf.data.Dataset.counter().flat_map(batches_of)"]
        if is_prepared:
            steps.append(f"train_batches = train_batches.map(prepare, {parallel})")
        if self.config.augmentation.is_active and not self._augments_in_model:
            steps.append(f"train_batches = train_batches.map(augment, {parallel})")
        steps.append("train_batches = train_batches.prefetch(tf.data.AUTOTUNE)")
        if has_validation:
            held_out = self.data.validation_examples
            taken, batch = "", self.config.batch_size * self._replicas
            if self._replicas > 1 and held_out is not None:
                if self.accelerator.backend == "jax" and (rest := held_out % self._replicas):
                    held_out -= rest
                    taken = f".take({held_out})"
                # Keras builds the metrics from the first batch, which all replicas must share equally.
                batch = min(batch, max(1, held_out // self._replicas) * self._replicas)
                batch = validation_batch(held_out, batch, self._replicas)
            size = "BATCH_SIZE" if batch == self.config.batch_size * self._replicas else str(batch)
            prepared = ".map(prepare)" if is_prepared else ""
            steps.append(f"validation_batches = validation{taken}.batch({size}){prepared}")
        return steps

    def _model(self) -> list[str]:
        indent = 4 if self._by_strategy else 0
        lines = list(self._model_lines(indent))
        if self.config.weights:
            if is_user_reference(self.config.model):
                shape = (None, *self.data.input_shape)
                lines += [
                    "if not model.built:  # a subclass of keras.Model",
                    f"    model.build({write(literal(shape))})",
                ]
            lines.append(f"model.load_weights({literal(locate(self.config.weights))})")
        if indent:
            lines = ["with strategy.scope():", *(f"    {line}" for line in lines)]
        return lines

    def _model_lines(self, indent: int) -> Iterator[str]:
        shape = tuple(self.data.input_shape)
        top = 1.0 if self.config.data.pixels == "unit" else 16.0 if self.config.dataset == "digits" else 255.0
        layers = augmentation_layers(self.config.augmentation, top, self.config.seed) if self._augments_in_model else []
        if is_user_reference(self.config.model):
            if not shape:
                raise not_exportable(f"dataset={self.config.dataset} gives several inputs, which")
            if layers:
                raise not_exportable("For a custom model, augmentation.placement=model")
            name = self.imports.own(self.config.model)
            options = literals(self.config.model_options)
            yield write(call(name, literal(shape), literal(self.data.classes), **options), indent, "model = ")
            return
        if self.config.model not in {"cnn", "vgg", "mlp", "text", "application"}:
            raise not_exportable(f"model={self.config.model}")
        self.imports.add("layers", "keras")
        words = len(self.record.get("words", ()))
        kind = Input(shape, "int32") if words else Input(shape)
        signature = Signature(Task.CLASSES, {"example": kind}, self.data.classes, sizes={"vocabulary": words})
        changed = self.config
        if self.config.model == "application":
            options = {**self.config.model_options, "weights": "none"}
            changed = self.config.model_copy(update={"model_options": options})
        model = build_model(changed, signature)
        if isinstance(model, keras.Sequential):
            yield write(sequential_code(model, layers), indent, "model = ")
            return
        yield from self._base(indent)
        base = next(layer for layer in model.layers if isinstance(layer, keras.Model))
        yield from functional_lines(model, {base.name: "base"}, layers, indent)

    def _base(self, indent: int) -> Iterator[str]:
        options = ApplicationOptions.model_validate(self.config.model_options)
        weights = "imagenet" if options.weights == "imagenet" else None
        height, width = self.data.input_shape[:2]
        given = {
            "include_top": False,
            "weights": weights,
            "input_shape": (height, width, 3),
            "pooling": options.pooling,
        }
        yield write(call(f"keras.applications.{options.name}", **literals(given)), indent, "base = ")
        if options.weights not in {"imagenet", "none"}:
            yield f"base.load_weights({literal(locate(options.weights))})"
        if options.trainable == "none":
            yield "base.trainable = False"
        elif isinstance(options.trainable, int):
            yield from _unfrozen(options.trainable)

    @property
    def _is_compiled(self) -> bool:
        """Whether the user's function compiles the model."""
        return any("compiled its model" in text for text in self.state.notices)

    def _training(self, data: DataCode) -> list[str]:
        lines: list[str] = []
        weights = None
        if self.config.class_weight == "balanced":
            if not data.labels:
                raise not_exportable("For a custom dataset, class_weight=balanced")
            self.imports.add("numpy as np")
            weights = "class_weight"
            lines += [
                f"counts = np.bincount({data.labels})",
                "class_weight = {n: counts.sum() / (len(counts) * c) for n, c in enumerate(counts)}",
                "",
            ]
        phases = training_phases(self.config)
        for number, phase in enumerate(phases):
            if number:
                first = self.config.fine_tuning.from_layer
                lines += [
                    "",
                    f"# Fine-tuning: the layers of the base from {first} on are trained too.",
                    *_unfrozen(first),
                ]
            lines += self._compiled(phase)
            lines += self._fitted(phase, number, weights)
        return lines

    def _compiled(self, phase: TrainingPhase) -> list[str]:
        # Keras chooses this itself on a machine with nothing but a CPU. On a TPU VM it would not, and tensorflow-tpu
        # compiles for TPUs only.
        on_cpu = self.accelerator.backend == "tensorflow" and self.accelerator.accelerator == "cpu"
        if self._is_compiled:
            return ["model.jit_compile = False"] if on_cpu else []
        indent = 4 if self._by_strategy else 0
        activation = str(self.record.get("activation", ""))
        steps = self.fit.steps_per_epoch or 1
        given: dict[str, Code] = {"optimizer": self._optimizer(phase.config, steps), "loss": self._loss(activation)}
        if self.config.metrics:
            given["metrics"] = listed([self._metric(text, activation) for text in self.config.metrics])
        if self.fit.steps_per_execution > 1:
            given["steps_per_execution"] = str(self.fit.steps_per_execution)
        if self._by_strategy or on_cpu:
            given["jit_compile"] = "False"
        code = write(call("model.compile", **given), indent)
        return ["with strategy.scope():", f"    {code}"] if self._by_strategy else [code]

    def _optimizer(self, config: RunConfig, steps: int) -> Code:
        options = config.optimizer
        for key, text in (("optimizer.name", options.name), ("optimizer.schedule", options.schedule)):
            if is_user_reference(parse_piece(text).name):
                raise DataError(
                    f"{key}={text} cannot be exported as code: its arguments depend on the run.",
                    remedy="Export a run with one of Keras's, and change it in the script.",
                )
        made = make_optimizer(config, self._replicas, steps)
        code = object_code(made)
        if not any(key == "learning_rate=" for key, _ in code.items):  # the default, which readers want to see
            code = call(code.opening[:-1], learning_rate=literal(float(options.learning_rate)), **_named(code.items))
        return code

    def _loss(self, activation: str) -> Code:
        piece = parse_piece(self.config.loss)
        if piece.is_own:
            return self._own_piece(piece.name, dict(piece.options))
        config = self.config
        if self._needs_one_hot and not config.takes_shares:
            config = config.model_copy(update={"loss": config.loss.removeprefix("sparse_")})
        made = pieces.make_loss(config, activation)
        return literal(made) if isinstance(made, str) else object_code(made)

    def _metric(self, text: str, activation: str) -> Code:
        piece = parse_piece(text)
        if piece.is_own:
            return self._own_piece(piece.name, dict(piece.options))
        if piece.name == "accuracy" and not piece.options:
            return literal("accuracy")
        if activation:
            self.marks.append(f"metrics: {text} gets the model's logits here; the run gave it probabilities.")
        (made,) = pieces.make_metrics(self.config.model_copy(update={"metrics": (text,)}), "")
        return object_code(made)

    def _own_piece(self, reference: str, options: dict[str, Any]) -> Code:
        name = self.imports.own(reference)
        if is_class(reference):
            return call(name, **literals(options))
        if not options:
            return name
        self._functions += [
            *([] if self._functions else ["", ""]),
            f"def my_{name}(y_true, y_pred):",
            f"    {write(call(name, 'y_true', 'y_pred', **literals(options)), 4, 'return ')}",
            "",
            "",
        ]
        return f"my_{name}"

    def _fitted(self, phase: TrainingPhase, number: int, weights: str | None) -> list[str]:
        given: dict[str, Code] = {}
        if number:
            given["initial_epoch"] = "len(history.epoch)"
        last = "EPOCHS" if phase.last_epoch == self.config.epochs else str(phase.last_epoch)
        given |= {"epochs": last, "steps_per_epoch": str(self.fit.steps_per_epoch)}
        if self.data.validation_examples:
            given["validation_data"] = "validation_batches"
            if self.config.validation_freq > 1:
                given["validation_freq"] = str(self.config.validation_freq)
        if weights:
            given["class_weight"] = weights
        if callbacks := self._callbacks():
            given["callbacks"] = listed(callbacks)
        return [write(call("model.fit", "train_batches", **given), 0, "history = ")]

    def _callbacks(self) -> list[Code]:
        config, monitor = self.config, self.fit.monitor
        made: list[Code] = []
        if config.early_stopping.patience:
            options = config.early_stopping
            settings: dict[str, Any] = {"monitor": options.monitor, "patience": options.patience}
            if options.min_delta:
                settings["min_delta"] = options.min_delta
            settings["restore_best_weights"] = options.restore_best_weights
            made.append(call_code(keras.callbacks.EarlyStopping, settings))
        if config.checkpoint.enabled and monitor:
            settings = {"monitor": monitor, "save_best_only": True}
            if not ("loss" in monitor or "acc" in monitor):
                settings["mode"] = "min" if lower_is_better(monitor) else "max"
            path = literal(f"{_file_name(config.name)}-best.keras")
            made.append(call("keras.callbacks.ModelCheckpoint", path, **literals(settings)))
        if "tensorboard" in config.sinks:
            made.append(call("keras.callbacks.TensorBoard", literal("tensorboard")))
        for piece in map(parse_piece, config.callbacks):
            if piece.is_own:
                made.append(call(self.imports.own(piece.name), **literals(piece.options)))
            else:
                made.append(call(f"keras.callbacks.{CALLBACKS[piece.name]}", **literals(piece.options)))
        return made

    def _mark_steering(self) -> None:
        changes = [one for one in self.state.steered if one.action in {"epochs", "learning_rate"} and not one.refused]
        if changes:
            names = ", ".join(sorted({one.action for one in changes}))
            self.marks.append(
                f"The run was changed while it trained ({names}); here its first settings apply throughout."
            )


def _named(items: tuple[tuple[str, Code], ...]) -> dict[str, Code]:
    return {key.removesuffix("="): value for key, value in items}


def _unfrozen(first: int) -> list[str]:
    """Return the lines that train the layers of a base from one on; batch normalisation keeps its statistics."""
    return [
        "base.trainable = True",
        f"for layer in base.layers[:{first}]:" if first else "for layer in base.layers:",
        *(["    layer.trainable = False"] if first else []),
        *(["for layer in base.layers:"] if first else []),
        "    if isinstance(layer, keras.layers.BatchNormalization):",
        "        layer.trainable = False",
    ]


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)
