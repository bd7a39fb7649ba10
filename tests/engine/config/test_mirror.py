"""Which places can be a mirror."""

from __future__ import annotations

import pytest

from tests.helpers import small_config
from tpu_console.engine.errors import ConfigError


@pytest.mark.parametrize("mirror", ["", "/mnt/drive/My runs", "~/runs", "gs://bucket", "gs://my-bucket/a/b_c.d/"])
def test_a_mirror_is_a_folder_or_a_bucket(mirror: str) -> None:
    assert small_config(mirror=mirror).mirror == mirror


@pytest.mark.parametrize(
    "mirror",
    [
        "runs",
        "./runs",
        "~you/runs",
        "s3://bucket/runs",
        "gs://",
        "gs://user:secret@bucket/runs",
        "gs://b/r?token=1",
        "file:///mnt",
        " /mnt",
    ],
)
def test_anything_else_is_refused_and_so_no_secret_can_be_in_it(mirror: str) -> None:
    with pytest.raises(ConfigError, match="must be a bucket such as gs://bucket/runs, or the full path of a folder"):
        small_config(mirror=mirror)
