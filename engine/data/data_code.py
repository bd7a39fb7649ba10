"""Writes the lines of an exported script that read examples, for what several kinds of datasets have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..code import Code, Imports, assigned, call, literal, write
from .images.check import check_image
from .places import is_image_name, is_remote, locate
from .row_files import is_row_file
from .tables import DECIMAL_COMMA, DECIMAL_POINT

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .images.decode import Decoding

_SMOOTHED_ABOVE = 2  # images that are more than this many times too large are smoothed while they are resized
_SLICES = "tf.data.Dataset.from_tensor_slices"
_SHUFFLED = "np.random.default_rng(SEED).permutation"


class DataCode(Struct):
    """Code that makes `train` and `validation`, datasets of single examples, as a run read them."""

    config: RunConfig
    held_out: int  # how many examples the run held out
    record: dict[str, Any]  # the run's ``inputs.json``
    imports: Imports
    lines: list[str] = field(default_factory=list)
    labels: str = ""  # the variable with the class numbers of the training examples; empty if there is none
    top: float = 0.0  # the largest stored pixel; 0 if the examples are not images
    are_shares: bool = False  # whether a label is a probability for each class
    differences: list[str] = field(default_factory=list)  # from the run, in sentences

    def needs(self, *modules: str, **names: str) -> None:
        """Import modules, such as ``numpy as np``, and names, each with its module."""
        for module in modules:
            self.imports.add(module)
        for name, module in names.items():
            self.imports.add(name, module)

    def add(self, *lines: str) -> None:
        """Write lines that contain no text from elsewhere, or only as `literal` returns it."""
        self.lines += lines

    def literal(self, value: Any) -> Code:
        """Return a plain value as code."""
        return literal(value)

    def assign(self, **values: Any) -> None:
        """Write the assignments of plain values."""
        self.add(*(assigned(name, value) for name, value in values.items()))

    def call(self, target: str, called: str, *arguments: Code, **named: Code) -> None:
        """Write the assignment of what a call returns."""
        self.add(write(call(called, *arguments, **named), 0, f"{target} = "))

    def functions(self, code: str) -> None:
        """Write functions, with empty lines around them."""
        self.add("", "", *code.strip().splitlines(), "", "")

    def datasets(self, inputs: str, labels: str = "", top: float = 0.0) -> None:
        """Write the lines that make both datasets from arrays, such as ``x_train`` and ``y_train``."""
        self.add(f"train = {_SLICES}(({inputs}_train, y_train))", f"validation = {_SLICES}(({inputs}_val, y_val))")
        self.labels, self.top = labels, top

    def shuffled(self, rows: str) -> str:
        """Return code that shuffles rows, an array or their number, and keeps the first if there is a limit."""
        return f"{_SHUFFLED}({rows}){self._limit}"

    @property
    def _limit(self) -> str:
        limit = self.config.data.train_limit
        return f"[:{limit}]" if limit else ""

    def split(self, labels: str, classes: str, inputs: str = "", rows: Sequence[str] = ()) -> None:
        """Write the lines that split labels, and inputs if given, as the run did.

        `classes` is the variable with the class numbers, empty if there is none. `rows` are the lines that make
        `rows_train` and `rows_val`; by default they are those of `stratified_split` or `random_split`.
        """
        self.needs("numpy as np")
        held_out = self.held_out
        if rows:
            self.add(*rows)
        elif classes:
            self.needs(train_test_split="sklearn.model_selection")
            given = {"test_size": str(held_out), "random_state": "SEED", "stratify": classes}
            self.add(f"rows = np.arange(len({classes}))")
            self.call("rows_train, rows_val", "train_test_split", "rows", **given)
            self.add(f"rows_train = {self.shuffled('np.sort(rows_train)')}")
        else:
            self.add(f"rows = {_SHUFFLED}(len({labels}))")
            self.add(f"rows_train, rows_val = rows[{held_out}:]{self._limit}, rows[:{held_out}]")
        if inputs:
            for part in ("train", "val"):
                self.add(f"{inputs}_{part}, y_{part} = {inputs}[rows_{part}], {labels}[rows_{part}]")
        else:
            self.add(f"y_train, y_val = {labels}[rows_train], {labels}[rows_val]")

    def table(self, path: str, settings: Mapping[str, str], **constants: Any) -> None:
        """Write the lines that read a table with pandas, with text in all cells, in the format that the run recorded.

        `settings` are arguments of `pd.read_csv`, as code, which may name the `constants`.
        """
        self.needs("pandas as pd")
        self.assign(TABLE=locate(path), **constants)
        # TensorFlow opens a remote table for pandas, as in the run.
        place = 'tf.io.gfile.GFile(TABLE, "rb")' if is_remote(path) else "TABLE"
        named = self.record.get("encoding")
        encoding = {"encoding": literal(named), "encoding_errors": literal("replace")} if named else {}
        if not is_row_file(path):
            separator = self.record.get("separator", ",")
            given = ({} if separator == "," else {"sep": literal(separator)}) | encoding | dict(settings)
            if count := self.record.get("nameless", 0):
                given["names"] = f'[f"column_{{number}}" for number in range(1, {count + 1})]'
            self.call("table", "pd.read_csv", place, **given)
            if separator == ";":
                self.add(f'table = table.replace(r"{DECIMAL_COMMA}", r"{DECIMAL_POINT}", regex=True)')
            return
        kept = {"dtype_backend": literal("pyarrow")}  # integers stay integers beside missing values
        if ".parquet" in Path(path.lower()).suffixes:
            self.call("table", "pd.read_parquet", place, **kept)
        else:
            as_json = {"lines": "True", "dtype": "False", "convert_dates": "False"}
            self.call("table", "pd.read_json", place, **as_json, **encoding, **kept)
        empty = settings.get("na_values", '[""]')
        self.add('table = table.map(str, na_action="ignore")', f"table = table.mask(table.isin({empty}))")

    def resized(self, decoding: Decoding, size: tuple[int, ...] = ()) -> list[str]:
        """Return the lines that resize `image` to the configured size; `size` is what it has before, if known."""
        height, width = target = decoding.image_size
        look, smooth = list[str](), ", antialias=True" if _is_shrunk(decoding, size or target) else ""
        if not size:
            tall, wide = (side * _SMOOTHED_ABOVE for side in target)
            look, smooth = (
                [f"    is_large = image.shape[0] > {tall} or image.shape[1] > {wide}"],
                ", antialias=is_large",
            )
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

    def images(self, decoding: Decoding, folder: str, labels: str) -> None:
        """Write the lines that decode image files as the run did; those that list and split them come before."""
        paths = [] if is_remote(folder) else Path(folder).rglob("*")
        facts = (check_image(str(path)) for path in paths if is_image_name(path.name))
        first = next((fact for fact in facts if not fact.problem), None)
        height, width = decoding.image_size if first is None else (first.height, first.width)
        ratio = decoding.ratio(height, width) if first is not None and first.format == "JPEG" else 1
        size = (-(-height // ratio), -(-width // ratio))
        smaller = f", ratio={ratio})" if ratio > 1 else ")  # or PNG, GIF"
        read = [
            "def read_image(file, label):",
            '    """Read an image as 8-bit RGB, which takes little memory in the cache."""',
            f"    image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3{smaller}",
            *self.resized(decoding, size),
            "    return tf.cast(tf.round(image), tf.uint8), label",
        ]
        self.functions("\n".join(read))
        self.datasets("files", labels, top=255.0)
        for part in ("train", "validation"):
            self.add(f"{part} = {part}.map(read_image, num_parallel_calls=tf.data.AUTOTUNE).cache()")
        if ratio > 1 or _is_shrunk(decoding, size):
            self.differences.append(
                "The run chose a decoding size for each photo; this script decodes all of them as it did the first."
            )


def _is_shrunk(decoding: Decoding, size: tuple[int, ...]) -> bool:
    return any(side > _SMOOTHED_ABOVE * wanted for side, wanted in zip(size, decoding.image_size, strict=True))
