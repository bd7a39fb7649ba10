"""The options of each dataset that is read from a person's own files: the tables `data.options`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .values import Count, NaturalNumber, Section, Switch

Path = Annotated[str, Field(min_length=1)]
"""A file or folder: absolute, ``~/…``, ``gs://…``, or relative, and then looked for as `engine.data.places` says."""

ImageSize = tuple[Count, Count]
Column = Annotated[str, Field(min_length=1)]
VocabularySize = Annotated[int, Field(strict=True, ge=10)]
WordCount = Annotated[int, Field(strict=True, ge=2)]


class ImageCsvOptions(Section):
    """Options of `image-csv`: a table of file names and labels, and a folder of images.

    Args:
        path: The CSV file.
        images: Folder of the images; a relative one is taken from the CSV's own folder.
        id_column: Column with the file names, with or without their ending; by default the first one.
        label_columns: The column of labels, or one column per class with probabilities; by default all others.
        classes: The classes of one column of labels, in the order of their numbers; by default those that occur.
        image_size: Height and width that every image is brought to.
        resize: How: ``stretch`` changes the proportions, ``crop`` cuts the edges off, ``pad`` adds black ones.
        skip_bad: Leave out files that are missing or cannot be read, instead of refusing to start.
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
    """Options of `image-folder`: one folder of images a class.

    Args:
        path: The folder that holds a folder for each class.
        validation_path: Likewise, for validation; by default a share of `path` is held out.
        image_size: Height and width that every image is brought to.
        resize: How: ``stretch`` changes the proportions, ``crop`` cuts the edges off, ``pad`` adds black ones.
        skip_bad: Leave out files that cannot be read, instead of refusing to start.
    """

    path: Path
    validation_path: str = ""
    image_size: ImageSize = (128, 128)
    resize: Literal["stretch", "crop", "pad"] = "stretch"
    skip_bad: Switch = False


class TfrecordOptions(Section):
    """Options of `tfrecord`: shards of encoded images and labels, with their `schema.json`.

    Args:
        path: The folder of the shards, as `tpu-console tfrecord` writes it.
        image_size: Height and width that every image is brought to.
        resize: How: ``stretch`` changes the proportions, ``crop`` cuts the edges off, ``pad`` adds black ones.
    """

    path: Path
    image_size: ImageSize = (128, 128)
    resize: Literal["stretch", "crop", "pad"] = "stretch"


class TextPairsOptions(Section):
    """Options of `text-pairs`: a source and a target sentence a line, with a tab between; ``.gz`` is read too.

    Args:
        path: The file.
        vocabulary: Most words kept of each language; the rest become one unknown word.
        length: Words of a sentence; longer ones are cut, shorter ones filled up.
        limit: Read only the first so many lines; 0 means all.
    """

    path: Path
    vocabulary: VocabularySize = 15_000
    length: WordCount = 20
    limit: NaturalNumber = 0


class TextCsvOptions(Section):
    """Options of `text-csv`: a table of texts and labels; ``.gz`` is read too.

    Args:
        path: The CSV file.
        text_column: Column of the texts; HTML tags in them are dropped.
        label_column: Column of the labels.
        vocabulary: Most words kept; the rest become one unknown word.
        length: Words of a text; longer ones are cut, shorter ones filled up.
    """

    path: Path
    text_column: Column = "text"
    label_column: Column = "label"
    vocabulary: VocabularySize = 20_000
    length: WordCount = 200


class RatingsCsvOptions(Section):
    """Options of `ratings-csv`: who rated what how well, and when; ``.gz`` is read too.

    Args:
        path: The file, with ``,``, ``;``, tabs or ``::`` between columns; without a head it has these in this order:
            user, item, rating, time.
        user_column: Column of the users.
        item_column: Column of the items.
        rating_column: Column of the ratings.
        time_column: Column of the times, which only ``split = "time"`` reads.
        split: ``time`` holds out each user's last ratings, ``random`` any.
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
