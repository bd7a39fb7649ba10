from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.helpers import leave_dead
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.storage.paths import cache_folder

if TYPE_CHECKING:
    from pathlib import Path


def fill(name: str, size: int) -> Path:
    path = cache_folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def test_the_caches_are_listed_with_their_sizes_and_cleared(call: Any) -> None:
    kept = [fill("compiled/x/b-cache", 1000), fill("compiled/x/c-cache", 500)]
    foreign = fill("notes.txt", 10)
    killed = create_run("killed")
    killed.config.touch()
    kept.append(killed.cache / "train.images")
    killed.cache.mkdir()
    kept[-1].write_bytes(bytes(700))
    leave_dead(killed)
    code, out, _ = call("cache", "--json")
    assert code == 0
    assert {part["name"]: (part["files"], part["bytes"]) for part in json.loads(out)} == {
        "compiled": (2, 1500),
        "runs": (1, 700),
    }
    _, out, _ = call("cache")
    assert "1.5 kB" in out
    assert "compiled by JAX" in out
    code, out, _ = call("cache", "--clear")
    assert (code, "Cleared" in out) == (0, True)
    assert not any(path.exists() for path in kept)
    assert foreign.exists()
