from __future__ import annotations

import pytest

from tests.helpers import small_config
from tpu_console.engine.config.values import budget_seconds
from tpu_console.engine.errors import ConfigError


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        ("", None),
        ("8h30m", 30_600),
        ("8h 30m", 30_600),
        ("90m", 5_400),
        ("45s", 45),
        ("1d", 86_400),
        ("colab", 43_200),
        ("kaggle", 43_200),
    ],
)
def test_a_budget_is_a_duration_or_a_service(budget: str, seconds: int | None) -> None:
    assert budget_seconds(small_config(budget=budget).budget) == seconds


def test_a_session_on_a_tpu_of_kaggle_is_shorter() -> None:
    assert budget_seconds("kaggle", on_tpu=True) == 32_400


@pytest.mark.parametrize("budget", ["0s", "soon", "8", "30m8h", "-1h", "1h1h", "9" * 40 + "h", "8h\n", "kagle"])
def test_anything_else_is_refused(budget: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration such as 8h30m, nor one of colab, kaggle"):
        small_config(budget=budget)
