"""Image files as people have them: real JPEG, PNG and other files, good, odd and broken, and small datasets of them.

The datasets can be learnt: what tells the classes apart is visible, and everything else is random.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PLANT_CLASSES = ("healthy", "multiple_diseases", "rust", "scab")
"""The columns of Plant Pathology 2020's ``train.csv`` after ``image_id``."""

_RUST, _SCAB = (220, 120, 20), (60, 45, 50)
_SPOTS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "healthy": (),
    "multiple_diseases": (_RUST, _SCAB),
    "rust": (_RUST,),
    "scab": (_SCAB,),
}


def leaf(kind: str, random: np.random.Generator, size: tuple[int, int] = (48, 64)) -> Image.Image:
    """Draw a leaf of one of `PLANT_CLASSES`: green and noisy, with spots of the disease's colour."""
    height, width = size
    green = np.array((70, 150, 60)) + random.normal(0, 12, (height, width, 3))
    image = Image.fromarray(np.clip(green, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for color in _SPOTS[kind]:
        for _ in range(int(random.integers(5, 9))):
            x, y = random.uniform(0, width), random.uniform(0, height)
            radius = random.uniform(0.06, 0.12) * min(size)
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)
    return image


def write_plant_pathology(
    folder: Path, per_class: int = 10, size: tuple[int, int] = (48, 64), tests: int = 4, seed: int = 0
) -> Path:
    """Write a dataset in the layout of Plant Pathology 2020.

    ``train.csv``, whose path is returned, with ``image_id`` and a one-hot column a class, ``test.csv`` with
    ``image_id``, ``images/Train_0.jpg``, ``images/Test_0.jpg`` and so on; the classes take turns. `size` is height and
    width.
    """
    random = np.random.default_rng(seed)
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    lines = ["image_id," + ",".join(PLANT_CLASSES)]
    for index in range(per_class * len(PLANT_CLASSES)):
        number = index % len(PLANT_CLASSES)
        leaf(PLANT_CLASSES[number], random, size).save(images / f"Train_{index}.jpg", quality=90)
        lines.append(f"Train_{index}," + ",".join(str(int(column == number)) for column in range(len(PLANT_CLASSES))))
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    for index in range(tests):
        leaf(PLANT_CLASSES[index % len(PLANT_CLASSES)], random, size).save(images / f"Test_{index}.jpg", quality=90)
    (folder / "test.csv").write_text("\n".join(["image_id", *(f"Test_{index}" for index in range(tests))]) + "\n")
    return folder / "train.csv"


def striped(number: int, random: np.random.Generator, size: tuple[int, int] = (32, 32)) -> Image.Image:
    """Draw noisy stripes, whose colour and direction tell the class with a number."""
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]]
    angle = np.pi * number / 5
    wave = np.sin((rows * np.cos(angle) + columns * np.sin(angle)) * 0.7 + random.uniform(0, 2 * np.pi))
    color = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [200, 200, 60], [60, 200, 200]][number % 5])
    pixels = color * (0.7 + 0.3 * wave[..., np.newaxis]) + random.normal(0, 15, (*size, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def write_image_folder(
    folder: Path,
    classes: Sequence[str] = ("daisy", "rose", "tulip"),
    per_class: int = 10,
    size: tuple[int, int] = (32, 32),
    suffix: str = ".jpg",
    seed: int = 0,
) -> Path:
    """Write one folder of images a class: ``daisy/daisy_0.jpg`` and so on."""
    random = np.random.default_rng(seed)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            striped(number, random, size).save(folder / name / f"{name}_{index}{suffix}")
    return folder


def smooth(height: int = 40, width: int = 60) -> Image.Image:
    """Return an RGB image that every corner of differs, and that JPEG keeps nearly as it is."""
    rows, columns = np.mgrid[0:height, 0:width]
    red, green = 40 + 200 * columns / width, 30 + 190 * rows / height
    return Image.fromarray(np.stack([red, green, 255 - (red + green) / 2], axis=-1).astype(np.uint8))


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_claiming(width: int, height: int) -> bytes:
    """Return a small PNG file whose header claims a size."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = png_chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + body + png_chunk(b"IEND", b"")


def jpeg_claiming(path: Path, width: int, height: int) -> None:
    smooth().save(path, "JPEG")
    content = bytearray(path.read_bytes())
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    path.write_bytes(content)


def _rotated(path: Path) -> None:
    """Write `smooth` as a camera does that was held upright: lying on its side, with a note to turn it right."""
    exif = Image.Exif()
    exif[0x0112] = 6
    smooth().transpose(Image.Transpose.ROTATE_90).save(path, "JPEG", quality=95, exif=exif)


def _sixteen_bit(path: Path) -> None:
    rows, columns = np.mgrid[0:40, 0:60]
    Image.fromarray((rows * 1000 + columns * 400).astype(np.uint16)).save(path, "PNG")


def _see_through(path: Path) -> None:
    image = smooth().convert("RGBA")
    alpha = np.zeros((40, 60), np.uint8)
    alpha[:, 30:] = 255
    image.putalpha(Image.fromarray(alpha))
    image.save(path, "PNG")


def _moving(path: Path) -> None:
    pictures = [Image.new("RGB", (60, 40), color) for color in ("red", "green", "blue")]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=100)


def damage_inside(path: Path) -> None:
    """Damage a JPEG or PNG file so that only decoding it tells: the header, the end and the checksums are in order."""
    content = path.read_bytes()
    if path.suffix == ".png":
        start = content.index(b"IDAT") - 4
        path.write_bytes(content[:start] + png_chunk(b"IDAT", b"no pixels at all") + content[-12:])
        return
    body = content.index(b"\xff\xda") + 40
    path.write_bytes(content[:body] + b"\xff\xc4\x00\x05\xff\xff" + content[body + 6 :])


ODD_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "jpeg": (".jpg", lambda path: smooth().save(path, "JPEG", quality=95)),
    "progressive jpeg": (".jpg", lambda path: smooth().save(path, "JPEG", quality=95, progressive=True)),
    "grey jpeg": (".jpg", lambda path: smooth().convert("L").save(path, "JPEG", quality=95)),
    "cmyk jpeg": (".jpg", lambda path: smooth().convert("CMYK").save(path, "JPEG", quality=95)),
    "turned jpeg": (".jpg", _rotated),
    "png": (".png", lambda path: smooth().save(path, "PNG")),
    "grey png": (".png", lambda path: smooth().convert("L").save(path, "PNG")),
    "16-bit png": (".png", _sixteen_bit),
    "palette png": (".png", lambda path: smooth().quantize(64).save(path, "PNG")),
    "rgba png": (".png", _see_through),
    "bmp": (".bmp", lambda path: smooth().save(path, "BMP")),
    "gif": (".gif", lambda path: smooth().quantize(64).save(path, "GIF")),
    "webp": (".webp", lambda path: smooth().save(path, "WEBP", quality=95)),
}
"""Files that are not plain RGB JPEGs and still can be read: the ending, and what writes one of 40 × 60 pixels."""


def _cut(path: Path, format_name: str) -> None:
    smooth(200, 300).save(path, format_name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flipped_bits(path: Path) -> None:
    smooth().save(path, "PNG")
    content = bytearray(path.read_bytes())
    middle = content.index(b"IDAT") + 30
    content[middle] ^= 0xFF
    path.write_bytes(content)


BAD_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "empty": (".jpg", lambda path: path.write_bytes(b"")),
    "text": (".jpg", lambda path: path.write_text("<html>404 Not Found</html>\n" * 20)),
    "cut jpeg": (".jpg", lambda path: _cut(path, "JPEG")),
    "cut png": (".png", lambda path: _cut(path, "PNG")),
    "cut webp": (".webp", lambda path: _cut(path, "WEBP")),
    "cut gif": (".gif", lambda path: _cut(path, "GIF")),
    "cut bmp": (".bmp", lambda path: _cut(path, "BMP")),
    "moving gif": (".gif", _moving),
    "moving webp": (".webp", _moving),
    "corrupt png": (".png", _flipped_bits),
    "gigapixel png": (".png", lambda path: path.write_bytes(png_claiming(60_000, 50_000))),
    "gigapixel jpeg": (".jpg", lambda path: jpeg_claiming(path, 65_000, 64_000)),
}
"""Files that are not used: the ending, and what writes one."""


def write_odd(folder: Path, kind: str) -> Path:
    return _write(folder, kind, ODD_FILES)


def write_bad(folder: Path, kind: str) -> Path:
    return _write(folder, kind, BAD_FILES)


def _write(folder: Path, kind: str, files: dict[str, tuple[str, Callable[[Path], object]]]) -> Path:
    suffix, write = files[kind]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind.replace(' ', '_')}{suffix}"
    write(path)
    return path
