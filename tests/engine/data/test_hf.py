"""Datasets of the Hugging Face Hub: from its files on disk, and from a server that answers as the hub does."""

import io
import os
import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from tests.engine.data.scripting import assert_script_reads, code_of, inspected, small, started
from tests.engine.jobs.predicting import Job, train
from tests.forks import fork
from tests.helpers import run_forked, wait_until
from tests.hub import hub
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.data.kinds.formats import UndecidedError, first_run
from tpu_console.engine.data.kinds.hf import Hf, HfOptions
from tpu_console.engine.data.kinds.kind import Start
from tpu_console.engine.data.kinds.table import KINDS, load_examples, survey
from tpu_console.engine.errors import ConsoleError, DataError
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan
from tpu_console.engine.preflight.choice import batch_of

pytestmark = pytest.mark.slow
LEAVES = ("beech", "oak", "pine")
LOADS = """
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.kinds.table import load_examples
data = {"options": {"name": "critics/films"}}
config = parse_config({"dataset": "hf", "model": "text", "batch_size": 8, "epochs": 1, "data": data})
examples = load_examples(config, print)
print(examples.train_count, examples.validation_count, examples.signature.classes)
"""
CARD = """---
license: mit
dataset_info:
  features:
  - {name: text, dtype: string}
  - {name: label, dtype: {class_label: {names: {'0': bad, '1': good}}}}
  splits:
  - {name: train, num_bytes: 1000, num_examples: 40}
  download_size: 3000000
  dataset_size: 1000
---
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keep what the package caches, here and in child processes, in a folder of its own."""
    folder = str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_DATASETS_CACHE", folder)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
        patch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)  # after each pass over a stream
        yield folder


def encoded(pixels: Any, kind: str, orientation: int = 1) -> dict[str, Any]:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, lossless=True, exif=exif)
    return {"bytes": buffer.getvalue(), "path": None}


def saved(folder: Path, features: dict[str, Any], **splits: list[dict[str, Any]]) -> Path:
    """Write splits as Parquet files, as `push_to_hub` does."""
    for name, rows in splits.items():
        columns = {column: [row[column] for row in rows] for column in features}
        data = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
        data.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")
    return folder


