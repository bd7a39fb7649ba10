"""Lines of an exported script that read examples, which the kinds share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..code import Imports, call, literal, write
from .images.check import check_image
from .places import is_image_name, is_remote
from .row_files import is_row_file
from .tables import DECIMAL_COMMA, DECIMAL_POINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .images.decode import Decoding

_SMOOTHED_ABOVE = 2  # images that are more than this many times too large are smoothed while they are resized


class DataCode(Struct):
    """Code that makes `train` and `validation`, datasets of single examples."""

    lines: list[str]
    labels: str = ""  # the variable with the class numbers of the training examples; empty if there is none
    top: float = 0.0  # the largest stored pixel; 0 if the examples are not images
    are_shares: bool = False  # whether a label is a probability for each class
    marks: list[str] = field(default_factory=list)  # what differs from the run, in sentences


def datasets(inputs: str, labels: str) -> list[str]:
    """Return the lines that make both datasets from arrays, such as ``x_train`` and ``x_val``."""
    name = "tf.data.Dataset.from_tensor_slices"
    return [f"train = {name}(({inputs}_train, {labels}_train))", f"validation = {name}(({inputs}_val, {labels}_val))"]


def split(imports: Imports, held_out: int, limit: int, numbers: str) -> list[str]:
    """Return the lines that split rows by their class numbers as `stratified_split` does."""
    imports.add("numpy as np")
    imports.add("train_test_split", "sklearn.model_selection")
    given = {"test_size": str(held_out), "random_state": "SEED", "stratify": numbers}
    return [
        f"rows = np.arange(len({numbers}))",
        write(call("train_test_split", "rows", **given), 0, "rows_train, rows_val = "),
        shuffled("rows_train", "np.sort(rows_train)", limit),
    ]


def random_split(held_out: int, limit: int, labels: str) -> list[str]:
    """Return the lines that split rows at random, as the function of that name does."""
    cut = f"[:{limit}]" if limit else ""
    rows = f"rows_train, rows_val = rows[{held_out}:]{cut}, rows[:{held_out}]"
    return [shuffled("rows", f"len({labels})", 0), rows]


def shuffled(target: str, rows: str, limit: int) -> str:
    """Return the line that puts rows, or so many, in random order, and keeps the first ones if there is a limit."""
    return f"{target} = np.random.default_rng(SEED).permutation({rows}){f'[:{limit}]' if limit else ''}"


def table_code(imports: Imports, path: str, record: Mapping[str, Any], **settings: str) -> list[str]:
    """Return the lines that read the table `TABLE` with pandas, whose cells are text, as noted in a run's record.

    `settings` are those of a CSV.
    """
    imports.add("pandas as pd")
    # Of a remote table pandas reads what TensorFlow opens, as in the run.
    place = 'tf.io.gfile.GFile(TABLE, "rb")' if is_remote(path) else "TABLE"
    named = record.get("encoding")
    encoding = {"encoding": literal(named), "encoding_errors": literal("replace")} if named else {}
    if not is_row_file(path):
        separator = record.get("separator", ",")
        given = ({} if separator == "," else {"sep": literal(separator)}) | encoding | settings
        if count := record.get("nameless", 0):
            given["names"] = f'[f"column_{{number}}" for number in range(1, {count + 1})]'
        lines = [write(call("pd.read_csv", place, **given), 0, "table = ")]
        if separator == ";":
            lines.append(f'table = table.replace(r"{DECIMAL_COMMA}", r"{DECIMAL_POINT}", regex=True)')
        return lines
    kept = {"dtype_backend": literal("pyarrow")}  # whole numbers stay whole beside missing ones
    read = call("pd.read_parquet", place, **kept)
    if ".parquet" not in Path(path.lower()).suffixes:
        read = call("pd.read_json", place, lines="True", dtype="False", convert_dates="False", **encoding, **kept)
    lines = [write(read, 0, "table = "), 'table = table.map(str, na_action="ignore")']
    empty = settings.get("na_values", '[""]')
    return [*lines, f"table = table.mask(table.isin({empty}))"]


def chosen(inputs: str, labels: str) -> list[str]:
    """Return the lines that choose the files and labels of each part."""
    return [f"{inputs}_{part}, y_{part} = {inputs}[rows_{part}], {labels}[rows_{part}]" for part in ("train", "val")]


def resized(decoding: Decoding, size: tuple[int, ...] = ()) -> list[str]:
    """Return the lines of a function that bring `image` to the configured size as a run did, given its own if known."""
    height, width = target = decoding.image_size
    look, smooth = list[str](), ", antialias=True" if _is_shrunk(decoding, size or target) else ""
    if not size:
        tall, wide = (side * _SMOOTHED_ABOVE for side in target)
        look, smooth = [f"    is_large = image.shape[0] > {tall} or image.shape[1] > {wide}"], ", antialias=is_large"
    resize = f"    image = tf.image.resize(image, {target}{smooth})"
    if decoding.resize == "pad":
        return [*look, f"    image = tf.image.resize_with_pad(image, {height}, {width}{smooth})"]
    if decoding.resize == "stretch":
        return [*look, resize]
    return [
        f"    scale = tf.reduce_min(tf.cast(tf.shape(image)[:2], tf.float32) / {target})",
        f"    kept = tf.cast(tf.round(scale * {target}), tf.int32)",
        "    image = tf.image.resize_with_crop_or_pad(image, kept[0], kept[1])",
        *look,
        resize,
    ]


def _is_shrunk(decoding: Decoding, size: tuple[int, ...]) -> bool:
    return any(side > _SMOOTHED_ABOVE * wanted for side, wanted in zip(size, decoding.image_size, strict=True))


def image_code(lines: list[str], decoding: Decoding, folder: str, labels: str) -> DataCode:
    """Return the code that decodes image files as a run did, after the lines that list and split them."""
    paths = [] if is_remote(folder) else Path(folder).rglob("*")
    facts = (check_image(str(path)) for path in paths if is_image_name(path.name))
    first = next((fact for fact in facts if not fact.problem), None)
    height, width = decoding.image_size if first is None else (first.height, first.width)
    ratio = decoding.ratio(height, width) if first is not None and first.format == "JPEG" else 1
    size = (-(-height // ratio), -(-width // ratio))
    smaller = f", ratio={ratio})" if ratio > 1 else ")  # or PNG, GIF"
    lines += [
        "",
        "",
        "def read_image(file, label):",
        '    """Read an image as 8-bit RGB, which takes little memory in the cache."""',
        f"    image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3{smaller}",
        *resized(decoding, size),
        "    return tf.cast(tf.round(image), tf.uint8), label",
        "",
        "",
        *datasets("files", "y"),
        "train = train.map(read_image, num_parallel_calls=tf.data.AUTOTUNE).cache()",
        "validation = validation.map(read_image, num_parallel_calls=tf.data.AUTOTUNE).cache()",
    ]
    marks = ["The run chose for each photo at which size to decode it; here the first one decides for all."]
    return DataCode(lines, labels, top=255.0, marks=marks if ratio > 1 or _is_shrunk(decoding, size) else [])
