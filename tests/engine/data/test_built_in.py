"""Built-in datasets: what is damaged or cannot be fetched is named, with the file to delete or to put there."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.helpers import ROOT, replace, run_forked, small_config
from tests.keras_files import ACCEPT, write_cifar, write_idx
from tests.servers import Answering, local_server
from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.data.kinds.table import load_examples, survey, train_examples_of
from tpu_console.engine.data.places import Arrived, Download, fetch_file
from tpu_console.engine.errors import DataError, DiskFullError


@pytest.fixture
def keras_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of Keras's; Keras itself takes it up in a process of its own only."""
    home = tmp_path / "keras"
    monkeypatch.setenv("KERAS_HOME", str(home))
    return home


LOAD = """
import dataclasses, json, sys
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import DataError
from tests.helpers import small_config
reports = []
try:
    examples = load_examples(small_config(dataset=sys.argv[1], data=json.loads(sys.argv[2])), reports.append)
    image, label = next(iter(examples.train))
    result = {
        "counts": [examples.train_count, examples.validation_count],
        "shape": image.shape.as_list(),
        "types": [image.dtype.name, label.dtype.name],
        "classes": examples.signature.classes,
        "names": examples.class_names[:2],
        "top": image.numpy().max(axis=(0, 1)).tolist(),
        "label": int(label),
    }
except DataError as error:
    result = {"what": error.what, "why": error.why, "remedy": error.remedy}
print(json.dumps(result | {"reports": reports}))
"""


def load(dataset: str, home: Path, **data: Any) -> dict[str, Any]:
    """Load a dataset in a process of its own, without a network; return what came of it."""
    env = {"KERAS_HOME": str(home), "https_proxy": "http://proxy.invalid:1", "http_proxy": "http://proxy.invalid:1"}
    printed = run_forked(
        ACCEPT + LOAD if dataset.startswith("cifar") else LOAD, dataset, json.dumps(data), cwd=ROOT, env=env
    )
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result


def flipped(raw: bytes) -> bytes:
    """Change a bit in the middle of a file."""
    return raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1 :]


@pytest.mark.parametrize(
    ("data", "counts"),
    [
        ({}, (1437, 360)),
        ({"train_limit": 100}, (100, 360)),
        ({"validation_fraction": 0.3}, (1257, 540)),
        ({"train_limit": 9999}, (1437, 360)),
    ],
)
def test_the_plan_counts_held_out_and_limited_digits_as_loading_does(
    data: dict[str, Any], counts: tuple[int, int]
) -> None:
    config, reports = small_config(data=data), list[object]()
    examples = load_examples(config, reports.append)
    assert (examples.train_count, examples.validation_count) == counts
    assert (train_examples_of(config), survey(config).validation) == counts
    held_out = np.bincount([int(label) for _, label in examples.validation.as_numpy_iterator()])
    assert max(held_out) - min(held_out) <= 4  # split class by class
    assert reports == []  # no download


# Files of CIFAR-10, MNIST and Fashion-MNIST are read, and learned from, in tests/presets.
@pytest.mark.slow
def test_cifar_is_read_from_an_archive_put_there_by_hand(keras_home: Path) -> None:
    write_cifar(keras_home, "cifar100")
    loaded = load("cifar100", keras_home, train_limit=1000)
    assert (loaded["counts"], loaded["reports"]) == ([1000, 10_000], [])
    assert (loaded["shape"], loaded["types"]) == ([32, 32, 3], ["uint8", "int32"])
    assert (loaded["classes"], loaded["names"]) == (100, ["apple", "aquarium_fish"])
    # The first picture's bright bar is in the channel that its label says: rows and channels are in place.
    assert [top == 255 for top in loaded["top"]] == [channel == loaded["label"] % 3 for channel in range(3)]


