"""What every kind of dataset answers: its options, its examples, and what comes after training; files and images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from ...config.values import Count, Section, Switch
from ...errors import DataError, Problem
from ...storage.paths import user_path
from ..examples import Examples, Input, Signature, Task
from ..places import candidates, is_remote, locate, not_there
from ..row_files import UNREADABLE, TooSlowError
from ..tables import refuse_class_options, require
from .skimming import Survey, read_as, samples_of, trouble, unreadable

if TYPE_CHECKING:
    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..code import DataCode
    from ..images.check import ImageFacts
    from ..images.examples import Decoding
    from ..images.files import Source
    from ..places import Download, OnFetch
    from ..predictions import NewData, Table, TrainedModel

OptionsT = TypeVar("OptionsT", bound=Section)

Name = Annotated[str, Field(min_length=1)]
"""A name, or a path: absolute, ``~/…``, ``gs://…``, or relative, which `engine.data.places` resolves."""

VocabularySize = Annotated[int, Field(strict=True, ge=10)]
WordCount = Annotated[int, Field(strict=True, ge=2)]
Length = Annotated[int, Field(ge=1, le=100_000)]  # in a record
LabelType = Annotated[Literal["class", "number"], "`class` predicts one of the labels, `number` a number."]
ImageSize = Annotated[tuple[Count, Count], "Height and width that images are resized to."]
Resize = Annotated[
    Literal["stretch", "crop", "pad"],
    "`stretch` changes the proportions, `crop` cuts off edges, `pad` adds black ones.",
]
SkipBad = Annotated[Switch, "Skip missing and unreadable files instead of refusing to start."]

ASSUMED_CLASSES = 10  # if the files do not exist
_CLASS_LOSSES = ("sparse_categorical_crossentropy", "categorical_crossentropy")
_NUMBER_LOSSES = ("mean_squared_error", "mean_absolute_error", "huber", "log_cosh")
_NUMBER_METRICS = ("mean_absolute_error", "root_mean_squared_error", "mean_squared_error")
_Activation = Literal["", "sigmoid", "softmax"]
_Form = Literal["", "arrays", "batches", "examples", "kept"]
_LOOK_S = 5.0  # longest time to check the image files of a part before a run
_STAMPED = 1000  # files and folders in a folder whose modification times are compared
_LARGEST_SIDE, _SMALLEST_SIDE = 128, 8
_FILTERS = (32, 64, 64, 128)


class UnknownShapesError(DataError):
    """The shapes of the examples are unknown until they are loaded."""


class Question(NamedTuple):
    """What the user has to say, because guessing could be wrong."""

    option: str  # the option that answers it
    text: str  # a sentence
    answers: dict[str, Any]  # the values to choose from, by the words for them


class Recognized(NamedTuple):
    """How a file or folder is read."""

    options: dict[str, Any]
    sure: float  # from 0 to 1; the kind that is surest reads it
    question: Question | None = None


class Start(NamedTuple):
    """Settings with which a first training usually works, besides those that depend on the number of examples."""

    settings: dict[str, Any]  # by dotted key
    reasons: dict[str, str] = {}  # sentences about some of them, by the key  # noqa: RUF012  never changed
    skipped: tuple[str, ...] = ()  # sentences about files that are not used
    samples: tuple[str, ...] = ()  # a few examples, as a line each


class InputsRecord(BaseModel):
    """What a run's ``inputs.json`` has to contain, so that new data can be predicted."""

    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)
    activation: _Activation | dict[str, _Activation] = ""  # of each output by its name if there are several
    class_outputs: list[str] | None = None  # the outputs that say which class an example is of
    returned: Annotated[list[_Form | None], Field(min_length=1, max_length=2)] | None = None
    """What the dataset function returned: for training, and for validation if it returned a pair."""


