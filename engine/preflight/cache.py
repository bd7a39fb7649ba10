"""Verdicts that were reached before, kept by everything that they depend on.

The key is made of the configuration, the person's own files, the TPU and the versions, and of nothing that would have
to be built first: asking twice is answered without loading a framework.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.catalog import is_user_reference
from ..config.user_code import source_file
from ..data.function_record import recall as recall_seen
from ..data.places import locate
from ..data.survey.survey import survey
from ..planning.example_count import train_examples_of
from ..sanitize import printable_values
from ..storage.files import make_private_folder, read_json, remove_drafts, write_whole
from ..storage.paths import cache_folder
from .result import Outcome, from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config.run_config import RunConfig
    from .result import Verdict

_PACKAGES = ("jax", "jaxlib", "libtpu", "keras", "tensorflow", "tpu-console")
# What a program and its bound do not depend on.
_ELSEWHERE = {"name", "accelerator", "backend", "hosts", "early_stopping", "checkpoint", "tensorboard"}
_OWN_SOURCES = ("preflight", "models")
_MOST_NEIGHBOURS = 200
_LARGEST = 16 << 20  # bytes of a verdict


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that a verdict depends on, by name; those that are missing are left out."""
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def recall(config: RunConfig, tpu: str, *, search: bool = False) -> Verdict | None:
    """Return the verdict on a configuration that was kept; None when there is none.

    Args:
        config: The configuration, with the batch size and the precision in question.
        tpu: The TPU's usual name.
        search: Whether the largest batch has to be in it; one with it also answers when it need not be.
    """
    for searched in (True, False) if not search else (True,):
        try:
            values = read_json(_file(config, tpu, search=searched), _LARGEST)
            return replace(from_dict(printable_values(values, keeps_lines=True)), is_remembered=True)
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return None


def keep(config: RunConfig, verdict: Verdict, *, search: bool = False) -> None:
    """Keep a verdict; a folder that cannot be written is no reason to fail.

    Args:
        config: The configuration, with the verdict's batch size and precision.
        verdict: The verdict; one that could not tell is not kept.
        search: Whether the largest batch was searched.
    """
    if verdict.outcome is Outcome.UNKNOWN:
        return
    path = _file(config, verdict.tpu, search=search)
    with suppress(OSError):
        make_private_folder(path.parent)
        remove_drafts(path.parent)
        write_whole(path, json.dumps(verdict.as_dict()))


def _file(config: RunConfig, tpu: str, *, search: bool) -> Path:
    return cache_folder() / "preflight" / f"{_key(config, tpu, search=search)}.json"


def _key(config: RunConfig, tpu: str, *, search: bool) -> str:
    found = survey(config)
    values: list[Any] = [
        config.model_dump(mode="json", exclude=_ELSEWHERE),
        tpu,
        search,
        config.takes_tensorflow,
        versions(),
        _our_sources(),
        train_examples_of(config),
        len(found.classes) if found is not None else None,
        asdict(seen) if is_user_reference(config.dataset) and (seen := recall_seen(config)) is not None else None,
    ]
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for file in _own_files(config):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


@cache
def _our_sources() -> str:
    """Return a digest of the modules that build and judge: between two releases they change, their version does not."""
    digest = hashlib.sha256()
    for folder in _OWN_SOURCES:
        for file in sorted((Path(__file__).parent.parent / folder).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _own_files(config: RunConfig) -> Iterator[Path]:
    """Give the files of the person's own model function: its own, and those beside it, which it may import.

    Of a SavedModel it is the file with its graph.
    """
    if config.model == "hub":
        graph = Path(locate(str(config.model_options.get("path", "")))) / "saved_model.pb"
        if graph.is_file():
            yield graph
    if is_user_reference(config.model) and (file := source_file(config.model)) is not None:
        yield from sorted(file.parent.glob("*.py"))[:_MOST_NEIGHBOURS]
