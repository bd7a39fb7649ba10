"""Random configurations and events for property tests, drawn from the types themselves."""

import types
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.config.options import LOSSES, METRICS
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.runs.events import Replica, ReplicaMemory, Sample
from tpu_console.engine.runs.journal import EVENT_TYPES
from tpu_console.engine.runs.metrics import Metric
from tpu_console.engine.sanitize import printable

EVENT_CLASSES: tuple[type[Any], ...] = tuple(EVENT_TYPES.values())

counts = st.integers(1, 10**6)
whole = st.integers(0, 10**6)
positive = st.floats(1e-12, 1e12)
non_negative = st.just(0.0) | positive
rates = st.floats(0, 0.99)
names = st.from_regex(r"[a-z_][a-z_0-9]{0,8}", fullmatch=True)


def texts(longest: int) -> st.SearchStrategy[str]:
    """Texts that are safe to show, as every reader gives them."""
    return st.text(max_size=longest).map(printable)


scalars = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | texts(12)
option_values = scalars | st.lists(scalars, max_size=3)
options = st.dictionaries(names, option_values, max_size=3)
own_functions = st.sampled_from(["mine.py:make", "my.package:make", "../some where/é.py:make"])


def _section(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_CNN = _section(
    filters=st.lists(counts, min_size=1, max_size=4),
    convolutions=counts,
    kernel_size=counts,
    padding=st.sampled_from(["valid", "same"]),
    batch_norm=st.booleans(),
    hidden=st.lists(counts, max_size=3),
    dropout=rates,
)
_MLP = _section(hidden=st.lists(counts, min_size=1, max_size=3), dropout=rates)
_DATA = {
    "pixels": st.sampled_from(["unit", "raw"]),
    "validation_fraction": st.floats(0.01, 0.99),
    "train_limit": whole,
    "cache": st.sampled_from(["auto", "memory", "disk", "off"]),
    "shuffle_buffer": whole,
}
_texts = st.text(min_size=1, max_size=12).map(printable)
_IMAGE_FILES = {
    "image_size": st.lists(counts, min_size=2, max_size=2),
    "resize": st.sampled_from(["stretch", "crop", "pad"]),
    "skip_bad": st.booleans(),
}
_DATA_OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "image-csv": {"images": _texts, "label": st.lists(_texts, max_size=3), **_IMAGE_FILES},
    "image-folder": {"validation_path": texts(12), **_IMAGE_FILES},
    "text-folder": {"validation_path": texts(12), "length": st.integers(2, 10**6)},
    "text-pairs": {"vocabulary": st.integers(10, 10**6), "length": st.integers(2, 10**6)},
    "ratings-csv": {"columns": st.lists(_texts, min_size=3, max_size=3)},
}
_AUGMENTATION = _section(
    flip=st.sampled_from(["none", "horizontal", "vertical", "both"]),
    rotation=st.floats(0, 180),
    translation=rates,
    zoom=rates,
    contrast=rates,
    brightness=rates,
)


@st.composite
def optimizers(draw: st.DrawFn) -> dict[str, Any]:
    """An ``[optimizer]`` table; the rule between schedule and warm-up is kept."""
    schedule = draw(st.sampled_from(["constant", "cosine(final_fraction=0.5)", "linear", "exponential"]))
    table = draw(
        _section(
            name=st.sampled_from(["adam", "adamw", "sgd", "rmsprop", "adagrad", "adamax", "nadam", "lion"]),
            learning_rate=positive,
            scale_with_replicas=st.booleans(),
            weight_decay=non_negative,
        )
    )
    if schedule.startswith(("constant", "cosine")):
        table["warmup_epochs"] = draw(non_negative)
    return table | {"schedule": schedule}


@st.composite
def configurations(draw: st.DrawFn) -> RunConfig:
    """Any valid configuration, with built-in and own datasets and models."""
    model = draw(st.sampled_from(["cnn", "mlp"]) | own_functions)
    metrics = draw(st.lists(st.sampled_from(sorted(METRICS)), max_size=3, unique=True))
    measured = st.sampled_from([p + name for name in ["loss", *metrics] for p in ("", "val_")])
    dataset = draw(st.sampled_from([*DATASETS, *_DATA_OPTIONS]) | own_functions)
    values = {
        "dataset": dataset,
        "model": model,
        "batch_size": draw(counts),
        "epochs": draw(counts),
        "metrics": metrics,
        "model_options": draw({"cnn": _CNN, "mlp": _MLP}.get(model, options)),
        "optimizer": draw(optimizers()),
        "early_stopping": {"patience": draw(whole), "monitor": draw(measured), "min_delta": draw(non_negative)},
        "checkpoint": {"monitor": draw(measured | st.sampled_from(["auto", "none"]))},
    }
    values |= draw(
        _section(
            name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
            steps_per_epoch=counts | st.just("all"),
            validation_freq=counts,
            loss=st.sampled_from(sorted(LOSSES)),
            accelerator=st.sampled_from(["auto", "cpu", "gpu", "sim:1", "sim:8", "sim:99"]),
            precision=st.sampled_from(["float32", "mixed_bfloat16", "mixed_float16"]),
            steps_per_execution=counts | st.just("auto"),
            seed=whole,
            augmentation=_AUGMENTATION,
            sinks=st.lists(st.sampled_from(["tensorboard", "wandb", 'mlflow(project="a b")']), unique=True),
        )
    )
    values["data"] = draw(_section(**_DATA)) | draw(_data_options(dataset))
    return parse_config(values)


def _data_options(dataset: str) -> st.SearchStrategy[dict[str, Any]]:
    """The part of ``[data]`` that depends on the dataset."""
    if dataset in DATASETS:
        return st.just({})
    if dataset not in _DATA_OPTIONS:
        return _section(options=options)
    fields = st.fixed_dictionaries({"path": _texts}, optional=_DATA_OPTIONS[dataset])
    return fields.map(lambda given: {"options": given})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | texts(10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(5), inner, max_size=3),
    max_leaves=5,
)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an event's field, by its annotation."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(0, 2**53),
        float: st.floats(-1e15, 1e15),
        bool: st.booleans(),
        str: texts(20),
        Any: json_values,
        type(None): st.none(),
    }
    if hint in plain:
        return plain[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return st.one_of([of_type(argument) for argument in arguments])
    if origin is dict:
        inner = st.floats() if arguments[1] is float else of_type(arguments[1])  # a metric may be NaN
        return st.dictionaries(texts(6), inner, max_size=3)
    if origin is tuple:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    assert hint in {Metric, Replica, ReplicaMemory, Sample, *EVENT_CLASSES}, hint
    return st.builds(hint, **{name: of_type(inner) for name, inner in get_type_hints(hint).items()})


events = st.one_of([of_type(cls) for cls in EVENT_CLASSES])
