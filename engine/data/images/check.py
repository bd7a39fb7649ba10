"""Looks at image files before anything depends on them: what they are, and what is wrong with them.

Only the header and the end of a file are read, and the whole of a PNG, whose checksums tell of any damage. A file
whose end looks odd is decoded to be sure.
"""

from __future__ import annotations

import struct
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

import tensorflow as tf
from PIL import Image, UnidentifiedImageError

from ...errors import one_line
from ...storage.files import NotAFileError, open_regular
from ..places import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST_PIXELS = 100_000_000
"""An image that claims more is refused undecoded: decoded it would take over 300 MB, and several are at a time."""

# Pillow warns a little earlier, and refuses only at twice that.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)

_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
_ORIENTATION = 0x0112
"""The EXIF tag that says how the camera was held, from 1 (upright) to 8."""

_PNG_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an image file.

    Args:
        path: The file.
        problem: What is wrong with it, such as ``is empty``; an empty string when it can be used.
        format: ``JPEG``, ``PNG``, ``GIF``, ``BMP`` or ``WEBP``; what it is instead, or empty where that is unknown.
        width: Pixels, once it is turned upright.
        height: Likewise.
        orientation: How it has to be turned, as EXIF counts: 1 is upright already.
        decoder: What decodes it: TensorFlow's ``jpeg`` or ``png``, the latter with the alpha channel for
            ``png-alpha``, or ``pillow`` for formats that not every version of TensorFlow reads.
    """

    path: str
    problem: str = ""
    format: str = ""
    width: int = 0
    height: int = 0
    orientation: int = 1
    decoder: str = "pillow"


def check_images(paths: Sequence[str], on_progress: Callable[[str], None]) -> list[Facts]:
    """Look at image files, several at a time.

    Args:
        paths: Files, local or on any of TensorFlow's file systems.
        on_progress: Called with a sentence at the beginning, and every few seconds if it takes longer.

    Returns:
        What was found of each, in the same order.
    """
    on_progress(f"checking {len(paths):,} images")
    told = time.monotonic()
    facts: list[Facts] = []
    # A local header is read from memory mostly, and threads only wait for Python's lock; a bucket answers slowly.
    with checkers(32 if paths and is_remote(paths[0]) else 2) as pool:
        for fact in pool.map(examine, paths):
            facts.append(fact)
            if time.monotonic() - told > 2.0:
                told = time.monotonic()
                on_progress(f"checking images: {len(facts):,} of {len(paths):,}")
    return facts


@contextmanager
def checkers(count: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads that look at files; whoever interrupts them does not wait for the files that are left."""
    with ThreadPoolExecutor(count, "image checker") as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def examine(path: str) -> Facts:
    """Look at one image file."""
    try:
        with open_file(path) as stream:
            return _examined(path, stream)
    except (FileNotFoundError, tf.errors.NotFoundError):
        return Facts(path, "is not there")
    except NotAFileError as error:
        return Facts(path, str(error.strerror).removeprefix("it "))
    except UnidentifiedImageError:
        return Facts(path, "is not an image of a known format")
    except Image.DecompressionBombError:
        return Facts(path, f"claims to have more than {MOST_PIXELS // 1_000_000} million pixels")
    except OSError as error:
        return Facts(path, f"cannot be read: {error.strerror or one_line(error, 100)}")
    except Exception as error:  # noqa: BLE001  Pillow's parsers raise what their code happens to raise on damaged bytes
        return Facts(path, f"is damaged: {one_line(error, 100)}")


def open_file(path: str) -> BinaryIO:
    """Open a file for reading, on whichever file system it is."""
    return cast("BinaryIO", tf.io.gfile.GFile(path, "rb")) if is_remote(path) else cast("BinaryIO", open_regular(path))


def pixels(path: str) -> Image.Image:
    """Decode an image file with Pillow, as RGB and not turned upright; behind what is see-through it is white."""
    with open_file(path) as stream, Image.open(stream) as image:
        if not _shows_through(image):
            return image.convert("RGB")
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _examined(path: str, stream: BinaryIO) -> Facts:
    if not stream.read(1):
        return Facts(path, "is empty")
    stream.seek(0)
    with Image.open(stream) as image:
        # What telephones call MPO is a JPEG with further ones behind it.
        kind = {"MPO": "JPEG"}.get(str(image.format), str(image.format))
        width, height = image.size
        problem = _refusal(image, kind)
        orientation = 1 if problem else _orientation(image, kind)
        decoder = _decoder(image, kind)
        if not problem:
            problem = _damage(kind, stream)
    if orientation > 4:
        width, height = height, width
    return Facts(path, problem, kind, width, height, orientation, decoder)


def _refusal(image: Image.Image, kind: str) -> str:
    """Say why an image is not used although it may be whole."""
    if kind not in _FORMATS:
        return f"is a {kind} file; {', '.join(_FORMATS[:-1])} and {_FORMATS[-1]} are read"
    width, height = image.size
    if width * height > MOST_PIXELS:
        return f"claims to have {width:,} × {height:,} pixels"
    if kind in {"GIF", "WEBP"} and (pictures := getattr(image, "n_frames", 1)) > 1:
        return f"is an animation of {pictures:,} pictures"
    return ""


def _orientation(image: Image.Image, kind: str) -> int:
    # Pillow decodes a whole PNG to look for what most have in front of their pixels, if at all.
    if kind == "PNG" and "exif" not in image.info:
        return 1
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001  notes of a camera that nobody can read leave the image as it is
        return 1
    return orientation if orientation in range(1, 9) else 1


def _decoder(image: Image.Image, kind: str) -> str:
    if kind == "PNG":
        return "png-alpha" if _shows_through(image) else "png"
    return "jpeg" if kind == "JPEG" else "pillow"


def _shows_through(image: Image.Image) -> bool:
    return image.mode in {"LA", "La", "PA", "RGBA", "RGBa"} or "transparency" in image.info


def _damage(kind: str, stream: BinaryIO) -> str:
    """Say what is damaged, or return an empty string."""
    if kind == "PNG":
        return _png_damage(stream)
    if _ends_well(kind, stream):
        return ""
    stream.seek(0)
    try:
        # Opened anew: the first time has left its place in the file.
        with Image.open(stream) as image:
            image.load()
    except OSError as error:
        return f"is cut off or damaged: {one_line(error, 100)}"
    return ""


def _ends_well(kind: str, stream: BinaryIO) -> bool:
    """Tell whether the end of a file is certainly where its format wants it."""
    size = stream.seek(0, 2) or stream.tell()
    if kind == "WEBP":
        stream.seek(4)
        return bool(struct.unpack("<I", stream.read(4))[0] + 8 <= size)
    stream.seek(max(0, size - 4096))
    end = stream.read(4096).rstrip(b"\0")
    # Neither marker can be the pixels' own last bytes; a thumbnail's is never at the very end.
    return kind == "JPEG" and end.endswith(b"\xff\xd9")


def _png_damage(stream: BinaryIO) -> str:
    """Go through a PNG's chunks and their checksums, up to the last one."""
    stream.seek(8)
    while len(head := stream.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        content = stream.read(length + 4)
        if len(content) < length + 4:
            break
        if kind in _PNG_CRITICAL and zlib.crc32(content[:-4], zlib.crc32(kind)) != struct.unpack(">I", content[-4:])[0]:
            return f"is damaged: the checksum of its part {kind.decode()} is wrong"
        if kind == b"IEND":
            return ""
    return "is cut off: its end is missing"
