"""Image shards written by `tpu-console tfrecord`, read in parallel and always in the same order.

A shard is a TFRecord file of `tf.train.Example`: ``image``, the bytes of a JPEG or PNG; ``orientation``, as in EXIF;
``label``, a class number (int64) or a probability for each class (floats); ``name``, the file of the image. The
``schema.json`` is written last, so a folder without one is unfinished. It has the class of every record, so that
records can be counted and split without reading them.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ...config.values import Section
from ...errors import DataError, one_line
from ...storage.files import open_regular
from ..images.files import refuse_sparse
from ..labels import counts_by_class, stratified_split
from ..places import is_remote, join, locate, open_file, read_whole
from .kind import FileKind, ImageKind, ImageSize, Name, Recognized, Resize, Start, image_start
from .skimming import Survey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ..examples import Examples
    from ..images.check import ImageFacts
    from ..images.examples import Decoding

_FIRST_BYTES = 1 << 20
_LOOKED_AT = 20  # shards whose first image is looked at
_IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
VERSION = 1
SCHEMA_NAME, MANIFEST_NAME = "schema.json", "manifest.json"

_CHUNK_BYTES = 1 << 20
_SIDE_BY_SIDE = 16  # most shards that are read in parallel
_READ_BYTES = 4 << 20
# Above this total, only the sizes of shards are checked; a damaged shard then ends the training with its name.
_LARGEST_CHECKED = 4_000_000_000


class Shard(BaseModel):
    """One shard file."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    file: str  # its name in the folder
    bytes: int
    crc32: int  # checksum of the whole file, as `zlib.crc32` computes it
    labels: tuple[int, ...]  # the class number of each record; with probabilities, that of the most probable class


class Schema(BaseModel):
    """The contents of a folder of shards."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    version: int = Field(le=VERSION)
    source: str  # a description of where the images come from
    classes: tuple[str, ...]  # names of the classes in the order of their numbers
    label: Literal["class", "shares"]  # whether a label is a class number or a probability for each class
    seed: int  # seed of the order of the images
    shards: tuple[Shard, ...]

    @property
    def labels(self) -> list[int]:
        """The class number of every record, in the order of the shards."""
        return [label for shard in self.shards for label in shard.labels]

    @property
    def class_counts(self) -> tuple[int, ...]:
        """The number of records of each class."""
        counts = Counter(self.labels)
        return tuple(counts[number] for number in range(len(self.classes)))

    @model_validator(mode="after")
    def _labels_are_classes(self) -> Self:
        for shard in self.shards:
            if not {*shard.labels} <= {*range(len(self.classes))}:
                raise ValueError(f"{shard.file} has a label that is none of its classes")
        return self


def shard_name(index: int, shards: int) -> str:
    """Return the name of a shard, such as ``train-00003-of-00012.tfrecord``."""
    return f"train-{index:05d}-of-{shards:05d}.tfrecord"


def checksum(stream: BinaryIO) -> tuple[int, int]:
    """Return the size and the `zlib.crc32` of the rest of an open file."""
    size = crc = 0
    while chunk := stream.read(_CHUNK_BYTES):
        size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return size, crc


def write_schema(schema: Schema) -> str:
    """Write a schema as JSON, with its counts: indented, but each shard on one line."""
    values = {**schema.model_dump(mode="json"), "total": len(schema.labels), "class_counts": schema.class_counts}
    shards = ",\n".join(f"    {json.dumps(shard)}" for shard in values.pop("shards"))
    return f'{json.dumps(values, indent=2).removesuffix("}").rstrip()},\n  "shards": [\n{shards}\n  ]\n}}\n'


def read_schema(text: str, place: str) -> Schema:
    """Read a schema; raise `DataError` if it is damaged or of a newer version."""
    try:
        return Schema.model_validate_json(text)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, detail['loc']))}: {detail['msg'].lower()}".removeprefix(": ")
        if detail["loc"] == ("version",) and isinstance(detail["input"], int):
            why = f"It has version {detail['input']}; this tpu-console reads versions up to {VERSION}."
        remedy = "Write the shards again with `tpu-console tfrecord`."
        raise DataError(f"{place} is damaged, or of a newer version.", why=why, remedy=remedy) from error


def open_schema(folder: str) -> Schema:
    """Read the schema of a folder of shards; raise `DataError` if it is missing or cannot be used."""
    place = join(folder, SCHEMA_NAME)
    try:
        return read_schema(read_whole(place).decode("utf-8", "replace"), place)
    except (FileNotFoundError, NotADirectoryError) as error:
        remedy = "Set data.options.path to a folder written by `tpu-console tfrecord`."
        with suppress(OSError):
            read_whole(join(folder, MANIFEST_NAME))
            remedy = "Run the same `tpu-console tfrecord` command again; it continues where it stopped."
        raise DataError(f"There is no {SCHEMA_NAME} in {folder}.", remedy=remedy) from error
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror}.") from error


def check_shards(folder: str, schema: Schema, on_fetch: Callable[[str], None]) -> None:
    """Compare the sizes of the shards with the schema, and their checksums if that takes only seconds."""
    import tensorflow as tf

    total = sum(shard.bytes for shard in schema.shards)
    if is_read := not is_remote(folder) and total <= _LARGEST_CHECKED:
        on_fetch(f"checking {len(schema.shards):,} shards, {total / 1e6:,.0f} MB")
    for shard in schema.shards:
        place, why = join(folder, shard.file), ""
        try:
            size = tf.io.gfile.stat(place).length
            if size != shard.bytes:
                why = f"It has {size:,} bytes instead of {shard.bytes:,}."
            elif is_read:
                with open_file(place) as stream:
                    is_same = checksum(stream)[1] == shard.crc32
                why = "" if is_same else f"Its checksum differs from the one in {SCHEMA_NAME}."
        except tf.errors.OpError as error:
            why = one_line(error)
        if why:
            remedy = f"Copy it again, or write it again with `tpu-console tfrecord SOURCE {folder}`."
            raise DataError(f"The shard {place} is missing or was changed.", why=why, remedy=remedy)


def records(folder: str, schema: Schema, decoding: Decoding, wanted: NDArray[np.intp]) -> Any:
    """Return a dataset of images, uint8 of shape ``(height, width, 3)``, and labels: the records of these indices."""
    import numpy as np
    import tensorflow as tf

    from ..images.examples import as_written, decode_bytes, without_gaps

    counts = np.array([len(shard.labels) for shard in schema.shards], np.int64)
    starts = np.cumsum(counts) - counts
    used = np.unique(np.searchsorted(starts + counts, wanted, side="right"))  # the shards
    paths = [join(folder, schema.shards[number].file) for number in used]
    is_wanted = np.zeros(counts.sum(), np.bool_)
    is_wanted[wanted] = True
    mask = tf.constant(is_wanted)
    is_class = schema.label == "class"
    shape, dtype = ([], tf.int64) if is_class else ([len(schema.classes)], tf.float32)
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "orientation": tf.io.FixedLenFeature([], tf.int64, 1),
        "label": tf.io.FixedLenFeature(shape, dtype),
    }

    def numbered(path: Any, start: Any, count: Any) -> Any:
        """Return a shard's records with their indices; a damaged shard raises an error that names it."""
        own = tf.data.TFRecordDataset(path, buffer_size=_READ_BYTES).ignore_errors(log_warning=True).enumerate(start)
        message = tf.strings.join(["The shard ", path, " is damaged: its records end too early."])
        return without_gaps(own, start, count, tf.constant(b""), lambda _: message)

    @as_written
    def parse(_index: Any, serialized: Any) -> tuple[Any, Any]:
        values = tf.io.parse_single_example(serialized, features)
        image = decode_bytes(values["image"], decoding, values["orientation"])
        return image, tf.cast(values["label"], tf.int32) if is_class else values["label"]

    in_order = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}
    read = tf.data.Dataset.from_tensor_slices((paths, starts[used], counts[used])).interleave(
        numbered, cycle_length=min(len(used), _SIDE_BY_SIDE), **in_order
    )
    parsed = read.filter(lambda index, _: tf.gather(mask, index)).map(parse, **in_order)
    return parsed.apply(tf.data.experimental.assert_cardinality(len(wanted)))


