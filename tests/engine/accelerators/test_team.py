"""What keeps hosts from training together; `test_several_hosts` joins and stops real ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpu_console.engine.accelerators.hosts.team import Card, mismatch

FIRST = Card("a", {"jax": "0.10.2", "keras": "3.15.1"}, "digest", "at step 640")


@pytest.mark.parametrize(
    ("card", "difference"),
    [
        (replace(FIRST, host="b"), None),
        (replace(FIRST, versions={"jax": "0.10.1", "libtpu": "0.0.2"}), "jax 0.10.1 there, 0.10.2 at host 0"),
        (replace(FIRST, versions={**FIRST.versions, "libtpu": "0.0.2"}), "libtpu 0.0.2 there, missing at host 0"),
        (replace(FIRST, config="another"), "another configuration"),
        (replace(FIRST, start=""), "starts a new run, but host 0 starts at step 640"),
    ],
)
def test_what_differs_between_two_hosts_is_said(card: Card, difference: str | None) -> None:
    error = mismatch(1, card, FIRST)
    if difference is None:
        assert error is None
    else:
        assert error is not None
        assert f"Host 1 ({card.host})" in error.what
        assert difference in error.what
        assert error.remedy
