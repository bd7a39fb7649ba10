"""Asks a package about data with a name, in a process of its own: it may import TensorFlow, which the console must not.

Datasets of Kaggle, ``kaggle:OWNER/NAME``, are folders, mounted or downloaded, that are read as any other.

`python -P -m tpu_console.engine.data.kinds.asking KIND OPTIONS` writes the answer as a message of `engine.messages`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from ...errors import DataError
from ...machine.install import check_installed
from ...messages import (
    MessageReader,
    end_with_parent,
    error_of,
    kill_with_children,
    report_result,
    standard_output_reporter,
    start_module,
)
from ..places import KAGGLE, Arrived, Download, kaggle_cache, kaggle_parts, locate, reaches, remove_leftovers, reporting

if TYPE_CHECKING:
    from ..places import OnFetch

_LIMIT_S = 120.0
_NOWHERE = "http://nowhere.invalid:1"  # a proxy that no request gets through


def ask(kind: str, options: dict[str, Any], on_fetch: OnFetch = lambda _: None) -> dict[str, Any]:
    """Return what `NamedKind.ask` of a kind, or `download_from_kaggle`, returns: plain values, with texts safe to show.

    Without options it is what `Tfds.list_names` returns; no server is reached for that. Raises `ConsoleError` if it
    failed.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | ({} if options else {"https_proxy": _NOWHERE})
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        process = start_module("engine.data.kinds.asking", kind, json.dumps(options), env=environment, **streams)
    except OSError as error:
        raise DataError(f"No process can be started to ask {kind}: {error.strerror}.") from error
    last, began = dict[str, Any](), time.monotonic()
    try:
        with process:
            reader = MessageReader(process.stdout)
            while (read := reader.read()) is not None:
                for last in read:
                    if last["kind"] == "progress":
                        on_fetch(Arrived(last["what"], last["done"], last["total"] or 0, time.monotonic() - began))
            process.wait(_LIMIT_S)
    finally:
        kill_with_children(process)
    if not last:
        raise DataError(f"{kind} could not be asked: its process ended without an answer.")
    if last.pop("kind") != "result":
        raise error_of(last, "")
    return last


def kaggle_folder(name: str, on_fetch: OnFetch) -> str:
    """Return the folder of a dataset of Kaggle, downloaded if it is not here; raise `DataError` if it fails."""
    if (parts := kaggle_parts(name)) is None:
        raise DataError(f"'{name}' is not the name of a dataset.", remedy="Write it as kaggle:OWNER/NAME.")
    place = locate(name)
    return place if Path(place).exists() else str(Path(ask(KAGGLE, {"handle": parts[0]}, on_fetch)["folder"], parts[1]))


def download_from_kaggle(handle: str, on_fetch: OnFetch) -> dict[str, str]:
    """Download a dataset with the package, which resumes what was cut off; raise `DataError` if it fails."""
    check_installed(f"kaggle:{handle}", "kagglehub")
    place = kaggle_cache() / "datasets" / handle
    download = Download(
        f"kaggle:{handle}",
        folder=str(place),
        by_hand=f"save the files of https://www.kaggle.com/datasets/{handle} in a folder, and name that folder. "
        "If the dataset asks for an account, set KAGGLE_API_TOKEN",
        otherwise="set KAGGLEHUB_CACHE to a folder on another one",
        hosts=("api.kaggle.com",),
    )
    download.check(reaches)
    import kagglehub
    from kagglehub.clients import build_kaggle_client
    from kagglesdk.datasets.types.dataset_api_service import ApiGetDatasetRequest

    request = ApiGetDatasetRequest()
    request.owner_slug, request.dataset_slug = handle.split("/")
    with suppress(Exception), build_kaggle_client() as client:  # its size stays unknown if Kaggle does not say it
        size = int(client.datasets.dataset_api_client.get_dataset(request).total_bytes)
        arrived = sum(archive.stat().st_size for archive in place.glob("*.archive"))
        download = replace(download, size=max(0, size - arrived))
    folder = download.fetch(lambda: kagglehub.dataset_download(handle), place, on_fetch, reaches)
    remove_leftovers(place.glob("*.archive"))  # of older versions
    return {"folder": folder}


def main(name: str, options: str) -> int:
    """Answer a question; return the exit code."""
    from .table import KINDS

    reporter = standard_output_reporter()
    end_with_parent()
    kind: Any = KINDS.get(name)  # a `NamedKind`, or none for Kaggle
    given = json.loads(options)

    def answer() -> Any:
        if kind is None:
            return download_from_kaggle(given["handle"], reporting(reporter, lambda _: None))
        return to_builtins(kind.ask(kind.Options.model_validate(given))) if given else kind.list_names()

    return report_result(reporter, name, answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
