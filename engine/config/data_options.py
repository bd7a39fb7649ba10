"""The options of each dataset format: the tables `data.options`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .values import Count, NaturalNumber, Section, Switch

Path = Annotated[str, Field(min_length=1)]
"""A file or folder: absolute, ``~/…``, ``gs://…``, or relative, which `engine.data.places` resolves."""

ImageSize = tuple[Count, Count]
Column = Annotated[str, Field(min_length=1)]
VocabularySize = Annotated[int, Field(strict=True, ge=10)]
WordCount = Annotated[int, Field(strict=True, ge=2)]


class ImageCsvOptions(Section):
    """Options of `image-csv`: a CSV of file names and labels, and a folder of images.

    Args:
        path: The CSV file.
        images: Folder of the images; a relative path starts at the folder of the CSV.
        id_column: Column of file names, with or without extension; by default the first.
        label_columns: The column of labels, or a column of probabilities per class; by default all others.
        classes: Classes of a single label column, in order; by default those in the file.
        image_size: Height and width that images are resized to.
        resize: ``stretch`` changes the proportions, ``crop`` cuts off edges, ``pad`` adds black ones.
        skip_bad: Skip missing and unreadable files instead of refusing to start.
    """

    path: Path
    images: Path = "images"
    id_column: str = ""
    label_columns: tuple[Column, ...] = ()
    classes: tuple[Column, ...] = ()
    image_size: ImageSize = (128, 128)
    resize: Literal["stretch", "crop", "pad"] = "stretch"
    skip_bad: Switch = False


class ImageFolderOptions(Section):
    """Options of `image-folder`: one folder of images per class.

    Args:
        path: The folder with one folder per class.
        validation_path: The same for validation; by default a share of `path` is held out.
        image_size: Height and width that images are resized to.
        resize: ``stretch`` changes the proportions, ``crop`` cuts off edges, ``pad`` adds black ones.
        skip_bad: Skip missing and unreadable files instead of refusing to start.
    """

    path: Path
    validation_path: str = ""
    image_size: ImageSize = (128, 128)
    resize: Literal["stretch", "crop", "pad"] = "stretch"
    skip_bad: Switch = False


class TfrecordOptions(Section):
    """Options of `tfrecord`: shards of encoded images and labels, with their `schema.json`.

    Args:
        path: The folder that `tpu-console tfrecord` wrote.
        image_size: Height and width that images are resized to.
        resize: ``stretch`` changes the proportions, ``crop`` cuts off edges, ``pad`` adds black ones.
    """

    path: Path
    image_size: ImageSize = (128, 128)
    resize: Literal["stretch", "crop", "pad"] = "stretch"


class TextPairsOptions(Section):
    """Options of `text-pairs`: a source and a target sentence per line, separated by a tab; may be ``.gz``.

    Args:
        path: The file.
        target_path: A file with the target sentence of each line, if `path` has the source sentences only.
        vocabulary: Words kept per language; all others become one unknown word.
        length: Words per sentence; longer ones are cut, shorter ones padded.
        limit: Read only the first so many lines; 0 means all.
    """

    path: Path
    target_path: str = ""
    vocabulary: VocabularySize = 15_000
    length: WordCount = 20
    limit: NaturalNumber = 0


class TextCsvOptions(Section):
    """Options of `text-csv`: a CSV of texts and labels; may be ``.gz``.

    Args:
        path: The CSV file.
        text_column: Column of texts; HTML tags are removed.
        label_column: Column of labels.
        vocabulary: Words kept; all others become one unknown word.
        length: Words per text; longer ones are cut, shorter ones padded.
    """

    path: Path
    text_column: Column = "text"
    label_column: Column = "label"
    vocabulary: VocabularySize = 20_000
    length: WordCount = 200


class RatingsCsvOptions(Section):
    """Options of `ratings-csv`: users, items, ratings and times; may be ``.gz``.

    Args:
        path: The file; without a header, its columns must be user, item, rating, time.
        user_column: Column of users.
        item_column: Column of items.
        rating_column: Column of ratings.
        time_column: Column of times; only needed with ``split = "time"``.
        split: ``time`` holds out the last ratings of each user, ``random`` holds out any.
    """

    path: Path
    user_column: Column = "userId"
    item_column: Column = "movieId"
    rating_column: Column = "rating"
    time_column: Column = "timestamp"
    split: Literal["time", "random"] = "random"


DATA_OPTIONS: dict[str, type[Section]] = {
    "image-csv": ImageCsvOptions,
    "image-folder": ImageFolderOptions,
    "tfrecord": TfrecordOptions,
    "text-pairs": TextPairsOptions,
    "text-csv": TextCsvOptions,
    "ratings-csv": RatingsCsvOptions,
}
