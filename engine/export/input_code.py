"""Writes how a run made batches of its examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..input.pipeline import validation_batch
from .code import listed, write
from .keras_code import object_code

if TYPE_CHECKING:
    from .data_code import DataCode
    from .exported_run import ExportedRun

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
        if run.accelerator.backend == "jax" and (rest := held_out % run.replicas):
            held_out -= rest
            taken = f".take({held_out})"
        # Keras builds the metrics from the first batch, which all replicas must share equally.
        batch = min(batch, max(1, held_out // run.replicas) * run.replicas)
        batch = validation_batch(held_out, batch, run.replicas)
    size = "BATCH_SIZE" if batch == whole else str(batch)
    single = ".unbatch()" if keeps else ""
    return f"validation_batches = validation{single}{taken}.batch({size}){prepared}"
