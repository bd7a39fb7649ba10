"""Datasets of TensorFlow Datasets: prepared by that package here, known before they are loaded, and trained on."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.engine.data.scripting import assert_script_reads, inspected, small, started
from tests.engine.jobs.predicting import Job, train
from tests.forks import fork
from tests.helpers import ROOT, run_forked, wait_until
from tests.servers import Answering, bucket, local_server
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.data.kinds.formats import UndecidedError, first_run
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.data.kinds.tfds import Tfds, TfdsOptions
from tpu_console.engine.errors import ConsoleError, DataError
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan
from tpu_console.engine.preflight.choice import batch_of

tfds = pytest.importorskip("tensorflow_datasets")
pytestmark = pytest.mark.slow
LEAVES = ("beech", "oak", "pine")


def leaves(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        yield {"image": np.full((20, 30, 3), 80 * (n % 3), np.uint8), "label": n % 3, "file": f"{n}.png"}


def reviews(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        yield {"text": f"a {('bad', 'good')[n % 2]} film no {n}", "label": n % 2}


def people(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        yield {"age": float(n % 50), "ship": "ab"[n % 2], "saved": n % 2, "vip": n % 2}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare an image, a text and a structured dataset, as the package itself does."""
    folder = tmp_path_factory.mktemp("prepared")
    classes, texts = tfds.features.ClassLabel, tfds.features.Text()
    image = tfds.features.Image(shape=(20, 30, 3))
    described: dict[str, tuple[Any, Any, dict[str, int]]] = {
        "leaves": (leaves, {"image": image, "label": classes(names=LEAVES), "file": texts}, {"train": 30}),
        "films": (reviews, {"text": texts, "label": classes(names=["bad", "good"])}, {"train": 40, "test": 10}),
        "people": (
            people,
            {"age": np.float32, "ship": texts, "saved": classes(names=["no", "yes"]), "vip": classes(num_classes=2)},
            {"train": 60},
        ),
    }
    for name, (make, features, sizes) in described.items():
        wanted = tfds.features.FeaturesDict(features)
        splits = {split: [*enumerate(make(count))] for split, count in sizes.items()}
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name, version="1.0.0", features=wanted, split_datasets=splits, data_dir=folder
        )
    return folder


def test_images_are_planned_inspected_trained_and_predicted(prepared: Path, tmp_path: Path) -> None:
    config = first_run("tfds:leaves", [("data.options.data_dir", str(prepared))]).config
    assert (config.name, config.model, config.data.options["image_size"]) == ("leaves", "cnn", [20, 30])
    plan = make_plan(config, Hardware())
    assert (plan.train_examples, plan.unit, plan.is_possible) == (24, "image", True)
    batch = batch_of(config)
    assert (batch.signature.shape, batch.signature.classes, batch.assumed) == ((20, 30, 3), 3, "")
    found = inspected(config)
    assert [entry["name"] for entry in found["classes"]] == [*LEAVES]
    assert sum(entry["train"] + entry["validation"] for entry in found["classes"]) == 30
    assert found["facts"]["splits"] == "train 30"
    run = train(small(config, batch_size=4, epochs=1, model_options={"filters": [4], "hidden": [8]}), tmp_path)
    Image.new("RGB", (30, 20), (160, 160, 160)).save(tmp_path / "new.png")
    (row,) = Job(tmp_path)(run, tmp_path / "new.png")
    assert row["label"] in LEAVES


def test_what_is_held_out_is_the_end_of_the_split_and_pixels_are_those_of_the_package(prepared: Path) -> None:
    config = with_changes(started("tfds:leaves", prepared), [("data.train_limit", 10)])
    examples = load_examples(config, lambda _: None)
    assert_script_reads(config, examples, tolerance=1)
    assert (examples.train_count, examples.validation_count) == (10, 6)
    wanted = tfds.load("leaves", split="train[:10]+train[24:]", data_dir=prepared).as_numpy_iterator()
    read = [*examples.train.as_numpy_iterator(), *examples.validation.as_numpy_iterator()]
    for (pixels, label), example in zip(read, wanted, strict=True):
        assert label == example["label"]
        assert np.array_equal(pixels, example["image"])


