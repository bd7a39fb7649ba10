"""Makes examples from labelled image files: checks, splits and reads them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ..describing import spread
from ..examples import Examples, ImageFiles, Input, Signature, Task
from ..split import counts_by_class, stratified_split
from .check import check_all, check_image, check_images, named
from .decode import DAMAGED, Decoding, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from .files import Source


SKIP_REMEDY = "Replace them, or leave them out with data.options.skip_bad=true."  # remedy for files that cannot be used
_NAMED = 10  # bad files that are described at most


@dataclass(frozen=True, slots=True)
class Parts:
    """Training and validation files."""

    train: Source
    validation: Source
    decoding: Decoding
    skip_bad: bool  # whether files that cannot be used are skipped
    record: Mapping[str, Any]  # what else is needed to read new images of the same kind

    def examples(self, notices: Sequence[str]) -> Examples:
        """Return examples that are decoded during the iteration; a damaged file ends it with an error."""
        reader = Reader([*self.train.facts, *self.validation.facts], self.decoding)
        train, validation = (
            reader.decoded(part.facts, part.labels) if part.facts else None for part in (self.train, self.validation)
        )
        class_names = self.train.class_names
        counts = counts_by_class(self.train.numbers, self.validation.numbers, len(class_names))
        return image_examples(
            (train, validation),
            (len(self.train.facts), len(self.validation.facts)),
            self.decoding,
            class_names,
            {"class_counts": counts, **self.record},
            has_shares=self.train.labels.ndim > 1,
            notices=tuple(notices),
            files=ImageFiles(self.skip_bad, partial(self._without_damaged, reader)),
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
        if not trains.any() or not self.skip_bad:
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
        lost = [self.train.class_names[number] for number in np.setdiff1d(self.train.numbers, left.train.numbers)]
        notices += [f"No training image of the class '{name}' is left." for name in lost]
        return left.examples(notices)


def image_examples(
    parts: tuple[Any, Any],
    counts: tuple[int, int],
    decoding: Decoding,
    class_names: tuple[str, ...],
    record: Mapping[str, Any],
    *,
    has_shares: bool = False,
    **facts: Any,
) -> Examples:
    """Return examples of decoded images; `record` is what they need besides, such as the counts of each class."""
    size = {"image_size": list(decoding.image_size), "resize": decoding.resize, "pixel_range": 255}
    task = Task.PROBABILITIES if has_shares else Task.CLASSES
    return Examples(
        *parts,
        *counts,
        Signature(task, {"image": Input(decoding.shape)}, len(class_names)),
        255.0,
        class_names,
        {**size, "classes": list(class_names), **record},
        **facts,
    )


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


def _counted_and_named(parts: Sequence[tuple[Source, NDArray[np.bool_]]]) -> list[tuple[str, str]]:
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
    config: RunConfig, decoding: Decoding, sources: Sequence[Source], on_fetch: Callable[[str], None], *, skip_bad: bool
) -> Examples:
    """Check all files and make training and validation examples from them.

    Of a single source, a part is held out; a second one has validation images of the same classes.

    Raises:
        DataError: Files cannot be used, and they are not to be skipped.
    """
    source, *others = sources
    images, bad, skipped = _usable(source, on_fetch, skip_bad=skip_bad)
    empty = np.setdiff1d(np.arange(len(source.class_names)), images.numbers)
    notices = [*source.notices, *skipped]
    notices += [f"There is no image of the class '{source.class_names[number]}'." for number in empty]
    left_out = {source.place: bad}
    if not others:
        split = stratified_split(
            images.numbers, source.class_names, config.data.validation_fraction, config.seed, config.data.train_limit
        )
        train, held_out = images.chosen(split.train), images.chosen(split.validation)
        notices += split.notices
    else:
        held_out, bad, more = _usable(others[0], on_fetch, skip_bad=skip_bad)
        notices += [*others[0].notices, *more]
        left_out[others[0].place] = bad
        skipped += more
        mixed = np.random.default_rng(config.seed).permutation(len(images.facts))
        train = images.chosen(mixed[: config.data.train_limit or None])
    record = {"format": config.dataset, **source.record, **({"left_out": left_out} if any(left_out.values()) else {})}
    return replace(Parts(train, held_out, decoding, skip_bad, record).examples(notices), skipped=skipped)


def _usable(
    source: Source, on_fetch: Callable[[str], None], *, skip_bad: bool
) -> tuple[Source, list[str], tuple[str, ...]]:
    """Return the files that passed the check, the names of the others, and a notice about these."""
    facts = check_images(source.paths, on_fetch)
    files = replace(source, facts=tuple(facts))
    bad = [(name, fact.problem) for name, fact in zip(source.names, facts, strict=True) if fact.problem]
    if not bad:
        return files, [], ()
    notice = refuse_bad(bad, len(facts), source.place, skip_bad=skip_bad, remedy=SKIP_REMEDY)
    good = np.array([index for index, fact in enumerate(facts) if not fact.problem], np.intp)
    return files.chosen(good), [name for name, _ in bad], (notice,)


def describe_images(source: Source, reporter: Reporter) -> dict[str, Any]:
    """Check every image file.

    Returns:
        ``images``: how many are ``usable``, their total ``bytes``, the spread of ``height`` and ``width``, the count of
        each of the ``formats``, and how many are ``turned`` upright; ``bad``: the ``count`` of files that cannot be
        used, and ``file`` and ``problem`` of the ``first`` ones.
    """
    facts = check_all(check_image, source.paths, reporter)
    bad = [(name, fact.problem) for name, fact in zip(source.names, facts, strict=True) if fact.problem]
    good = [fact for fact in facts if not fact.problem]
    sides = {side: spread(np.array([getattr(fact, side) for fact in good])) for side in ("height", "width") if good}
    size = 0
    for fact in good:
        with suppress(OSError):  # a remote file
            size += Path(fact.path).stat().st_size
    return {
        "images": {
            "usable": len(good),
            "bytes": size,
            "formats": dict(Counter(fact.format for fact in good).most_common()),
            "turned": sum(fact.orientation != 1 for fact in good),
            **sides,
        },
        "bad": {"count": len(bad), "first": [{"file": name, "problem": problem} for name, problem in bad[:_NAMED]]},
    }
