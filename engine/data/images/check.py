"""Checks image files: format, size, and whether they are damaged.

Only the header and the end of a JPEG are read, and all of a PNG, whose checksums reveal any damage. Others, and a JPEG
whose end looks wrong, are decoded.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, TypeVar

import numpy as np
from msgspec import Struct
from PIL import Image, UnidentifiedImageError

from ...errors import one_line
from ...machine.environment import usable_cores
from ...messages import Reporter
from ...storage.files import NotAFileError
from ..places import is_remote, open_file
from ..tables import first_of, short_name

T = TypeVar("T")
# Larger images are refused without decoding: one would take over 300 MB, and several are decoded in parallel.
MOST_PIXELS = 100_000_000
# Pillow warns at a slightly lower limit and refuses at twice this one.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)
_MISSING = "is not there"
_GRAY = {"1", "L", "LA", "La", "I", "I;16", "I;16B", "F"}  # Pillow's modes
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
_ORIENTATION = 0x0112  # the EXIF tag that says how the camera was held, from 1 (upright) to 8


class ImageFacts(Struct, frozen=True):
    """What is known about an image file."""

    path: str
    problem: str = ""  # what is wrong with it, such as ``is empty``; empty if it can be used
    format: str = ""  # ``JPEG``, ``PNG``, ``GIF``, ``BMP``, ``WEBP`` or an unsupported format; empty if unknown
    width: int = 0  # width in pixels after it is turned upright
    height: int = 0  # height in pixels, likewise
    orientation: int = 1  # EXIF orientation; 1 is upright
    is_gray: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether TensorFlow decodes it; Pillow does formats that not every version of TensorFlow reads."""
        return self.format in {"JPEG", "PNG"}


def check_images(
    paths: Sequence[str],
    on_progress: Callable[[str], None],
    check: Callable[[str], T],
    doing: str = "checking",
    every_s: float = 2.0,
) -> list[T]:
    """Check image files as `check_all` does; `on_progress`, called every few seconds, may raise to end the check."""
    on_progress(f"{doing} {len(paths):,} images")
    reported_s = time.monotonic()

    def report(done: int) -> None:
        nonlocal reported_s
        if time.monotonic() - reported_s > every_s:
            reported_s = time.monotonic()
            on_progress(f"{doing} images: {done:,} of {len(paths):,}")

    return _checked(check, paths, report)


def check_all(check: Callable[[str], T], paths: Sequence[str], reporter: Reporter) -> list[T]:
    """Check image files, local or remote, in parallel, and return the results in order."""
    return _checked(check, paths, lambda done: reporter.progress("checking images", done, len(paths), "images"))


def _checked(check: Callable[[str], T], paths: Sequence[str], report: Callable[[int], object]) -> list[T]:
    """Check files in threads; an interruption does not wait for the remaining ones."""
    results: list[T] = []
    # Headers of local files are mostly cached, so more threads only wait for Python's lock; a bucket answers slowly.
    threads = 32 if paths and is_remote(paths[0]) else 2 if check is check_image else usable_cores()
    with ThreadPoolExecutor(threads, "image checker") as pool:
        try:
            for result in pool.map(check, paths):
                results.append(result)
                report(len(results))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def check_some(paths: Sequence[str], limit_s: float) -> dict[int, ImageFacts]:
    """Check local image files in random order until the time is over; return the facts by the index of the path."""
    ends_at, facts = time.monotonic() + limit_s, dict[int, ImageFacts]()
    for index in np.random.default_rng(0).permutation(len(paths)).tolist():
        facts[index] = check_image(paths[index])
        if time.monotonic() > ends_at:
            break
    return facts


def check_image(path: str, contents: BinaryIO | None = None) -> ImageFacts:
    """Check one image file, or its contents that were read already."""
    try:
        with contents or open_file(path) as stream:
            return _check_open(path, stream)
    except FileNotFoundError:
        problem = _MISSING
    except NotAFileError as error:
        problem = str(error.strerror).removeprefix("it ")
    except UnidentifiedImageError:
        problem = "is not an image of a known format"
    except Image.DecompressionBombError:
        problem = f"claims to have more than {MOST_PIXELS // 1_000_000} million pixels"
    except OSError as error:
        problem = f"cannot be read: {error.strerror or one_line(error, 100)}"
    except Exception as error:  # noqa: BLE001  Pillow's parsers raise what their code happens to raise on damaged bytes
        is_remote_missing = type(error).__name__ == "NotFoundError"  # TensorFlow's
        problem = _MISSING if is_remote_missing else f"is damaged: {one_line(error, 100)}"
    return ImageFacts(path, problem)


def named(bad: Sequence[tuple[str, str]]) -> str:
    """List the first bad files with their problems, such as ``("Train_3", "is empty")``, and count the others."""
    return first_of([f"{short_name(name)} {problem}" for name, problem in bad], separator="; ")


def pixels(path: str) -> Image.Image:
    """Decode an image file with Pillow, as RGB on white and without turning it upright."""
    with open_file(path) as stream, Image.open(stream) as image:
        if image.mode not in {"LA", "La", "PA", "RGBA", "RGBa"} and "transparency" not in image.info:
            return image.convert("RGB")
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _check_open(path: str, stream: BinaryIO) -> ImageFacts:
    if not stream.read(1):
        return ImageFacts(path, "is empty")
    stream.seek(0)
    with Image.open(stream) as image:
        kind = str(image.format).replace("MPO", "JPEG")  # which phones write: a JPEG followed by more JPEGs
        width, height = image.size
        problem, orientation, is_gray = "", 1, image.mode in _GRAY
        if kind not in _FORMATS:
            problem = f"is a {kind} file; {', '.join(_FORMATS[:-1])} and {_FORMATS[-1]} are read"
        elif width * height > MOST_PIXELS:
            problem = f"claims to have {width:,} × {height:,} pixels"
        elif kind in {"GIF", "WEBP"} and (pictures := getattr(image, "n_frames", 1)) > 1:
            problem = f"is an animation of {pictures:,} pictures"
        # Pillow would decode the whole PNG to look for EXIF data, which is almost always before the pixels.
        elif kind != "PNG" or "exif" in image.info:
            with suppress(Exception):  # unreadable EXIF data: the image is used as it is
                found = image.getexif().get(_ORIENTATION, 1)
                orientation = found if found in range(1, 9) else 1
        problem = problem or _damage(kind, stream)
    if orientation > 4:
        width, height = height, width
    return ImageFacts(path, problem, kind, width, height, orientation, is_gray)


def _damage(kind: str, stream: BinaryIO) -> str:
    """Return what is damaged, or an empty string."""
    if kind == "JPEG":
        size = stream.seek(0, 2) or stream.tell()
        stream.seek(max(0, size - 4096))
        # Pixel data cannot end in this marker, and a thumbnail is never at the very end.
        if stream.read(4096).rstrip(b"\0").endswith(b"\xff\xd9"):
            return ""
    stream.seek(0)
    try:
        # Opened again: the first time has moved the position in the file.
        with Image.open(stream) as image:
            if kind == "PNG":
                image.verify()  # the checksums
            else:
                image.load()
    except (OSError, SyntaxError) as error:
        return f"is cut off or damaged: {one_line(error, 100)}"
    return ""
