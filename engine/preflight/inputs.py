"""The shapes of a batch, from the configuration and without loading data.

Built-in datasets are in the catalog; a kind of the user's files gives its own, from its options and, if the files
exist, the survey of them. For the user's own function, `engine.data.cached_facts` has the shapes of its last call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..config.catalog import is_user_reference
from ..data.cached_facts import FunctionRecord, function_record_of
from ..data.examples import Input, Nested, Signature, Task, in_words, map_nested, named_parts
from ..data.kinds.kind import UnknownShapesError
from ..data.kinds.table import kind_of

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

_ON_DEVICE = {"float64": "float32", "int64": "int32", "uint64": "uint32"}


class Batch(Struct, frozen=True):
    """What a step gets, without the batch axis."""

    signature: Signature  # what a model needs to know about the examples
    train: tuple[Nested, ...]  # inputs, labels and sample weights in training, as far as there are any
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
