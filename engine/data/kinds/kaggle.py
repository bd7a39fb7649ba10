"""Datasets of Kaggle, by their names: ``kaggle:OWNER/NAME`` is a folder, mounted or downloaded, that is read as any."""

from __future__ import annotations

import errno
from pathlib import Path

from ...errors import DataError, one_line
from ...machine.install import check_installed
from ...storage.disk_space import disk_full
from ..places import KAGGLE, check_reachable, kaggle_cache, kaggle_parts, locate

_HOST = "api.kaggle.com"


def folder_of(name: str) -> str:
    """Return the folder of a dataset such as ``kaggle:OWNER/NAME``, which is downloaded if it is not here.

    Raises:
        DataError: It cannot be downloaded.
    """
    from .asking import ask

    if (parts := kaggle_parts(name)) is None:
        raise DataError(f"'{name}' is not the name of a dataset.", remedy="Write it as kaggle:OWNER/NAME.")
    place = locate(name)
    return place if Path(place).exists() else str(Path(ask(KAGGLE, {"handle": parts[0]})["folder"], parts[1]))


def download(handle: str) -> dict[str, str]:
    """Download a dataset with the package, which shows its progress on standard error and resumes what was cut off.

    Raises:
        DataError: It cannot be downloaded.
    """
    check_installed(f"kaggle:{handle}", "kagglehub")
    by_hand = f"save the files of https://www.kaggle.com/datasets/{handle} in a folder, and name that folder"
    check_reachable(handle, [_HOST], by_hand)
    import kagglehub

    try:
        return {"folder": kagglehub.dataset_download(handle)}
    except Exception as error:  # the package raises what the servers, the archives and its own code raise
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise disk_full(kaggle_cache(), handle) from error
        raise DataError(
            f"kaggle:{handle} could not be downloaded.",
            why=f"{type(error).__name__}: {one_line(error, 300)}",
            remedy=f"Check the name; if the dataset asks for an account, set KAGGLE_API_TOKEN. Or {by_hand}.",
        ) from error
