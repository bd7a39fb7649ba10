"""Makes examples from labelled image files: checks, splits and reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ..examples import Examples, ImageFiles, Input, Signature, Task
from ..split import counts_by_class, stratified_split
from .check import check_image, check_images, named
from .decode import DAMAGED, Decoding, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ..kinds.image_kind import FilesOptions, ImageOptions
    from .check import ImageFacts
    from .files import Source


SKIP_REMEDY = "Replace them, or leave them out with data.options.skip_bad=true."  # remedy for files that cannot be used


@dataclass(frozen=True, slots=True)
class Files:
    """Image files that passed the check; all lists have the same order."""

    place: str
    names: Sequence[str]
    facts: Sequence[ImageFacts]
    # Class numbers, int32 of shape ``(images,)``; or a probability for each class, float32 of shape ``(images,
    # classes)``.
    labels: NDArray[Any]
    numbers: NDArray[Any]  # class numbers; with probabilities, that of the most probable class

    def chosen(self, indices: NDArray[np.intp]) -> Files:
        """Return a selection, in the order of the indices."""
        names, facts = [self.names[index] for index in indices], [self.facts[index] for index in indices]
        return Files(self.place, names, facts, self.labels[indices], self.numbers[indices])


@dataclass(frozen=True, slots=True)
class Parts:
    """Training and validation files."""

    train: Files
    validation: Files
    options: FilesOptions
    class_names: tuple[str, ...]  # names of the classes in the order of their numbers
    record: Mapping[str, Any]  # what else is needed to read new images of the same kind

    def examples(self, notices: Sequence[str]) -> Examples:
        """Return examples that are decoded during the iteration; a damaged file ends it with an error."""
        decoding = Decoding(self.options.image_size, self.options.resize)
        reader = Reader([*self.train.facts, *self.validation.facts], decoding)
        train, validation = (
            reader.decoded(part.facts, part.labels) if part.facts else None for part in (self.train, self.validation)
        )
        classes = len(self.class_names)
        counts = counts_by_class(self.train.numbers, self.validation.numbers, classes)
        task = Task.CLASSES if self.train.labels.ndim == 1 else Task.PROBABILITIES
        return Examples(
            train=train,
            validation=validation,
            train_count=len(self.train.facts),
            validation_count=len(self.validation.facts),
            signature=Signature(task, {"image": Input(decoding.shape)}, classes),
            pixel_range=255.0,
            class_names=self.class_names,
            record={**image_record(self.options, self.class_names, counts), **self.record},
            notices=tuple(notices),
            files=ImageFiles(self.options.skip_bad, partial(self._without_damaged, reader)),
        )

    def _without_damaged(self, reader: Reader, on_progress: Callable[[str], None]) -> Examples:
        """Decode all files and return the examples without those that cannot be decoded."""
        facts = {fact.path: fact for fact in (*self.train.facts, *self.validation.facts)}
        good = reader.decodable([*facts.values()], on_progress)
        trains, validates = (
            np.array([fact.path in good for fact in part.facts], np.bool_) for part in (self.train, self.validation)
        )
        if trains.all() and validates.all():
            return self.examples(())
        found = _counted_and_named(((self.train, trains), (self.validation, validates)))
        if not trains.any() or not self.options.skip_bad:
            raise DataError(
                " ".join(f"{counted} cannot be used: {those}." for counted, those in found),
                remedy=SKIP_REMEDY if trains.any() else "Replace them.",
            )
        left_out = {place: list(names) for place, names in self.record.get("left_out", {}).items()}
        for part, are_good in ((self.train, trains), (self.validation, validates)):
            left_out.setdefault(part.place, []).extend(
                part.names[index] for index in np.flatnonzero(~are_good).tolist()
            )
        left = replace(
            self,
            train=self.train.chosen(np.flatnonzero(trains)),
            validation=self.validation.chosen(np.flatnonzero(validates)),
            record={**self.record, "left_out": left_out, "left_out_after_split": True},
        )
        notices = [f"{counted} are left out: {those}." for counted, those in found]
        lost = [self.class_names[number] for number in np.setdiff1d(self.train.numbers, left.train.numbers)]
        notices += [f"No training image of the class '{name}' is left." for name in lost]
        return left.examples(notices)


def image_record(
    options: ImageOptions,
    class_names: Sequence[str],
    class_counts: dict[str, list[int]],
) -> dict[str, Any]:
    """Return what a run on images keeps to predict new ones, and the number of images of each class."""
    return {
        "image_size": list(options.image_size),
        "resize": options.resize,
        "classes": list(class_names),
        "pixel_range": 255,
        "class_counts": class_counts,
    }


def refuse_bad(bad: Sequence[tuple[str, str]], total: int, place: str, *, skip_bad: bool, remedy: str) -> str:
    """Refuse images that cannot be used, with their names and problems, or return a notice that they are skipped.

    Raises:
        DataError: They may not be skipped, or no other image is left.
    """
    if len(bad) == total:
        raise DataError(f"None of the {total:,} images in {place} can be used: {named(bad)}.", remedy="Replace them.")
    found = f"{len(bad):,} of {total:,} images in {place}"
    if not skip_bad:
        raise DataError(f"{found} cannot be used: {named(bad)}.", remedy=remedy)
    return f"{found} are left out: {named(bad)}."


def _counted_and_named(parts: Sequence[tuple[Files, NDArray[np.bool_]]]) -> list[tuple[str, str]]:
    """Count and name the files that could not be decoded, per folder: both parts can be in the same one."""
    found = []
    for place in dict.fromkeys(part.place for part, _ in parts):
        here = [(part, could) for part, could in parts if part.place == place]
        lost = [(part, index) for part, could in here for index in np.flatnonzero(~could).tolist()]
        bad = [(part.names[index], part.facts[index].path) for part, index in lost]
        if bad:
            total = sum(len(part.facts) for part, _ in here)
            problems = [(name, check_image(path).problem or DAMAGED) for name, path in sorted(bad)]
            found.append((f"{len(bad):,} of {total:,} images in {place}", named(problems)))
    return found


def make_examples(
    config: RunConfig,
    options: FilesOptions,
    source: Source,
    validation: Source | None,
    on_fetch: Callable[[str], None],
) -> Examples:
    """Check all files and make training and validation examples from them.

    `validation` has images of the same classes; None holds out a part of `source`.

    Raises:
        DataError: Files cannot be used, and the options do not skip them.
    """
    images, bad, skipped = _usable(source, on_fetch, skip_bad=options.skip_bad)
    empty = np.setdiff1d(np.arange(len(source.class_names)), images.numbers)
    notices = [*source.notices, *skipped]
    notices += [f"There is no image of the class '{source.class_names[number]}'." for number in empty]
    left_out = {source.place: bad}
    if validation is None:
        split = stratified_split(
            images.numbers, source.class_names, config.data.validation_fraction, config.seed, config.data.train_limit
        )
        train, held_out = images.chosen(split.train), images.chosen(split.validation)
        notices += split.notices
    else:
        held_out, bad, more = _usable(validation, on_fetch, skip_bad=options.skip_bad)
        notices += [*validation.notices, *more]
        left_out[validation.place] = bad
        skipped += more
        mixed = np.random.default_rng(config.seed).permutation(len(images.facts))
        train = images.chosen(mixed[: config.data.train_limit or None])
    record = {"format": config.dataset, **source.record, **({"left_out": left_out} if any(left_out.values()) else {})}
    return replace(Parts(train, held_out, options, source.class_names, record).examples(notices), skipped=skipped)


def _usable(
    source: Source, on_fetch: Callable[[str], None], *, skip_bad: bool
) -> tuple[Files, list[str], tuple[str, ...]]:
    """Return the files that passed the check, the names of the others, and a notice about these."""
    facts = check_images(source.paths, on_fetch)
    files = Files(source.place, source.names, facts, source.labels, source.numbers)
    bad = [(name, fact.problem) for name, fact in zip(source.names, facts, strict=True) if fact.problem]
    if not bad:
        return files, [], ()
    notice = refuse_bad(bad, len(facts), source.place, skip_bad=skip_bad, remedy=SKIP_REMEDY)
    good = np.array([index for index, fact in enumerate(facts) if not fact.problem], np.intp)
    return files.chosen(good), [name for name, _ in bad], (notice,)
