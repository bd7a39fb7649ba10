"""Arrays of NumPy in one file: images or rows of numbers, and the class or a number of each."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace
from pydantic import Field

from ...config.values import Section
from ...errors import DataError, one_line
from ..examples import Examples, Input, Signature
from ..labels import LabelScale, parts_of, signature_of, split_classes, split_numbers
from ..places import locate, open_file, shown
from ..predictions import NewData, Table, TrainedModel, predicted
from ..tables import check_there, first_of
from .kind import FileKind, InputsRecord, LabelType, Name, Recognized, Start, check_label, cnn_options
from .skimming import Survey, of_classes, short_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..code import DataCode

# Names of inputs and labels, in lower case.
_TRAINING = ("x_train y_train", "train_images train_labels", "x y", "images labels", "data target", "arr_0 arr_1")
_VALIDATION = ("x_val y_val", "x_test y_test", "val_images val_labels", "test_images test_labels")


class NpzOptions(Section):
    """Options of `npz`: arrays in a file that `numpy.savez` wrote."""

    path: Annotated[Name, "The file."]
    inputs: Annotated[str, "Array of images or of rows of numbers; by default `x_train`, `x` or the like."] = ""
    label: Annotated[str, "Array with the label of each; by default `y_train`, `y` or the like."] = ""
    label_type: LabelType = "class"


class _Record(InputsRecord):
    inputs: Annotated[list[str], Field(min_length=1)]  # the arrays for training and for validation
    labels: Annotated[list[str], Field(min_length=1)]
    shape: Annotated[list[int], Field(min_length=1, max_length=3)]  # of an example
    class_names: list[str] | None = None
    label: LabelScale | None = None  # of labels that are numbers
    pixel_range: float = 1.0
    mean: list[float] | None = None  # of each column of rows, with its standard deviation
    deviation: list[float] | None = None


class Npz(FileKind[NpzOptions]):
    """Arrays. Pixels are scaled to 0…1, each column of rows to mean 0 and standard deviation 1."""

    name = "npz"
    title = "NumPy arrays of images or rows of numbers, and their labels"
    Options = NpzOptions
    model = "mlp"
    Record = _Record
    code_needs = ("inputs", "labels", "shape")
    new_data = "a .npz file with an array of shape (examples, {shape})"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize a file by its name; labels are numbers if some are fractions."""
        if place.suffix != ".npz" or not place.is_file():
            return None
        options = {"path": str(place), **{name: given[name] for name in ("inputs", "label") if name in given}}
        with suppress(DataError), _opened(NpzOptions.model_validate(options)) as (archive, _, names):
            if archive[names[0]].dtype.kind == "f" and (archive[names[0]] % 1).any():
                options["label_type"] = "number"
        return Recognized(options, sure=1)

    def survey_files(self, path: Path, options: NpzOptions) -> Survey:
        """Count the labels of each class; the inputs are not read."""
        with _opened(options) as (archive, _, names):
            train, *others = (_labels(archive, name, options) for name in names)
        is_number = options.label_type == "number"
        found = Survey(total=len(train)) if is_number else of_classes(Counter(map(str, train.tolist())), path)
        return replace(found, validation=len(others[0]) if others else None)

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Return the shape of the inputs, which are not read."""
        if found.problems:
            return super().signature(config, found)
        return signature_of(_input(self._shape(config)), len(found.classes)), ""

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Train images with as many convolutions as their size allows."""
        shape = self._shape(config)
        return Start({"model": "cnn", "model_options": cnn_options(*shape[:2])} if len(shape) > 1 else {})

    def _shape(self, config: RunConfig) -> tuple[int, ...]:
        with _opened(self.options(config)) as (archive, names, _):
            return _header(archive, names[0])[0][1:]

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the arrays, and hold out some examples unless there are arrays for validation."""
        import numpy as np

        options = self.options(config)
        place, is_number = shown(options.path), options.label_type == "number"
        if is_number:
            check_label(config, "number", config.model)
        on_fetch(f"reading {place}")
        with _opened(options) as (archive, x_names, y_names):
            x = np.concatenate([_inputs(archive, name) for name in x_names])
            y = [_labels(archive, name, options) for name in y_names]
        given, values = parts_of(len(y[0]), len(x), config), np.concatenate(y)
        if is_number:
            labels = split_numbers(values, config, given)
        else:
            classes, numbers = np.unique(values, return_inverse=True)
            if not 1 < len(classes) <= len(y[0]) // 2:
                what = f"The {len(y[0]):,} labels in {place} are not classes: {len(classes):,} of them differ."
                remedy = "Set data.options.label to the array of classes, or data.options.label_type=number."
                raise DataError(what, remedy=remedy)
            names = tuple(short_text(str(value)) for value in classes)
            labels = split_classes(numbers.astype(np.int32), names, config, given)
        record: dict[str, Any] = {"kind": config.dataset, "inputs": x_names, "labels": y_names, "shape": x.shape[1:]}
        train, top = x[labels.parts[0]], 0.0
        if x.ndim > 2:
            record["pixel_range"] = top = 255.0 if x.dtype == np.uint8 else float(np.abs(train).max()) or 1.0
        else:
            mean, deviation = train.mean(axis=0), train.std(axis=0)
            deviation[deviation == 0] = 1
            record |= {"mean": mean.tolist(), "deviation": deviation.tolist()}
            x = (x - mean) / deviation
        return labels.examples(x, _input(x.shape[1:]), record, pixel_range=top)

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        with _opened(self.options(config)) as (archive, *_):
            arrays = {short_text(name): _header(archive, name) for name in archive.files}
        return {"facts": {name: f"{'×'.join(map(str, shape))} {dtype}" for name, (shape, dtype) in arrays.items()}}

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict the inputs in another file; rows are counted from 0."""
        import numpy as np
        import pandas as pd

        record, path = _Record.model_validate(trained.record), request.only()
        with open_arrays(path) as archive:
            shapes = {name: list(_header(archive, name)[0][1:]) for name in archive.files}
            fitting = (name for name in (*record.inputs, *shapes) if shapes.get(name) == record.shape)
            if (name := next(fitting, None)) is None:
                raise DataError(f"{shown(path)} has no array of examples of shape {tuple(record.shape)}.")
            inputs = _inputs(archive, name)
        if record.mean:
            inputs = (inputs - np.array(record.mean, np.float32)) / np.array(record.deviation, np.float32)
        elif trained.config.data.pixels == "unit":
            inputs = inputs / record.pixel_range
        index = pd.DataFrame({"index": map(str, range(len(inputs)))})
        return predicted(trained, index, inputs.astype("float32"), "label", reporter, has_classes=record.label is None)

    def write_code(self, code: DataCode) -> None:
        saved = _Record.model_validate(code.record)
        shape, names = ", ".join(map(str, saved.shape)), saved.class_names or []
        code.needs("numpy as np")
        code.assign(ARRAYS=locate(self.options(code.config).path))
        code.add("arrays = np.load(ARRAYS)")
        if are_names := names != [*map(str, range(len(names)))]:
            code.assign(CLASSES=names)
        is_split = len(saved.inputs) > 1
        for part, x, y in zip(("_train", "_val") if is_split else ("",), saved.inputs, saved.labels, strict=True):
            code.add(f"x{part} = arrays[{code.literal(x)}].reshape(-1, {shape})")
            code.add(f"y{part} = arrays[{code.literal(y)}].flatten()")
            if are_names:
                code.add(f"y{part} = np.array([CLASSES.index(str(label)) for label in y{part}])")
        if is_split:
            code.add(f"rows = {code.shuffled('len(y_train)')}", "x_train, y_train = x_train[rows], y_train[rows]")
        else:
            code.split("y", "y" if saved.label is None else "", "x")
        if saved.mean:
            code.add(
                "mean, deviation = x_train.mean(axis=0), x_train.std(axis=0)",
                "deviation = deviation + (deviation == 0)  # of a column of equal numbers",
                "x_train, x_val = (x_train - mean) / deviation, (x_val - mean) / deviation",
            )
        code.datasets("x", "y_train" if saved.label is None else "", 0.0 if saved.mean else saved.pixel_range)


