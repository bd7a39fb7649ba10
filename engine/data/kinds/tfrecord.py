"""Image shards written by `tpu-console tfrecord`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ...config.values import Section
from ...storage.files import open_regular, read_bytes
from ...storage.paths import user_path
from ..places import is_remote, locate
from ..survey.skimming import Survey, trouble
from ..tfrecord_schema import LARGEST_SCHEMA, SCHEMA_NAME, read_schema
from .image_kind import ImageKind, ImageSize, Resize, image_start
from .kind import FilePath, Recognized, Start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...config.run_config import RunConfig
    from ..examples import Examples
    from ..images.check import ImageFacts


_FIRST_BYTES = 1 << 20
_LOOKED_AT = 20  # shards whose first image is looked at
_IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


class TfrecordOptions(Section):
    """Options of `tfrecord`: shards of encoded images and labels, with their `schema.json`."""

    path: Annotated[FilePath, "The folder that `tpu-console tfrecord` wrote."]
    image_size: ImageSize = (128, 128)
    resize: Resize = "stretch"


class Tfrecord(ImageKind[TfrecordOptions]):
    """Shards of images.

    The split uses the classes in ``schema.json``, so both parts have exact counts before a shard is read.
    """

    name = "tfrecord"
    title = "shards of images and labels, written by `tpu-console tfrecord`"
    Options = TfrecordOptions

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize a folder with a schema."""
        return Recognized({"path": str(place)}, sure=1) if (place / SCHEMA_NAME).is_file() else None

    def survey(self, path: Path, options: TfrecordOptions) -> Survey:
        """Return what the schema says."""
        place = path / SCHEMA_NAME
        if not place.is_file():
            what = f"{user_path(path)} has no {SCHEMA_NAME}, the last file that `tpu-console tfrecord` writes"
            return trouble("path", what)
        text = read_bytes(place, LARGEST_SCHEMA, follows_links=True).decode("utf-8", "replace")
        schema = read_schema(text, user_path(place))
        return Survey(total=len(schema.labels), classes=dict(zip(schema.classes, schema.class_counts, strict=True)))

    def watched(self, path: Path) -> list[Path]:
        """Return the schema, which is written last."""
        return [path / SCHEMA_NAME]

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Fit the model to the size of the first image of some shards."""
        if is_remote(config.data.options["path"]):
            return image_start(config, [])
        shards = sorted(Path(locate(config.data.options["path"])).glob("*.tfrecord"))[:_LOOKED_AT]
        return image_start(config, [image for shard in shards if (image := _first_image(shard)) is not None])

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Check the shards, and read those of each part."""
        import numpy as np

        from ..images.examples import image_examples
        from ..images.tables import refuse_sparse
        from ..split import stratified_split
        from ..tfrecord_reading import check_shards, open_schema, records

        folder = locate(self.options(config).path)
        schema = open_schema(folder)
        if schema.label == "shares":
            refuse_sparse(config.loss, folder)
        check_shards(folder, schema, on_fetch)
        labels = np.array(schema.labels, np.int64)
        fraction, limit = config.data.validation_fraction, config.data.train_limit
        split = stratified_split(labels, schema.classes, fraction, config.seed, limit)
        decoding = self.decoding(config)
        held_out = records(folder, schema, decoding, split.validation) if len(split.validation) else None
        return image_examples(
            (records(folder, schema, decoding, split.train), held_out),
            (len(split.train), len(split.validation)),
            decoding,
            schema.classes,
            {"format": "tfrecord", "class_counts": split.class_counts},
            has_shares=schema.label == "shares",
            notices=split.notices,
        )


def _first_image(shard: Path) -> ImageFacts | None:
    """Read the header of a shard's first image, without TensorFlow."""
    from ..images.check import check_image

    with open_regular(shard, follows_links=True) as file:
        content = file.read(_FIRST_BYTES)
    starts = [start for mark in _IMAGE_STARTS if (start := content.find(mark)) >= 0]
    facts = check_image(str(shard), io.BytesIO(content[min(starts) :])) if starts else None
    return facts if facts is not None and facts.width else None  # its end may be missing
