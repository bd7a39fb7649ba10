"""Images in one folder per class."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from ...config.values import Section
from ...errors import DataError, did_you_mean
from ...storage.paths import user_path
from ..images.files import Source, files_below, list_folder
from ..places import is_image_name, is_remote, join, locate, not_there
from ..survey.skimming import Survey, deadline, in_time, short_text, trouble
from ..tables import first_of
from .kind import ImageFilesKind, ImageSize, Name, Recognized, Resize, SkipBad, functions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ..data_code import DataCode

_TRAINING, _OTHERS = ("train", "training"), ("val", "valid", "validation", "test", "testing")
"""Folder names that mean parts of a dataset, not classes."""
_WORDS = re.compile("[^a-z]+")
_DEEPEST = 4  # folders in one another that are looked into


class ImageFolderOptions(Section):
    """Options of `image-folder`: one folder of images per class."""

    path: Annotated[Name, "The folder with one folder per class."]
    validation_path: Annotated[str, "The same for validation; by default a share of `path` is held out."] = ""
    image_size: ImageSize = (128, 128)
    resize: Resize = "stretch"
    skip_bad: SkipBad = False


class ImageFolder(ImageFilesKind[ImageFolderOptions]):
    """Folders of images."""

    name = "image-folder"
    title = "one folder of images per class"
    Options = ImageFolderOptions
    code_needs = ("classes",)

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize folders with images, or such folders in train/ and in test/, val/ or the like, side by side."""
        return recognized_folders(place, is_image_name)

    def survey_files(self, path: Path, options: ImageFolderOptions) -> Survey:
        """Count the images of each class."""
        return survey_folders(path, options.validation_path, is_image_name, "images")

    def read_source(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Source:
        """List the images and their classes; raise `DataError` if there are not at least two folders of images."""
        source = _listed(self.options(config).path, "path", on_fetch)
        if {*_TRAINING, *_OTHERS}.issuperset(name.lower() for name in source.class_names):
            what = f"{', '.join(source.class_names)} in {source.place} are parts of a dataset, not classes."
            raise DataError(what, remedy="Name the training folder, and set data.options.validation_path to the other.")
        if len(source.class_names) < 2:
            what = f"{source.place} has one folder with images, '{source.class_names[0]}': training needs two or more."
            raise DataError(what, remedy="Use a folder for each class.")
        return source

    def sources(self, config: RunConfig, on_fetch: Callable[[str], None]) -> list[Source]:
        """List the training images, and those of the validation folder if there is one."""
        source, other = self.read_source(config, on_fetch), self.options(config).validation_path
        if not other:
            return [source]
        import numpy as np

        validation, known = _listed(other, "validation_path", on_fetch), source.class_names
        refuse_other_classes(validation.place, validation.class_names, source.place, known)
        labels = np.array([*map(known.index, validation.class_names)], np.int32)[validation.labels]
        return [source, replace(validation, labels=labels, class_names=known)]

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that lists the files of each class and splits them."""
        from ...code import assigned, call, literal, write
        from ..data_code import chosen, image_code, shuffled, split

        def listing(target: str, folder: str) -> str:
            names = (record.get("left_out") or {}).get(folder, ())
            arguments = [literal(folder), *([literal(list(names))] if names else [])]
            return write(call("list_images", *arguments), 0, f"{target} = ")

        imports.add("numpy as np")
        imports.add("os")
        imports.add("Path", "pathlib")
        options, limit = self.options(config), config.data.train_limit
        folder = locate(options.path)
        lines = [assigned("CLASSES", record["classes"]), *_FUNCTION, listing("files, labels", folder)]
        if options.validation_path:
            lines += [
                shuffled("rows", "len(files)", limit),
                "files_train, y_train = files[rows], labels[rows]",
                listing("files_val, y_val", locate(options.validation_path)),
            ]
        else:
            lines += [*split(imports, held_out, limit, "labels"), *chosen("files", "labels")]
        return image_code(lines, self.decoding(config), folder, "y_train")


_FUNCTION = functions('''
def list_images(folder, left_out=()):
    """Return the files below a folder per class, and their class numbers."""
    endings = {".bmp", ".gif", ".jpeg", ".jpg", ".png"}
    files, labels = [], []
    for label, name in enumerate(CLASSES):
        for place, folders, found in os.walk(Path(folder, name)):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for file in (Path(place, one) for one in sorted(found) if one[0] != "."):
                is_image = file.suffix.lower() in endings
                if is_image and file.relative_to(folder).as_posix() not in left_out:
                    files.append(str(file))
                    labels.append(label)
    return np.array(files), np.array(labels)
''')


def recognized_folders(place: Path, is_wanted: Callable[[str], bool], depth: int = 0) -> Recognized | None:
    """Recognize folders with such files, or folders of them in train/ and in test/, val/ or the like, side by side.

    All of them may lie in one more folder, as archives are often unpacked.
    """
    if depth > _DEEPEST or not place.is_dir():
        return None
    inside = {entry.name.lower(): entry for entry in place.iterdir() if entry.is_dir() and entry.name[0] not in "._"}
    train, other = (
        recognized_folders(inside[name], is_wanted, depth + 1) if (name := _part(inside, words)) else None
        for words in (_TRAINING, _OTHERS)
    )
    if train is not None:
        validation = {"validation_path": other.options["path"]} if other is not None else {}
        return Recognized({"path": train.options["path"], **validation}, sure=0.8)
    classes = [entry for entry in inside.values() if any(is_wanted(file.name) for file in entry.iterdir())]
    if len(classes) == 1 and not inside.keys().isdisjoint(("labels", "annotations")):
        return None  # these are boxes
    if len(classes) > 1 and all(_part([entry.name.lower()], (*_TRAINING, *_OTHERS)) for entry in classes):
        return None  # these are parts, whose files have no folder for each class
    if classes:
        # A table may label the images of one folder.
        return Recognized({"path": str(place)}, sure=0.6 if len(classes) > 1 else 0.4)
    return recognized_folders(next(iter(inside.values())), is_wanted, depth + 1) if len(inside) == 1 else None


def _part(names: Iterable[str], words: Sequence[str]) -> str:
    """Return the first name that is, or contains, one of some words, such as ``seg_train``; or an empty string."""
    return next((name for word in words for name in sorted(names, key=len) if word in _WORDS.split(name)), "")


def survey_folders(
    path: Path, validation_path: str, is_wanted: Callable[[str], bool], what: str, *, needs_both: bool = False
) -> Survey:
    """Count such files of each class; with `needs_both`, only the classes that validation also has."""
    ends_at, validation = deadline(), None

    def counted(folder: Path) -> dict[str, int]:
        if not folder.is_dir():
            raise DataError(f"{user_path(folder)} is a file, not a folder.")
        inside = [one for one in sorted(folder.iterdir()) if one.is_dir() and one.name[0] != "."]
        counts = {short_text(one.name): sum(map(is_wanted, in_time(files_below(str(one)), ends_at))) for one in inside}
        return {name: count for name, count in counts.items() if count}

    counts = counted(path)
    if validation_path and not is_remote(validation_path):
        others = counted(Path(locate(validation_path)))
        validation = sum(others.values())
        counts = {name: count for name, count in counts.items() if name in others or not needs_both}
    if len(counts) < 2:
        both = " that validation also has" if needs_both and validation is not None else ""
        problem = f"needs one folder per class, at least two with {what}{both}; it has {len(counts)}"
        return trouble("path", f"{user_path(path)} {problem}")
    return Survey(total=sum(counts.values()), classes=counts, validation=validation)


def list_classes(path: str, option: str, on_fetch: Callable[[str], None]) -> tuple[str, dict[str, list[str]]]:
    """Return where the folder that an option names is, and the files below each folder in it."""
    place = locate(path)
    on_fetch(f"listing {place}")
    try:
        folders, _ = list_folder(place)
    except FileNotFoundError as error:
        raise not_there(path, "folder", option) from error
    return place, {name: list(files_below(join(place, name))) for name in folders}


def refuse_other_classes(validation: str, names: Iterable[str], place: str, known: Collection[str]) -> None:
    """Raise `DataError` if a folder for validation has a class that the one for training does not have."""
    if unknown := next((name for name in names if name not in known), None):
        what = f"{validation} has a folder '{unknown}' that {place} does not have; {did_you_mean(unknown, known)}"
        raise DataError(what, remedy="Both need the same classes.")


def _listed(path: str, option: str, on_fetch: Callable[[str], None]) -> Source:
    import numpy as np

    place, by_class = list_classes(path, option, on_fetch)
    images = {name: [*filter(is_image_name, files)] for name, files in by_class.items()}
    classes = [name for name in images if images[name]]
    if not classes:
        raise DataError(f"{place} has no folders with images in them.", remedy="Use a folder for each class.")
    names = [f"{name}/{file}" for name in classes for file in images[name]]
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), [len(images[name]) for name in classes])
    others = [f"{name}/{file}" for name, files in by_class.items() for file in files if not is_image_name(file)]
    said = {
        "Files whose names do not end like an image's are ignored": others,
        "Folders without images are not used as classes": [name for name in images if name not in classes],
    }
    notices = tuple(f"{what}: {first_of(which, 3)}." for what, which in said.items() if which)
    paths = tuple(join(place, name) for name in names)
    return Source(place, tuple(names), paths, labels, tuple(classes), notices=notices)
