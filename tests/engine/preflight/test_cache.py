"""What is kept of verdicts, and what makes it be forgotten."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import known, private_mode, replace, run_python, small_config
from tests.made_verdicts import FITS
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.jobs.preflight import preflight_choices
from tpu_console.engine.messages import Reporter
from tpu_console.engine.preflight.cache import cached_verdict, cached_verdicts, choices_of, save_verdict
from tpu_console.engine.preflight.compile import shortage
from tpu_console.engine.preflight.result import Outcome
from tpu_console.engine.preflight.topologies import find_topology
from tpu_console.engine.storage.paths import cache_folder


def test_a_saved_verdict_is_read_back() -> None:
    save_verdict(small_config(), FITS)
    found = cached_verdict(small_config(), "v5e-8")
    assert found == replace(FITS, is_remembered=True)
    assert private_mode(cache_folder() / "preflight.json") == 0o600


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"batch_size": 64}, False),
        ({"precision": "mixed_bfloat16"}, False),
        ({"model_options": {"hidden": [16]}}, False),
        ({"optimizer": {"name": "sgd"}}, False),
        ({"data": {"train_limit": 100}}, False),
        ({"backend": "tensorflow"}, False),
        ({"name": "other", "accelerator": "auto", "checkpoint": {"monitor": "auto"}}, True),
    ],
)
def test_a_verdict_holds_for_what_its_program_depends_on(changes: dict[str, Any], is_same: bool) -> None:
    save_verdict(small_config(), FITS)
    assert (cached_verdict(small_config(**changes), "v5e-8") is not None) == is_same
    assert cached_verdict(small_config(), "v6e-8") is None


def test_a_search_also_answers_without_one() -> None:
    save_verdict(small_config(), FITS)
    assert cached_verdict(small_config(), "v5e-8", search=True) is None
    save_verdict(small_config(), replace(FITS, largest_batch=100), search=True)
    assert known(cached_verdict(small_config(), "v5e-8")).largest_batch == 100


def test_an_unknown_verdict_is_not_cached() -> None:
    save_verdict(small_config(), replace(FITS, outcome=Outcome.UNKNOWN))
    assert cached_verdict(small_config(), "v5e-8") is None


@pytest.mark.parametrize(
    ("changes", "edited"),
    [({"model": "{0}/own.py:model"}, "parts.py"), ({"dataset": "cifar10", "model": "hub"}, "saved_model.pb")],
)
def test_a_model_is_compiled_again_if_a_file_of_it_changes(
    tmp_path: Path, changes: dict[str, str], edited: str
) -> None:
    (tmp_path / "own.py").write_text("from parts import WIDTH\n", encoding="utf-8")
    (tmp_path / edited).write_text("WIDTH = 8\n", encoding="utf-8")
    options = {"path": str(tmp_path)} if changes["model"] == "hub" else {}
    config = small_config(**{key: text.format(tmp_path) for key, text in changes.items()}, model_options=options)
    save_verdict(config, FITS)
    assert cached_verdict(config, "v5e-8") is not None
    (tmp_path / edited).write_text("WIDTH = 9\n", encoding="utf-8")
    assert cached_verdict(config, "v5e-8") is None


def test_a_damaged_cache_file_counts_as_empty() -> None:
    save_verdict(small_config(), FITS)
    file = cache_folder() / "preflight.json"
    whole = file.read_text(encoding="utf-8")
    wrong = [
        whole.replace(before, after) for before, after in (('"fits"', '"perhaps"'), ('"devices": 8', '"devices": "8"'))
    ]
    assert whole not in wrong
    for text in ("", "[]", '{"tpu": 1}', whole[:100], *wrong):
        file.write_text(text, encoding="utf-8")
        assert cached_verdict(small_config(), "v5e-8") is None


def test_all_or_nothing_is_recalled() -> None:
    choices = choices_of(small_config(), [find_topology("v5e-8")], [32, 64], ["float32", "mixed_bfloat16"])
    assert [choice.label for choice in choices][:2] == ["v5e-8, batch 32, float32", "v5e-8, batch 64, float32"]
    assert len(choices) == 4
    for choice in choices[:3]:
        save_verdict(choice.config, FITS)
    assert cached_verdicts(choices) is None
    save_verdict(choices[3].config, FITS)
    assert cached_verdicts(choices) is not None


def test_an_unknown_tpu_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConsoleError, match="no TPU 'v5e-7'"):
        preflight_choices(Reporter(sys.stdout), small_config().model_dump(mode="json"), ["v5e-7"])


def test_the_job_answers_from_the_cache_without_a_framework(tmp_path: Path, private_home: Path) -> None:
    config = small_config()
    save_verdict(config, FITS)
    code = (
        "import json, sys; from tpu_console.engine.jobs.preflight import preflight_choices\n"
        "found = preflight_choices(None, json.loads(sys.argv[1]), ['v5e-8'])\n"
        "loaded = [name for name in ('tensorflow', 'keras', 'jax', 'numpy') if name in sys.modules]\n"
        "print(json.dumps([found['verdicts'][0]['reason'], loaded]))"
    )
    said = run_python(code, config.model_dump_json(), cwd=tmp_path, env={"TPU_CONSOLE_HOME": str(private_home)})
    assert json.loads(said) == [FITS.reason, []]


def test_too_little_memory_to_compile_is_reported() -> None:
    assert shortage(13_600, 10 * 10**9) == ""
    assert "needs about 1.8 GB" in shortage(13_600, 10**8)
