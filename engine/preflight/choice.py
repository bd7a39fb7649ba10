"""One configuration on one TPU, and what is known of it without a framework: its batch and its earlier verdicts.

Built-in datasets are in the catalog; a kind of the user's files gives the shapes of a batch from its options and, if
the files exist, the survey of them. For the user's own function, `engine.data.cached_facts` has those of its last call.
A verdict is cached by everything that it depends on: the configuration, the user's files, the TPU and the versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ..config.catalog import is_user_reference
from ..config.user_code import source_file
from ..data.cached_facts import FunctionRecord, function_record_of, known_batch
from ..data.examples import Input, Nested, Signature, Task, in_words, map_nested, named_parts
from ..data.kinds.kind import UnknownShapesError
from ..data.kinds.table import kind_of, survey, train_examples_of
from ..data.places import locate
from ..machine.install import TF_BUILDS
from ..machine.sources import installed_versions
from ..storage.keyed_store import KeyedStore, key_of
from ..storage.paths import cache_folder
from .result import Outcome, Verdict

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .topologies import Topology

_PACKAGES = ("jax", "jaxlib", "libtpu", "keras", *TF_BUILDS, "tpu-console")
# What a program and its bound do not depend on.
_ELSEWHERE = {"name", "accelerator", "backend", "hosts", "early_stopping", "checkpoint", "sinks", "profile"}
_OWN_SOURCES = ("preflight", "models", "accelerators")
_MOST_NEIGHBORS = 200
_VERDICTS = KeyedStore[Verdict]("preflight.json", Verdict, cache_folder)
_ON_DEVICE = {"float64": "float32", "int64": "int32", "uint64": "uint32"}


@cache
def versions() -> dict[str, str]:
    """Return the versions of the installed packages that a verdict depends on, by name."""
    return installed_versions(_PACKAGES)


def compiler_versions() -> str:
    """Name the versions of the compiler's packages, for a sentence."""
    found = [f"{name} {versions()[name]}" for name in ("jax", "jaxlib", "libtpu") if name in versions()]
    return " with ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


class TpuChoice(Struct, frozen=True):
    """One configuration on one TPU."""

    config: RunConfig  # the configuration, with the batch size and the precision of this choice
    topology: Topology

    @property
    def label(self) -> str:
        """Its name in a line of progress."""
        return f"{self.topology.name}, batch {self.config.batch_size:,}, {self.config.precision}"

    def undecided(self, reason: str = "") -> Verdict:
        """Return a verdict that says only why there is none, or that is to be filled in."""
        return Verdict(
            tpu=self.topology.name,
            devices=self.topology.devices,
            hosts=self.topology.hosts,
            replica_batch=self.config.batch_size,
            precision=self.config.precision,
            outcome=Outcome.UNKNOWN,
            reason=reason,
            versions=dict(versions()),
        )


def choices_of(
    config: RunConfig, topologies: Sequence[Topology], batches: Sequence[int], precisions: Sequence[str]
) -> list[TpuChoice]:
    """Return every combination, TPU by TPU; without batches or precisions, those of the configuration."""
    configs = [
        config.model_copy(update={"batch_size": batch or known_batch(config), "precision": precision})
        for precision in (precisions or [config.precision])
        for batch in (batches or [config.batch_size])
    ]
    return [TpuChoice(one, topology) for topology in topologies for one in configs]


class Batch(Struct, frozen=True):
    """What a step gets, without the batch axis."""

    signature: Signature  # what a model needs to know about the examples
    train: tuple[Nested, ...]  # for training: inputs, then labels and sample weights if there are any
    validation: tuple[Nested, ...]  # likewise in validation
    largest_pixel: float = 1.0  # the largest pixel value that the model gets
    assumed: str = ""  # what was assumed, in a sentence; empty if everything is known


def batch_of(config: RunConfig) -> Batch:
    """Return what `engine.input.pipeline` gives a step; raise `UnknownShapesError` if data has to be loaded first."""
    kind = kind_of(config.dataset)
    signature, assumed = kind.signature(config, kind.survey(config))
    if (seen := function_record_of(config)) is not None:
        return _recorded_batch(config, seen, signature, assumed)
    inputs: dict[str, Nested] = dict(signature.inputs)
    first = inputs if len(inputs) > 1 else next(iter(inputs.values()))
    element: tuple[Nested, ...] = (first, _label(config, signature))
    if signature.task is Task.TRANSLATION:
        element = (*element, Input((int(signature.sizes["length"]),)))
    return Batch(
        signature=signature,
        train=_balanced(config, signature.classes, element),
        validation=element,
        largest_pixel=1.0 if config.data.pixels == "unit" else kind.largest_pixel,
        assumed=assumed,
    )


