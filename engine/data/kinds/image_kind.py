"""What the kinds of images share."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pydantic import Field

from ...config.values import Count, Section
from .kind import DatasetKind, InputsRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..images.examples import Source
    from ..images.facts import Encoded
    from ..predictions import Request, Table, TrainedModel

OptionsT = TypeVar("OptionsT", bound=Section)

ImageSize = tuple[Count, Count]
Resize = Literal["stretch", "crop", "pad"]


class ImageOptions(Protocol):
    """The options of all images."""

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width that images are resized to."""

    @property
    def resize(self) -> Resize:
        """How the proportions change."""


class FilesOptions(ImageOptions, Protocol):
    """The options of image files."""

    @property
    def skip_bad(self) -> bool:
        """Whether files that cannot be used are skipped."""


class ImageRecord(InputsRecord):
    """What a run on images, or on arrays, may have noted."""

    id_column: str | None = None
    suffix: str | None = None
    images: str | None = None
    label_columns: list[str] | None = None
    classes: list[str] | None = None
    class_names: list[str] | None = None
    left_out: dict[str, list[str]] = Field(default_factory=dict)  # the names of bad files by their folder
    left_out_after_split: bool = False  # whether some of them were found when they were decoded


class ImageKind(DatasetKind[OptionsT]):
    """Images of any size, with a class each; the options are `ImageOptions`."""

    has_images = True
    Record = ImageRecord
    needs_record = False

    @abstractmethod
    def encoded(self, config: RunConfig, reporter: Reporter) -> Encoded | None:
        """Return some images as they are stored, to measure how fast they are read and decoded; None if it is slow."""

    def predict(self, trained: TrainedModel, request: Request, reporter: Reporter) -> Table:
        """Predict images in a table, a folder or single files."""
        from ..images.decode import Decoding
        from ..images.predicting import predict_images

        options: Any = self.options(trained.config)
        return predict_images(trained, request, reporter, Decoding(options.image_size, options.resize))


class ImageFilesKind(ImageKind[OptionsT]):
    """Image files; the options are `FilesOptions`."""

    @abstractmethod
    def read_source(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Source:
        """List the files and their labels; raise `DataError` if the table or the folders cannot be used."""

    def encoded(self, config: RunConfig, reporter: Reporter) -> Encoded | None:
        """Return some of the files; None if Pillow decodes all of them."""
        from ..images.facts import encoded_files

        return encoded_files(self.read_source(config, lambda _: None), reporter)

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        """Check every file."""
        from ..images.facts import describe_images

        return describe_images(self.read_source(config, note), reporter)
