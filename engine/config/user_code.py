"""The user's code: finds it, calls it, and knows what of it, and of all else that a run reaches, is trusted.

docs/own-code.md says what functions take and return.

What the user starts is trusted. So at the start of a run, digests of what its configuration names are written to
``own-code/``, beside the folder of the runs and outside any of them. A run that names nothing else needs no question,
wherever its folder comes from; neither does a saved model whose code has such a digest (`engine.models.saved_code`).
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UntrustedCodeError, UserCodeError, did_you_mean, one_line
from ..sanitize import printable
from ..storage.files import make_private_folder, write_whole
from ..storage.paths import runs_folder, user_path
from .values import Piece, flattened, parse_piece, split_output

if TYPE_CHECKING:
    from .run_config import RunConfig

_DYNAMIC = {"eval", "exec", "globals"}  # names with which a function may use any other name of its file


def call_user_function(reference: str, *arguments: object, **options: object) -> Any:
    """Import and call a function of the user; the `UserCodeError` if that fails shows the line of the user's file."""
    function = find_user_code(reference)
    try:
        return function(*arguments, **options)
    except (Exception, SystemExit) as error:
        code = getattr(function, "__code__", None)
        where = code and (_last_line(error, code.co_filename) or f"File {code.co_filename}, line {code.co_firstlineno}")
        remedy = "Fix the function or its options in the configuration, then start again."
        files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
        if any("keras_hub" in file.parts for file in files):
            remedy += (
                " A preset of KerasHub is a folder, which needs no network, or a handle: those of Kaggle may need "
                "KAGGLE_USERNAME and KAGGLE_KEY, those of Hugging Face (hf://…) HF_TOKEN."
            )
        what = f"{reference} raised {type(error).__name__}: {one_line(error)}"
        raise UserCodeError(what, why=where or "", remedy=remedy) from error


def call_model_function(reference: str, shapes: object, classes: int, options: Mapping[str, Any]) -> Any:
    """Call the user's model function as `call_user_function` does; with its options only if it takes nothing else."""
    arguments: tuple[object, ...] = (shapes, classes)
    with suppress(ValueError):  # a function without a signature
        signature = inspect.signature(find_user_code(reference))
        if not _takes(signature, *arguments, **options) and _takes(signature, **options):
            arguments = ()
    return call_user_function(reference, *arguments, **options)


def _takes(signature: inspect.Signature, *arguments: object, **options: object) -> bool:
    with suppress(TypeError):
        signature.bind(*arguments, **options)
        return True
    return False


def source_file(reference: str) -> Path | None:
    """Return the file of a function without importing it; None if it is not found."""
    place = reference.rpartition(":")[0]
    if place.endswith(".py"):
        file = Path(place).expanduser().resolve()
        return file if file.is_file() else None
    name, *parts = place.split(".")
    spec = None
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name) or PathFinder.find_spec(name, [str(Path.cwd())])
    for part in parts:
        name = f"{name}.{part}"
        spec = None if spec is None else PathFinder.find_spec(name, spec.submodule_search_locations or [])
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def find_user_code(reference: str) -> Any:
    """Import and return a function or class; raise `UserCodeError` if it cannot be found."""
    place, _, name = reference.rpartition(":")
    module = find_user_module(reference)
    if (function := getattr(module, name, None)) is None:
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        hint = did_you_mean(name, names) if names else "it defines no function"
        raise UserCodeError(f"{place} has no function '{name}'; {hint}")
    if not callable(function):
        raise UserCodeError(f"{place}:{name} is a {type(function).__name__}, not a function.")
    return function


def find_user_module(reference: str) -> ModuleType:
    """Import and return the module of a function or class; raise `UserCodeError` if it cannot be imported."""
    place = reference.rpartition(":")[0]
    if place.endswith(".py"):
        if (file := source_file(reference)) is not None:
            return _load_file(file, file.stat().st_mtime_ns)
        remedy = "Relative paths start at the folder where the run was started."
        raise UserCodeError(f"There is no file {Path(place).expanduser().resolve()}.", remedy=remedy)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise _import_error(place, error, place.rpartition(".")[2] + ".py") from error


def pieces_of(config: RunConfig) -> list[tuple[str, Piece]]:
    """Return what a configuration names of Keras, of this program and of the user's code, each with its key."""
    named = [("loss", text) for text in config.losses.values()]
    named += [("optimizer.name", config.optimizer.name), ("optimizer.schedule", config.optimizer.schedule)]
    named += [(key, text) for key in ("callbacks", "custom_objects") for text in getattr(config, key)]
    named += [("metrics", split_output(text)[1]) for text in config.metrics]
    both = {"dataset": Piece(config.dataset, config.data.options), "model": Piece(config.model, config.model_options)}
    return [*both.items(), *((key, parse_piece(text)) for key, text in named)]


