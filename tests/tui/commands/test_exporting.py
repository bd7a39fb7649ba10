"""`tpu-console export`, `predict` and `tfrecord` as a user calls them: a real run, real processes, real files."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from tests.helpers import run_host, small_config, wait_until
from tests.hostile_models import lambda_run
from tests.images import write_image_folder, write_plant_pathology
from tests.tui.calling import Call
from tests.tui.forked_program import FORKED, forking
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = [pytest.mark.usefixtures("forked_jobs"), pytest.mark.slow]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_host(small_config(augmentation={"flip": "horizontal"}), tmp_path_factory.mktemp("runs"))


def test_a_script_exports_the_newest_run_of_a_preset_and_is_overwritten_only_when_forced(
    call: Call, digits: RunDirectory, tmp_path: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-000000-small", "20260102-000000-small", "20260103-000000-small-too"):
        shutil.copytree(digits.path, private_home / "runs" / name)
    command = ["export", "small", "--script"]
    out = call.out(*command)
    assert all(part in out for part in ("20260102-000000-small, the newest", "small.py", "changed at random"))
    written = (tmp_path / "small.py").read_text()
    assert all(part in written for part in ("20260102-000000-small", "import keras"))
    assert "small.py exists" in call.refused(*command, code=1)
    assert call.out(*command, "-") == written


def test_bad_usage(call: Call) -> None:
    assert "--out" in call.refused("predict", "--data", "x.npy")
    assert "--out is given" in call.refused("predict", "--data", "x.npy", "--out", "x.csv", "--out", "y.csv")
    for options in ([], ["--script", "--notebook"]):
        err = call.refused("export", *options)
        assert all(form in err for form in ("--script", "--notebook", "--savedmodel", "--tflite", "--onnx"))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    np.save(tmp_path / "scans.npy", np.full((3, 8, 8), 7.0))
    return tmp_path / "scans.npy"


def test_a_file_is_written_once_and_replaced_when_forced(
    call: Call, digits: RunDirectory, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scans.parent)
    command = ["predict", str(digits.path), "--data", "scans.npy", "--out", "labels.csv"]
    code, out, err = call(*command)
    assert (code, out.splitlines()[0].split()[0]) == (0, "run")
    assert "3 rows: " in out
    assert "3 examples" in err
    rows = list(csv.reader((scans.parent / "labels.csv").open()))
    assert rows[0] == ["index", "label", "probability"]
    assert len(rows) == 4
    assert "labels.csv exists" in call.refused(*command, code=1)
    call.out(*command, "--force")


def test_standard_output_holds_the_predictions_and_nothing_else(
    call: Call, digits: RunDirectory, scans: Path, tmp_path: Path
) -> None:
    code, out, err = call("predict", str(digits.path), "--data", str(scans), "--out", "-")
    assert code == 0
    assert [line.partition(",")[0] for line in out.splitlines()] == ["index", "0", "1", "2"]
    assert "model.keras" in err
    np.save(tmp_path / "wrong.npy", np.zeros((3, 28, 28)))
    err = call.refused("predict", str(digits.path), "--data", str(tmp_path / "wrong.npy"), "--out", "-", code=1)
    assert "8×8×1" in err
    assert "Traceback" not in err


def test_code_in_a_foreign_model_runs_only_with_trust(call: Call, scans: Path, tmp_path: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "out.csv"
    run = lambda_run(tmp_path / "run", marker)
    command = ["predict", str(run.path), "--data", str(scans), "--out", str(out)]
    err = call.refused(*command, code=1)
    assert f"layer 'innocent' in {run.model}" in err
    assert "--trust" in err
    assert "Traceback" not in err
    assert not marker.exists()
    assert not out.exists()
    call.out(*command, "--trust")
    assert marker.exists()
    assert len(out.read_text().splitlines()) == 4


def test_on_a_terminal_code_in_a_foreign_model_is_asked_about(scans: Path, tmp_path: Path, private_home: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "out.csv"
    run = lambda_run(tmp_path / "run", marker)
    command = [*FORKED, "predict", str(run.path), "--data", str(scans), "--out", str(out)]
    forked = Terminal(*command, home=private_home, size=(120, 40), program=sys.executable, environment=forking())
    with closing(forked) as terminal:
        terminal.wait_for("Allow it to run? [y/N]")
        assert "layer 'innocent' in" in terminal.flat
        terminal.press("n", "enter")
        assert terminal.wait() == 1
    assert not marker.exists()
    assert not out.exists()


def test_a_folder_is_converted_and_its_classes_counted(call: Call, tmp_path: Path) -> None:
    flowers = write_image_folder(tmp_path / "flowers", per_class=10)
    for number in range(5):
        (flowers / "rose" / f"rose_{number}.jpg").unlink()
    code, out, err = call("tfrecord", str(flowers), str(tmp_path / "shards"))
    assert code == 0
    schema = json.loads((tmp_path / "shards" / "schema.json").read_text())
    size = schema["shards"][0]["bytes"]
    facts, _, table = out.partition("\n\n")
    shards, images, to_train = facts.splitlines()
    assert f"1 shard of {size / 1000:.1f} kB" in shards
    assert "25, all verified" in images
    assert f'"{tmp_path}/shards"' in to_train
    assert table.splitlines()[1:] == ["daisy      10  40.0%", "rose        5  20.0%", "tulip      10  40.0%"]
    assert all(character.isprintable() or character == "\n" for character in err)
    ended = re.sub(r" in .*", "", err).splitlines()
    assert "checking images  25 images" in ended
    assert "writing shards  25 images" in ended


def test_a_preset_is_converted_and_bad_images_are_skipped_if_allowed(call: Call, tmp_path: Path) -> None:
    table = write_plant_pathology(tmp_path / "plants", per_class=3)
    (tmp_path / "plants" / "images" / "Train_1.jpg").write_bytes(b"")
    preset = tmp_path / "mine.toml"
    config = 'dataset = "image-csv"\nmodel = "cnn"\nbatch_size = 4\nepochs = 1\n'
    preset.write_text(f'{config}[data.options]\npath = "{table}"\n')
    err = call.refused("tfrecord", str(preset), str(tmp_path / "shards"), code=1)
    assert "1 of 12 images" in err
    assert "Train_1 is empty" in err
    assert "--skip-bad" in err
    code, out, err = call("tfrecord", str(preset), str(tmp_path / "shards"), "--skip-bad")
    assert code == 0
    assert "11, all verified" in out
    assert "1 skipped" in out
    assert "Train_1 is empty" in err
    assert "multiple_diseases       2  18.2%" in out


def test_errors_in_a_source_name_the_options_of_the_command(call: Call, tmp_path: Path) -> None:
    table = write_plant_pathology(tmp_path / "plants", per_class=3)
    err = call.refused("tfrecord", str(table), str(tmp_path / "shards"), "--label-column", "rost", code=1)
    assert all(word in err for word in ("'rost'", "'rust'", "--label-column"))
    err = call.refused("tfrecord", f"{tmp_path}/nothing", f"{tmp_path}/shards", code=1)
    assert f"{tmp_path}/nothing" in err
    assert "Traceback" not in err


def test_bad_usage_of_tfrecord(call: Call) -> None:
    for line, message in {
        "digits-cnn out": "image-csv and image-folder",
        "photos/ out --images here": "--images",
        "photos/ out --label-column a": "--label-column",
        "photos/ out --shard-mb 5": "10<=x<=100",
        "digit-cnn out": "did you mean 'digits-cnn'?",
        "labels.csv out --images ''": "--images",
        "'' out": "SOURCE",
        "photos/": "Missing argument 'DEST'",
    }.items():
        assert message in " ".join(call.refused("tfrecord", *shlex.split(line)).split())


def write_many(folder: Path, count: int = 600) -> Path:
    """Write an image folder of 180 MB that takes little space: its files are links to one."""
    pixels = np.random.default_rng(0).integers(0, 256, (320, 320, 3), np.uint8)
    image = io.BytesIO()
    Image.fromarray(pixels).save(image, "PNG", compress_level=0)
    for number in range(count):
        path = folder / "ab"[number % 2] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number:
            os.link(folder / "a" / "000.png", path)
        else:
            path.write_bytes(image.getvalue())
    return folder


def jobs_in(home: Path) -> list[psutil.Process]:
    """Forks that run a program's jobs: their errors go to a log in its home."""
    logs = {*map(str, home.rglob("*.log"))}
    children = psutil.Process().children(recursive=True)
    return [one for one in children if not logs.isdisjoint(file.path for file in one.open_files())]


