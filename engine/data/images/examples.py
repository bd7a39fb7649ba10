"""Makes examples from labelled image files: checks, splits and reads them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..split import stratified_split
from .check import check_images
from .parts import SKIP_REMEDY, Files, Parts, refuse_bad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ...config.data_options import ImageCsvOptions, ImageFolderOptions
    from ...config.run_config import RunConfig
    from ..examples import Examples


@dataclass(frozen=True, slots=True)
class Source:
    """Labelled image files of the user, before they are checked."""

    place: str
    names: tuple[str, ...]  # name of each image: from the table, or its path in `place`
    paths: tuple[str, ...]
    # Class numbers, int32 of shape ``(images,)``; or a probability for each class, float32 of shape ``(images,
    # classes)``.
    labels: NDArray[Any]
    class_names: tuple[str, ...]  # names of the classes in the order of their numbers
    record: Mapping[str, Any] = field(default_factory=dict)  # what else is needed to read new images of the same kind
    notices: tuple[str, ...] = ()  # what the user should know about them

    @property
    def numbers(self) -> NDArray[Any]:
        """The class number of each image; with probabilities, that of the most probable class."""
        return self.labels if self.labels.ndim == 1 else self.labels.argmax(axis=1)


def make_examples(
    config: RunConfig,
    options: ImageCsvOptions | ImageFolderOptions,
    source: Source,
    validation: Source | None,
    on_fetch: Callable[[str], None],
) -> Examples:
    """Check all files and make training and validation examples from them.

    `validation` has images of the same classes; None holds out a part of `source`.

    Raises:
        DataError: Files cannot be used, and the options do not skip them.
    """
    images, bad = _usable(source, on_fetch, skip_bad=options.skip_bad)
    notices = [*source.notices, *bad.notices, *_empty_classes(images.numbers, source.class_names)]
    left_out, skipped = {source.place: bad.names}, bad.notices
    if validation is None:
        split = stratified_split(
            images.numbers, source.class_names, config.data.validation_fraction, config.seed, config.data.train_limit
        )
        train, held_out = images.chosen(split.train), images.chosen(split.validation)
        notices += split.notices
    else:
        held_out, bad = _usable(validation, on_fetch, skip_bad=options.skip_bad)
        notices += [*validation.notices, *bad.notices]
        left_out[validation.place] = bad.names
        skipped += bad.notices
        mixed = np.random.default_rng(config.seed).permutation(len(images.facts))
        train = images.chosen(mixed[: config.data.train_limit or None])
    record = {"format": config.dataset, **source.record, **({"left_out": left_out} if any(left_out.values()) else {})}
    return replace(Parts(train, held_out, options, source.class_names, record).examples(notices), skipped=skipped)


@dataclass(frozen=True, slots=True)
class _Bad:
    """Files that did not pass the check."""

    names: list[str] = field(default_factory=list)
    notices: tuple[str, ...] = ()


def _usable(source: Source, on_fetch: Callable[[str], None], *, skip_bad: bool) -> tuple[Files, _Bad]:
    """Return the files that passed the check, and the others."""
    facts = check_images(source.paths, on_fetch)
    files = Files(source.place, source.names, facts, source.labels, source.numbers)
    bad = [(name, fact.problem) for name, fact in zip(source.names, facts, strict=True) if fact.problem]
    if not bad:
        return files, _Bad()
    notice = refuse_bad(bad, len(facts), source.place, skip_bad=skip_bad, remedy=SKIP_REMEDY)
    good = np.array([index for index, fact in enumerate(facts) if not fact.problem], np.intp)
    return files.chosen(good), _Bad([name for name, _ in bad], (notice,))


def _empty_classes(numbers: NDArray[Any], class_names: Sequence[str]) -> list[str]:
    counts = np.bincount(numbers, minlength=len(class_names))
    return [
        f"There is no image of the class '{class_names[number]}'." for number in np.flatnonzero(counts == 0).tolist()
    ]
