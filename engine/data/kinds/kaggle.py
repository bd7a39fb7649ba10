"""Datasets of Kaggle, by their names: ``kaggle:OWNER/NAME`` is a folder, mounted or downloaded, that is read as any."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DataError
from ...machine.install import check_installed
from ..download import Download, reaches, remove_leftovers
from ..places import KAGGLE, kaggle_cache, kaggle_parts, locate

if TYPE_CHECKING:
    from ..download import OnFetch

_HOST = "api.kaggle.com"


def folder_of(name: str, on_fetch: OnFetch) -> str:
    """Return the folder of a dataset such as ``kaggle:OWNER/NAME``, which is downloaded if it is not here.

    Raises:
        DataError: It cannot be downloaded.
    """
    from .asking import ask

    if (parts := kaggle_parts(name)) is None:
        raise DataError(f"'{name}' is not the name of a dataset.", remedy="Write it as kaggle:OWNER/NAME.")
    place = locate(name)
    return place if Path(place).exists() else str(Path(ask(KAGGLE, {"handle": parts[0]}, on_fetch)["folder"], parts[1]))


def download(handle: str, on_fetch: OnFetch) -> dict[str, str]:
    """Download a dataset with the package, which resumes what was cut off.

    Raises:
        DataError: It cannot be downloaded.
    """
    check_installed(f"kaggle:{handle}", "kagglehub")
    by_hand = f"save the files of https://www.kaggle.com/datasets/{handle} in a folder, and name that folder. "
    account = "If the dataset asks for an account, set KAGGLE_API_TOKEN"
    place = kaggle_cache() / "datasets" / handle
    another = "set KAGGLEHUB_CACHE to a folder on another one"
    known = Download(f"kaggle:{handle}", str(place), by_hand + account, another, (_HOST,))
    known.check(reaches)
    import kagglehub

    arrived = sum(archive.stat().st_size for archive in place.glob("*.archive"))
    known = replace(known, size=max(0, _size(handle) - arrived))
    folder = known.fetch(lambda: kagglehub.dataset_download(handle), place, on_fetch, reaches)
    remove_leftovers(place.glob("*.archive"))  # of older versions
    return {"folder": folder}


def _size(handle: str) -> int:
    """Return the bytes of a dataset; 0 if Kaggle does not say."""
    from kagglehub.clients import build_kaggle_client
    from kagglesdk.datasets.types.dataset_api_service import ApiGetDatasetRequest

    request = ApiGetDatasetRequest()
    request.owner_slug, request.dataset_slug = handle.split("/")
    with suppress(Exception), build_kaggle_client() as client:
        return int(client.datasets.dataset_api_client.get_dataset(request).total_bytes)
    return 0