def has_pending_signal(process: psutil.Process) -> bool:
    """Whether a signal waits for a suspended process."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return any(int(pending, 16) for pending in re.findall(r"^S[hi]\w+Pnd:\s*(\w+)", status, re.M))


def test_ctrl_c_keeps_whole_shards_and_the_same_command_continues(call: Call, tmp_path: Path) -> None:
    source, shards, home = write_many(tmp_path / "photos"), tmp_path / "shards", tmp_path / "home"
    command = ("tfrecord", str(source), str(shards), "--shard-mb", "10")

    def written() -> list[Path]:
        return sorted(shards.glob("*.tfrecord"))

    forked = Terminal(*FORKED, *command, home=home, program=sys.executable, environment=forking())
    with closing(forked) as terminal:
        wait_until(written, "the first shard")
        (job,) = jobs_in(home)  # only the job still has the log open
        job.suspend()  # or it may have written all of them before the key arrives
        terminal.press("ctrl+c")
        wait_until(lambda: has_pending_signal(job), "the job is asked to end")
        job.resume()
        assert terminal.wait() == 130
        assert "Interrupted. Finished shards" in terminal.flat
        assert "░" in terminal.raw.decode()
        assert terminal.is_restored
    names = sorted(path.name for path in shards.iterdir())
    assert not [name for name in names if name.endswith(".part") or name == "schema.json"]
    (first, *others) = written()
    kept = 1 + len(others)
    assert names == sorted([*names[:1], *(path.name for path in written())])
    written_at = first.stat().st_mtime_ns

    out = call.out(*command)
    assert f", {kept} of them already" in " ".join(out.split())
    assert json.loads((shards / "schema.json").read_text())["class_counts"] == [300, 300]
    assert len(written()) > kept
    assert first.stat().st_mtime_ns == written_at
