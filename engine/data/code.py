"""Writes Python: what an exported script is made of, and the lines that read examples, which several kinds share.

Lines are broken at 88 characters as `ruff format` does it. Text from elsewhere, such as a path or a key of a
configuration, becomes code only through `literal`, `call` and `docstring`, which keep it inside a string.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from ..config.user_code import source_file
from ..errors import DataError, UserCodeError
from .images.check import check_image
from .places import is_image_name, is_remote, locate
from .row_files import is_row_file
from .tables import DECIMAL_COMMA, DECIMAL_POINT

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .images.examples import Decoding

WIDTH = 88
_INDENT = 4


class Brackets(Struct, frozen=True):
    """Items in brackets, such as a call, a list or a dictionary."""

    opening: str  # such as ``layers.Dense(``
    items: tuple[tuple[str, Code], ...]  # each item, after its prefix such as ``units=``
    closing: str


Code = str | Brackets


def call(called: str, /, *arguments: Code, **named: Code) -> Brackets:
    """Return a call. Keys that cannot be written as the name of an argument are passed in a dictionary."""
    items = [("", argument) for argument in arguments]
    items += [(f"{key}=", value) for key, value in named.items() if _is_argument(key)]
    if others := {key: value for key, value in named.items() if not _is_argument(key)}:
        items.append(("**", _dictionary(others)))
    return Brackets(f"{called}(", tuple(items), ")")


def _is_argument(key: str) -> bool:
    # Python changes names that are not ASCII (NFKC), so that the function would get another one.
    return key.isidentifier() and key.isascii() and not iskeyword(key) and key != "__debug__"


def _dictionary(values: Mapping[Any, Code]) -> Brackets:
    return Brackets("{", tuple((f"{write(literal(key))}: ", value) for key, value in values.items()), "}")


def listed(items: list[Code]) -> Brackets:
    """Return a list."""
    return Brackets("[", tuple(("", item) for item in items), "]")


def literal(value: Any) -> Code:
    """Return a plain value as code; raise `DataError` if it is not one."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, date | time):  # TOML has dates; a run passes them on as text
        value = value.isoformat()
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if "'" not in value and '"' not in value else text
    if isinstance(value, float):
        if not math.isfinite(value):
            return f'float("{value}")'
        # A number that was rounded to float32 is written as it was before: 0.001, not 0.0010000000474974513.
        rounded = np.float32(value) if abs(value) < 3e38 else value
        return min(repr(value), str(rounded), key=len) if float(rounded) == value else repr(value)
    if isinstance(value, dict):
        return _dictionary({key: literal(inner) for key, inner in value.items()})
    if isinstance(value, tuple):
        return Brackets("(", tuple(("", literal(inner)) for inner in value), ",)" if len(value) == 1 else ")")
    if isinstance(value, list):
        return listed([literal(inner) for inner in value])
    if value is None or isinstance(value, int):
        return repr(value)
    raise DataError(f"A value of the type {type(value).__name__} cannot be exported as code.")


def literals(values: Mapping[str, Any]) -> dict[str, Code]:
    """Return plain values as named arguments."""
    return {key: literal(value) for key, value in values.items()}


def assigned(target: str, value: Any) -> str:
    """Return the assignment of a plain value."""
    return write(literal(value), 0, f"{target} = ")


def docstring(text: str) -> str:
    """Return a text of several lines as a docstring."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{safe}\n"""'


def write(code: Code, indent: int = 0, before: str = "", after: str = "") -> str:
    """Return code as text, with `before` at its start and `after` at its end; its first line is not indented."""
    flat = before + _flat(code) + after
    if indent + len(flat) <= WIDTH:
        return flat
    inner = indent + _INDENT
    if isinstance(code, str):
        fits_alone = before.endswith(" = ") and inner + len(code) <= WIDTH
        return f"{before}(\n{' ' * inner}{code}\n{' ' * indent}){after}" if fits_alone else flat
    body = ", ".join(key + _flat(item) for key, item in code.items)
    is_long_list = code.opening == "[" and any(isinstance(item, Brackets) for _, item in code.items)
    if inner + len(body) <= WIDTH and not is_long_list:
        return f"{before}{code.opening}\n{' ' * inner}{body}\n{' ' * indent}{code.closing.removeprefix(',')}{after}"
    is_alone = len(code.items) == 1 and code.items[0][0] == ""
    lines = [" " * inner + write(item, inner, key, "" if is_alone else ",") for key, item in code.items]
    closing = code.closing.removeprefix(",")
    return "\n".join([before + code.opening, *lines, " " * indent + closing + after])


def _flat(code: Code) -> str:
    if isinstance(code, str):
        return code
    return code.opening + ", ".join(key + _flat(item) for key, item in code.items) + code.closing


_STANDARD = ("collections", "os", "pathlib", "re", "sys", "unicodedata")


class Imports(Struct):
    """The imports of a script."""

    _modules: set[str] = field(default_factory=set)
    _names: dict[str, set[str]] = field(default_factory=dict)
    _own: dict[str, set[str]] = field(default_factory=dict)
    _folders: list[str] = field(default_factory=list)

    def add(self, name: str, module: str = "") -> None:
        """Import a module, such as ``numpy as np``, or a name of a module."""
        if module:
            self._names.setdefault(module, set()).add(name)
        else:
            self._modules.add(name)

    def own(self, reference: str) -> str:
        """Import the user's function or class; return its name, or raise `UserCodeError` if a plain import cannot."""
        module, _, name = reference.rpartition(":")
        folder: Path | None = Path.cwd()
        if module.endswith(".py"):
            path = Path(module).expanduser().resolve()
            folder, module = path.parent, path.stem
        else:
            with suppress(ImportError, ValueError):
                folder = None if find_spec(module.partition(".")[0]) else folder
        bad = [part for part in (*module.split("."), name) if not part.isidentifier() or iskeyword(part)]
        if bad:
            what = f"{reference} cannot be imported by a plain import: '{bad[0]}' is not a name in Python."
            raise UserCodeError(what, remedy="Rename it, and name it so in the run's config.toml.")
        if folder is not None and str(folder) not in self._folders:
            self._folders.append(str(folder))
        self._own.setdefault(module, set()).add(name)
        return name

    def lines(self, environment: dict[str, str]) -> list[str]:
        """Return the lines at the top of a script, which first sets some variables."""
        first = {name for name, needs in (("os", environment), ("sys", self._folders)) if needs}
        plain = [(name.split()[0], f"import {name}") for name in sorted(self._modules | first)]
        both = plain + _chosen(self._names)  # as `ruff` sorts them
        standard = [line for module, line in both if module in _STANDARD]
        others = [line for module, line in both if module not in _STANDARD]
        setup = [assigned(f"os.environ[{literal(key)}]", value) for key, value in environment.items()]
        setup += [write(call("sys.path.insert", "0", literal(folder))) for folder in self._folders]
        own = [line for _, line in _chosen(self._own)]
        blocks = [standard, setup, others, own] if setup else [standard, others, own]
        return [line for block in blocks if block for line in ("", *block)][1:]


def _chosen(names: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    return [(module, f"from {module} import {', '.join(sorted(names[module]))}") for module in sorted(names)]


def is_class(reference: str) -> bool:
    """Return whether the user's code is a class, without running it."""
    path, name = source_file(reference), reference.rpartition(":")[2]
    if path is None:
        return False
    tree = ast.parse(path.read_bytes())
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.walk(tree))


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
