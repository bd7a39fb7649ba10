"""What `show` keeps of a finished run: printed without reading the run again, as long as nothing has changed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import leave_dead, private_mode
from tests.tui.commands.test_cli import HEAVY
from tests.tui.commands.test_runs import DONE, FINISHED, make_run
from tpu_console.engine.runs.annotations import Annotations, write_annotations
from tpu_console.engine.runs.events import RunFailed
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.storage.files import write_whole
from tpu_console.engine.storage.paths import cache_folder, user_presets_folder
from tpu_console.tui.following.shown_facts import find_shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

SCORE = {"name": "zero", "precision": 1.0, "recall": 1.0, "f1": 1.0, "examples": 2}
REPORT = {
    "examples": 2,
    "accuracy": 1.0,
    "balanced_accuracy": 1.0,
    "not_numbers": 0,
    "is_partial": False,
    "classes": [SCORE],
    "mistakes": [{"label": "zero", "taken_for": "zero", "count": 1, "share": 0.5}],
    "matrix": [[2]],
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))


@pytest.fixture
def run() -> RunDirectory:
    run = make_run(*FINISHED, DONE, epochs=7)
    write_whole(run.report, json.dumps(REPORT))
    return run


def kept_file(run: RunDirectory) -> Path:
    return cache_folder() / "shown" / f"{run.run_id}.json"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_is_kept_prints_the_same_and_imports_little(call: Any, run: RunDirectory, options: list[str]) -> None:
    _, fresh, _ = call("show", *options)
    assert find_shown(run) is not None
    script = (
        "import sys; from tpu_console.tui.cli import main; main(sys.argv[1:]);"
        "print('modules', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    command = [sys.executable, "-c", script, "show", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shown, _, modules = done.stdout.rpartition("modules")
    assert not set(modules.split()) & (HEAVY | {"pydantic", "orjson", "psutil", "hashlib", "platformdirs"})
    if options:
        before, after = json.loads(fresh), json.loads(shown)
        assert before == after
    else:
        assert shown == fresh
        assert "zero → zero (1×, 50% of them)" in shown
    assert private_mode(kept_file(run)) == 0o600


def add_an_event(run: RunDirectory) -> None:
    with run.journal.open("ab") as journal:
        journal.write(encode(RunFailed("It broke.", "", "", ""), 1_800_000_000.0))


def change_the_settings(run: RunDirectory) -> None:
    run.config.write_text(run.config.read_text().replace("epochs = 7", "epochs = 8"))


def name_it_after_no_preset(run: RunDirectory) -> None:
    run.config.write_text(run.config.read_text().replace('name = "digits-cnn"', 'name = "of-a-file"'))


def change_the_preset(_run: RunDirectory) -> None:
    user_presets_folder().mkdir(parents=True)
    preset = user_presets_folder() / "digits-cnn.toml"
    preset.write_text('dataset = "digits"\nmodel = "mlp"\nbatch_size = 32\nepochs = 2\n')


def change_the_scores(run: RunDirectory) -> None:
    write_whole(run.report, json.dumps(REPORT | {"classes": [SCORE | {"name": "naught"}]}))


def damage_what_is_kept(run: RunDirectory) -> None:
    place = kept_file(run)
    place.write_bytes(place.read_bytes().replace(b"digits-cnn", b"DIGITS-CNN"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (add_an_event, "  It broke.\n"),
        (change_the_settings, " 8 (preset: 60)\n"),
        (change_the_preset, "(preset: mlp)"),
        (name_it_after_no_preset, "  'of-a-file' is none of your presets, so here are all settings:\n"),
        (change_the_scores, "naught"),
        (damage_what_is_kept, "  preset   digits-cnn\n"),
    ],
)
def test_a_change_of_any_file_is_seen(
    call: Any, run: RunDirectory, change: Callable[[RunDirectory], None], text: str
) -> None:
    call("show")
    change(run)
    assert find_shown(run) is None
    assert text in call("show")[1]


def test_notes_outputs_and_the_time_zone_are_looked_up(
    call: Any, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("show")
    write_annotations(run.path, Annotations(title="the best one", archived=True))
    run.history.touch()
    assert find_shown(run) is not None
    out = call("show")[1]
    assert out.startswith(f"{run.run_id} (archived)\n")
    assert "  title    the best one\n" in out
    assert str(run.history) in out
    assert json.loads(call("show", "--json")[1])["title"] == "the best one"
    hours = [json.loads(call("show", "--json")[1])["started"]]
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        hours.append(json.loads(call("show", "--json")[1])["started"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert hours[0] != hours[1]


def test_only_a_run_that_finished_is_kept(call: Any) -> None:
    for history in (FINISHED, (*FINISHED, RunFailed("It broke.", "", "", ""))):
        run = make_run(*history)
        leave_dead(run)
        call("show", run.run_id)
        assert not kept_file(run).exists()


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(call: Any, run: RunDirectory) -> None:
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "shown").write_text("")
    code, out, _ = call("show")
    assert code == 0
    assert run.run_id in out