def references_of(config: RunConfig) -> list[tuple[str, str]]:
    """Return the references to the user's code in a configuration, each with its key."""
    return [(key, piece.name) for key, piece in pieces_of(config) if piece.is_own]


def reference_problem(reference: str) -> str:
    """Return why a function cannot be there, found without running any code; empty if it may be."""
    place, _, name = reference.rpartition(":")
    file = source_file(reference)
    if file is None:
        if place.endswith(".py"):
            return f"there is no file {Path(place).expanduser().resolve()}; relative paths start at the working folder"
        return "" if _may_be_importable(place) else f"there is no module '{place}' in this environment or folder"
    if file.suffix != ".py":
        return ""
    try:
        names = _names_in(ast.parse(file.read_bytes()))
    except OSError as error:
        return f"{user_path(file)} cannot be read: {error.strerror}"
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"{user_path(file)}{line} is not Python: {one_line(error)}"
    if name in names or names & {"*", "__getattr__"}:
        return ""
    own = [other for other in names if not other.startswith("_")]
    hint = did_you_mean(name, own) if own else "it defines nothing"
    return f"{user_path(file)} has no function '{name}'; {hint}"


def missing_import(reference: str) -> str:
    """Return the first module that a function's file imports and that is missing; empty if none is."""
    file = source_file(reference)
    if file is None or file.suffix != ".py":
        return ""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    named = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in body if isinstance(node, ast.ImportFrom) and not node.level]
    tops = dict.fromkeys(name.partition(".")[0] for name in named)
    beside = {path.stem for path in file.parent.iterdir()}
    return next((top for top in tops if top not in beside and not _may_be_importable(top)), "")


def _names_in(tree: ast.AST) -> set[str]:
    """Return the names that a module defines or imports, those in ``if`` and ``try`` too."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            names |= _names_in(node)
    return names


def _may_be_importable(name: str) -> bool:
    """Return whether a module without a source file may exist: a built-in one, or a package without a file."""
    top = name.partition(".")[0]
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(top) or PathFinder.find_spec(top, [str(Path.cwd())])
        # Installed packages may make modules of their own, as Keras does with keras.layers.
        return found is not None and ("." not in name or "-packages" in str(found.origin))
    return False


def source_mark(reference: str) -> list[str]:
    """Return values that identify a function: its place, a digest of its code if there is a file, and its name."""
    place, _, name = reference.rpartition(":")
    if (file := source_file(reference)) is None:
        return [str(Path.cwd()), place, name]
    content = file.read_bytes()
    # Of the function and all that it uses there, without comments and layout; of the whole file if that is not known.
    try:
        reached = _reached(ast.parse(content).body, name)
    except (SyntaxError, ValueError, RecursionError):
        reached = []
    digest = hashlib.sha256("\n".join(map(ast.dump, reached)).encode() or content).hexdigest()
    return [str(file), digest, name]


def _reached(module: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Return the statements of a module that make a name and the names that these use; none if that is not known."""
    mentioned = [{node.id for node in ast.walk(one) if isinstance(node, ast.Name)} for one in module]
    # The names that a statement makes, or may change: all that it mentions, if it makes none.
    made = [_names_in(ast.Module([one], [])) or mentions for one, mentions in zip(module, mentioned, strict=True)]
    names, found, count = {name}, set[int](), -1
    while len(found) > count:
        count = len(found)
        for number in range(len(module)):
            if names & made[number]:
                found.add(number)
                names |= mentioned[number]
    is_known = name in set().union(*made) and not names & _DYNAMIC
    return [module[number] for number in sorted(found) if is_known]


