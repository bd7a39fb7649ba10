"""Images come out of the pipeline as Pillow shows them, whatever kind of file they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from tests.images import ODD_FILES, damage_inside, smooth, write_odd
from tpu_console.engine.data.images.check import check_image
from tpu_console.engine.data.images.decode import Decoding, as_png, decode_bytes, decoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def as_pillow_shows(path: Path) -> Image.Image:
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) // 256).astype(np.uint8)).convert("RGB")
    if image.mode == "RGBA":
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def decode(paths: Sequence[Path], decoding: Decoding) -> list[NDArray[np.int64]]:
    facts = [check_image(str(path)) for path in paths]
    return [image.astype(int) for image in decoded(facts, decoding).as_numpy_iterator()]


@pytest.mark.parametrize("kind", ODD_FILES)
def test_a_file_is_decoded_as_pillow_does(tmp_path: Path, kind: str) -> None:
    path = write_odd(tmp_path, kind)
    (image,) = decode([path], Decoding((40, 60)))
    difference = np.abs(image - np.asarray(as_pillow_shows(path)))
    # Two JPEG decoders round differently, and so do two ways to convert CMYK.
    assert difference.max() <= (6 if "jpeg" in kind else 0)
    assert difference.mean() < 1.5


def test_photos_are_turned_as_their_headers_say(tmp_path: Path) -> None:
    paths = [tmp_path / f"{orientation}.jpg" for orientation in range(1, 9)]
    for orientation, path in enumerate(paths, 1):
        exif = Image.Exif()
        exif[0x0112] = orientation
        smooth(64, 96).save(path, quality=95, exif=exif)
    for path, image in zip(paths, decode(paths, Decoding((40, 40))), strict=True):
        upright = as_pillow_shows(path).resize((40, 40), Image.Resampling.BILINEAR)
        assert np.abs(image - np.asarray(upright)).mean() < 2


def test_crop_keeps_the_middle_and_pad_keeps_everything(tmp_path: Path) -> None:
    pixels = np.zeros((60, 120, 3), np.uint8)
    pixels[:, 30:90] = (250, 250, 250)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (cropped,) = decode([tmp_path / "a.png"], Decoding((30, 30), "crop"))
    (padded,) = decode([tmp_path / "a.png"], Decoding((40, 40), "pad"))
    (stretched,) = decode([tmp_path / "a.png"], Decoding((40, 40)))
    assert cropped.min() == 250
    white = padded.max(axis=2) > 125
    assert white.sum() == 20 * 20
    assert white[10:30, 10:30].all()
    assert (stretched.max(axis=2) > 125).sum() == 40 * 20


@pytest.mark.parametrize(
    ("resize", "size", "ratio"),
    [
        ("stretch", (256, 256), 2),
        ("stretch", (255, 256), 1),
        ("stretch", (600, 2000), 4),
        ("stretch", (100, 2000), 1),
        ("crop", (600, 2000), 4),
        ("pad", (600, 2000), 8),
        ("stretch", (9000, 9000), 8),
    ],
)
def test_large_jpegs_are_decoded_at_a_fraction(
    resize: Literal["stretch", "crop", "pad"], size: tuple[int, int], ratio: int
) -> None:
    assert Decoding((128, 128), resize).ratio(*size) == ratio


@pytest.mark.parametrize("resize", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("size", [(1100, 275)])
def test_a_large_photo_looks_like_itself(
    tmp_path: Path, resize: Literal["stretch", "crop", "pad"], size: tuple[int, int]
) -> None:
    photo = smooth(*size)
    photo.save(tmp_path / "a.jpg", quality=95)
    (image,) = decode([tmp_path / "a.jpg"], Decoding((64, 64), resize))
    expected = {
        "stretch": photo.resize((64, 64), Image.Resampling.BILINEAR),
        "crop": ImageOps.fit(photo, (64, 64), Image.Resampling.BILINEAR),
        "pad": ImageOps.pad(photo, (64, 64), Image.Resampling.BILINEAR),
    }[resize]
    assert np.abs(image - np.asarray(expected)).mean() < 2


@pytest.mark.parametrize("size", [(10, 10)])
def test_contents_out_of_a_shard_are_decoded_alike(tmp_path: Path, size: tuple[int, int]) -> None:
    paths = [write_odd(tmp_path, kind) for kind in ODD_FILES]
    facts = [check_image(str(path)) for path in paths]

    def from_contents(contents: Any, orientation: Any) -> Any:
        return decode_bytes(contents, Decoding(size), orientation)

    contents = (
        [path.read_bytes() if one.is_plain else as_png(one.path) for path, one in zip(paths, facts, strict=True)],
        [one.orientation for one in facts],
    )
    stored = tf.data.Dataset.from_tensor_slices(contents).map(from_contents)
    assert stored.element_spec.shape == (*size, 3)
    pairs = zip(stored.as_numpy_iterator(), decode(paths, Decoding(size)), ODD_FILES, strict=True)
    assert [kind for image, expected, kind in pairs if not np.array_equal(image, expected)] == []


@pytest.mark.parametrize("place", [0, 5])
def test_an_error_in_decoding_names_the_file(tmp_path: Path, place: int) -> None:
    paths = []
    for number in range(6):
        paths.append(tmp_path / f"{number}.jpg")
        smooth(100, 150).save(paths[-1])
    damage_inside(paths[place])
    facts = [check_image(str(path)) for path in paths]
    assert not any(fact.problem for fact in facts)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"The image file {paths[place]} is damaged"):
        list(decoded(facts, Decoding((32, 32)), np.arange(6)))


def test_a_file_that_is_deleted_while_training_is_named(tmp_path: Path) -> None:
    paths = [write_odd(tmp_path, kind) for kind in ("jpeg", "bmp")]
    facts = [check_image(str(path)) for path in paths]
    paths[1].unlink()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"The image file {paths[1]} is"):
        list(decoded(facts, Decoding((32, 32))))
