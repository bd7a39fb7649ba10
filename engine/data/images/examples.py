"""Makes examples from labeled image files, which are decoded in a `tf.data` pipeline, and predicts new ones.

Each image is turned upright, converted to RGB and brought to the configured size. It stays uint8, so that the cache is
small. Much larger JPEGs are decoded at half, a quarter or an eighth of their size, which is far cheaper.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import tensorflow as tf
from msgspec import Struct
from msgspec.structs import replace

from ...errors import DataError
from ..describing import spread
from ..examples import Examples, Input, Signature, Task
from ..labels import counts_by_class, stratified_split
from ..places import is_image_name, is_remote, join, locate, open_file, shown
from ..predictions import BATCH, NewData, Table, TrainedModel, chosen, number, probabilities
from ..tables import check_there
from .check import ImageFacts, check_all, check_image, check_images, named, pixels
from .files import Source, files_below, find_images, image_folder, list_folder, read_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter

DAMAGED = "is damaged: its header is valid, but it cannot be decoded"
_RATIOS = (1, 2, 4, 8)  # the factors that JPEGs can be shrunk by while they are decoded
_PNG, _OTHER = len(_RATIOS), len(_RATIOS) + 1  # the ways to decode other files
_F = TypeVar("_F", bound="Callable[..., Any]")


def as_written(function: _F) -> _F:
    """Return a function for `tf.data` that has no `if` or loop on tensors: AutoGraph need not convert it.

    Converting those that decode and augment images takes a second of CPU.
    """
    kept: _F = tf.autograph.experimental.do_not_convert(function)
    return kept


def untuned() -> Any:
    """Return options that turn off the autotune thread; prefetching still tunes itself.

    That thread sleeps up to a minute, and the end of an iterator waits for it: `fit` returned 8 s late after a 35 s
    run on TensorFlow 2.21, and would hold a TPU that long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


