"""Keeps decoded images in the user's cache folder, so that the next run on the same files decodes nothing.

A file is used if it belongs to this user, was made from the same files of the same sizes and times, and has the right
checksum; otherwise the images are decoded again. It says which images it has, and then has them in the order of their
numbers.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.caches import DECODED, cache_files, make_room
from ..storage.disk_space import free_bytes
from ..storage.files import make_private_folder, open_private, open_regular, remove_drafts, whole_file
from ..storage.paths import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ..data.examples import ImageFiles

MOST_BYTES = 8 << 30
"""Size of all kept images together, of which the least recently used are removed."""

_LEFT_FREE_BYTES = 2 << 30
_MAGIC = b"tpucimg1"
_PREFIX = struct.Struct("<8sQQI")  # magic, number of images, bytes of each, checksum
_CHUNK_BYTES = 32 << 20


class KeptImages:
    """The kept images of a dataset's files."""

    def __init__(self, files: ImageFiles) -> None:
        self._count, self._shape = files.count, files.shape
        self._each = int(np.prod(files.shape))
        self._size = _PREFIX.size + self._count * (1 + self._each)
        self._path = cache_folder() / DECODED / f"{files.key}.images"

    def load(self, write: Callable[[Any, Any], Any]) -> NDArray[np.bool_] | None:
        """Pass the kept images on; return which there are, or None if the file is missing or damaged.

        `write` gets numbers and images. If the file turns out to be damaged, the caller must not use them.
        """
        with suppress(OSError, ValueError, struct.error), open_regular(self._path) as file:
            status = os.fstat(file.fileno())
            magic, count, each, checksum = _PREFIX.unpack(file.read(_PREFIX.size))
            if (magic, count, each, status.st_uid) != (_MAGIC, self._count, self._each, os.geteuid()):
                return None
            if status.st_size != self._size:
                return None
            known = np.fromfile(file, np.bool_, count)
            found = zlib.crc32(known.tobytes())
            for numbers in self._chunks():
                images = np.fromfile(file, np.uint8, len(numbers) * each)
                found = _checksum(images, found)
                write(numbers, images.reshape(-1, *self._shape))
            if found == checksum:
                os.utime(self._path)  # used last
                return known
        return None

    def save(self, known: NDArray[np.bool_], read: Callable[[Any], Any]) -> None:
        """Keep the known images, which `read` returns by their numbers.

        Does nothing if they cannot be written, are too many, or would fill the disk.
        """
        folder = self._path.parent
        with suppress(OSError):
            make_private_folder(folder)
            remove_drafts(folder)
            if self._size > MOST_BYTES or (free_bytes(folder) or 0) < self._size + _LEFT_FREE_BYTES:
                return
            make_room([file for file in cache_files(DECODED) if file != self._path], MOST_BYTES, self._size)
            # Not synced: after a power failure the checksum is wrong, and the images are decoded again.
            with whole_file(self._path, is_synced=False) as draft, open(draft, "wb", opener=open_private) as file:
                file.write(bytes(_PREFIX.size))
                file.write(known.tobytes())
                found = zlib.crc32(known.tobytes())
                for numbers in self._chunks():
                    images = np.ascontiguousarray(read(numbers)).reshape(-1)
                    found = _checksum(images, found)
                    file.write(images.data)
                file.seek(0)
                file.write(_PREFIX.pack(_MAGIC, self._count, self._each, found))

    def _chunks(self) -> Iterator[NDArray[np.int64]]:
        step = max(1, _CHUNK_BYTES // self._each)
        for start in range(0, self._count, step):
            yield np.arange(start, min(start + step, self._count))


def _checksum(images: NDArray[np.uint8], before: int) -> int:
    """Return a checksum of images and the ones before; adding takes a tenth of the time of a CRC."""
    whole = len(images) // 8 * 8
    total = int(np.add.reduce(images[:whole].view(np.uint64)))
    return zlib.crc32(total.to_bytes(8, "little") + images[whole:].tobytes(), before)
