"""What fills a device's memory, and what fits: the largest batch, and the cheapest changes.

The HBM that a step needs grows almost linearly with the batch, so a line through two results shows where it meets the
limit. Where that misses twice on the same side, the middle is tried. Only multiples are tried, about 1% of the batch
apart: a finer answer would not change a run, and each try takes as long as a compile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from timeit import repeat
from typing import TYPE_CHECKING, Any

import keras
from msgspec import Struct
from msgspec.structs import replace

from ..compat.keras import flat_layers
from ..config.catalog import is_user_reference
from ..config.values import parse_piece
from ..data.kinds.table import train_examples_of
from ..errors import ConsoleError, Finding, Severity
from ..machine.sources import installed_versions
from ..models.build import bytes_of
from ..models.table import MODELS
from ..planning import TILE, padded
from ..storage.files import gib
from .build import build, only_shapes
from .choice import batch_of
from .compile import Compiler, DoesNotFitError, RefusedError, Subject, refusing
from .hlo import layer_in, pipeline_remedy
from .layers import all_layers, count, shapes_of
from .result import BatchFigures, Filling, Memory, Verdict
from .topologies import TOPOLOGIES, Topology

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

    Tried = Mapping[int, BatchFigures]
    """What each batch per device needs, in the order of the tries; first what any needs: weights and slots."""

MULTIPLE = 8  # a TPU pads batches to multiples of it
_MOST_FILLINGS = 3
_ROOM = 0.97  # of the limit: a smaller batch aims below it, since memory does not shrink quite in step with it
_SLOTTED = ("adam", "adamw", "adamax", "nadam", "lamb")  # optimizers with two slots per weight
_FEWER_SLOTS = {
    "lion": (0.5, "Lion needs a learning rate 3 to 10 times smaller than Adam's."),
    "adafactor": (1.0, "Adafactor needs another learning rate than Adam."),
}
"""What to take instead: the share of the slots that it saves, and what to know about it."""

_LORA_RANK = 8
_FASTER = 0.9  # of the least time of a step: a layer that saves less without it is not worth a sentence
_MEASURED = 1 << 22  # numbers that are augmented to measure it: 28 images of 224 pixels
_KEPT = ("dot_general", "convolution", "gather", "concatenate", "custom_call")
"""Operations whose results are in memory; the compiler computes others, such as sums, where they are needed."""
_TENSOR = re.compile(r"tensor<((?:\d+x)+)[a-z]+(\d+)")
_SCOPE = re.compile(r'loc\("([^"]*)"')


class Change(Struct, frozen=True):
    """A change with which a step may fit."""

    text: str  # what to change, after "It fits"
    config: RunConfig
    topology: Topology
    key: str = ""  # the setting, of which one change is enough; empty for another TPU and changes of the model
    remark: str = ""  # what to know about it
    adapt: Callable[[Any], None] | None = None  # a change of the built model


def what_fills(model: Any, replica_batch: int, memory: Memory, module: Any = None, devices: int = 1) -> list[Filling]:
    """Return what needs most of a device's memory, the largest first: weights, gradients, results, inner tensors.

    Weights count with their slots in the optimizer, which is exact. The others count as if all were kept for the
    backward pass; the compiler may fuse some or compute them again. `module` is the step as StableHLO.
    """
    trainable = bytes_of(model.trainable_variables)
    slots = memory.optimizer / trainable if trainable else 0.0
    inner = _inner_tensors(module, frozenset(layer.name for layer in all_layers(model)), replica_batch, devices)
    found = []
    for layer in all_layers(model):
        own, trained = bytes_of(layer.weights), bytes_of(layer.trainable_weights)
        held = round(own + slots * trained)
        width = 2 if "16" in str(layer.compute_dtype) else 4
        made = replica_batch * width * sum(count(shape) for shape in shapes_of(layer, "output"))
        size, sides = inner.get(layer.name, (0, ""))
        found += [
            Filling(layer.name, type(layer).__name__, what, size)
            for what, size in (
                ("weights and optimizer slots" if held > own else "weights", held),
                ("gradient", trained if held + trained <= memory.peak else 0),  # else it is applied as it is computed
                (f"tensor {sides}", size) if size > made else ("result", made),
            )
        ]
    return sorted(found, key=lambda one: -one.size)[:_MOST_FILLINGS]


def _inner_tensors(module: Any, names: frozenset[str], replica_batch: int, devices: int) -> dict[str, tuple[int, str]]:
    """Return the largest tensor that each layer computes in the forward pass: its bytes on a device, and its sides."""
    largest: dict[str, tuple[int, str]] = {}
    for text, where in _results(module.operation) if module is not None else ():
        scope, tensor = _SCOPE.match(where), _TENSOR.match(text)
        name = layer_in(scope[1], names) if scope and "transpose(" not in scope[1] else ""
        if not name or tensor is None:
            continue
        sides = [int(side) for side in tensor[1].split("x") if side not in {"", "1"}]
        whole = replica_batch * devices
        split = next((at for at, side in enumerate(sides) if side % whole == 0), None)
        if split is not None:
            sides[split] //= devices
        size = math.prod(sides) * int(tensor[2]) // 8
        largest[name] = max(largest.get(name, (0, "")), (size, "×".join(map(str, sides))))
    return largest


def _results(operation: Any) -> Iterator[tuple[str, str]]:
    """Yield the type of each tensor that a step keeps, and the scope that it was computed in."""
    for region in operation.regions:
        for block in region.blocks:
            for one in block.operations:
                if one.operation.name.rpartition(".")[2] in _KEPT:
                    yield from ((str(result.type), str(one.location)) for result in one.results)
                yield from _results(one)


def table_gradient(model: Any) -> int:
    """Return the bytes of the largest table's gradient, all of which is in memory before it is applied."""
    tables = (layer for layer in all_layers(model) if isinstance(layer, keras.layers.Embedding))
    return max((bytes_of(table.trainable_weights) for table in tables), default=0)


