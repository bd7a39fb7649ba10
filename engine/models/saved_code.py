"""Finds code in saved models, and recognizes the code that the user's own runs saved.

Keras's `safe_mode` refuses some of it, depending on its version: Keras 3.7 imports any module that a file names. So
this module checks ``config.json`` itself: everything except Keras classes that only compute is code. Weights,
vocabularies and a SavedModel's variables are data. `config.user_code` keeps the digests of code that runs of
the user saved.
"""

import hashlib
import inspect
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..config.user_code import is_noted, note
from ..errors import ConsoleError, one_line
from ..sanitize import printable
from ..storage.files import NotAFileError, open_regular
from ..storage.paths import user_path

_CONFIG = "config.json"
_PICKLED_WEIGHTS = "model.weights.npz"
_LARGEST_CONFIG = 64 << 20
_LARGEST_EXPANSION = 100  # times; Keras stores members uncompressed, and one that grows more is an attack
_LONGEST_NAME = 200
_PLAIN_VALUES = {"__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__"}
_PROGRAM_LAYERS = ("TorchModuleWrapper", "JaxLayer", "FlaxLayer")
_FUNCTION_MODULES = ("builtins", "keras.activations", "keras.losses", "keras.metrics")


class Architecture(Struct, frozen=True):
    """What a ``.keras`` file says about its model, without the weights."""

    path: Path
    config: dict[str, Any]  # its ``config.json``, without how the model was compiled
    has_pickled_weights: bool  # whether its weights are in NumPy's format, which older versions of Keras unpickle


def read_architecture(path: Path) -> Architecture:
    """Read what a ``.keras`` file says about its model, without running or importing anything.

    Raises `ConsoleError` if it is not a regular file, is damaged, or declares sizes that no real model has.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                limit = max(_LARGEST_CONFIG, _LARGEST_EXPANSION * member.compress_size)
                if member.file_size > (_LARGEST_CONFIG if member.filename == _CONFIG else limit):
                    what = f"declares {member.file_size:,} bytes, more than a real model has"
                    raise ValueError(f"{_printable(member.filename)} in it {what}")
            config = json.loads(archive.read(_CONFIG))
            names = archive.namelist()
    except NotAFileError as error:
        raise ConsoleError(f"{user_path(path)} is not a file.", remedy="Replace it with the run's model.") from error
    except RecursionError as error:
        raise _damaged(path, f"{_CONFIG} in it is nested too deeply") from error
    except KeyError as error:
        raise _damaged(path, f"There is no {_CONFIG} in it") from error
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise _damaged(path, one_line(error, 300)) from error
    if not isinstance(config, dict):
        raise _damaged(path, f"{_CONFIG} in it is not a JSON object")
    return Architecture(path, {**config, "compile_config": None}, _PICKLED_WEIGHTS in names)


def find_code(architecture: Architecture) -> tuple[str, ...]:
    """Return the beginning of a sentence about each layer that contains code, with the names of the layer and the file.

    These count: a `Lambda` layer, a Python lambda, a layer that wraps a program of JAX, PyTorch or TensorFlow, a class
    or function from outside Keras, a function of Keras that is no activation, loss or metric, a vocabulary in a file,
    and pickled weights. Keras's other classes are not code, whatever their options.
    """
    file = user_path(architecture.path)
    found: dict[str | None, str] = {}
    if architecture.has_pickled_weights:
        found[None] = f"Weights in {file} are pickled, which can run code"
    for thing, owner in _objects(architecture.config):
        if owner not in found and (what := _code(thing, owner, file)):
            found[owner] = what
    return tuple(found.values())


def is_own(architecture: Architecture) -> bool:
    """Return whether the code of a model was saved by one of the user's runs on this machine."""
    digests = _digests(architecture)
    return not architecture.has_pickled_weights and all(digest and is_noted(digest) for digest in digests)


def remember_own(path: Path) -> None:
    """Note the code of a model that this program has just saved, if it has any and the data folder can be written."""
    with suppress(ConsoleError, OSError):
        architecture = read_architecture(path)
        if find_code(architecture):
            note(filter(None, _digests(architecture)))


def move_graphs(architecture: Architecture, folder: Path) -> None:
    """Set the folder of the SavedModel in every layer that uses one."""
    for thing, _ in _objects(architecture.config):
        if thing["class_name"] == "TFSMLayer" and isinstance(thing.get("config"), dict):
            thing["config"]["filepath"] = str(folder)


def has_graph(folder: Path) -> bool:
    """Return whether a folder holds the graph of a SavedModel."""
    return _graph_digest(str(folder)) is not None


def _damaged(path: Path, why: str) -> ConsoleError:
    remedy = "Try the other one of --checkpoint last and best."
    return ConsoleError(f"{user_path(path)} cannot be loaded.", why=f"{why}.", remedy=remedy)