@contextmanager
def open_arrays(path: str, option: str = "") -> Iterator[Any]:
    """Open a file of arrays, which an option may name; raise `DataError` if what the body reads of it is damaged."""
    from numpy.lib.npyio import NpzFile

    check_there(path, option)
    try:
        with open_file(locate(path)) as file, NpzFile(file, allow_pickle=False) as archive:
            yield archive
    except (ValueError, KeyError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{shown(path)} cannot be read as a NumPy file.", why=one_line(error, 200)) from error


@contextmanager
def _opened(options: NpzOptions) -> Iterator[tuple[Any, list[str], list[str]]]:
    """Open a dataset's arrays, with the names of inputs and labels: for training, and for validation if there are any.

    Raises `DataError` if they are damaged, unclear, or do not fit each other.
    """
    with open_arrays(options.path, "path") as archive:
        by_name = {name.lower(): name for name in archive.files}
        shapes = {short_text(name): _header(archive, name)[0] for name in archive.files}
        train, validation = (
            next(([by_name[name] for name in pair.split()] for pair in known if {*pair.split()} <= {*by_name}), [])
            for known in (_TRAINING, _VALIDATION)
        )
        pairs = [pair for pair in (train, validation) if train and pair]
        flat = [name for name, shape in shapes.items() if len(shape) == 1]
        if options.inputs or options.label:
            pairs = [[options.inputs, options.label]]
        elif not pairs and len(shapes) == 2 and len(flat) == 1:
            pairs = [sorted(shapes, key=flat.__contains__)]  # the labels last
        has = f"{shown(options.path)} has {first_of([f'{name} {shape}' for name, shape in shapes.items()])}"
        if not pairs or not {*pairs[0]} <= {*shapes}:
            what = f"{has}: which are the inputs and the labels is unclear."
            raise DataError(what, remedy="Set data.options.inputs and data.options.label.")
        if any(shapes[x][:1] != shapes[y][:1] for x, y in pairs) or len({shapes[x][1:] for x, _ in pairs}) > 1:
            raise DataError(f"{has}: inputs need one label each, and the same shape for training and validation.")
        yield archive, [x for x, _ in pairs], [y for _, y in pairs]


def _input(shape: tuple[int, ...]) -> dict[str, Input]:
    return {"image" if len(shape) > 1 else "row": Input(shape)}


def _header(archive: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of an array without reading it; images of shape (height, width) get a channel."""
    from numpy.lib import format as layout

    with archive.zip.open(f"{name}.npy") as file:
        is_first = layout.read_magic(file) == (1, 0)
        shape, _, dtype = (layout.read_array_header_1_0 if is_first else layout.read_array_header_2_0)(file)
    return (*shape, 1) if len(shape) == 3 else shape, dtype


def _inputs(archive: Any, name: str) -> NDArray[Any]:
    """Read images of shape (height, width, channels) or rows; pixels that are bytes stay bytes."""
    import numpy as np

    shape, dtype = _header(archive, name)
    if len(shape) not in {2, 4} or dtype.kind not in "biuf":
        remedy = "Save images of shape (examples, height, width, channels), or rows of shape (examples, numbers)."
        raise DataError(f"The array '{short_text(name)}' has shape {shape} and type {dtype}.", remedy=remedy)
    values: NDArray[Any] = archive[name].reshape(shape)
    values = values.astype(np.uint8 if len(shape) == 4 and dtype == np.uint8 else np.float32)
    broken = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if len(broken):
        what = f"Example {broken[0]:,} of '{short_text(name)}', counted from 0, has a value that is not a number."
        raise DataError(what)
    return values


def _labels(archive: Any, name: str, options: NpzOptions) -> NDArray[Any]:
    """Read whole numbers or words, or any numbers if the labels are no classes; a column of them counts, too."""
    import numpy as np

    values: NDArray[Any] = archive[name]
    kind = values.dtype.kind if values.shape[:1] == (values.size,) else ""
    if options.label_type == "number" and kind in {*"biuf"} and np.isfinite(values).all():
        return values.reshape(-1).astype(np.float32)
    if kind not in {*"biuUf"} or (kind == "f" and (values % 1).any()):
        what = f"The labels '{short_text(name)}' have shape {values.shape} and type {values.dtype}."
        remedy = "Save one whole number or word for each example, as in y.argmax(axis=1) or y.astype(int)."
        raise DataError(what, remedy=remedy)
    return values.reshape(-1).astype(np.int64) if kind == "f" else values.reshape(-1)