def critics(folder: Path, label: Any, card: str) -> Path:
    """Write a repository of the hub with texts and labels, and its card if it has one."""
    rows = [{"text": f"a {('bad', 'good')[n % 2]} film no {n}", "label": n % 2} for n in range(40)]
    repository = saved(folder / "repository", {"text": datasets.Value("string"), "label": label}, train=rows)
    if card:
        (repository / "README.md").write_text(card)
    return repository


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def leaves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write images of three formats, one of them turned by EXIF, sorted by class as on the hub."""
    rows = [
        {"image": encoded(np.full((20, 30, 3), n // 10 * 80, np.uint8), ("PNG", "WEBP")[n % 2]), "label": n // 10}
        for n in range(30)
    ]
    turned = np.zeros((20, 30, 3), np.uint8)
    turned[:10] = 240
    rows.append({"image": encoded(turned, "PNG", 3), "label": 2})
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=[*LEAVES])}
    return saved(tmp_path_factory.mktemp("leaves"), features, train=rows)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write texts whose classes are words, and a test split."""
    rows = [{"text": f"a {('bad', 'good')[n % 2]} film no {n}", "label": ("no", "yes")[n % 2]} for n in range(50)]
    features = {"text": datasets.Value("string"), "label": datasets.Value("string")}
    return saved(tmp_path_factory.mktemp("films"), features, train=rows[:40], test=rows[40:])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows of numbers and categories, and a split whose labels are secret."""
    rows = [{"age": None if n == 7 else n % 50, "ship": "ab"[n % 2], "saved": n % 2, "vip": n % 2} for n in range(60)]
    classes = datasets.ClassLabel(names=["no", "yes"])
    features = {"age": datasets.Value("float32"), "ship": datasets.Value("string"), "saved": classes}
    features["vip"] = datasets.Value("int64")
    return saved(
        tmp_path_factory.mktemp("people"), features, train=rows, test=[{**row, "saved": -1} for row in rows[:9]]
    )


def test_images_are_planned_inspected_and_read_as_the_package_does(leaves: Path) -> None:
    config = started("hf:trees/leaves", leaves, image_size=[20, 30])
    assert (config.name, config.model) == ("trees-leaves", "cnn")
    assert first_run(str(leaves)).config.data.options["data_dir"] == str(leaves)  # recognized by its images
    plan = make_plan(config, Hardware())
    assert (plan.train_examples, plan.unit, plan.is_possible) == (25, "image", True)
    batch = batch_of(config)
    assert (batch.signature.shape, batch.signature.classes, batch.assumed) == ((20, 30, 3), 3, "")
    found = inspected(config)
    assert [entry["name"] for entry in found["classes"]] == [*LEAVES]
    assert all(entry["train"] for entry in found["classes"])  # although the file is sorted by class
    examples = load_examples(config, lambda _: None)
    read = [*examples.train.as_numpy_iterator(), *examples.validation.as_numpy_iterator()]
    wanted = datasets.load_dataset(str(leaves), split="train")
    plain = sorted((int(example["label"]), np.asarray(example["image"]).tobytes()) for example in wanted)
    assert sorted((int(label), pixels.tobytes()) for pixels, label in read) == plain
    limited = with_changes(config, [("data.train_limit", 10)])
    examples = load_examples(limited, lambda _: None)
    assert (examples.train_count, examples.validation_count) == (10, 6)
    assert_script_reads(limited, examples, tolerance=1)


def test_a_stream_has_the_same_order_in_each_epoch_and_nothing_is_prepared(
    leaves: Path, cache: str, tmp_path: Path
) -> None:
    before, folder = [*Path(cache).rglob("*.arrow")], shutil.copytree(leaves, tmp_path / "leaves")
    config = small(started("hf:leaves", folder, image_size=[20, 30], streaming=True), batch_size=4)
    plan = make_plan(config, Hardware())
    assert plan.train_examples is None  # the files do not say how many
    assert not any("huggingface" in advice.text for advice in plan.advice)
    examples = load_examples(config, lambda _: None)
    assert (examples.train_count, examples.validation_count, examples.class_names) == (25, 6, LEAVES)
    assert make_plan(config, Hardware()).train_examples == 25
    first, second = ([pixels.tobytes() for pixels, _ in examples.train.as_numpy_iterator()] for _ in range(2))
    held_out = [pixels.tobytes() for pixels, _ in examples.validation.as_numpy_iterator()]
    assert first == second
    wanted = datasets.load_dataset(str(folder), split="train", streaming=True)
    assert sorted(first + held_out) == sorted(np.asarray(example["image"]).tobytes() for example in wanted)
    assert [*Path(cache).rglob("*.arrow")] == before
    assert ".skip(6).take(25)" in code_of(config, examples)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}, "messages"),
        ({"prompt": "two and two?", "completion": "four"}, "prompt and completion"),
    ],
)
def test_that_no_model_here_learns_to_write_text_is_said(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    place = tmp_path / "data" / "train-00000-of-00001.parquet"
    datasets.Dataset.from_list([row] * 20).to_parquet(place)
    with pytest.raises(DataError, match=said) as caught:
        started("hf:talk", tmp_path)
    assert "docs/own-code.md" in caught.value.remedy
    datasets.Dataset.from_list([{"prompt": "x", "response": "y", "label": n % 2} for n in range(40)]).to_parquet(place)
    assert started("hf:judged", tmp_path).model == "mlp"  # with a label, answers are judged, not written


def test_texts_are_validated_on_their_test_split_and_predicted(films: Path, tmp_path: Path) -> None:
    texts = load_examples(small(started("hf:films", films, streaming=True)), lambda _: None)
    assert (texts.train_count, texts.validation_count, texts.class_names) == (40, 10, ("no", "yes"))
    config = started("hf:films", films)
    assert config.model == "text"
    assert make_plan(config, Hardware()).train_examples == 40
    assert batch_of(config).signature.classes == 2
    run = train(small(config, batch_size=8, epochs=1), tmp_path)
    (tmp_path / "new.csv").write_text("id,text\n7,a good film\n")
    (row,) = Job(tmp_path)(run, tmp_path / "new.csv")
    assert row["id"] == "7"
    assert row["label"] in {"no", "yes"}


def test_structured_features_are_numbers_and_categories(people: Path) -> None:
    config = started("hf:people", people)
    assert (config.model, config.data.options.get("label")) == ("mlp", None)  # the only class is the label
    examples = load_examples(small(config), lambda _: None)
    # The split without labels is not used.
    assert (examples.train_count, examples.validation_count, examples.class_names) == (48, 12, ("no", "yes"))
    assert examples.signature.shape == (1 + 2 + 1,)  # age, the values of ship, vip
    kind, other = KINDS["hf"], {**config.data.options, "inputs": ["ship"]}
    assert kind.goals({**other, "label": "age"})[1:] == ("mean_squared_error", ("mean_absolute_error",))
    assert kind.goals({**other, "label": "vip"})[1] == "sparse_categorical_crossentropy"  # few numbers


def test_a_label_that_cannot_be_guessed_is_asked_for(tmp_path: Path) -> None:
    rows = [{"first": n, "second": n / 7} for n in range(30)]
    features = {"first": datasets.Value("int32"), "second": datasets.Value("float64")}
    saved(tmp_path, features, train=rows)
    with pytest.raises(UndecidedError) as asked:
        started("hf:rows", tmp_path)
    assert {*asked.value.question.answers} == {"first", "second"}
    asked_of = [{"question": f"is {n} even", "answer": n % 2 == 0, "passage": f"about {n}"} for n in range(30)]
    saved(tmp_path, datasets.Dataset.from_list(asked_of).features, train=asked_of)
    with pytest.raises(UndecidedError) as asked:
        started("hf:facts", tmp_path)  # an answer that is no text can be learned
    assert "answer" in asked.value.question.answers
    photos = [{"photo": encoded(np.zeros((4, 4, 3), np.uint8), "PNG")} for _ in range(30)]
    folder = saved(tmp_path / "photos", {"photo": datasets.Image()}, train=photos)
    with pytest.raises(DataError, match="no feature that can be predicted: photo"):
        started("hf:photos", folder)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a/../b", {}, "not a dataset name"),
        ("films", {"data_dir": "/nothing/here"}, "/nothing/here is no folder"),
        ("films", {"label": "lable"}, "no feature 'lable'; .*'label'"),
        ("films", {"split": "trian"}, "no split 'trian'; .*'train'"),
    ],
)
def test_what_does_not_exist_is_refused(films: Path, name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConsoleError, match=said):
        started(f"hf:{name}", films, **options)
    if options.keys() & {"label", "split"}:
        changes = [(f"data.options.{option}", value) for option, value in options.items()]
        (problem,) = survey(with_changes(started("hf:films", films), changes)).problems
        assert problem.key == changes[0][0]


def test_without_a_network_the_error_says_which_host_and_where_to_put_the_files() -> None:
    with pytest.raises(DataError) as caught:
        Hf(can_reach=lambda _: False).ask(HfOptions(name="fancyzhx/ag_news"))
    assert "huggingface.co cannot be reached" in caught.value.what
    assert "https://huggingface.co/datasets/fancyzhx/ag_news" in caught.value.remedy
    assert "data.options.data_dir" in caught.value.remedy


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("card", [CARD, "", CARD.replace("dataset_size: 1000", "dataset_size: 4000000000000000")])
def test_a_name_is_planned_by_what_the_hub_says_and_downloaded_by_the_run(
    card: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = datasets.ClassLabel(names=["bad", "good"]) if card else datasets.Value("int64")
    repository = critics(tmp_path, label, card)
    with hub("critics/films", repository) as (address, fetched):
        monkeypatch.setenv("HF_ENDPOINT", address)
        config = first_run("hf:critics/films").config
        plan = make_plan(config, Hardware())
        assert config.model == "text"
        assert config.data.options.get("streaming", False) == (card not in {CARD, ""})  # larger than any disk
        assert plan.train_examples == (32 if card else None)
        assert any("from 127.0.0.1" in advice.text for advice in plan.advice)
        assert any("3.0 MB" in advice.text for advice in plan.advice) == (card == CARD)
        assert not card or "data/train-00000-of-00001.parquet" not in fetched
    assert not Start({}).reasons  # not those of this dataset


@pytest.mark.usefixtures("own_cache")
def test_a_download_that_was_killed_begins_again_and_leaves_nothing(tmp_path: Path) -> None:
    repository = critics(tmp_path, datasets.ClassLabel(names=["bad", "good"]), CARD)
    with hub("critics/films", repository, ["data/train-00000-of-00001.parquet"]) as (address, _):
        environment = os.environ | {"HF_ENDPOINT": address, "TPU_CONSOLE_HOME": str(tmp_path)}
        given: dict[str, Any] = {"cwd": tmp_path, "env": environment}
        killed = fork(LOADS, output=tmp_path / "out", errors=tmp_path / "errors", **given)
        wait_until(lambda: [*tmp_path.rglob("blobs/*.incomplete")], "a part of a file")
        killed.kill()
        killed.wait()
    for place in (*tmp_path.rglob("*.incomplete"), *tmp_path.rglob("*.incomplete/*")):
        os.utime(place, (0, 0))  # it was killed a while ago
    with hub("critics/films", repository) as (address, _):
        assert "32 8 2\n" in run_forked(LOADS, cwd=tmp_path, env={"HF_ENDPOINT": address})
    assert not [*tmp_path.rglob("*.incomplete")]
    # From the cache, it is read without the hub.
    assert run_forked(LOADS, cwd=tmp_path, env={"HF_ENDPOINT": "https://hub.invalid"}) == "32 8 2\n"
