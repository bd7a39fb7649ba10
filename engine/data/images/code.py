"""Lines of an exported script that read image files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data_code import DataCode, datasets
from ..places import is_image_name, is_remote
from .check import check_image
from .decode import Decoding

if TYPE_CHECKING:
    from ..kinds.image_kind import FilesOptions
    from .check import ImageFacts

_SMOOTHED_ABOVE = 2  # images that are more than this many times too large are smoothed while they are resized


def left_out(record: dict[str, Any], folder: str) -> list[str]:
    """Return the names of the files in a folder that the run left out because they are bad."""
    return list((record.get("left_out") or {}).get(folder, ()))


def chosen(inputs: str, labels: str) -> list[str]:
    """Return the lines that choose the files and labels of each part."""
    return [f"{inputs}_{part}, y_{part} = {inputs}[rows_{part}], {labels}[rows_{part}]" for part in ("train", "val")]


def image_code(
    lines: list[str],
    options: FilesOptions,
    folder: str,
    record: dict[str, Any],
    labels: str,
) -> DataCode:
    """Return the code that decodes image files as a run did, after the lines that list and split them."""
    first = _first_below(folder)
    target = options.image_size
    ratio = 1
    size = target if first is None else (first.height, first.width)
    if first is not None and first.decoder == "jpeg":
        ratio = Decoding(target, options.resize).ratio(*size)
        size = (-(-size[0] // ratio), -(-size[1] // ratio))
    shrunk = any(side > _SMOOTHED_ABOVE * wanted for side, wanted in zip(size, target, strict=True))
    smooth = ", antialias=True" if shrunk else ""
    smaller = f", ratio={ratio})" if ratio > 1 else ")  # or PNG, GIF"
    resize = {
        "stretch": [f"    image = tf.image.resize(image, {target}{smooth})"],
        "pad": [f"    image = tf.image.resize_with_pad(image, {target[0]}, {target[1]}{smooth})"],
        "crop": [
            f"    scale = tf.reduce_min(tf.cast(tf.shape(image)[:2], tf.float32) / {target})",
            f"    kept = tf.cast(tf.round(scale * {target}), tf.int32)",
            "    image = tf.image.resize_with_crop_or_pad(image, kept[0], kept[1])",
            f"    image = tf.image.resize(image, {target}{smooth})",
        ],
    }
    lines += [
        "",
        "",
        "def read_image(file, label):",
        '    """Read an image as 8-bit RGB, which takes little memory in the cache."""',
        f"    image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3{smaller}",
        *resize[options.resize],
        "    return tf.cast(tf.round(image), tf.uint8), label",
        "",
        "",
        *datasets("files", "y"),
        "train = train.map(read_image, num_parallel_calls=tf.data.AUTOTUNE).cache()",
        "validation = validation.map(read_image, num_parallel_calls=tf.data.AUTOTUNE).cache()",
    ]
    marks = ["The run chose for each photo at which size to decode it; here the first one decides for all."]
    marks = marks if ratio > 1 or shrunk else []
    if record.get("left_out_after_split"):
        marks.append("The run found damaged images after it had split the data; here the split is another one.")
    return DataCode(lines, labels, top=255.0, marks=marks)


def _first_below(folder: str) -> ImageFacts | None:
    """Return what is known about an image in a folder; None if there is none that can be read."""
    if is_remote(folder):
        return None
    facts = (check_image(str(path)) for path in Path(folder).rglob("*") if is_image_name(path.name))
    return next((fact for fact in facts if not fact.problem), None)
