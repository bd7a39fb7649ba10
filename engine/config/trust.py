"""What a configuration reaches outside of its run, and which of that the user has started before.

What the user starts is trusted. So at the start of a run, digests of what its configuration names are written to
``own-code/``, beside the folder of the runs and outside any of them. A run that names nothing else needs no question,
wherever its folder comes from; neither does a saved model whose code has such a digest (`engine.models.saved_code`).
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UntrustedCodeError
from ..sanitize import printable
from ..storage.files import make_private_folder, write_whole
from ..storage.paths import runs_folder
from .run_config import RunConfig, flat_values
from .user_code import pieces_of, references_of, source_file

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
    places = [(key, value) for key, value in flat_values(config).items() if key in _PLACES and value not in _NO_PLACES]
    return [*found, *(Reached(key, str(value), _full(str(value))) for key, value in places)]


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
