"""Makes examples from labelled image files: checks, splits and reads them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ..describing import spread
from ..examples import Examples, Input, Signature, Task
from ..split import counts_by_class, stratified_split
from .check import check_all, check_image, check_images, named
from .decode import check_whole, decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from .decode import Decoding
    from .files import Source


SKIP_REMEDY = "Replace them, or leave them out with data.options.skip_bad=true."  # remedy for files that cannot be used
_NAMED = 10  # bad files that are described at most


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


def make_examples(
    config: RunConfig,
    decoding: Decoding,
    sources: Sequence[Source],
    on_fetch: Callable[[str], None],
    *,
    skip_bad: bool,
    is_whole: bool = False,
) -> Examples:
    """Check all files and make training and validation examples from them, which are decoded during the iteration.

    Of a single source, a part is held out; a second one has validation images of the same classes. `is_whole` decodes
    every file to check it, which takes long.

    Raises:
        DataError: Files cannot be used, and they are not to be skipped.
    """
    checked = [_usable(source, on_fetch, skip_bad=skip_bad, is_whole=is_whole) for source in sources]
    source, images = sources[0], checked[0][0]
    skipped = tuple(notice for _, _, notices in checked for notice in notices)
    left_out = {source.place: bad for source, (_, bad, _) in zip(sources, checked, strict=True)}
    empty = np.setdiff1d(np.arange(len(source.class_names)), images.numbers)
    notices = [*(notice for source in sources for notice in source.notices), *skipped]
    notices += [f"There is no image of the class '{source.class_names[number]}'." for number in empty]
    if len(checked) == 1:
        split = stratified_split(
            images.numbers, source.class_names, config.data.validation_fraction, config.seed, config.data.train_limit
        )
        train, held_out = images.chosen(split.train), images.chosen(split.validation)
        notices += split.notices
    else:
        mixed = np.random.default_rng(config.seed).permutation(len(images.facts))
        train, held_out = images.chosen(mixed[: config.data.train_limit or None]), checked[1][0]
    record = {"format": config.dataset, **source.record, **({"left_out": left_out} if any(left_out.values()) else {})}
    counts = counts_by_class(train.numbers, held_out.numbers, len(source.class_names))
    parts = [decoded(part.facts, decoding, part.labels) if part.facts else None for part in (train, held_out)]
    again = partial(make_examples, config, decoding, sources, skip_bad=skip_bad, is_whole=True)
    return image_examples(
        (parts[0], parts[1]),
        (len(train.facts), len(held_out.facts)),
        decoding,
        source.class_names,
        {"class_counts": counts, **record},
        has_shares=train.labels.ndim > 1,
        notices=tuple(notices),
        skipped=skipped,
        without_damaged=again,
    )


def _usable(
    source: Source, on_fetch: Callable[[str], None], *, skip_bad: bool, is_whole: bool
) -> tuple[Source, list[str], tuple[str, ...]]:
    """Return the files that passed the check, the names of the others, and a notice about these."""
    if is_whole:
        facts = check_images(source.paths, on_fetch, lambda path: check_whole(path)[0], "decoding")
    else:
        facts = check_images(source.paths, on_fetch, check_image)
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