class DatasetKind(ABC, Generic[OptionsT]):
    """A kind of dataset; one without `write_code` cannot be exported as a script.

    The console, which never imports a framework, calls all but `load`, `predict`, `describe_files` and `write_code`.
    """

    name: str  # as in `dataset = …`
    source = "path"  # the option that says which data it is
    title: str  # in a few words
    Options: type[OptionsT]  # the table `data.options`; `path` is among them if there are files
    model, loss = "cnn", "sparse_categorical_crossentropy"  # what trains on it if nothing else is said
    metrics: tuple[str, ...] = ("accuracy",)
    most_per_step = 64  # largest batch size to start with
    largest_pixel = 255.0  # before they are scaled
    is_limited = True  # whether `data.train_limit` limits the examples
    faster = ""  # how else the same data are read faster, in a sentence; empty if that is unknown
    new_data: str  # what `predict` reads, for the user
    Record: type[InputsRecord] = InputsRecord
    needs_record = True  # whether new data can only be read with a record
    code_needs: tuple[str, ...] = ()  # what a record has to contain so that code can be written

    def options(self, config: RunConfig) -> OptionsT:
        """Return the options in a configuration of this kind."""
        return self.Options.model_validate(config.data.options)

    def has_images(self, config: RunConfig) -> bool:
        """Return whether its examples are images."""
        return False

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Return how a file or folder is read, if it looks like this kind, given options that the user chose.

        May raise `DataError`, or what is in `engine.data.row_files.UNREADABLE`.
        """
        return None

    @abstractmethod
    def survey(self, config: RunConfig) -> Survey:
        """Return what is known before the data are loaded, and what would make a run fail."""

    def is_missing(self, config: RunConfig) -> bool:
        """Return whether files or folders that the options name do not exist on this machine."""
        return False

    def missing_download(self, config: RunConfig) -> Download | None:
        """Return what has to be downloaded; None if the data are here, or nothing is known of them."""
        return None

    def goals(self, options: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
        """Return the model, the loss and the metrics that suit some options, if nothing else is said."""
        if options.get("label_type") == "number":
            return self.model, "mean_squared_error", ("mean_absolute_error",)
        return self.model, self.loss, self.metrics

    @abstractmethod
    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Return the shapes of the examples, and what was assumed, in a sentence.

        Do not load them if it can be avoided. Raises `UnknownShapesError` if the data have to be there first.
        """

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Return how to train on data that were surveyed, without a framework; may raise `DataError`."""
        return Start({})

    @abstractmethod
    def load(self, config: RunConfig, on_fetch: OnFetch) -> Examples:
        """Load the examples; `on_fetch` is called with sentences, or with how much of a download has arrived.

        Raises `DataError` if the files are missing or damaged, or do not fit the configuration.
        """

    def notices(self, config: RunConfig) -> tuple[str, ...]:
        """Return what the user should know about how the data are read, in sentences."""
        return ()

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        """Return what `inspect` reports about the files, before they are loaded."""
        return {}

    @abstractmethod
    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict new data with a run on this kind; raise `DataError` if it cannot be read."""

    def write_code(self, code: DataCode) -> None:
        """Write code that reads the examples as a run did."""
        raise not_exportable(f"dataset={self.name}")


class FileKind(DatasetKind[OptionsT]):
    """The user's files, which `path` names, and options whose names end with ``_path``.

    `skimming.text_lines` and `skimming.count_classes` read them for a survey; `engine.data.tables` for `load` and
    `predict`. `engine.data.labels` splits examples, and `engine.data.code` writes lines that several kinds share.
    """

    @abstractmethod
    def survey_files(self, path: Path, options: OptionsT) -> Survey:
        """Count the examples in local files within half a second, and say what would make a run fail.

        May raise `DataError`, `TooSlowError`, or what is in `engine.data.row_files.UNREADABLE`.
        """

    def survey(self, config: RunConfig) -> Survey:
        options: Any = self.options(config)
        if is_remote(options.path):
            return Survey(unknown="is remote, where only TensorFlow can read")
        try:
            missing = tuple(_missing_files(options))
        except (OSError, RuntimeError) as error:  # a name too long, a folder without permission, an unknown ~user
            return trouble("path", f"'{options.path}' cannot be searched for: {getattr(error, 'strerror', error)}")
        if missing:
            return Survey(problems=missing, is_missing=True)
        stamps: list[int] = []  # numbers that change when the files do
        for path in filter(None, (options.path, getattr(options, "validation_path", ""))):
            files = [place := Path(locate(path))]
            with suppress(OSError):  # no permission; a folder inside changes when files are added, as those of classes
                files += islice(place.iterdir(), _STAMPED) if not is_remote(path) and place.is_dir() else ()
            for file in files:
                with suppress(OSError):
                    status = file.stat()
                    stamps += [status.st_mtime_ns, status.st_size]
        return _surveyed(self, locate(options.path), options, tuple(stamps))

    def is_missing(self, config: RunConfig) -> bool:
        """Return whether files or folders that the options name do not exist, or cannot be looked for."""
        try:
            return any(_missing_files(self.options(config)))
        except (OSError, RuntimeError):
            return True

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        if found.problems:
            what = "The shapes of the examples are unknown until the files can be read."
            raise UnknownShapesError(what, why=str(found.problems[0]))
        return self.load(config, lambda _: None).signature, ""

    def notices(self, config: RunConfig) -> tuple[str, ...]:
        """Say how texts are read, if not as UTF-8."""
        return read_as(self.options(config))