class TfrecordOptions(Section):
    """Options of `tfrecord`: shards of encoded images and labels, with their `schema.json`."""

    path: Annotated[Name, "The folder that `tpu-console tfrecord` wrote."]
    image_size: ImageSize = (128, 128)
    resize: Resize = "stretch"


class Tfrecord(ImageKind[TfrecordOptions], FileKind[TfrecordOptions]):
    """Shards of images, split by the classes in ``schema.json`` before any is read."""

    name = "tfrecord"
    title = "shards of images and labels, written by `tpu-console tfrecord`"
    Options = TfrecordOptions

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        return Recognized({"path": str(place)}, sure=1) if (place / SCHEMA_NAME).is_file() else None

    def survey_files(self, path: Path, options: TfrecordOptions) -> Survey:
        schema = open_schema(str(path))
        return Survey(total=len(schema.labels), classes=dict(zip(schema.classes, schema.class_counts, strict=True)))

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Fit the model to the size of the first image of some shards."""
        from ..images.check import check_image

        folder = locate(config.data.options["path"])
        seen: list[ImageFacts] = []
        for shard in [] if is_remote(folder) else sorted(Path(folder).glob("*.tfrecord"))[:_LOOKED_AT]:
            with open_regular(shard, follows_links=True) as file:
                content = file.read(_FIRST_BYTES)
            starts = [start for mark in _IMAGE_STARTS if (start := content.find(mark)) >= 0]
            facts = check_image(str(shard), io.BytesIO(content[min(starts) :])) if starts else None
            seen += [facts] if facts is not None and facts.width else []  # its end may be missing
        return image_start(config, seen)

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        import numpy as np

        from ..images.examples import image_examples

        folder = locate(self.options(config).path)
        schema = open_schema(folder)
        if schema.label == "shares":
            refuse_sparse(config.loss, folder)
        check_shards(folder, schema, on_fetch)
        labels, decoding = np.array(schema.labels, np.int64), self.decoding(config)
        (train, validation), notices = stratified_split(labels, schema.classes, config)
        held_out = records(folder, schema, decoding, validation) if len(validation) else None
        counts = counts_by_class(labels[train], labels[validation], len(schema.classes))
        return image_examples(
            (records(folder, schema, decoding, train), held_out),
            (len(train), len(validation)),
            decoding,
            schema.classes,
            {"format": self.name, "class_counts": counts},
            has_shares=schema.label == "shares",
            notices=tuple(notices),
        )
