"""Whether the preflight agreed with the direct compiles that are kept, for which nothing is compiled here."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KEPT: dict[str, dict[str, Any]] = json.loads((ROOT / "docs" / "preflight-breadth.json").read_text())


@pytest.mark.parametrize("name", KEPT)
def test_the_preflight_agrees_with_the_compiler(name: str) -> None:
    ours, direct = KEPT[name]["preflight"], KEPT[name]["direct"]
    assert ours["outcome"] == direct["outcome"]
    if "flops" in direct:
        assert ours["flops"] == pytest.approx(direct["flops"], rel=0.001)
        assert ours["peak"] == pytest.approx(direct["peak"], rel=0.03)
    assert f"| `{name}` |" in (ROOT / "docs" / "preflight.md").read_text(encoding="utf-8")