def _missing_files(options: Any) -> Iterator[Problem]:
    """Yield a problem for each file or folder that the options name and that does not exist."""
    paths = (name for name in type(options).model_fields if name in {"path", "images"} or name.endswith("_path"))
    named = {option: getattr(options, option) for option in paths}
    if named.get("images") and not is_remote(named["images"]):
        # A relative path is in the folder of the table; an absolute one replaces it.
        named["images"] = str(Path(locate(options.path)).parent / Path(named["images"]).expanduser())
    for option, path in named.items():
        if path and not is_remote(path) and not any(place.exists() for place in candidates(path)):
            yield Problem(f"data.options.{option}", str(not_there(path, "file or folder", option)))


@lru_cache(maxsize=64)
def _surveyed(kind: FileKind[Any], place: str, options: Section, stamps: tuple[int, ...]) -> Survey:  # noqa: ARG001  see below
    """Survey files; `stamps` makes the cache miss after a file changed."""
    try:
        found = kind.survey_files(Path(place), options)
        return replace(found, facts=(*found.facts, *read_as(options)))
    except TooSlowError:
        return Survey(unknown="is too large to count quickly")
    except DataError as error:
        return trouble("path", str(error).removesuffix("."))
    except UNREADABLE as error:
        file = getattr(error, "filename", None) or place
        return trouble("path", f"{user_path(Path(file))} cannot be read: {unreadable(error)}")


def not_exportable(what: str) -> DataError:
    """Return the error that a run cannot be exported as code because of something."""
    remedy = "Export the trained model instead, with --savedmodel, --tflite or --onnx."
    return DataError(f"{what} cannot be exported as code.", remedy=remedy)


def class_count(dataset: str, found: Survey) -> tuple[int, str]:
    """Return the number of classes for a signature, and what had to be assumed."""
    if names := found.class_names or found.classes:
        return len(names), ""
    text = f"The number of classes is unknown without the files of {dataset}: {ASSUMED_CLASSES} are assumed."
    return ASSUMED_CLASSES, f"{text} Up to 128 take the same room in the matrix unit."


def check_label(config: RunConfig, label_type: str, model: str) -> None:
    """Raise `DataError` if a configuration does not fit the type of its label, or has another model than this one."""
    if label_type == "class":
        require(config, model, _CLASS_LOSSES)
    else:
        require(config, model, _NUMBER_LOSSES, _NUMBER_METRICS)
        refuse_class_options(config)


class ImageRecord(InputsRecord):
    """What the record of a run on images, or on a built-in dataset, may contain."""

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

    def has_images(self, config: RunConfig) -> bool:
        return True

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Return the size of the images, and how many classes there are."""
        options: Any = self.options(config)
        classes, assumed = class_count(self.name, found)
        return Signature(Task.CLASSES, {"image": Input((*options.image_size, 3))}, classes), assumed

    def decoding(self, config: RunConfig) -> Decoding:
        """Return the size that images are decoded to."""
        from ..images.examples import Decoding

        options: Any = self.options(config)
        return Decoding(options.image_size, options.resize)

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict images in a table, a folder or single files."""
        from ..images.examples import predict_images

        return predict_images(trained, request, reporter, self.decoding(trained.config))


class ImageFilesKind(ImageKind[OptionsT], FileKind[OptionsT]):
    """Image files; their options also have `skip_bad`."""

    faster = "TFRecord shards are read faster than single files: tpu-console tfrecord."

    @abstractmethod
    def read_source(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Source:
        """List the files and their labels; raise `DataError` if the table or the folders cannot be used."""

    def sources(self, config: RunConfig, on_fetch: Callable[[str], None]) -> list[Source]:
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
        from ..images.examples import describe_images

        return describe_images(self.read_source(config, note), reporter)


def cnn_options(height: int, width: int) -> dict[str, Any]:
    """Return the options of a `cnn` with as many blocks of convolutions as suit the size of the images."""
    blocks = min(max((min(height, width) // 4).bit_length() - 1, 1), len(_FILTERS))
    return {"filters": list(_FILTERS[:blocks]), "padding": "same", "hidden": [128], "dropout": 0.3}


def image_start(config: RunConfig, facts: Collection[ImageFacts]) -> Start:
    """Return how to train on the user's images, given some of them: at their median size, up to 128 pixels a side."""
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