DAMAGE = [lambda raw: raw[: len(raw) // 2], lambda raw: raw[:-1], flipped, lambda _: b"<html>"]


@pytest.mark.parametrize("damaged", DAMAGE)
@pytest.mark.parametrize("dataset", ["mnist", "fashion-mnist"])
def test_a_damaged_file_is_named_with_what_to_do(
    keras_home: Path, dataset: str, damaged: Callable[[bytes], bytes]
) -> None:
    path = keras_home / DATASETS[dataset].files[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    if dataset == "mnist":
        np.savez(path, x_train=np.zeros((60, 28, 28), np.uint8))
    else:
        write_idx(path, np.arange(50, dtype=np.uint8))
    path.write_bytes(damaged(path.read_bytes()))
    with pytest.raises(DataError) as caught:
        load_examples(small_config(dataset=dataset), lambda _: None)
    assert str(path) in caught.value.what
    assert f"downloaded again from {DATASETS[dataset].files[0].url}" in caught.value.remedy


def test_every_class_has_a_unique_name() -> None:
    assert [len({*info.class_names}) for info in DATASETS.values()] == [10, 10, 10, 10, 100]


@pytest.mark.slow
def test_files_with_another_number_of_images_are_refused(keras_home: Path) -> None:
    folder = keras_home / "datasets" / "fashion-mnist"
    for name, count, labels in (("train", 590, 600), ("t10k", 100, 100)):
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", np.zeros((count, 28, 28), np.uint8))
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", np.zeros(labels, np.uint8))
    error = load("fashion-mnist", keras_home)
    assert "fashion-mnist are damaged" in error["what"]
    assert f"Delete {folder}" in error["remedy"]


@pytest.mark.slow
def test_a_download_without_a_network_names_url_folder_and_offline_presets(keras_home: Path) -> None:
    error, files = load("fashion-mnist", keras_home), DATASETS["fashion-mnist"].files
    assert str(urlsplit(files[0].url).hostname) in error["what"]
    assert all(f"{file.url} as {keras_home / file.path}" in error["remedy"] for file in files)
    assert "digits" in error["remedy"]
    (report,) = error["reports"]
    assert "downloading fashion-mnist, " in report
    assert str((keras_home / files[0].path).parent) in report
    # Nothing is left that the next try would trip over.
    assert not [path for path in (keras_home / "datasets").rglob("*") if path.is_file()]


def test_how_much_of_a_download_has_arrived_is_said_until_it_ends(tmp_path: Path) -> None:
    said: list[object] = []
    has_arrived = Event()
    download = Download("photos", str(tmp_path), "save them yourself", hosts=("example.org",), size=4_000_000)

    def work() -> str:
        (tmp_path / "file").write_bytes(bytes(3_000_000))
        assert has_arrived.wait(30)
        return "done"

    def note(news: object) -> None:
        said.append(news)
        if len(said) > 1:
            has_arrived.set()

    assert download.fetch(work, tmp_path, note, lambda _: True) == "done"
    arrived = said[1]
    assert isinstance(arrived, Arrived)
    assert (arrived.done, arrived.total) == (3_000_000, 4_000_000)
    assert str(replace(arrived, seconds=30)) == "downloading photos: ━━━━━━━━━━━━━━━───── 3.0 MB of 4.0 MB, 10 s left"
    assert str(replace(arrived, done=4_000_000)) == "downloading photos: unpacking"
    with pytest.raises(DataError, match="photos could not be downloaded from example"):
        download.fetch(lambda: 1 // 0, tmp_path, note, lambda _: True)
    with pytest.raises(DataError, match=r"example\.org cannot be reached.*save them yourself"):
        download.fetch(work, tmp_path, note, lambda _: False)
    with pytest.raises(DiskFullError, match="photos"):
        replace(download, needed=1 << 60).fetch(work, tmp_path, note, lambda _: True)


def test_a_download_goes_on_where_it_stopped_and_leaves_nothing_that_is_damaged(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(400_000)
    asked: list[str] = []

    class Handler(Answering):
        def do_GET(self) -> None:
            asked.append(self.headers["Range"])
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            sent = content[start:] if start else content[:300_000]  # the first time, the connection ends early
            self.answer(sent, 206, {"Content-Length": len(content) - start})

    def check(place: Path) -> None:
        if place.read_bytes() != content:
            raise DataError("damaged", why="it differs")

    place = tmp_path / "cache" / "mnist.npz"
    part = place.with_name("mnist.npz.part")
    with local_server(Handler) as address:
        url = f"{address}/mnist.npz"
        with pytest.raises(OSError, match="ended after 300 kB of 400 kB"):
            fetch_file(url, place, check)
        assert [*place.parent.iterdir()] == [part]
        fetch_file(url, place, check)
        assert place.read_bytes() == content
        assert asked == ["bytes=0-", "bytes=300000-"]
        assert not part.exists()
        part.write_bytes(b"of something else")
        place.unlink()
        with pytest.raises(OSError, match="is damaged: it differs"):
            fetch_file(url, place, check)
        assert not [*place.parent.iterdir()]