def _objects(config: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield everything that Keras would turn into an object, with the name of its layer."""
    waiting = [(config, "")]
    while waiting:  # not recursive: a hostile file can be nested deeply
        value, owner = waiting.pop()
        if isinstance(value, dict):
            if "class_name" in value:
                inner = value.get("config")
                if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                    owner = inner["name"]
                yield value, owner
            value = list(value.values())
        if isinstance(value, list):
            waiting += [(part, owner) for part in reversed(value)]


def _code(thing: dict[str, Any], owner: str, file: str) -> str:
    import keras

    name, inner = thing["class_name"], thing.get("config")
    where = f"'{_printable(owner)}' in {file}"
    if isinstance(name, str) and name in _PLAIN_VALUES:
        return ""
    if name == "__lambda__":
        return f"Layer {where} holds Python code"
    if name == "function":
        modules = (keras.activations, keras.losses, keras.metrics)
        known = {each for module in modules for each, value in vars(module).items() if inspect.isfunction(value)}
        is_known = isinstance(inner, str) and inner in known - {"get", "serialize", "deserialize"}
        is_known = is_known and thing.get("module") in _FUNCTION_MODULES
        return "" if is_known else f"Layer {where} calls the function {_reference(thing, inner)}"
    found = _keras_class(thing)
    if found is None:
        return f"Layer {where} is of the class {_reference(thing, name)}, which is not part of Keras"
    if issubclass(found, keras.layers.Lambda):
        return f"Lambda layer {where} holds Python code"
    if issubclass(found, keras.layers.TFSMLayer):
        place = _printable(inner.get("filepath")) if isinstance(inner, dict) else ""
        return f"TFSMLayer {where} runs the TensorFlow program in {place}"
    if any(base.__name__ in _PROGRAM_LAYERS for base in found.__mro__):
        return f"{found.__name__} {where} holds a program"
    if isinstance(inner, dict) and isinstance(inner.get("vocabulary"), str):
        return f"{found.__name__} layer {where} reads the file {_printable(inner['vocabulary'])}"
    return ""


def _keras_class(thing: dict[str, Any]) -> type | None:
    """Return the Keras class of an object if models are made of that class; nothing is imported."""
    import keras

    module, name = thing.get("module"), thing["class_name"]
    if not (isinstance(module, str) and isinstance(name, str) and module.partition(".")[0] == "keras"):
        return None  # without a module, Keras reads its old format, which has other rules
    if thing.get("registered_name") not in (None, name):
        return None
    bases = (  # layers and models are operations
        *(keras.Operation, keras.losses.Loss, keras.metrics.Metric, keras.dtype_policies.DTypePolicy),
        *(keras.initializers.Initializer, keras.regularizers.Regularizer, keras.constraints.Constraint),
        *(keras.optimizers.Optimizer, keras.optimizers.schedules.LearningRateSchedule),
    )
    place: Any = sys.modules.get(module, keras)
    for part in module.split(".")[1:] if place is keras else ():
        place = vars(place).get(part)  # Keras 3.7 has no entry of its own in `sys.modules` for keras.layers
        if not isinstance(place, ModuleType):
            return None
    found = vars(place).get(name)
    return found if isinstance(found, type) and issubclass(found, bases) else None


def _digests(architecture: Architecture) -> list[str | None]:
    """Return the digest of a model's code and of each SavedModel that it runs."""
    graphs = (thing.get("config") for thing, _ in _objects(architecture.config) if thing["class_name"] == "TFSMLayer")
    folders = (str(inner.get("filepath")) if isinstance(inner, dict) else "" for inner in graphs)
    blank = replace(architecture, config=json.loads(json.dumps(architecture.config)))
    move_graphs(blank, Path())  # the digest of the code is the same whatever the folder of its SavedModel
    text = json.dumps(blank.config, sort_keys=True)
    return [f"model-{hashlib.sha256(text.encode()).hexdigest()}", *map(_graph_digest, folders)]


def _graph_digest(folder: str) -> str | None:
    digest, count = hashlib.sha256(), 0
    try:
        for path in sorted(Path(folder).glob("saved_model.*")):
            with open_regular(path) as file:
                content = hashlib.file_digest(file, "sha256")
            digest.update(f"{path.name}:{content.hexdigest()}\n".encode())
            count += 1
    except OSError:
        return None
    return f"graph-{digest.hexdigest()}" if count else None


def _reference(thing: dict[str, Any], name: object) -> str:
    return f"{_printable(thing.get('module') or '(no module)')}.{_printable(name)}"


def _printable(value: object) -> str:
    """Return a value from a file that may be hostile, shortened and without terminal escape codes."""
    return printable(str(value)[:_LONGEST_NAME])