def _recorded_batch(config: RunConfig, seen: FunctionRecord, signature: Signature, assumed: str) -> Batch:
    """Use the shapes from the last call of the user's function, which is not called for this."""
    if not is_user_reference(config.model):  # a task of KerasHub prepares texts itself
        refuse_texts(config.dataset, seen.train)
    train, validation = (_fed(config, seen, one) for one in (seen.train, seen.validation or seen.train[:2]))
    changed = config.augmentation.is_active and config.augmentation.placement != "model"
    if changed and isinstance(train[0], Input):
        train = (replace(train[0], dtype="float32"), *train[1:])
    first = next(named_parts(seen.train[0], ""))[1]
    return Batch(
        signature=signature,
        train=_balanced(config, seen.classes, train),
        validation=validation,
        largest_pixel=255.0 if first.dtype == "uint8" else 1.0,
        assumed=assumed,
    )


def refuse_texts(name: str, element: tuple[Nested, ...]) -> None:
    """Raise `UnknownShapesError` if a part of an example is text; `name` is that of the dataset function."""
    if any(part.dtype == "string" for _, part in named_parts(element, "")):
        raise UnknownShapesError(
            f"{name} returns {in_words(element)}, and no TPU supports strings.",
            remedy="Encode them as numbers in the dataset function.",
        )


def _fed(config: RunConfig, seen: FunctionRecord, element: tuple[Nested, ...]) -> tuple[Nested, ...]:
    """Return an example as it is on the device, which uses 32 bits instead of 64, with a share per class if needed."""

    def on_device(part: Input) -> Input:
        if None in part.shape:
            raise UnknownShapesError(
                f"The examples of {config.dataset} differ in size, or their size is unknown.",
                remedy="Give them one size in the dataset function, with tf.image.resize or tf.ensure_shape.",
            )
        return Input(part.shape, _ON_DEVICE.get(part.dtype, part.dtype))

    inputs, *rest = (map_nested(on_device, part) for part in element)
    label = rest[0] if rest else None
    if config.takes_shares and seen.classes and isinstance(label, Input) and not label.shape and "int" in label.dtype:
        rest[0] = Input((seen.classes,))
    return (inputs, *rest)


def _balanced(config: RunConfig, classes: int, element: tuple[Nested, ...]) -> tuple[Nested, ...]:
    """Add the weight that `class_weight` gives each example."""
    return (*element, Input(()))[:3] if config.class_weight != "none" and classes else element


def _label(config: RunConfig, signature: Signature) -> Input:
    """Return the shape and dtype of a label for the loss."""
    if signature.task is Task.TRANSLATION:
        return Input((signature.sizes["length"],), "int32")
    if signature.task in {Task.RATINGS, Task.NUMBER}:
        return Input((), "float32")
    is_shares = signature.task is Task.PROBABILITIES or config.takes_shares
    return Input((signature.classes,), "float32") if is_shares else Input((), "int32")


def cached_verdict(config: RunConfig, tpu: str, *, search: bool = False) -> Verdict | None:
    """Return the verdict of an earlier preflight; None if there is none.

    With `search` it must include the largest batch, if the model compiles; without, one that includes it counts too.
    """
    for searched in (True, False):
        if (verdict := _VERDICTS.get(_key(config, tpu, search=searched))) is not None:
            verdict = replace(verdict, is_remembered=True)
            return None if search and not searched and verdict.memory is not None else verdict
    return None


def save_verdict(config: RunConfig, verdict: Verdict, *, search: bool = False) -> None:
    """Save a verdict, unless its outcome is unknown; `search` says whether the largest batch was searched."""
    if verdict.outcome is not Outcome.UNKNOWN:
        _VERDICTS.put(_key(config, verdict.tpu, search=search), verdict)


def _key(config: RunConfig, tpu: str, *, search: bool) -> str:
    record = function_record_of(config)
    return key_of(
        [
            config.model_dump(mode="json", exclude=_ELSEWHERE),
            tpu,
            search,
            config.tpu_backend,
            versions(),
            _our_sources(),
            train_examples_of(config),
            len(survey(config).classes),
            to_builtins(record) if record is not None else None,
            [hashlib.sha256(file.read_bytes()).hexdigest() for file in _own_files(config)],
        ]
    )


@cache
def _our_sources() -> str:
    """Return a digest of the modules that build and judge: they may change while the version stays the same."""
    engine = Path(__file__).parent.parent
    files = sorted(file for folder in _OWN_SOURCES for file in (engine / folder).iterdir() if file.is_file())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _own_files(config: RunConfig) -> Iterator[Path]:
    """Yield the file of the user's model function and those beside it, or the file with a SavedModel's graph."""
    if config.model == "hub":
        graph = Path(locate(str(config.model_options.get("path", "")))) / "saved_model.pb"
        if graph.is_file():
            yield graph
    if is_user_reference(config.model) and (file := source_file(config.model)) is not None:
        yield from sorted(file.parent.glob("*.py"))[:_MOST_NEIGHBORS]


def cached_verdicts(choices: Sequence[TpuChoice], *, search: bool = False) -> list[Verdict] | None:
    """Return the verdicts on all choices if every one of them is cached, else None."""
    found = [cached_verdict(choice.config, choice.topology.name, search=search) for choice in choices]
    cached = [verdict for verdict in found if verdict is not None]
    return cached if len(cached) == len(choices) else None
