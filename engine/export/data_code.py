"""Writes how a run read its examples: plain NumPy, pandas and `tf.data`, split and ordered as in the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.catalog import DATASETS, is_user_reference
from ..config.data_options import ImageCsvOptions, ImageFolderOptions, TextCsvOptions
from ..data.images.check import check_image
from ..data.images.decode import Decoding
from ..data.places import is_image_name, is_remote, locate
from ..data.sources.image_csv import image_folder
from ..data.vocabulary import PLAIN
from ..errors import DataError
from .code import assigned, call, literal, literals, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config.run_config import RunConfig
    from ..data.images.check import ImageFacts
    from .imports import Imports

_SMOOTHED_ABOVE = 2  # images that are more than this many times too large are smoothed while they are resized


@dataclass(slots=True)
class DataCode:
    """Code that makes `train` and `validation`, datasets of single examples."""

    lines: list[str]
    labels: str = ""  # the variable with the class numbers of the training examples; empty if there is none
    top: float = 0.0  # the largest stored pixel; 0 if the examples are not images
    are_shares: bool = False  # whether a label is a probability for each class
    marks: list[str] = field(default_factory=list)  # what differs from the run, in sentences


def data_code(config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
    """Return the code that reads a run's examples; raise `DataError` if it cannot be exported as code.

    The record is the run's ``inputs.json``. The imports that the code needs are added to `imports`.
    """
    if is_user_reference(config.dataset):
        return _own(config, record, imports)
    if config.dataset in DATASETS:
        return _arrays(config, imports)
    written: dict[str, tuple[Callable[..., DataCode], tuple[str, ...]]] = {
        "image-folder": (_image_folder, ("classes",)),
        "image-csv": (_image_table, ("classes", "label_columns", "id_column")),
        "text-csv": (_texts, ("class_names", "words")),
    }
    if config.dataset not in written:
        raise not_exportable(f"dataset={config.dataset}")
    write_data, needed = written[config.dataset]
    if missing := [name for name in needed if not record.get(name)]:
        raise DataError(f"The run's inputs.json does not contain its {' and '.join(missing)}.")
    imports.add("numpy as np")
    imports.add("train_test_split", "sklearn.model_selection")
    code = write_data(config, held_out, record, imports)
    counts = record.get("class_counts", {})
    if any(sum(pair) == 1 for pair in zip(*counts.values(), strict=False)):
        code.marks.append("A class has only one example: the run used it for training, but the split here will fail.")
    return code


def not_exportable(what: str) -> DataError:
    """Return the error that a run cannot be exported as code because of something."""
    return DataError(
        f"{what} cannot be exported as code.",
        remedy="Export the trained model instead, with --savedmodel, --tflite or --onnx.",
    )


def _own(config: RunConfig, record: dict[str, Any], imports: Imports) -> DataCode:
    forms = record.get("returned", ["examples", "examples"])
    if "" in forms:
        raise DataError(
            f"{config.dataset} returned a generator, a PyDataset or a table, which cannot be exported as code.",
            remedy="Return arrays, such as table.to_numpy(), or a tf.data.Dataset, and train again.",
        )
    parts = dict(zip(("train", "validation"), forms, strict=False))
    names = ", ".join(name if form else "_" for name, form in parts.items())
    lines = [write(call(imports.own(config.dataset), **literals(config.data.options)), 0, f"{names} = ")]
    for name, form in parts.items():
        if form == "arrays":
            lines.append(f"{name} = tf.data.Dataset.from_tensor_slices({name})")
        elif form == "batches":
            lines.append(f"{name} = {name}.unbatch()")
    if "kept" in forms:
        return DataCode(["# Batches as the function made them.", *lines])
    return DataCode(["# Datasets of single examples: (inputs, label).", *lines])


def _arrays(config: RunConfig, imports: Imports) -> DataCode:
    info = DATASETS[config.dataset]
    shape = ", ".join(map(str, info.input_shape))
    if config.dataset == "digits":
        imports.add("load_digits", "sklearn.datasets")
        imports.add("train_test_split", "sklearn.model_selection")
        split = {"test_size": config.data.validation_fraction}
        lines = [
            "images, labels = load_digits(return_X_y=True)",
            f"images = images.reshape(-1, {shape})",
            write(
                call("train_test_split", "images", "labels", **literals(split), random_state="SEED", stratify="labels"),
                0,
                "x_train, x_val, y_train, y_val = ",
            ),
        ]
    else:
        module = config.dataset.replace("-", "_")
        lines = [f"(x_train, y_train), (x_val, y_val) = keras.datasets.{module}.load_data()"]
        if info.input_shape[2] == 1:
            lines += [f"x_train = x_train.reshape(-1, {shape})", f"x_val = x_val.reshape(-1, {shape})"]
        else:
            lines += ["y_train, y_val = y_train.flatten(), y_val.flatten()"]
    if limit := config.data.train_limit:
        lines.append(f"x_train, y_train = x_train[:{limit}], y_train[:{limit}]")
    return DataCode([*lines, *_datasets("x", "y")], "y_train", 16.0 if config.dataset == "digits" else 255.0)


def _datasets(inputs: str, labels: str) -> list[str]:
    name = "tf.data.Dataset.from_tensor_slices"
    return [f"train = {name}(({inputs}_train, {labels}_train))", f"validation = {name}(({inputs}_val, {labels}_val))"]


def _split(held_out: int, limit: int, numbers: str) -> list[str]:
    given = {"test_size": str(held_out), "random_state": "SEED", "stratify": numbers}
    shuffled = "np.random.default_rng(SEED).permutation(np.sort(rows_train))"
    return [
        f"rows = np.arange(len({numbers}))",
        write(call("train_test_split", "rows", **given), 0, "rows_train, rows_val = "),
        f"rows_train = {shuffled}{f'[:{limit}]' if limit else ''}",
    ]


def _image_folder(config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
    options = ImageFolderOptions.model_validate(config.data.options)
    imports.add("os")
    imports.add("Path", "pathlib")
    folder = locate(options.path)
    lines = [
        assigned("CLASSES", record["classes"]),
        'ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".png"}',
        "",
        "",
        "def list_images(folder, left_out=()):",
        '    """Return the files below a folder per class, and their class numbers."""',
        "    files, labels = [], []",
        "    for label, name in enumerate(CLASSES):",
        "        for place, folders, found in os.walk(Path(folder, name)):",
        '            folders[:] = sorted(one for one in folders if not one.startswith("."))',
        '            for file in (Path(place, one) for one in sorted(found) if one[0] != "."):',
        "                is_image = file.suffix.lower() in ENDINGS",
        "                if is_image and file.relative_to(folder).as_posix() not in left_out:",
        "                    files.append(str(file))",
        "                    labels.append(label)",
        "    return np.array(files), np.array(labels)",
        "",
        "",
        _listing("files, labels", folder, record),
    ]
    if options.validation_path:
        limit = f"[:{config.data.train_limit}]" if config.data.train_limit else ""
        lines += [
            f"rows = np.random.default_rng(SEED).permutation(len(files)){limit}",
            "files_train, y_train = files[rows], labels[rows]",
            _listing("files_val, y_val", locate(options.validation_path), record),
        ]
    else:
        lines += [*_split(held_out, config.data.train_limit, "labels"), *_chosen("files", "labels")]
    code = _images(lines, options, _first_below(folder), record)
    code.labels = "y_train"
    return code


def _listing(target: str, folder: str, record: dict[str, Any]) -> str:
    left_out = _left_out(record, folder)
    arguments = [literal(folder), *([literal(left_out)] if left_out else [])]
    return write(call("list_images", *arguments), 0, f"{target} = ")


def _left_out(record: dict[str, Any], folder: str) -> list[str]:
    """Return the names of the files in a folder that the run left out because they are bad."""
    return list((record.get("left_out") or {}).get(folder, ()))


def _chosen(inputs: str, labels: str) -> list[str]:
    return [f"{inputs}_{part}, y_{part} = {inputs}[rows_{part}], {labels}[rows_{part}]" for part in ("train", "val")]


def _image_table(config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
    options = ImageCsvOptions.model_validate(config.data.options)
    imports.add("pandas as pd")
    folder, suffix = image_folder(options), record.get("suffix")
    columns, column = record["label_columns"], record["id_column"]
    files = 'IMAGES + "/" + name' + (f" + {literal(suffix)}" if suffix else "")
    lines = [
        assigned("TABLE", locate(options.path)),
        assigned("IMAGES", folder.rstrip("/")),
        "",
        f"table = pd.read_csv({_opened(options.path)}, dtype={{{literal(column)}: str}})",
        *_rows_left_out(record, folder, column),
        f"files = np.array([{files} for name in table[{literal(column)}]])",
        assigned("CLASSES", record["classes"]),
    ]
    are_shares = len(columns) > 1 and not config.loss_name.startswith("sparse_")
    if len(columns) == 1:
        lines.append(f"labels = table[{literal(columns[0])}].astype(str).map(CLASSES.index).to_numpy()")
    else:
        lines.append('labels = table[CLASSES].to_numpy("float32")')
        lines.append(f"{'numbers' if are_shares else 'labels'} = labels.argmax(axis=1)")
    lines += _split(held_out, config.data.train_limit, "numbers" if are_shares else "labels")
    lines += _chosen("files", "labels")
    code = _images(lines, options, _first_below(folder), record)
    code.labels, code.are_shares = "y_train.argmax(axis=1)" if are_shares else "y_train", are_shares
    return code


def _opened(path: str) -> str:
    """Return what pandas reads: of a remote table, only what TensorFlow opens, as in the run."""
    return "tf.io.gfile.GFile(TABLE)" if is_remote(path) else "TABLE"


def _rows_left_out(record: dict[str, Any], folder: str, column: str) -> list[str]:
    if not (names := _left_out(record, folder)):
        return []
    return [assigned("LEFT_OUT", names), f"table = table[~table[{literal(column)}].isin(LEFT_OUT)]"]


def _images(
    lines: list[str],
    options: ImageFolderOptions | ImageCsvOptions,
    first: ImageFacts | None,
    record: dict[str, Any],
) -> DataCode:
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
        *_datasets("files", "y"),
        "train = train.map(read_image, num_parallel_calls=tf.data.AUTOTUNE).cache()",
        "validation = validation.map(read_image, num_parallel_calls=tf.data.AUTOTUNE).cache()",
    ]
    marks = ["The run chose for each photo at which size to decode it; here the first one decides for all."]
    marks = marks if ratio > 1 or shrunk else []
    if record.get("left_out_after_split"):
        marks.append("The run found damaged images after it had split the data; here the split is another one.")
    return DataCode(lines, top=255.0, marks=marks)


def _first_below(folder: str) -> ImageFacts | None:
    """Return what is known about an image in a folder; None if there is none that can be read."""
    if is_remote(folder):
        return None
    facts = (check_image(str(path)) for path in Path(folder).rglob("*") if is_image_name(path.name))
    return next((fact for fact in facts if not fact.problem), None)


def _texts(config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
    options = TextCsvOptions.model_validate(config.data.options)
    for name in ("re", "unicodedata", "pandas as pd"):
        imports.add(name)
    imports.add("Counter", "collections")
    most = options.vocabulary - len(PLAIN)
    lines = [
        assigned("CLASSES", record["class_names"]),
        assigned("TABLE", locate(options.path)),
        f"LENGTH = {options.length}  # words per text",
        "",
        "",
        "def words_of(text):",
        '    """Return the words of a text, without HTML tags and punctuation."""',
        '    text = re.sub(r"</?[a-zA-Z][^<>]*>", " ", text).lower()',
        """    text = re.sub("['’ʼ`´]", "", text)""",
        '    plain = (" " if unicodedata.category(c)[0] in "PS" else c for c in text)',
        '    return "".join(plain).split()',
        "",
        "",
        "def encode(texts):",
        '    """Return the numbers of the words: 0 is padding, 1 an unknown word."""',
        '    numbers = np.zeros((len(texts), LENGTH), "int32")',
        "    for row, text in zip(numbers, texts):",
        "        known = [vocabulary.get(word, 1) for word in text[:LENGTH]]",
        "        row[: len(known)] = known",
        "    return numbers",
        "",
        "",
        f"table = pd.read_csv({_opened(options.path)}, dtype=str)",
        f"labels = table[{literal(options.label_column)}].str.strip().map(CLASSES.index).to_numpy()",
        f"texts = [words_of(text) for text in table[{literal(options.text_column)}]]",
        *_split(held_out, config.data.train_limit, "labels"),
        "y_train, y_val = labels[rows_train], labels[rows_val]",
        "",
        "counts = Counter(word for row in rows_train for word in texts[row])",
        f"vocabulary = {{word: n for n, (word, _) in enumerate(counts.most_common({most}), 2)}}",
        "x_train = encode([texts[row] for row in rows_train])",
        "x_val = encode([texts[row] for row in rows_val])",
        *_datasets("x", "y"),
    ]
    return DataCode(lines, "y_train")
