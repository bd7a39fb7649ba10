import os

import pytest

from tests.helpers import LIMIT_S, private_mode, small_config
from tpu_console.engine.errors import ConsoleError, RunNotFoundError
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.storage.paths import sweeps_folder
from tpu_console.engine.sweeps import folder as folder_module
from tpu_console.engine.sweeps.folder import Definition, create_sweep, find_sweep, list_sweeps, start_driver


def definition(**options: object) -> Definition:
    return Definition.model_validate({"config": small_config(), "over": ["batch_size=9999,8888"], **options})


def test_a_sweep_is_found_by_any_part_of_its_name_that_only_one_has() -> None:
    with pytest.raises(RunNotFoundError, match=r"There is no sweep yet\."):
        find_sweep()
    first, second = create_sweep(definition(repeat=2)), create_sweep(definition())
    assert first.name != second.name
    (sweeps_folder() / "20990101-000000-unfinished").mkdir()
    assert {*list_sweeps()} == {first, second}
    assert (find_sweep(), find_sweep(first.name)) == (list_sweeps()[0], first)
    assert first.read() == definition(repeat=2)
    assert (private_mode(first.path), private_mode(first.path / "sweep.toml")) == (0o700, 0o600)
    with pytest.raises(RunNotFoundError, match="'small' matches 2 sweeps"):
        find_sweep("small")
    with pytest.raises(RunNotFoundError, match="There is no sweep named 'other'"):
        find_sweep("other")


def test_a_damaged_definition_is_one_sentence() -> None:
    sweep = create_sweep(definition())
    for content in ("over = 1", "nonsense", ""):
        (sweep.path / "sweep.toml").write_text(content)
        with pytest.raises(ConsoleError) as caught:
            sweep.read()
        assert "\n" not in str(caught.value)


def test_only_runs_that_are_there_belong_to_a_sweep() -> None:
    sweep = create_sweep(definition())
    run = prepare_run(small_config())
    sweep.note(1, run)
    sweep.note(2, RunDirectory(run.path.with_name("deleted")))
    (sweep.path / "runs" / "0003").write_text("../../elsewhere")
    (sweep.path / "runs" / "note.txt").write_text(run.run_id)
    assert sweep.runs() == {1: run}


def test_one_process_at_a_time_starts_the_runs_in_a_session_of_its_own() -> None:
    sweep = create_sweep(definition())
    sweep.request("stop")
    lock = sweep.lock()
    with pytest.raises(folder_module.SweepRunningError, match="is running"):
        start_driver(sweep)
    os.close(lock)
    process = start_driver(sweep)
    assert os.getsid(process.pid) == process.pid
    assert process.wait(LIMIT_S) == 0, sweep.log.read_text()
    assert not sweep.is_stopping  # it was asked of an earlier process
    assert not sweep.is_driven
    assert sweep.runs() == {}  # the plan refuses both