def test_texts_and_structured_features_are_read_and_the_label_of_two_classes_is_asked_for(prepared: Path) -> None:
    config = started("tfds:films", prepared)
    assert (config.model, config.data.options.get("inputs")) == ("text", None)
    examples = load_examples(small(config), lambda _: None)
    assert (examples.train_count, examples.validation_count, examples.class_names) == (40, 10, ("bad", "good"))
    assert_script_reads(small(config), examples)
    with pytest.raises(UndecidedError) as asked:
        started("tfds:people", prepared)
    assert {*asked.value.question.answers} == {"age", "ship", "saved", "vip"}
    examples = load_examples(small(started("tfds:people", prepared, label="saved")), lambda _: None)
    assert (examples.train_count, examples.validation_count, examples.class_names) == (48, 12, ("no", "yes"))
    assert examples.signature.shape == (1 + 2 + 2,)  # age, the values of ship, those of vip


@pytest.mark.parametrize(("name", "said"), [("leafs", "no dataset 'leafs'"), ("../leaves", "not a dataset name")])
def test_a_name_that_does_not_exist_is_refused(prepared: Path, name: str, said: str) -> None:
    with pytest.raises(ConsoleError, match=said):
        started(f"tfds:{name}", prepared)


def test_without_a_network_the_error_says_which_host_and_where_to_put_the_files(tmp_path: Path) -> None:
    options = TfdsOptions(name="rock_paper_scissors", data_dir=str(tmp_path))
    kind = Tfds(can_reach=lambda _: False)
    facts = kind.ask(options)
    assert (facts.label, facts.features["label"].names) == ("label", ("rock", "paper", "scissors"))
    assert "230 MB from storage.googleapis.com" in str(facts.download)
    with pytest.raises(DataError) as caught:
        kind.prepare(options, lambda _: None)
    assert "storage.googleapis.com" in caught.value.what
    assert f"{tmp_path}/downloads/manual" in caught.value.remedy
    assert "rps.zip" in caught.value.remedy

    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    for name in ("rps.zip", "rps-test-set.zip"):
        (manual / name).write_bytes(b"not the file")
    with pytest.raises(DataError) as caught:
        kind.prepare(options, lambda _: None)
    assert "Checksum" in caught.value.why  # they are read, not downloaded


LOADS = """
from tests.helpers import small_config
from tpu_console.engine.data.kinds.table import load_examples
data = {"options": {"name": "leaves", "data_dir": "gs://bucket", "image_size": [20, 30]}}
examples = load_examples(small_config(dataset="tfds", model="cnn", model_options={}, data=data), print)
images = [image for image, label in examples.train]
print(len(images), examples.validation_count, images[0].shape)
"""


def test_shards_are_read_directly_on_a_bucket(prepared: Path, tmp_path: Path) -> None:
    with bucket(prepared, tmp_path) as (environment, asked):
        said = run_forked(LOADS, cwd=ROOT, env=environment | {"TPU_CONSOLE_HOME": str(tmp_path)})
    assert said == "24 6 (20, 30, 3)\n"
    assert any("tfrecord" in path for path in asked)


LETTERS = """
import sys
import tensorflow_datasets as tfds

class Letters(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict({"text": tfds.features.Text()}))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(manager.download(sys.argv[1]))}

    def _generate_examples(self, path):
        yield from enumerate({"text": letter} for letter in path.read_text())
"""

FETCHES = """
import sys
sys.path.insert(0, ".")
import letters
from tpu_console.engine.data.kinds.tfds import Tfds, TfdsOptions

print(Tfds(can_reach=lambda _: True).prepare(TfdsOptions(name="letters", data_dir="data"), lambda _: None).splits)
"""


def test_a_download_that_was_killed_begins_again_and_leaves_nothing(tmp_path: Path) -> None:
    content = b"abcd" * 20
    is_halved = True

    class Handler(Answering):
        def do_GET(self) -> None:
            self.answer(content, is_half=is_halved)

    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "__init__.py").write_text(LETTERS)  # a package, as the builders of tfds are
    with local_server(Handler) as address:
        environment = os.environ | {"TPU_CONSOLE_HOME": str(tmp_path)}
        files: dict[str, Any] = {"output": tmp_path / "out", "errors": tmp_path / "errors"}
        killed = fork(FETCHES, f"{address}/letters.txt", cwd=tmp_path, env=environment, **files)
        wait_until(lambda: [*tmp_path.rglob("*.tmp.*/*")], "a part of a file")
        killed.kill()
        killed.wait()
        left = [*tmp_path.rglob("*.tmp.*"), *tmp_path.rglob("incomplete.*")]
        assert len(left) == 2
        for place in (*left, *(inner for folder in left for inner in folder.rglob("*"))):
            os.utime(place, (0, 0))  # it was killed a while ago
        is_halved = False
        assert run_forked(FETCHES, f"{address}/letters.txt", cwd=tmp_path).endswith("{'train': 80}\n")
    assert not [place for place in left if place.exists()]