class Decoding(Struct, frozen=True):
    """The size of decoded images."""

    image_size: tuple[int, int]
    # ``stretch`` changes the proportions, ``crop`` cuts off the edges, ``pad`` adds black borders.
    resize: Literal["stretch", "crop", "pad"] = "stretch"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of a decoded image: ``(height, width, 3)``."""
        return (*self.image_size, 3)

    def ratio(self, height: int, width: int) -> int:
        """Return the largest factor a JPEG can be shrunk by and still be large enough."""
        scales = (height / self.image_size[0], width / self.image_size[1])
        most = max(scales) if self.resize == "pad" else min(scales)
        return max((ratio for ratio in _RATIOS if ratio <= most), default=1)


def decoded(facts: Sequence[ImageFacts], decoding: Decoding, labels: NDArray[Any] | None = None) -> Any:
    """Return a dataset of files that passed the check, which are read and decoded in parallel and in order.

    Its elements are uint8 images, shape ``(height, width, 3)``, with labels as pairs. An error names a damaged file.
    """
    is_turned = any(fact.orientation != 1 for fact in facts)
    ways = [_OTHER if not f.is_plain else _PNG if f.format == "PNG" else
            _RATIOS.index(decoding.ratio(f.height, f.width)) for f in facts]  # fmt: skip

    @as_written
    def read(index: Any, path: Any, way: Any, orientation: Any) -> Any:
        def by_pillow() -> Any:
            return tf.numpy_function(lambda name: np.asarray(pixels(name.decode())), [path], tf.uint8)

        only = ways[0] if len({*ways}) == 1 else None
        contents = b"" if only == _OTHER else tf.io.read_file(path)
        image = _decode(contents, way if only is None else only, by_pillow)
        return index, resized(_upright(image, orientation) if is_turned else image, decoding)

    paths, count = [fact.path for fact in facts], len(facts)
    files = tf.data.Dataset.from_tensor_slices((np.arange(count), paths, ways, [fact.orientation for fact in facts]))
    images = files.map(read, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors(log_warning=True)
    named = tf.constant(paths)

    def message(index: Any) -> Any:
        return tf.strings.join(["The image file ", named[tf.minimum(index, count - 1)], f" {DAMAGED}."])

    nothing = np.zeros(decoding.shape, np.uint8)
    images = without_gaps(images, np.int64(0), np.int64(count), nothing, message)
    images = images.map(as_written(lambda _, image: image))
    images = images.apply(tf.data.experimental.assert_cardinality(count))
    return images if labels is None else tf.data.Dataset.zip(images, tf.data.Dataset.from_tensor_slices(labels))


def check_whole(path: str) -> tuple[ImageFacts, bytes]:
    """Check an image file and decode all of it; return its contents as well, which are empty if it cannot be used."""
    facts = check_image(path)
    if facts.problem:
        return facts, b""
    try:
        with open_file(path) as stream:
            contents = stream.read()
        if facts.format == "JPEG":
            tf.io.decode_jpeg(contents, channels=3, ratio=_RATIOS[-1])  # reads all of it, with a fraction of the memory
        elif facts.format == "PNG":
            tf.io.decode_png(contents)
        else:
            pixels(path)
    except (OSError, tf.errors.OpError):
        return replace(facts, problem=DAMAGED), b""
    return facts, contents


def decode_bytes(contents: Any, decoding: Decoding, orientation: Any = 1) -> Any:
    """Decode an image file inside a dataset's map: uint8, shape ``(height, width, 3)``.

    `contents` is a scalar string tensor: a JPEG, a PNG or another format that `tf.io.decode_image` reads. `orientation`
    is that of EXIF, a tensor if it differs between images.
    """
    start = tf.strings.substr(contents, 0, 4)

    def jpeg_way() -> Any:
        """Return the index in `_RATIOS` for a JPEG, like `Decoding.ratio`."""
        size = tf.io.extract_jpeg_shape(contents)[:2]
        size = tf.cond(tf.cast(orientation, tf.int32) > 4, lambda: tf.reverse(size, [0]), lambda: size)
        scales = tf.cast(size, tf.float64) / tf.constant(decoding.image_size, tf.float64)
        most = tf.reduce_max(scales) if decoding.resize == "pad" else tf.reduce_min(scales)
        return tf.maximum(tf.reduce_sum(tf.cast(tf.constant(_RATIOS, tf.float64) <= most, tf.int32)) - 1, 0)

    other = tf.where(tf.equal(start, b"\x89PNG"), _PNG, _OTHER)
    way = tf.cond(tf.equal(tf.strings.substr(start, 0, 2), b"\xff\xd8"), jpeg_way, lambda: other)
    image = _decode(contents, way, lambda: tf.io.decode_image(contents, channels=3, expand_animations=False))
    needs_no_turn = isinstance(orientation, int) and orientation == 1
    return resized(image if needs_no_turn else _upright(image, orientation), decoding)


def as_png(path: str) -> bytes:
    """Return an image file in a format that is neither JPEG nor PNG as a PNG."""
    buffer = io.BytesIO()
    pixels(path).save(buffer, "PNG")
    return buffer.getvalue()


def resized(image: Any, decoding: Decoding) -> Any:
    """Bring an image of shape ``(height, width, 3)`` to the configured size, as uint8."""
    size = tf.shape(image)[:2]
    target = tf.constant(decoding.image_size)

    def fitted() -> Any:
        scales = tf.cast(size, tf.float64) / tf.cast(target, tf.float64)
        if decoding.resize == "crop":
            kept = tf.cast(tf.round(tf.cast(target, tf.float64) * tf.reduce_min(scales)), tf.int32)
            kept = tf.clip_by_value(kept, 1, size)
            top = (size - kept) // 2
            return _scaled(image[top[0] : top[0] + kept[0], top[1] : top[1] + kept[1]], target)
        if decoding.resize == "pad":
            inner = tf.cast(tf.round(tf.cast(size, tf.float64) / tf.reduce_max(scales)), tf.int32)
            inner = tf.clip_by_value(inner, 1, target)
            top = (target - inner) // 2
            return tf.image.pad_to_bounding_box(_scaled(image, inner), top[0], top[1], *decoding.image_size)
        return _scaled(image, target)

    image = tf.cond(tf.reduce_all(size == target), lambda: image, fitted)
    return tf.ensure_shape(image, decoding.shape)


def _scaled(image: Any, size: Any) -> Any:
    """Resize bilinearly, with antialiasing if the size is more than halved."""
    halved = tf.reduce_any(tf.shape(image)[:2] > 2 * size)
    scaled = tf.cond(halved, lambda: tf.image.resize(image, size, antialias=True), lambda: tf.image.resize(image, size))
    return tf.saturate_cast(tf.round(scaled), tf.uint8)


def _upright(image: Any, orientation: Any) -> Any:
    """Turn an image upright according to its EXIF orientation, which is above 4 if it lies on its side."""
    orientation = tf.cast(orientation, tf.int32)
    image = tf.cond(orientation > 4, lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
    mirrored = tf.reduce_any(orientation == (2, 3, 6, 7))
    image = tf.cond(mirrored, lambda: tf.reverse(image, [1]), lambda: image)
    upside_down = tf.reduce_any(orientation == (3, 4, 7, 8))
    return tf.cond(upside_down, lambda: tf.reverse(image, [0]), lambda: image)


def _decode(contents: Any, way: Any, other: Callable[[], Any]) -> Any:
    """Decode an image file as RGB: a JPEG by the index in `_RATIOS`, a PNG, or any other by a function."""
    ways: list[Callable[[], Any]] = [
        *(partial(tf.io.decode_jpeg, contents, channels=3, ratio=ratio) for ratio in _RATIOS),
        lambda: _on_white(tf.io.decode_png(contents, channels=4)),
        other,
    ]
    return tf.ensure_shape(ways[way]() if isinstance(way, int) else tf.switch_case(way, ways), (None, None, 3))


def _on_white(image: Any) -> Any:
    """Lay an RGBA image over white, as a viewer does; transparent pixels can have any color."""

    def mixed() -> Any:
        color, alpha = tf.cast(image[..., :3], tf.int32), tf.cast(image[..., 3:], tf.int32)
        return tf.cast((color * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)

    return tf.cond(tf.reduce_all(image[..., 3] == 255), lambda: image[..., :3], mixed)


def without_gaps(pairs: Any, start: Any, count: Any, nothing: Any, message: Callable[[Any], Any]) -> Any:
    """Make a dataset of (index, value) pairs fail with a message about the first missing index.

    TensorFlow's own error does not say which file is damaged. So errors are ignored, and a gap in the indices shows it;
    an extra last element, with `nothing` as its value, catches a gap at the end.
    """
    beyond = tf.data.Dataset.from_tensors((start + count, nothing))

    @as_written
    def check(expected: Any, pair: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(expected, pair[0]), [message(expected)])]):
            return expected + 1, (tf.identity(pair[0]), tf.identity(pair[1]))

    return pairs.concatenate(beyond).scan(start, check).take(count)


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