@lru_cache(maxsize=16)
def _load_file(full: Path, stamp: int) -> ModuleType:  # noqa: ARG001  a changed file is imported again
    spec = importlib.util.spec_from_file_location(full.stem, full)
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{full} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(full.stem, module)
    # First on the path, as with `python path/to/file.py`, so that it can import its neighbors.
    sys.path.insert(0, str(full.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _import_error(user_path(full), error, str(full)) from error
    return module


def _import_error(name: str, error: BaseException, file: str) -> UserCodeError:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        where = f"File {error.filename}, line {error.lineno}: {(error.text or '').strip()}"
    else:
        where = _last_line(error, file)
    return UserCodeError(f"{name} cannot be imported: {type(error).__name__}: {one_line(error)}", why=where)


def _last_line(error: BaseException, file: str) -> str:
    """Show the last line of the user's file in the traceback; empty if it is not there."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(file)]
    return f"File {own[-1].filename}, line {own[-1].lineno}: {own[-1].line}" if own else ""


_PLACES = (
    "mirror",
    "weights",
    "hosts.coordinator",
    *(f"data.options.{name}" for name in ("path", "images", "validation_path", "target_path", "name", "data_dir")),
    *(f"model_options.{name}" for name in ("path", "weights")),
)
_NO_PLACES = ("", "imagenet", "none")
_WRITING = ("csv_logger", "model_checkpoint")  # Keras's callbacks that write files
_MOST_SHOWN, _LONGEST_SHOWN = 20, 300


class Reached(NamedTuple):
    """Something outside of its run that a configuration names."""

    key: str  # the configuration's key
    shown: str  # what it is, without secrets
    exact: Any  # what it is, as JSON holds it


def reached(config: RunConfig) -> list[Reached]:
    """Return what a configuration reaches outside of its run: code, addresses, and files by their path."""
    found = []
    for key, piece in pieces_of(config):  # the user's, or one of Keras's whose options name files or objects to make
        makes_objects = any(isinstance(value, dict) for value in piece.options.values())
        if piece.is_own or piece.name in _WRITING or makes_objects:
            source, name = _source(piece.name), piece.name.rpartition(":")[2]
            shown = f"the code {source}:{name}" if piece.is_own else name
            options = ", ".join(f"{option}={value!r}" for option, value in piece.options.items())
            shown += f"({options})" if options else ""
            found.append(Reached(key, shown, [source, name, dict(piece.options)]))
    if config.alerts.webhook:
        found.append(Reached("alerts.webhook", config.alerts.webhook_host, config.alerts.webhook))
    if config.requested.address:
        found.append(Reached("accelerator", config.accelerator, config.accelerator))
    found += [Reached("sinks", sink, sink) for sink in config.sinks if sink != "tensorboard"]
    values = flattened(config.model_dump(mode="json")).items()
    places = [(key, str(value)) for key, value in values if key in _PLACES and value not in _NO_PLACES]
    return [*found, *(Reached(key, place, _full(place)) for key, place in places)]


def note_start(config: RunConfig, *more: Reached) -> None:
    """Note what the user starts, for `check_started` and `is_own_source`; raise `OSError` if that is impossible."""
    note([*map(_digest, (*reached(config), *more)), *(_source_digest(name) for _, name in references_of(config))])


def check_started(what: str, config: RunConfig, *more: Reached, given: Collection[str] = ()) -> None:
    """Raise `UntrustedCodeError` if a run reaches anything that no run which the user started has reached.

    `what` names the run, `more` is reached besides its configuration, and the user has just set the keys `given`.
    """
    things = (*reached(config), *more)
    unknown = [one for one in things if one.key not in given and not is_noted(_digest(one))]
    if not unknown:
        return
    lines = [f"{what} names what no run that you started on this machine has named:"]
    lines += [f"  {one.key}: {printable(one.shown)[:_LONGEST_SHOWN]}" for one in unknown[:_MOST_SHOWN]]
    lines += [f"  and {len(unknown) - _MOST_SHOWN} more"] if unknown[_MOST_SHOWN:] else []
    why = "Somebody else started it, or you did so elsewhere or with an earlier version of tpu-console."
    raise UntrustedCodeError("\n".join(lines), why=why, remedy="If you trust its author, add --trust.")


def note(digests: Iterable[str]) -> None:
    """Note digests outside of any run; raise `OSError` if the folder cannot be written."""
    for digest in digests:
        make_private_folder(_store())
        if not (place := _store() / digest).exists():
            write_whole(place, "", is_synced=False)


def is_noted(digest: str) -> bool:
    """Return whether a digest was noted by one of the user's runs on this machine."""
    return (_store() / digest).is_file()


def is_own_source(reference: str) -> bool:
    """Return whether one of the user's runs on this machine used a function or class in the same file."""
    return is_noted(_source_digest(reference))


def _source_digest(reference: str) -> str:
    return f"source-{hashlib.sha256(_source(reference).encode()).hexdigest()}"


def _digest(thing: Reached) -> str:
    return f"start-{hashlib.sha256(json.dumps([thing.key, thing.exact], default=str).encode()).hexdigest()}"


def _store() -> Path:
    return runs_folder().parent / "own-code"


def _source(reference: str) -> str:
    return str(source_file(reference) or reference.rpartition(":")[0])


def _full(place: str) -> str:
    """Return the full path of a file; an address, and a file that is not in this folder, as they are."""
    path = os.path.expanduser(place)  # noqa: PTH111  that of `Path` raises an error if there is no such user
    is_here = path.startswith("/") or ("://" not in place and Path(path).exists())
    return os.path.abspath(path) if is_here else place.rstrip("/")  # noqa: PTH100
