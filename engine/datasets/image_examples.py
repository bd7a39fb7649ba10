"""Makes examples of labelled image files: checks the files, splits them, and reads them as training goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.datasets.images import Decoding, check_images, decoded
from engine.datasets.split import counts_by_class, stratified_split
from engine.errors import DataError
from engine.examples import Examples, Input, Signature, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from engine.config import RunConfig
    from engine.data_options import ImageCsvOptions, ImageFolderOptions
    from engine.datasets.images import Facts

_NAMED = 10
"""Most files that an error or a notice names."""


@dataclass(frozen=True, slots=True)
class Source:
    """Labelled image files of a person's own, before any is looked at.

    Args:
        place: The folder they are in.
        names: What a person calls each: as the table has it, or its path in `place`.
        paths: The files.
        labels: Class numbers, int32 of shape ``(images,)``; or a share for each class, float32 of shape
            ``(images, classes)``.
        class_names: Names of the classes, by number.
        record: What is needed beside the sizes to read more of the same kind.
        notices: What a person should know of them.
    """

    place: str
    names: tuple[str, ...]
    paths: tuple[str, ...]
    labels: NDArray[Any]
    class_names: tuple[str, ...]
    record: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def numbers(self) -> NDArray[Any]:
        """The class number of each image; of shares, the largest one's."""
        return self.labels if self.labels.ndim == 1 else self.labels.argmax(axis=1)


@dataclass(frozen=True, slots=True)
class _Usable:
    """The files of a source that can be read, with their labels and class numbers."""

    facts: list[Facts]
    labels: NDArray[Any]
    numbers: NDArray[Any]
    notices: tuple[str, ...]

    def decoded(self, decoding: Decoding, chosen: NDArray[np.intp]) -> Any:
        """Return a dataset of some of them, or None without any."""
        facts = [self.facts[index] for index in chosen]
        return decoded(facts, decoding, self.labels[chosen]) if facts else None


def make_examples(
    config: RunConfig,
    options: ImageCsvOptions | ImageFolderOptions,
    source: Source,
    validation: Source | None,
    on_fetch: Callable[[str], None],
) -> Examples:
    """Check all files and make training and validation examples of them.

    Args:
        config: The configuration.
        options: The dataset's options.
        source: The images.
        validation: Images of the same classes to validate on; None holds out a share of `source`.
        on_fetch: Called with a sentence while the files are being checked.

    Raises:
        DataError: Files cannot be used, and the options do not allow to leave them out.
    """
    decoding = Decoding(options.image_size, options.resize)
    images = held_out = _usable(source, on_fetch, skip_bad=options.skip_bad)
    notices = [*source.notices, *images.notices, *_empty_classes(images.numbers, source.class_names)]
    if validation is None:
        split = stratified_split(
            images.numbers, source.class_names, config.data.validation_fraction, config.seed, config.data.train_limit
        )
        parts, counts = (split.train, split.validation), split.class_counts
        notices += split.notices
    else:
        held_out = _usable(validation, on_fetch, skip_bad=options.skip_bad)
        notices += [*validation.notices, *held_out.notices]
        mixed = np.random.default_rng(config.seed).permutation(len(images.facts))
        parts = mixed[: config.data.train_limit or None], np.arange(len(held_out.facts))
        counts = counts_by_class(images.numbers[parts[0]], held_out.numbers, len(source.class_names))
    return Examples(
        train=images.decoded(decoding, parts[0]),
        validation=held_out.decoded(decoding, parts[1]),
        train_count=len(parts[0]),
        validation_count=len(parts[1]),
        signature=Signature(
            Task.CLASSES if source.labels.ndim == 1 else Task.PROBABILITIES,
            {"image": Input(decoding.shape)},
            len(source.class_names),
        ),
        pixel_range=255.0,
        class_names=source.class_names,
        record={
            "format": config.dataset,
            "image_size": list(options.image_size),
            "resize": options.resize,
            "classes": list(source.class_names),
            "pixel_range": 255,
            "class_counts": counts,
            **source.record,
        },
        notices=tuple(notices),
    )


def _usable(source: Source, on_fetch: Callable[[str], None], *, skip_bad: bool) -> _Usable:
    facts = check_images(source.paths, on_fetch)
    good = np.array([index for index, fact in enumerate(facts) if not fact.problem], np.intp)
    notices: tuple[str, ...] = ()
    if len(good) < len(facts):
        bad = [(name, fact.problem) for name, fact in zip(source.names, facts, strict=True) if fact.problem]
        found = f"{len(bad):,} of {len(facts):,} images in {source.place}"
        if not skip_bad:
            raise DataError(
                f"{found} cannot be used: {named(bad)}.",
                remedy="Replace them, or leave them out with data.options.skip_bad=true.",
            )
        if not len(good):
            raise DataError(f"None of the {len(facts):,} images in {source.place} can be used: {named(bad)}.")
        notices = (f"{found} are left out: {named(bad)}.",)
    return _Usable([facts[index] for index in good], source.labels[good], source.numbers[good], notices)


def named(bad: Sequence[tuple[str, str]]) -> str:
    """List the first of some files with what is wrong with each, and count the others.

    Args:
        bad: Name and problem of each file, such as ``("Train_3", "is empty")``.
    """
    told = "; ".join(" ".join(pair) for pair in bad[:_NAMED])
    return f"{told}; and {len(bad) - _NAMED:,} more" if len(bad) > _NAMED else told


def _empty_classes(numbers: NDArray[Any], class_names: Sequence[str]) -> list[str]:
    counts = np.bincount(numbers, minlength=len(class_names))
    return [f"No image is of the class '{class_names[number]}'." for number in np.flatnonzero(counts == 0).tolist()]