def why_no_batch_fits(memory: Memory, gradient: int = 0) -> tuple[str, str]:
    """Say that no batch is small enough, and what to do; empty if one may be. `gradient` is the largest table's."""
    is_table = 2 * gradient > memory.parameters
    held = memory.parameters + memory.optimizer + (gradient if is_table else 0)
    if held < memory.limit:
        return "", ""
    parts = (
        "weights, the optimizer's slots and the table's gradient" if is_table else "weights and the optimizer's slots"
    )
    text = (
        f"The {parts} alone need {held / 2**30:.1f} GiB. Every device holds all of them, so neither a smaller batch "
        "nor more chips of this kind help."
    )
    return text, "Use a table with fewer rows or columns: tables are not split over devices." if is_table else ""


def changes(config: RunConfig, memory: Memory, topology: Topology, gradient: int = 0) -> Iterator[Change]:
    """Yield changes that may make a step fit, cheapest first, other TPUs last; `gradient` is the largest table's."""

    def change(text: str, key: str, remark: str = "", **new: Any) -> Change:
        return Change(text, config.model_copy(update=new), topology, key, remark)

    if config.precision == "float32":
        yield change("with precision=mixed_bfloat16", "precision", precision="mixed_bfloat16")
    if parse_piece(config.optimizer.name).name in _SLOTTED:
        for name, (saved, remark) in _FEWER_SLOTS.items():
            if memory.peak - saved * memory.optimizer < memory.limit:
                optimizer = config.optimizer.model_copy(update={"name": name})
                yield change(f"with optimizer.name={name}", "optimizer.name", remark, optimizer=optimizer)
    fixed = memory.parameters + memory.optimizer + gradient
    each = max(0.0, (memory.peak - fixed) / config.batch_size)
    most = _most_examples(topology, fixed, each)
    for size in dict.fromkeys(size // MULTIPLE * MULTIPLE or size for size in (most, int(0.8 * most))):
        if 0 < size < config.batch_size:
            yield change(f"with batch_size={size}", "batch_size", batch_size=size)
    others = memory.peak - memory.optimizer - memory.parameters
    if memory.optimizer > memory.limit / 4 and others < memory.limit:
        yield from _trained_less(config, topology)
    for place, size in _places(config, topology, fixed, each):
        same = f" with batch_size={size} (the same {size * place.devices:,} examples per step)"
        text = f"on {place.name}{'' if size == config.batch_size else same}"
        yield Change(text, config.model_copy(update={"batch_size": size}), place)


def _trained_less(config: RunConfig, topology: Topology) -> Iterator[Change]:
    """Yield changes that train fewer weights, which saves the optimizer's slots and gradients of the others."""
    if config.model in MODELS and (frozen := MODELS[config.model].frozen_base(config)) is not None:
        text, key, updates = frozen
        yield Change(text, config.model_copy(update=updates), topology, key)
    if is_user_reference(config.model):
        remark = f"Call layer.enable_lora({_LORA_RANK}) for each layer that has it, in your function."
        yield Change(f"with LoRA of rank {_LORA_RANK}", config, topology, "", remark, _adapt_by_lora)
        remark = "Set layer.trainable = False for the others in your function."
        text = "if only the last layer with weights is trained"
        yield Change(text, config, topology, "", remark, _freeze_all_but_last)


def _adapt_by_lora(model: Any) -> None:
    with only_shapes():
        for layer in flat_layers(model):
            if hasattr(layer, "enable_lora") and layer.trainable_weights:
                layer.enable_lora(_LORA_RANK)


def _freeze_all_but_last(model: Any) -> None:
    _, *others = reversed([layer for layer in all_layers(model) if layer.trainable_weights])
    for layer in others:
        layer.trainable = False


def _most_examples(place: Topology, fixed: float, each: float) -> int:
    """Return how many examples a device of a TPU has room for, if a step needs as much there as here."""
    room = _ROOM * place.usable_hbm_bytes - fixed
    return int(room / each) if room > 0 and each > 0 else 0


def _places(config: RunConfig, topology: Topology, fixed: float, each: float) -> list[tuple[Topology, int]]:
    """Return the smallest TPU of each kind that has room for the same step, and the examples per device there."""
    wanted = config.batch_size * topology.devices
    enough: dict[str, tuple[Topology, int]] = {}
    for one in sorted(TOPOLOGIES.values(), key=lambda one: one.devices):
        size = config.batch_size if wanted % one.devices else wanted // one.devices
        is_other = one.generation is not topology.generation or size < config.batch_size
        if is_other and size <= _most_examples(one, fixed, each):
            enough.setdefault(one.generation.name, (one, size))

    def difference(found: tuple[Topology, int]) -> tuple[bool, int, int]:
        one = found[0]
        is_other = one.generation is not topology.generation
        return is_other, abs(one.devices - topology.devices), one.usable_hbm_bytes

    return sorted(enough.values(), key=difference)


LARGEST = 16_384  # the largest batch per device that is tried if the number of examples is unknown
_NEAR = 1.05  # how many times larger a multiple of 128 may be to be tried after a batch that does not fit
_FINE = 64  # the least number of steps that a batch of many multiples is searched by
_MOST = 16  # results after which a search ends, however memory grows


def next_batch(tried: Tried, limit: int, largest: int = LARGEST) -> int | None:
    """Return the batch to compile next; None if the search is over.

    `limit` are the bytes that a device has, and `largest` is the largest batch that makes sense, such as all examples
    of the dataset. Batches are multiples of 8, large ones of a power of two times it; below it every size counts.
    """
    low, high = largest_fitting(tried), smallest_too_large(tried)
    if low >= largest or tried[0].peak >= limit or len(tried) > _MOST:
        return None
    # The batch at which a line meets the limit: through the batches beside it, or the largest two that fit.
    left, right = sorted(batch for batch, one in tried.items() if one.fits or batch == high)[-2:]
    below, above = tried[left].peak, tried[right].peak
    aim = left + (limit - below) * (right - left) / (above - below) if above > below else math.inf
    step = MULTIPLE if high is None or high > MULTIPLE else 1
    while step >= MULTIPLE and 2 * step * _FINE <= min(aim, largest):
        step *= 2
    if high is None and aim > largest - step:
        return largest
    first, last = padded(low + 1, step), ((high or largest + 1) - 1) // step * step
    if first <= last:
        *_, before, latest = tried.values()
        if high is not None and before.fits == latest.fits:  # following the line again could go on like that
            aim = math.sqrt(low * high) if 0 < 4 * low < high else (low + high) / 2
        return min(max(int(aim) // step * step, first), last)
    better = padded(high or largest, TILE)  # may be laid out better than the batches below it
    return better if better <= min(largest, low * _NEAR) and better not in tried else None


def largest_fitting(tried: Tried) -> int:
    """Return the largest batch that is known to fit; 0 if none is."""
    return max((batch for batch, one in tried.items() if one.fits), default=0)


def smallest_too_large(tried: Tried) -> int | None:
    """Return the smallest batch that is known not to fit, of those above all that do; None if there is none."""
    low = largest_fitting(tried)
    return min((batch for batch, one in tried.items() if not one.fits and batch > low), default=None)


def worth_choosing(largest: int, wanted: int) -> list[int]:
    """Return up to three batches, the largest first: it, its largest multiple of 128 or 8, and the wanted or half."""
    multiple = next((largest // tile * tile for tile in (TILE, MULTIPLE) if largest >= tile), largest)
    smaller = wanted if 0 < wanted < largest and wanted != multiple else multiple // 2
    return sorted({batch for batch in (largest, multiple, smaller) if batch > 0}, reverse=True)


def search_largest(subject: Subject, found: Verdict, memory: Memory) -> Iterator[Verdict]:
    """Search the largest batch that fits, and yield the verdict with what is known of it after each compile.

    `found` is the verdict on the batch that was asked for, and `memory` what that needs. Batches that an earlier search
    tried are not compiled again.
    """
    asked = BatchFigures(found.replica_batch, memory.peak, 0.0, fits=False)
    if found.bound is not None:
        asked = replace(asked, images_per_s=found.bound.images_per_s, fits=True)
    nothing = BatchFigures(0, bytes_of([*subject.model.variables, *subject.model.optimizer.variables]), 0.0)
    tried = {one.replica_batch: one for one in (nothing, asked, *found.tried)}
    examples = train_examples_of(subject.config)
    most = LARGEST if examples is None else max(1, examples // found.devices)

    def searched() -> Verdict:
        largest = largest_fitting(tried)
        worth = [tried[size] for size in worth_choosing(largest, found.replica_batch) if size in tried]
        return replace(
            found,
            largest_batch=largest,
            too_large_batch=smallest_too_large(tried),
            tried=tuple(tried.values())[1:],
            batches=tuple(one for one in worth if one.fits),
            dataset_is_limit=examples is not None and largest == most,
        )

    def compile_batch(size: int, what: str) -> Verdict:
        tried[size] = _figures(subject.about(f"{what}, {size:,} per device"), size)
        return searched()

    yield searched()
    while (size := next_batch(tried, memory.limit, largest=most)) is not None:
        yield compile_batch(size, f"searching the largest batch ({largest_fitting(tried):,} fits)")
    for size in worth_choosing(largest_fitting(tried), found.replica_batch):
        if size not in tried:
            yield compile_batch(size, "comparing batches")


def _figures(subject: Subject, size: int) -> BatchFigures:
    """Compile the training step with another batch."""
    subject = replace(subject, config=subject.config.model_copy(update={"batch_size": size}))
    try:
        made = subject.training_program()
    except DoesNotFitError as error:
        return BatchFigures(size, error.memory.peak, 0.0, fits=False)
    except RefusedError:  # it says nothing about the batch that was asked for
        return BatchFigures(size, subject.compiler.topology.usable_hbm_bytes, 0.0, fits=False)
    return BatchFigures(size, made.memory.peak, subject.bound(made).images_per_s)


def changes_that_fit(subject: Subject, memory: Memory) -> Iterator[Finding]:
    """Compile the step with each change that may make it fit, and report those that do.

    Other kinds of TPU need about the same memory for the same step: once one fits, the rest are only named.
    """
    topology, gradient = subject.compiler.topology, table_gradient(subject.model)
    reason, remedy = why_no_batch_fits(memory, gradient)
    if reason:
        yield Finding(Severity.INFO, reason, remedy=remedy)
    fitting: list[Change] = []
    others: list[Change] = []
    for one in changes(subject.config, memory, topology, gradient):
        is_other_kind = one.topology.generation is not topology.generation
        if is_other_kind and any(before.topology.generation is not topology.generation for before in fitting):
            others.append(one)
        elif not (one.key and any(one.key == before.key for before in fitting)) and (found := _memory(subject, one)):
            fitting.append(one)
            text = f"It fits {one.text}: {gib(found.peak)} of {gib(found.limit)}."
            yield Finding(Severity.INFO, text, remedy=one.remark, key=one.key, is_change=True)
    if others:
        named = ", ".join(f"{one.topology.name} with batch_size={one.config.batch_size}" for one in others)
        text = f"By the same figures, other kinds of TPU have room for the same step: {named}. These were not compiled."
        yield Finding(Severity.INFO, text)
    if not fitting:
        text = "None of the changes that were tried makes it fit: other settings, batches and TPUs."
        yield Finding(Severity.INFO, text, remedy="Make the layers that need the most memory smaller.")


def without_heavy_layer(subject: Subject, verdict: Verdict) -> Iterator[Finding]:
    """Compile the step without the layer that is warned of, if the model works without it, and say what it costs."""
    named = [one.layer for one in verdict.findings if one.severity is Severity.WARNING and one.layer]
    heavy = [layer for layer in all_layers(subject.model) if layer.name in named and not layer.weights]
    heavy = [layer for layer in heavy if shapes_of(layer, "input") == shapes_of(layer, "output")]
    if verdict.bound is None or len(heavy) != 1:
        return
    (layer,) = heavy
    layer.call = lambda inputs, *_, **__: inputs
    try:
        made = subject.about(f"trying the step without {layer.name}").training_program()
        least_s = subject.bound(made).step_s
    except (DoesNotFitError, RefusedError):
        return
    finally:
        del layer.call
    if least_s < _FASTER * verdict.bound.step_s:
        text = (
            f"Without the layer '{layer.name}' a step takes at least {max(least_s, 1e-6) * 1e3:,.3g} ms instead of "
            f"{verdict.bound.step_s * 1e3:,.3g} ms, and {gib(made.memory.peak)} of memory instead of "
            f"{gib(verdict.memory.peak if verdict.memory is not None else 0)}."
        )
        key = pipeline_remedy(layer)[1]
        subject.report("measuring the same in the input pipeline", None)
        if (seconds := pipeline_s(key, shapes_of(layer, "output"), subject.config.batch_size)) is not None:
            text += f" In the input pipeline, {key} takes this machine's processor about {seconds * 1e3:,.3g} ms for a "
            text += "device's batch."
        yield Finding(Severity.INFO, text, layer.name, key=key)


def pipeline_s(key: str, shapes: Sequence[tuple[int | None, ...]], examples: int) -> float | None:
    """Measure how long the input pipeline takes to augment a batch; of a large one only a part is measured.

    None if the key is not an image augmentation, or if TensorFlow, which does it, would take this machine's TPU.
    """
    shape = [side for side in shapes[0][1:] if side] if len(shapes) == 1 else []
    if not key or not shape or installed_versions(("tensorflow-tpu",)):
        return None
    import tensorflow as tf

    from ..config.options import Augmentation
    from ..input.augment import augmenter

    options = Augmentation.model_validate({key.rpartition(".")[2]: 0.1})
    some = min(examples, max(1, _MEASURED // math.prod(shape)))
    try:
        with tf.device("CPU:0"):
            change, images = augmenter(options, tuple(shape), 1.0, 1.0, seed=0), tf.zeros((some, *shape))

            def work() -> None:
                change(0, images, ())[0].numpy()

            seconds = repeat(work, number=1, repeat=4)  # the first one compiles
    except ConsoleError:
        return None
    return min(seconds) * examples / some


def _memory(subject: Subject, change: Change) -> Memory | None:
    """Return what the step needs with a change; None if it does not fit or cannot be compiled."""
    try:
        is_here = change.topology is subject.compiler.topology
        compiler = subject.compiler if is_here else Compiler(change.topology)
        with refusing():
            model, batch = build(change.config, batch_of(change.config), change.topology.devices, change.adapt)
        changed = replace(subject, config=change.config, compiler=compiler, model=model, batch=batch)
        return changed.about(f"trying {change.text}").training_program().memory
    except (DoesNotFitError, RefusedError, ConsoleError):
        return None
