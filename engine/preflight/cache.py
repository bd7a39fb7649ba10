"""Verdicts of earlier preflights, by everything that they depend on.

The key is made of the configuration, the user's files, the TPU and the versions. Nothing has to be built for it, so
a verdict is found without loading a framework.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ..config.catalog import is_user_reference
from ..config.user_code import source_file
from ..data.cached_facts import function_record_of, known_batch
from ..data.kinds.table import survey, train_examples_of
from ..data.places import locate
from ..machine.install import TF_BUILDS
from ..machine.sources import installed_versions
from ..storage.keyed_store import KeyedStore, key_of
from ..storage.paths import cache_folder
from .result import Outcome, Verdict

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .topologies import Topology

_PACKAGES = ("jax", "jaxlib", "libtpu", "keras", *TF_BUILDS, "tpu-console")
# What a program and its bound do not depend on.
_ELSEWHERE = {"name", "accelerator", "backend", "hosts", "early_stopping", "checkpoint", "sinks", "profile"}
_OWN_SOURCES = ("preflight", "models", "accelerators")
_MOST_NEIGHBORS = 200
_VERDICTS = KeyedStore[Verdict]("preflight.json", Verdict, cache_folder)


@cache
def versions() -> dict[str, str]:
    """Return the versions of the installed packages that a verdict depends on, by name."""
    return installed_versions(_PACKAGES)


def compiler_versions() -> str:
    """Name the versions of the compiler's packages, for a sentence."""
    found = [f"{name} {versions()[name]}" for name in ("jax", "jaxlib", "libtpu") if name in versions()]
    return " with ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


def cached_verdict(config: RunConfig, tpu: str, *, search: bool = False) -> Verdict | None:
    """Return the verdict of an earlier preflight; None if there is none.

    With `search` it must include the largest batch, if the model compiles; without, one that includes it counts too.
    """
    for searched in (True, False):
        if (verdict := _VERDICTS.get(_key(config, tpu, search=searched))) is not None:
            verdict = replace(verdict, is_remembered=True)
            return None if search and not searched and verdict.memory is not None else verdict
    return None


def save_verdict(config: RunConfig, verdict: Verdict, *, search: bool = False) -> None:
    """Save a verdict, unless its outcome is unknown; `search` says whether the largest batch was searched."""
    if verdict.outcome is not Outcome.UNKNOWN:
        _VERDICTS.put(_key(config, verdict.tpu, search=search), verdict)


def _key(config: RunConfig, tpu: str, *, search: bool) -> str:
    record = function_record_of(config)
    return key_of(
        [
            config.model_dump(mode="json", exclude=_ELSEWHERE),
            tpu,
            search,
            config.tpu_backend,
            versions(),
            _our_sources(),
            train_examples_of(config),
            len(survey(config).classes),
            to_builtins(record) if record is not None else None,
            [hashlib.sha256(file.read_bytes()).hexdigest() for file in _own_files(config)],
        ]
    )


@cache
def _our_sources() -> str:
    """Return a digest of the modules that build and judge: they may change while the version stays the same."""
    engine = Path(__file__).parent.parent
    files = sorted(file for folder in _OWN_SOURCES for file in (engine / folder).iterdir() if file.is_file())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _own_files(config: RunConfig) -> Iterator[Path]:
    """Yield the file of the user's model function and those beside it, or the file with a SavedModel's graph."""
    if config.model == "hub":
        graph = Path(locate(str(config.model_options.get("path", "")))) / "saved_model.pb"
        if graph.is_file():
            yield graph
    if is_user_reference(config.model) and (file := source_file(config.model)) is not None:
        yield from sorted(file.parent.glob("*.py"))[:_MOST_NEIGHBORS]


class TpuChoice(Struct, frozen=True):
    """One configuration on one TPU."""

    config: RunConfig  # the configuration, with the batch size and the precision of this choice
    topology: Topology

    @property
    def label(self) -> str:
        """Its name in a line of progress."""
        return f"{self.topology.name}, batch {self.config.batch_size:,}, {self.config.precision}"

    def undecided(self, reason: str = "") -> Verdict:
        """Return a verdict that says only why there is none, or that is to be filled in."""
        return Verdict(
            tpu=self.topology.name,
            devices=self.topology.devices,
            hosts=self.topology.hosts,
            replica_batch=self.config.batch_size,
            precision=self.config.precision,
            outcome=Outcome.UNKNOWN,
            reason=reason,
            versions=dict(versions()),
        )


def choices_of(
    config: RunConfig, topologies: Sequence[Topology], batches: Sequence[int], precisions: Sequence[str]
) -> list[TpuChoice]:
    """Return every combination, TPU by TPU; without batches or precisions, those of the configuration."""
    configs = [
        config.model_copy(update={"batch_size": batch or known_batch(config), "precision": precision})
        for precision in (precisions or [config.precision])
        for batch in (batches or [config.batch_size])
    ]
    return [TpuChoice(one, topology) for topology in topologies for one in configs]


def cached_verdicts(choices: Sequence[TpuChoice], *, search: bool = False) -> list[Verdict] | None:
    """Return the verdicts on all choices if every one of them is cached, else None."""
    found = [cached_verdict(choice.config, choice.topology.name, search=search) for choice in choices]
    cached = [verdict for verdict in found if verdict is not None]
    return cached if len(cached) == len(choices) else None
