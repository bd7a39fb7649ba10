"""Makes examples from labeled image files, and predicts new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from msgspec.structs import replace

from ...errors import DataError
from ..describing import spread
from ..examples import Examples, Input, Signature, Task
from ..places import is_image_name, is_remote, join, locate, shown
from ..predictions import BATCH, NewData, Table, TrainedModel, chosen, number, probabilities
from ..split import counts_by_class, stratified_split
from ..tables import check_there
from .check import ImageFacts, check_all, check_image, check_images, named
from .decode import Decoding, check_whole, decoded
from .files import Source, files_below, find_images, image_folder, list_folder, read_ids

if TYPE_CHECKING:
    from ...config.run_config import RunConfig
    from ...messages import Reporter

SKIP_REMEDY = "Replace them, or leave them out with data.options.skip_bad=true."  # remedy for files that cannot be used
_NAMED = 10  # bad files that are described at most
_TABLES = (".csv", ".csv.gz")


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


def refuse_bad(source: Source, remedy: str, *, skip_bad: bool) -> str:
    """Refuse checked images that cannot be used, with their names and problems, or return a notice about skipping them.

    Raises `DataError` if they may not be skipped, or no other image is left.
    """
    bad, total = source.bad, len(source.facts)
    if len(bad) == total:
        what = f"None of the {total:,} images in {source.place} can be used: {named(bad)}."
        raise DataError(what, remedy="Replace them.")
    found = f"{len(bad):,} of {total:,} images in {source.place}"
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
    every file to check it, which takes long. Raises `DataError` if files cannot be used, and may not be skipped.
    """
    check: Callable[[str], ImageFacts] = (lambda path: check_whole(path)[0]) if is_whole else check_image
    doing = "decoding" if is_whole else "checking"
    checked = [replace(one, facts=tuple(check_images(one.paths, on_fetch, check, doing))) for one in sources]
    with_bad = [one for one in checked if one.bad]
    skipped = tuple(refuse_bad(one, SKIP_REMEDY, skip_bad=skip_bad) for one in with_bad)
    left_out = {one.place: [name for name, _ in one.bad] for one in with_bad}
    images, *others = (one.usable for one in checked)
    empty = np.setdiff1d(np.arange(len(images.class_names)), images.numbers)
    notices = [*(notice for one in sources for notice in one.notices), *skipped]
    notices += [f"There is no image of the class '{images.class_names[number]}'." for number in empty]
    if others:
        mixed = np.random.default_rng(config.seed).permutation(len(images.facts))
        train, held_out = images.chosen(mixed[: config.data.train_limit or None]), others[0]
    else:
        split, small = stratified_split(images.numbers, images.class_names, config)
        train, held_out = map(images.chosen, split)
        notices += small
    counts = counts_by_class(train.numbers, held_out.numbers, len(images.class_names))
    record = {"format": config.dataset, "class_counts": counts, **images.record}
    parts = [decoded(part.facts, decoding, part.labels) if part.facts else None for part in (train, held_out)]
    return image_examples(
        (parts[0], parts[1]),
        (len(train.facts), len(held_out.facts)),
        decoding,
        images.class_names,
        record | ({"left_out": left_out} if left_out else {}),
        has_shares=train.labels.ndim > 1,
        notices=tuple(notices),
        skipped=skipped,
        without_damaged=partial(make_examples, config, decoding, sources, skip_bad=skip_bad, is_whole=True),
    )


def describe_images(source: Source, reporter: Reporter) -> dict[str, Any]:
    """Check every image file.

    Returns ``images``: how many are ``usable``, their total ``bytes``, the spread of ``height`` and ``width``, the
    count of each of the ``formats``, and how many are ``turned`` upright; and ``bad``: the ``count`` of files that
    cannot be used, and ``file`` and ``problem`` of the ``first`` ones.
    """
    source = replace(source, facts=tuple(check_all(check_image, source.paths, reporter)))
    good, bad = source.usable.facts, source.bad
    sides = {side: spread(np.array([getattr(fact, side) for fact in good])) for side in ("height", "width") if good}
    size = sum(Path(fact.path).stat().st_size for fact in good if not is_remote(fact.path))
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


def predict_images(trained: TrainedModel, request: NewData, reporter: Reporter, decoding: Decoding) -> Table:
    """Predict images; raise `DataError` if there are none, or some cannot be read.

    A run on a table of images gets that table's columns: one per class if it had those, else the label.
    """
    names, paths, column = _find(trained, request)
    facts = check_all(check_image, paths, reporter)
    good = [fact for fact in facts if not fact.problem]
    if bad := [(name, fact.problem) for name, fact in zip(names, facts, strict=True) if fact.problem]:
        found = f"{len(bad):,} of {len(facts):,} images cannot be used: {named(bad)}"
        if not request.skip_bad or not good:
            raise DataError(f"{found}.", remedy="Replace them, or skip them with --skip-bad.")
        reporter.note(f"{found}. They get the same probability for every class.")
    model, scale = trained.load_model(), np.float32(trained.scale())
    classes = trained.classes_of(model)
    images = decoded(good, decoding).batch(BATCH).map(lambda batch: tf.cast(batch, tf.float32) * scale).prefetch(2)
    outputs = trained.outputs_of(model, images, len(good), reporter)
    given = trained.record.get("label_columns") or []
    is_label, columns = len(given) < 2, given or ["label", "probability"]
    unknown = np.full(len(classes), 1 / len(classes), np.float32)

    def rows() -> Iterator[tuple[str, ...]]:
        for name, fact in zip(names, facts, strict=True):
            shares = unknown if fact.problem else probabilities(next(outputs))
            if not is_label:
                yield name, *(number(share.item()) for share in shares)
            else:
                answer = ("", number(shares[0])) if fact.problem else chosen(shares, classes)
                yield name, *answer[: len(columns)]
        next(outputs, None)  # the last progress is reported after the last output

    return Table((column, *(columns if is_label else classes)), rows(), len(bad))


def _find(trained: TrainedModel, request: NewData) -> tuple[list[str], list[str], str]:
    """Return the names and the paths of the images, and the heading of the names."""
    first, record = locate(request.data[0]), trained.record
    column, ending = record.get("id_column") or "", record.get("suffix") or ""
    if len(request.data) == 1 and first.lower().endswith(_TABLES):
        check_there(first)
        table = read_ids(first, column, "")
        names = table.iloc[:, 0].tolist()
        # The folder that is given, the one beside the table as in training, or the table's own.
        beside = image_folder(first, str(record.get("images") or "images"))
        folder = beside if request.images is None else locate(request.images)
        if not tf.io.gfile.isdir(folder):
            if request.images is not None:
                raise DataError(f"There is no folder {shown(request.images)}.", remedy="Correct --images.")
            folder = first.rpartition("/")[0]
        return names, find_images(folder, names, folder)[0], str(table.columns[0])
    if len(request.data) > 1 or not tf.io.gfile.isdir(first):
        return list(request.data), [locate(path) for path in request.data], column or "file"
    folders, names = list_folder(first)  # a class folder may be a link, as in training
    names += [f"{folder}/{name}" for folder in folders for name in files_below(join(first, folder))]
    files = [name for name in names if is_image_name(name)]
    if not files:
        raise DataError(f"There is no image in {shown(first)}.")
    # The names in the training table may lack the ending.
    return [name.removesuffix(ending) for name in files], [join(first, name) for name in files], column or "file"
