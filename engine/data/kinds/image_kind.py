"""What the kinds of images share."""

from __future__ import annotations

from abc import abstractmethod
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ...config.values import Count, Switch
from ...errors import DataError
from ..examples import Examples, Input, Signature, Task
from ..places import is_remote
from ..survey.skimming import Survey, samples_of
from .kind import DatasetKind, InputsRecord, OptionsT, Start, class_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..images.check import ImageFacts
    from ..images.decode import Decoding
    from ..images.files import Source
    from ..predictions import NewData, Table, TrainedModel

_LOOK_S = 5.0  # longest time to check the files of a part before a run
_LARGEST_SIDE, _SMALLEST_SIDE = 128, 8
_FILTERS = (32, 64, 64, 128)

ImageSize = Annotated[tuple[Count, Count], "Height and width that images are resized to."]
Resize = Annotated[
    Literal["stretch", "crop", "pad"],
    "`stretch` changes the proportions, `crop` cuts off edges, `pad` adds black ones.",
]
SkipBad = Annotated[Switch, "Skip missing and unreadable files instead of refusing to start."]


class ImageRecord(InputsRecord):
    """What a run on images, or on arrays, may have noted."""

    id_column: str | None = None
    suffix: str | None = None
    images: str | None = None
    label_columns: list[str] | None = None
    classes: list[str] | None = None
    class_names: list[str] | None = None
    left_out: dict[str, list[str]] = Field(default_factory=dict)  # the names of bad files by their folder


class ImageKind(DatasetKind[OptionsT]):
    """Images of any size, with a class each; their options have `image_size` and `resize`."""

    Record: type[InputsRecord] = ImageRecord
    needs_record = False
    new_data = "a folder of images, an image, or a CSV of their names"

    def has_images(self, options: OptionsT) -> bool:
        """Return that they are."""
        return True

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Return the size of the images, and how many classes there are."""
        options: Any = self.options(config)
        classes, assumed = class_count(self.name, found)
        return Signature(Task.CLASSES, {"image": Input((*options.image_size, 3))}, classes), assumed

    def decoding(self, config: RunConfig) -> Decoding:
        """Return the size that images are decoded to."""
        from ..images.decode import Decoding

        options: Any = self.options(config)
        return Decoding(options.image_size, options.resize)

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict images in a table, a folder or single files."""
        from ..images.examples import predict_images

        return predict_images(trained, request, reporter, self.decoding(trained.config))


class ImageFilesKind(ImageKind[OptionsT]):
    """Image files; their options have `skip_bad`, too."""

    @abstractmethod
    def read_source(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Source:
        """List the files and their labels; raise `DataError` if the table or the folders cannot be used."""

    def sources(self, config: RunConfig, on_fetch: Callable[[str], None]) -> list[Source]:
        """List the files of each part, as in `read_source`."""
        return [self.read_source(config, on_fetch)]

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Check as many files as there is time for, and fit the model to their size."""
        from ..images.check import check_some, named

        if is_remote(config.data.options["path"]):
            return image_start(config, [])
        good: list[tuple[str, ImageFacts]] = []  # with their names
        skipped: list[str] = []
        sources = self.sources(config, lambda _: None)
        for source in sources:
            facts = {source.names[index]: fact for index, fact in sorted(check_some(source.paths, _LOOK_S).items())}
            if bad := sorted((name, fact.problem) for name, fact in facts.items() if fact.problem):
                skipped.append(f"{len(bad):,} of {len(facts):,} images that were checked: {named(bad)}.")
            if len(bad) == len(facts):
                raise DataError(f"No image in {source.place} can be used: {named(bad)}.", remedy="Replace them.")
            good += [(name, fact) for name, fact in facts.items() if not fact.problem]
            skipped += source.notices
        start = image_start(config, [fact for _, fact in good])
        start.settings["loss"] = f"{'sparse_' if sources[0].labels.ndim == 1 else ''}categorical_crossentropy"
        samples = samples_of(good, lambda one: f"{one[0]}, {one[1].height}×{one[1].width}")
        return start._replace(skipped=tuple(skipped), samples=samples)

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """List and check the images, and split them class by class unless there are validation images."""
        from ..images.examples import make_examples

        options: Any = self.options(config)
        sources = self.sources(config, on_fetch)
        return make_examples(config, self.decoding(config), sources, on_fetch, skip_bad=options.skip_bad)

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        """Check every file."""
        from ..images.examples import describe_images

        return describe_images(self.read_source(config, note), reporter)


def cnn_options(height: int, width: int) -> dict[str, Any]:
    """Return the options of a `cnn` with as many blocks of convolutions as suit the size of the images."""
    blocks = min(max((min(height, width) // 4).bit_length() - 1, 1), len(_FILTERS))
    return {"filters": list(_FILTERS[:blocks]), "padding": "same", "hidden": [128], "dropout": 0.3}


def image_start(config: RunConfig, facts: Collection[ImageFacts]) -> Start:
    """Return how to train on images of the user, given some of them: in their size, at most 128 pixels on a side."""
    reasons = {"augmentation.translation": "training images are shifted at random, by up to 10%"}
    settings: dict[str, Any] = {"augmentation.translation": 0.1}
    height, width = config.data.options.get("image_size", (_LARGEST_SIDE, _LARGEST_SIDE))
    if facts and "image_size" not in config.data.options:
        own = [median(fact.height for fact in facts), median(fact.width for fact in facts)]
        scale = min(1, _LARGEST_SIDE / max(own))
        height, width = (max(round(side * scale), _SMALLEST_SIDE) for side in own)
        why = f"images as {height}×{width} pixels; their median is {own[0]:g}×{own[1]:g}"
        reasons = {"data.options.image_size": why, **reasons}
        settings["data.options.image_size"] = [height, width]
    settings["model_options"] = cnn_options(height, width)
    if facts and not all(fact.is_gray for fact in facts):
        settings["augmentation.flip"] = "horizontal"
        reasons["augmentation.flip"] = "and mirrored; --set augmentation.flip=none if left and right matter"
    return Start(settings, reasons)
