"""What the kinds of data with a name share: a package knows their features, which decide the task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, to_builtins
from pydantic import model_validator

from ...config.values import Section
from ...errors import DataError, did_you_mean
from ...storage.files import size_text
from ...storage.keyed_store import KeyedStore, typed
from ..places import ON_THIS_MACHINE, Download, reaches, remove_leftovers
from . import kind as base
from .skimming import Survey, column_named, trouble
from .table_csv import TableCsv, TableCsvOptions
from .texts import TEXT_NAMES, TextCsv, TextCsvOptions, text_signature

if TYPE_CHECKING:
    import pandas as pd

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..code import DataCode
    from ..examples import Examples, Signature
    from ..places import OnFetch
    from ..predictions import NewData, Table, TrainedModel

_VALIDATION = ("validation", "valid", "val", "dev", "test")  # splits that are validated on, the first that there is
_ANSWERS = {"prompt": "response completion chosen", "question": "answer", "instruction": "output response"}
FeatureKind = Literal["image", "class", "text", "integer", "number", "messages", "other"]


class Feature(Struct, frozen=True):
    """One feature of an example."""

    kind: FeatureKind
    shape: tuple[int | None, ...] = ()
    names: tuple[str, ...] = ()  # of the classes; empty if they are unknown before all examples are here
    is_few: bool = False  # whether it has so few whole numbers that they are classes where it is the label


class NamedFacts(Struct, frozen=True):
    """What a package knows about data before they are downloaded."""

    features: dict[str, Feature]
    splits: dict[str, int]  # examples of each split; empty if unknown
    inputs: tuple[str, ...] = ()  # what the model sees, if the data say so
    label: str = ""  # likewise, what it learns
    about: dict[str, str] | None = None  # what `inspect` says, such as the licence
    download: Download | None = None  # what has to be downloaded first; None if the data are here

    def in_words(self) -> str:
        """Say what has to be downloaded, how many classes there are, and under which licence."""
        size = size_text(self.download.size) + " to download" if self.download and self.download.size else ""
        classes = max((len(feature.names) for feature in self.features.values() if feature.kind == "class"), default=0)
        words = [size, f"{classes:,} classes" if classes else "", (self.about or {}).get("licence", "")]
        return ", ".join(filter(None, [*words, "" if self.download else ON_THIS_MACHINE]))


def described(info: Any, **more: str) -> dict[str, str]:
    """Return what `inspect` says about data, from a package's description of them and a few words more."""
    said = {"about": " ".join(str(info.description or "").split())[:300], "home page": str(info.homepage or ""), **more}
    return {name: text for name, text in said.items() if text}


_FACTS = KeyedStore[NamedFacts]("named.json", NamedFacts)


class NamedOptions(Section):
    """Options of data with a name."""

    name: Annotated[base.Name, "The name."]
    config: Annotated[str, "The configuration, if there are several; by default the first."] = ""
    split: Annotated[str, "The split to train on."] = "train"
    validation_split: Annotated[
        str, "The split to validate on; by default validation or test, or else a share of `split` is held out."
    ] = ""
    data_dir: Annotated[str, "Where the data are, or are put; by default where the package puts them."] = ""
    inputs: Annotated[tuple[str, ...], "Features that the model sees; by default those that the data name."] = ()
    label: Annotated[str, "Feature that the model learns; by default the one that the data name."] = ""
    image_size: base.ImageSize = (128, 128)
    resize: base.Resize = "stretch"
    vocabulary: Annotated[base.VocabularySize, "Words kept of texts; all others become one unknown word."] = 20_000
    length: Annotated[base.WordCount, "Words per text; longer ones are cut, shorter ones padded."] = 200

    @property
    def full_name(self) -> str:
        """The name with the configuration, as on the command line."""
        return f"{self.name}/{self.config}" if self.config else self.name


OptionsT = TypeVar("OptionsT", bound=NamedOptions)


class Slice(NamedTuple):
    """Some examples of a split."""

    split: str
    rows: range


class Use(Struct, frozen=True):
    """Which features are used, and for what."""

    task: Literal["images", "texts", "table"]
    inputs: tuple[str, ...]
    label: str
    is_class: bool  # whether the label is a class, and not a number
    classes: tuple[str, ...]  # empty if they are unknown
    kinds: Mapping[str, str]  # the kinds of the inputs, and of the label at the end


