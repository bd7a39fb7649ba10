"""Datasets of Kaggle by name: kagglehub itself asks a local server, which stands for Kaggle's as a proxy does."""

import importlib.metadata
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import run_python, wait_until
from tests.servers import Answering, local_server
from tpu_console.engine.data.kinds.formats import first_run
from tpu_console.engine.data.kinds.table import known_names, load_examples, survey
from tpu_console.engine.data.places import locate
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.storage.keyed_store import KeyedStore

NAME = "kaggle:someone/film-reviews"
ZIP = {"Content-Type": "application/zip", "Accept-Ranges": "bytes"}
FILES = {"reviews.csv": "review,sentiment\n" + "it was good indeed,pos\nit was bad indeed,neg\n" * 20, "about.md": "x"}


@contextmanager
def kaggle(
    monkeypatch: pytest.MonkeyPatch, cache: Path, files: Mapping[str, bytes | str] = FILES, *, is_halved: bool = False
) -> Iterator[list[str]]:
    """Answer as Kaggle does for one dataset in version 3; gives the names of the calls, and the ranges asked for."""
    calls: list[str] = []
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        for name, content in files.items():
            written.writestr(zipfile.ZipInfo(name), content)

    class Handler(Answering):
        def do_POST(self) -> None:
            call = self.path.rpartition("/")[2]
            body = self.rfile.read(int(self.headers["Content-Length"]))
            calls.append(call)
            if json.loads(body)["datasetSlug"] != "film-reviews":
                self.answer(b'{"code": 404, "message": "Not found"}', 404, {"Content-Type": "application/json"})
            elif call == "GetDataset":
                self.answer(b'{"currentVersionNumber": 3}', headers={"Content-Type": "application/json"})
            else:
                self.answer(archive.getvalue(), headers=ZIP, is_half=is_halved)

        def do_GET(self) -> None:
            calls.append(self.headers["Range"])
            first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.answer(archive.getvalue()[first:], 206, ZIP)

    with local_server(Handler) as address:
        for name, value in {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",  # the package then speaks HTTP, which a proxy can answer
            "HTTP_PROXY": address,
            "NO_PROXY": "",
            "KAGGLEHUB_CACHE": str(cache),
        }.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setenv(name.lower() if name.endswith("PROXY") else name, value)
        yield calls


def test_a_name_is_downloaded_once_and_read_as_the_folder_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(monkeypatch, tmp_path / "cache") as calls:
        start = first_run(NAME)
        assert calls == ["GetDataset", "GetDataset", "DownloadDataset"]  # its size, its version, itself
        assert first_run(NAME).config == start.config
        assert len(calls) == 3
    assert start.config.dataset == "text-csv"
    assert start.config.data.options["path"] == f"{NAME}/reviews.csv"  # as it is called on any machine
    assert start.config.name == "someone-film-reviews"
    found = survey(start.config)
    assert found.classes == {"neg": 20, "pos": 20}
    assert load_examples(start.config, lambda _: None).train_count == 32


def test_a_newer_version_is_taken_and_a_partial_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    place = tmp_path / "datasets" / "someone" / "film-reviews"
    for version in ("9", "10", "11"):
        (place / "versions" / version).mkdir(parents=True)
    for version in ("9", "10"):
        (place / f"{version}.complete").touch()
    (place / "versions" / "10" / "train").mkdir()
    assert locate(f"{NAME}/train") == str(place / "versions" / "10" / "train")
    assert locate(NAME) == str(place / "versions" / "10")


def test_names_that_were_fetched_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path / "kaggle"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    KeyedStore[dict[str, str]]("names.json", dict[str, str]).put(
        importlib.metadata.version("tensorflow-datasets"),
        {"mnist": "12 MB to download", "titanic": "118 KB to download"},
    )
    for place in ("kaggle/datasets/someone/film-reviews/3.complete", "kaggle/datasets/someone/cut-off/1.archive",
                  "hub/fancyzhx___ag_news/default/x.arrow", "tfds/mnist/3.0.1/dataset_info.json"):  # fmt: skip
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    assert known_names() == {
        NAME: "on this machine",
        "hf:fancyzhx/ag_news": "on this machine",
        "tfds:mnist": "on this machine, 12 MB",
        "tfds:titanic": "118 KB to download",
    }


def test_what_cannot_be_downloaded_says_where_the_files_are_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kaggle(monkeypatch, tmp_path), pytest.raises(ConsoleError, match="someone/other") as caught:
        first_run("kaggle:someone/other")
    assert "404" in caught.value.why
    assert "https://www.kaggle.com/datasets/someone/other" in caught.value.remedy
    with pytest.raises(ConsoleError, match="kaggle:OWNER/NAME"):
        first_run("kaggle:../../etc")


FETCHES = f"""
from tpu_console.engine.data.kinds.asking import kaggle_folder
print(kaggle_folder({NAME!r}, lambda _: None))
"""


def test_a_download_that_was_killed_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, bytes | str] = {"reviews.csv": FILES["reviews.csv"], "film.bin": os.urandom(5 << 20)}
    with kaggle(monkeypatch, tmp_path / "cache", files, is_halved=True):
        environment = os.environ | {"TPU_CONSOLE_HOME": str(tmp_path)}
        killed = subprocess.Popen(
            [sys.executable, "-c", FETCHES], cwd=tmp_path, env=environment, start_new_session=True
        )
        wait_until(
            lambda: [part for part in tmp_path.rglob("*.archive") if part.stat().st_size == 2 << 20],
            "all of the whole megabytes",
        )
        os.killpg(killed.pid, signal.SIGKILL)  # with the child that asks
        killed.wait()
    assert not Path(locate(NAME)).exists()
    (part,) = tmp_path.rglob("*.archive")
    with kaggle(monkeypatch, tmp_path / "cache", files) as calls:
        folder = Path(run_python(FETCHES, cwd=tmp_path).strip())
        assert f"bytes={2 << 20}-" in calls
    assert {file.name: file.read_bytes() for file in folder.iterdir()}["film.bin"] == files["film.bin"]
    assert not part.exists()