def _kind_of(record: Mapping[str, Any]) -> TextCsv | TableCsv | None:
    """Return the kind of files that wrote a record; None for images."""
    return TextCsv() if "words" in record else TableCsv() if "numbers" in record else None


class _Record(base.InputsRecord):
    @model_validator(mode="before")
    @classmethod
    def _fits_the_task(cls, values: dict[str, Any]) -> dict[str, Any]:
        (_kind_of(values) or base.ImageKind).Record.model_validate(values)
        return values


class NamedKind(base.ImageKind[OptionsT]):
    """Data with a name: images or texts with a class, or rows of numbers and categories.

    `can_reach` says whether a host can be reached, because the packages try for minutes.
    """

    source = "name"
    Record = _Record
    needs_record = True
    image_code = "example[{name}]"  # an example's image as an array, in an exported script
    left_over: tuple[str, ...] = ()  # what downloads that were killed leave beside the folder where files arrive
    new_data = "images in a folder, or a table with the columns of training"

    def __init__(self, can_reach: Callable[[str], bool] = reaches) -> None:
        self.can_reach = can_reach

    @abstractmethod
    def builder(self, options: OptionsT) -> Any:
        """Return what the package has for a name; may import TensorFlow, and raise `DataError`."""

    @abstractmethod
    def facts_of(self, builder: Any, options: OptionsT) -> NamedFacts:
        """Return what the package knows about the data of a builder, which are not downloaded."""

    @abstractmethod
    def arriving(self, builder: Any, options: OptionsT) -> Path:
        """Return the folder in which the files of a download arrive."""

    def download(self, builder: Any) -> None:
        """Download and prepare the data; the caller says what an exception means."""
        builder.download_and_prepare()

    @abstractmethod
    def images(self, options: OptionsT, part: Slice, use: Use) -> Any:
        """Return a `tf.data.Dataset` of the still encoded images and the class numbers of a downloaded split."""

    @abstractmethod
    def table(self, options: OptionsT, part: Slice, names: Sequence[str]) -> pd.DataFrame:
        """Return features as columns of text, classes by name, with None where a value is missing."""

    @abstractmethod
    def write_parts(self, code: DataCode, options: OptionsT, parts: tuple[Slice, Slice]) -> None:
        """Write code that makes `parts`, two lists of examples as dictionaries."""

    @abstractmethod
    def listed(self) -> dict[str, str]:
        """Return the names that the package lists or has on this machine; may take seconds, and asks no server."""

    def named(self, name: str) -> dict[str, Any]:
        """Return the options that a name on the command line stands for."""
        first, _, config = name.partition("/")
        return {"name": first} | ({"config": config} if config else {})

    def ask(self, options: OptionsT) -> NamedFacts:
        """Return what the package knows about data; may raise `DataError`."""
        return self.facts_of(self.builder(options), options)

    def prepare(self, options: OptionsT, on_fetch: OnFetch) -> NamedFacts:
        """Download what is not here, and return what is known then; raise `DataError` if it cannot be downloaded."""
        builder = self.builder(options)
        facts = self.facts_of(builder, options)
        if facts.download is None:
            return facts
        arriving = self.arriving(builder, options)
        remove_leftovers(part for pattern in self.left_over for part in arriving.parent.glob(pattern))
        facts.download.fetch(partial(self.download, builder), arriving, on_fetch, self.can_reach)
        return self.ask(options)

    def look_up(self, name: str, given: Mapping[str, Any]) -> base.Recognized:
        """Ask the package in a process of its own, and the user for the label if the data do not say what it is."""
        from .asking import ask

        options = self.Options.model_validate({**self.named(name), **given})
        self._save(options, ask(self.name, options.model_dump(mode="json")))
        return base.Recognized(self.named(name), sure=1, question=self._question(options))

    def known(self) -> dict[str, str]:
        """Return the names that were asked for or are listed, and a few words about each: size, classes, licence."""
        names = {f"{self.name}:{name}": words for name, words in self.listed().items()}
        asked = {key: facts.in_words() for key, facts in _FACTS.items().items() if " " not in key}
        return names | {key: words for key, words in asked.items() if key.startswith(f"{self.name}:")}

    def facts(self, options: OptionsT) -> NamedFacts | None:
        """Return what is known without asking; None if that is nothing."""
        return _FACTS.get(self._key(options))

    def has_images(self, config: RunConfig) -> bool:
        """Return whether the features are known, and the model sees an image."""
        options = self.options(config)
        with suppress(DataError):  # the survey reports it
            return (facts := self.facts(options)) is not None and self.use(options, facts).task == "images"
        return False

    def goals(self, options: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
        wanted = self.Options.model_validate(dict(options))
        if self.facts(wanted) is None:
            self.look_up(wanted.full_name, options)
        facts = self.facts(wanted)
        if facts is None or (use := self.use(wanted, facts)).task == "images":
            return super().goals(options)
        kind = TextCsv() if use.task == "texts" else TableCsv()
        return kind.goals({"label_type": "class" if use.is_class else "number"})

    def missing_download(self, config: RunConfig) -> Download | None:
        facts = self.facts(self.options(config))
        return None if facts is None else facts.download

    def survey(self, config: RunConfig) -> Survey:
        options = self.options(config)
        facts = self.facts(options)
        if facts is None:
            return Survey(unknown="was not asked for on this machine yet")
        option = "label"
        try:
            use = self.use(options, facts)
            if not facts.splits:
                return Survey(class_names=use.classes, unknown="has an unknown number of examples until it is read")
            option = "split"
            split, other = splits_of(options, facts)
        except DataError as error:
            return trouble(option, str(error).removesuffix("."))
        validation = facts.splits[other] if other else None
        return Survey(total=facts.splits[split], class_names=use.classes, validation=validation)

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Return the shapes that the features say; those of a table are known when it is here."""
        options = self.options(config)
        if (facts := self.facts(options)) is None:
            what = f"The features of {options.full_name} are unknown on this machine."
            remedy = f"Ask for it once, with `tpu-console inspect {self.name}:{options.full_name}`."
            raise base.UnknownShapesError(what, remedy=remedy)
        task = self.use(options, facts).task
        if task == "images":
            return super().signature(config, found)
        if task == "texts":
            classes, assumed = base.class_count(self.name, found)
            return text_signature(options, classes), assumed
        if facts.download:
            what = "The shapes of a table are unknown until it is here."
            raise base.UnknownShapesError(what, why=facts.download.sentence)
        return self.load(config, lambda _: None).signature, ""

    def start(self, config: RunConfig, found: Survey) -> base.Start:
        """Fit a model of images to their size, if all have the same."""
        from ..images.check import ImageFacts

        options = self.options(config)
        facts = self.facts(options)
        if facts is None or (use := self.use(options, facts)).task != "images":
            return base.Start({})
        height, width, channels = facts.features[use.inputs[0]].shape or (None, None, None)
        if not height or not width:
            return base.image_start(config, [])
        return base.image_start(config, [ImageFacts("", height=height, width=width, is_gray=channels == 1)])

    def load(self, config: RunConfig, on_fetch: OnFetch) -> Examples:
        """Download what is not here, and read it; without a validation split, the end of the other one is held out."""
        import numpy as np
        import pandas as pd

        options = self.options(config)
        facts = self._save(options, to_builtins(self.prepare(options, on_fetch)))
        if (question := self._question(options)) is not None:
            raise DataError(f"{options.full_name}: {question.text}", remedy="Set data.options.label.")
        use, parts = self.use(options, facts), self._slices(config, facts)
        if use.task == "images":
            import tensorflow as tf

            from ..images.examples import as_written, decode_bytes, image_examples

            decoding = self.decoding(config)

            @as_written
            def decoded(content: Any, label: Any) -> tuple[Any, Any]:
                return decode_bytes(content, decoding), tf.cast(label, tf.int32)

            train, held_out = (
                self.images(options, part, use).map(decoded, num_parallel_calls=tf.data.AUTOTUNE) for part in parts
            )
            counts = len(parts[0].rows), len(parts[1].rows)
            return image_examples((train, held_out), counts, decoding, use.classes, {})
        kind, wanted = self._as_file(options, use)
        base.check_label(config, "class" if use.is_class else "number", kind.model)
        table = pd.concat([self.table(options, part, [*use.kinds]) for part in parts], ignore_index=True)
        if missing := int(table[use.label].isna().sum()):
            what = f"{wanted.path} has {missing:,} examples without a label."
            raise DataError(what, remedy="Set data.options.label.")
        count = len(parts[0].rows)
        return kind.examples(config, wanted, table, (np.arange(count), np.arange(count, len(table))))

    def write_code(self, code: DataCode) -> None:
        options = self.options(code.config)
        facts = self.facts(options) or self.ask(options)
        use, parts = self.use(options, facts), self._slices(code.config, facts)
        code.needs("numpy as np")
        if use.task == "images":
            (name,), label = use.inputs, f"example[{code.literal(use.label)}]"
            is_gray = facts.features[name].shape[2:] == (1,)
            number = label if use.kinds[use.label] == "class" else f"CLASSES.index(str({label}))"
            pixels = [
                "def pixels(example):",
                '    """Return the image of an example as 8-bit RGB."""',
                f"    image = {self.image_code.format(name=code.literal(name))}",
                *(["    image = tf.image.grayscale_to_rgb(image)"] if is_gray else []),
                *code.resized(self.decoding(code.config)),
                "    return tf.cast(tf.round(image), tf.uint8)",
            ]
            code.assign(CLASSES=code.record["classes"])
            code.functions("\n".join(pixels))
            self.write_parts(code, options, parts)
            code.add("x_train, x_val = [np.stack([pixels(example) for example in part]) for part in parts]")
            code.add(f"y_train, y_val = [np.array([{number} for example in part]) for part in parts]")
            code.datasets("x", top=255.0)
            return

        def table() -> None:
            names = {name: [*facts.features[name].names] for name, kind in use.kinds.items() if kind == "class"}
            code.assign(COLUMNS=[*use.kinds], NAMES=names)
            code.functions(_TEXT_OF)
            self.write_parts(code, options, parts)
            code.add(*_TABLE)

        rows = f"rows_train, rows_val = np.split(np.arange(len(table)), [{len(parts[0].rows)}])"
        kind, wanted = self._as_file(options, use)
        kind.write_rows(code, wanted, table, [rows])

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        options = self.options(config)
        facts = self._save(options, to_builtins(self.ask(options)))
        features = ", ".join(f"{name} ({feature.kind})" for name, feature in facts.features.items())
        splits = ", ".join(f"{name} {count:,}" for name, count in facts.splits.items())
        return {"facts": {"features": features, "splits": splits or "unknown", **(facts.about or {})}}

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict images, or a table with the columns that the model was trained on."""
        kind = _kind_of(trained.record)
        return (super().predict if kind is None else kind.predict)(trained, request, reporter)

    def _slices(self, config: RunConfig, facts: NamedFacts) -> tuple[Slice, Slice]:
        """Return the training and the validation examples."""
        options = self.options(config)
        split, other = splits_of(options, facts)
        total = facts.splits[split]
        ends = total if other else total - max(1, round(config.data.validation_fraction * total))
        if ends < 1:
            raise DataError(f"{options.full_name} has {total:,} examples, too few to hold some out for validation.")
        held_out = Slice(other, range(facts.splits[other])) if other else Slice(split, range(ends, total))
        return Slice(split, range(ends)[: config.data.train_limit or None]), held_out

    def _as_file(self, options: OptionsT, use: Use) -> tuple[TextCsv | TableCsv, TextCsvOptions | TableCsvOptions]:
        """Return the kind that reads the same data from a file, and its options."""
        place = f"{self.name}:{options.full_name}"
        if use.task == "texts":
            size = {"vocabulary": options.vocabulary, "length": options.length}
            return TextCsv(), TextCsvOptions(path=place, label=use.label, inputs=use.inputs[0], **size)
        categories = tuple(name for name in use.inputs if use.kinds[name] in {"class", "text"})
        label_type: Literal["class", "number"] = "class" if use.is_class else "number"
        return TableCsv(), TableCsvOptions(path=place, label=use.label, label_type=label_type, categories=categories)

    def _key(self, options: OptionsT) -> str:
        return f"{self.name}:{options.full_name}" + (f" in {options.data_dir}" if options.data_dir else "")

    def _save(self, options: OptionsT, values: dict[str, Any]) -> NamedFacts:
        """Keep what the package said as plain values, and return it; raise `DataError` if it is not that."""
        facts: NamedFacts | None = typed(NamedFacts, values)
        if facts is None:
            raise DataError(f"{self.name} returned an invalid description of {options.full_name}.")
        _FACTS.put(self._key(options), facts)
        return facts

    def _question(self, options: OptionsT) -> base.Question | None:
        """Return what the user has to say about the features."""
        facts = self.facts(options)
        if facts is None or self.use(options, facts).label:
            return None
        names = [name for name, feature in facts.features.items() if feature.kind not in {"image", "messages", "other"}]
        if not names:
            raise DataError(f"{options.full_name} has no feature that can be predicted: {', '.join(facts.features)}.")
        return base.Question("label", "What is to be predicted?", {name: name for name in names})

    def use(self, options: OptionsT, facts: NamedFacts) -> Use:
        """Return what the features are used for; without a label if that cannot be guessed."""
        features = facts.features
        for name in filter(None, (*options.inputs, options.label)):
            if name not in features:
                what = f"{options.full_name} has no feature '{name}'; {did_you_mean(name, features)}"
                raise DataError(what, remedy="Set data.options.inputs and data.options.label.")

        def those(among: Iterable[str], *kinds: str) -> list[str]:
            return [name for name in among if features[name].kind in kinds]

        usable, classes = those(features, "image", "class", "text", "integer", "number"), those(features, "class")
        if not (options.label or facts.label or classes or "label" in features):
            talks, texts = those(features, "messages"), those(features, "text")
            pairs = [(name, answer) for name in texts for answer in _ANSWERS.get(name, "").split()]
            talks += [f"{name} and {answer}" for name, answer in pairs if answer in texts]
            if talks or not usable:
                what = f"{options.full_name} has {', '.join(talks or features)}: no built-in model generates text."
                remedy = "Train your own on a function that returns this data: see docs/own-code.md."
                raise DataError(what, remedy=f"{remedy} Or set data.options.label to what is to be predicted.")
        only = classes[0] if len(classes) == 1 else "label" if "label" in features else ""
        label = options.label or facts.label or only
        inputs = options.inputs or tuple(name for name in facts.inputs or usable if name != label)
        images, texts = those(inputs, "image"), those(inputs, "text")
        others = those(inputs, "class", "integer", "number")
        target = features[label] if label else Feature("other")
        is_class = target.kind in {"class", "text"} or target.is_few
        text = column_named(texts, TEXT_NAMES) or (texts[0] if len(texts) == 1 and not others else "")
        task: Literal["images", "texts", "table"] = "images" if images else "texts" if text and is_class else "table"
        seen = {"images": tuple(images[:1]), "texts": (text,), "table": (*texts, *others)}[task]
        kinds = {name: features[name].kind for name in (*seen, *([label] if label else []))}
        return Use(task, seen, label, is_class, target.names, kinds)


_TEXT_OF = '''
def text_of(cell):
    """Return a cell as text."""
    return cell.decode() if isinstance(cell, bytes) else str(cell)
'''
_TABLE = """\
table = pd.DataFrame([example for part in parts for example in part], dtype="object")
table = table[COLUMNS]
for name, names in NAMES.items():
    table[name] = table[name].map({number: label for number, label in enumerate(names)})
table = table.map(text_of, na_action="ignore")
""".splitlines()


def splits_of(options: NamedOptions, facts: NamedFacts) -> tuple[str, str]:
    """Return the splits to train and to validate on; the second is empty if a share of the first is held out."""
    for option in ("split", "validation_split"):
        wanted = getattr(options, option)
        if wanted and wanted not in facts.splits:
            what = f"{options.full_name} has no split '{wanted}'; {did_you_mean(wanted, facts.splits)}"
            raise DataError(what, remedy=f"Set data.options.{option}.")
    others = (name for name in _VALIDATION if name in facts.splits and name != options.split)
    return options.split, options.validation_split or next(others, "")
