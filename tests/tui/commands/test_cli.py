"""The command line in this process: help, presets, suggestions, errors, completion."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.helpers import ROOT
from tests.tui.calling import Call, all_commands
from tests.tui.made_runs import made_run
from tpu_console.engine.config.reading import valid_keys
from tpu_console.engine.preflight.topologies import TOPOLOGIES
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.tui.cli import cli
from tpu_console.tui.commands.options import absolute

BUILTIN = [path.stem for path in (ROOT / "presets").glob("*.toml")]


@pytest.mark.parametrize("command", [[], *map(str.split, all_commands())], ids=" ".join)
def test_every_help_has_examples_and_exit_codes(command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"])
    assert result.exit_code == 0
    assert "Examples:\n    " in result.output
    assert "130  interrupted" in result.output
    examples = "    tpu-console "
    assert all(len(line) <= 80 or line.startswith(examples) for line in result.output.splitlines())


def test_all_problems_of_a_command_are_reported_together(call: Call, private_home: Path) -> None:
    err = call.refused("run", "digits-cnn", "--epochs", "-1", "--set", "optimizer.nme=3", "--set", "batchsize=7")
    assert {line.split()[1] for line in err.splitlines()} == {"epochs:", "optimizer.nme:", "batchsize:"}
    assert "'optimizer.name'" in err
    assert "'batch_size'" in err
    assert not (private_home / "runs").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("rnu", "did you mean 'run'?"),
        ("runs shwo", "'show'"),
        ("run digits-cnn --epoch-s 3", "--epochs"),
        ("--theme nord runs", "'runs'"),  # an option before a command is not lost
        ("", " run PRESET"),  # there is no terminal
        ("run digits-cnn --set epochs=1 --set seed=2 --set 'epochs =3'", "--set epochs is given 2 times"),
        ("run digits-cn", "did you mean 'digits-cnn'?"),
        ("run ./mine.py:build", "--set model="),
        ("run nothere.toml", "nothere.toml: cannot be read: No such file or directory"),
        ("run digits-cnn --batch-size 5000", "larger than the 1,437 training examples"),
        ("run digits-cnn --epochs many", "'many' is not a valid integer"),
        ("run digits-cnn --preset-file none.toml", "'none.toml' does not exist"),
        ("run digits-cnn --accelerator tpux", "'tpux' is not an accelerator"),
        ("run digits-cnn --accelerator tpu:", "valid: auto, cpu, gpu, tpu, tpu:ADDRESS, sim:N"),
        ("run digits-cnn --hosts 2 --host-index 5", "hosts.index: is 5, but 2 hosts are numbered 0 to 1"),
        ("run digits-cnn --hosts 2 --backend tensorflow", "Keras trains on several hosts only with JAX"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint_before_anything_starts(
    call: Call, private_home: Path, line: str, sentence: str
) -> None:
    assert sentence in call.refused(*shlex.split(line))
    assert not (private_home / "runs").exists()


def test_data_that_cannot_be_trained_and_a_file_without_its_ending_say_what_to_type(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos").mkdir()
    (tmp_path / "wine.csv").write_text("a,b\n1,2\n")
    films = "".join(f"{n},one more film that was seen,{n % 2},{n % 3}\n" for n in range(9))
    (tmp_path / "films.csv").write_text(f"id,what,good,stars\n{films}")
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine.csv").touch()
    (tmp_path / "digits-cnn").mkdir()
    for line, expected, sentence in (
        ("'my photos'", 1, "is not in a known format"),
        ("./wine.csv", 1, "The first line must name the columns"),
        ("films.csv", 1, "--set data.options.label=good"),
        ("./nothing", 2, "nothing does not exist"),
        ("nothing.csv", 2, "nothing.csv does not exist"),
        ("./mine.csv", 1, "mine.csv is empty"),
        ("mine", 2, "write ./mine.toml"),
        ("digits-cnn --epochs 0", 2, "epochs:"),  # a preset's name wins
    ):
        assert sentence in call.refused("run", *shlex.split(line), code=expected)


def test_presets_are_listed_with_their_origin_and_broken_files_reported(
    call: Call, private_home: Path, tmp_path: Path
) -> None:
    mine, broken = private_home / "presets" / "mine.toml", tmp_path / "broken.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text('dataset = "digits"\nmodel = "mlp"\nbatch_size = 8\nepochs = 1\n')
    broken.write_text('dataset = "digits"\nmodel = "cnn"\nbatch_size = 0\nepohs = 3\n')
    code, out, err = call("presets", "--preset-file", str(broken))
    assert (code, len(err.splitlines())) == (2, 3)  # batch_size, epochs missing, epohs unknown
    assert err.count("broken.toml: ") == 3
    assert re.search(r"^mine +yours ", out, re.M)
    listed = {preset["name"]: preset["yours"] for preset in call.json("presets")}
    assert listed == {**dict.fromkeys(BUILTIN, False), "mine": True}


def test_unwritable_home_is_one_clear_error(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "file"))
    error, advice = call.refused("run", "digits-cnn", "--json", code=1).splitlines()
    assert "cannot be written" in error
    assert "TPU_CONSOLE_HOME" in advice


def test_the_commands_fit_in_a_head_work_under_their_earlier_names_and_runs_lists_by_default(call: Call) -> None:
    context = click.Context(cli)
    assert len(cli.list_commands(context)) <= 20
    for earlier, today in (("show", "runs show"), ("annotate", "runs tag"), ("profile", "runs profile")):
        assert cli.get_command(context, earlier) is all_commands()[today]
    create_run("one").journal.touch()
    assert call("runs", "--json") == call("runs", "list", "--json")


def test_trouble_of_the_machine_is_a_sentence_and_a_bug_is_in_a_log(
    call: Call, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([OSError(28, "No space left on device", "/data/x"), ZeroDivisionError("by design")])

    def broken(*_: object, **__: object) -> None:
        raise next(errors)

    monkeypatch.setattr(all_commands()["runs list"], "callback", broken)
    assert "/data/x: " in call.refused("runs", code=1)
    log = private_home / "errors.log"
    _, where = call.refused("runs", code=1).splitlines()
    assert str(log) in where
    assert "ZeroDivisionError: by design" in log.read_text()


def test_completion_script_comes_with_instructions(call: Call) -> None:
    for shell, needed in (("bash", "complete -o nosort"), ("fish", "complete")):
        first, *script = call.out("completion", shell).splitlines()
        assert re.match(f"# .*tpu-console completion {shell}", first)
        assert needed in "".join(script)


def as_bash_asks(*words: str) -> dict[str, str]:
    """The variables with which bash asks for completions of the last word."""
    line = {"COMP_WORDS": " ".join(["tpu-console", *words]), "COMP_CWORD": str(len(words))}
    return {"_TPU_CONSOLE_COMPLETE": "bash_complete", **line}


def test_the_shell_completes_what_a_command_takes() -> None:
    run = create_run("one")
    run.journal.touch()
    for line, expected in {
        "run fash": ["fashion-mnist-cnn"],
        "sweep fash": ["fashion-mnist-cnn"],
        "run photo": ["photo"],  # no preset: the shell completes files
        f"attach {run.run_id[:8]}": [run.run_id],
        "run digits-cnn --set optimizer.sc": ["optimizer.schedule=", "optimizer.scale_with_replicas="],
        "run digits-cnn --set o": [f"{key}=" for key in valid_keys() if key.startswith("o")],
        "run digits-cnn --accelerator s": ["sim:2", "sim:4", "sim:8"],
        "run digits-cnn --accelerator t": ["tpu", "tpu:"],
        "run digits-cnn --backend ": ["auto", "tensorflow", "jax"],
        "run digits-cnn --host": ["--hosts", "--host-index"],
        "preflight digits-cnn --on v3-8,v5e-": [f"v3-8,{name}" for name in TOPOLOGIES if name.startswith("v5e-")],
        "at": ["attach"],
        "runs co": ["compare"],
    }.items():
        offered = CliRunner().invoke(cli, prog_name="tpu-console", env=as_bash_asks(*line.split(" "))).output
        assert [one.partition(",")[2] for one in offered.splitlines()] == expected


FRAMEWORKS = {"tensorflow", "keras", "jax", "pandas", "sklearn", "tensorflow_hub"}
HEAVY = FRAMEWORKS | {"textual", "numpy"}
LIGHT = HEAVY | {"pydantic", "psutil"}


@pytest.mark.parametrize(
    ("args", "completes", "absent"),
    [
        (["--help"], None, LIGHT),
        (["run", "--help"], None, LIGHT),
        (["presets"], None, HEAVY),
        (["run", "digits-cn"], None, HEAVY),
        (["runs"], None, FRAMEWORKS | {"textual"}),
        (["attach"], None, FRAMEWORKS | {"textual"}),
        ([], [""], LIGHT),
        ([], ["runs", "show", ""], LIGHT),
    ],
)
def test_no_command_imports_more_than_it_needs(args: list[str], completes: list[str] | None, absent: set[str]) -> None:
    made_run()
    script = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from tpu_console.tui.cli import main\n"
    variables = os.environ | (as_bash_asks(*completes) if completes is not None else {})
    command = [sys.executable, "-c", f"{script}main(sys.argv[1:])", *args]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    *said, modules = done.stdout.splitlines()
    assert said or args[-1:] == ["digits-cn"]
    loaded = {name.partition(".")[0] for name in modules.split()}
    assert {"click", "tpu_console"} <= loaded
    assert not loaded & absent


def test_missing_data_of_a_preset_names_its_source(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    err = call.refused("run", "imdb-text")
    assert all(part in err for part in (str(tmp_path / "IMDB Dataset.csv"), "https:", f"{tmp_path}/datasets"))
    assert "~/.keras" not in err
    err = call.refused("run", "imdb-text", "--set", "data.options.path=mine.csv")
    assert ("mine.csv" in err, "kaggle" in err) == (True, False)


def test_a_path_does_not_depend_on_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    for place, whole in (("~/a/../b", "/home/me/b"), ("a", f"{tmp_path}/a"), ("~nobody-/a", f"{tmp_path}/~nobody-/a")):
        assert absolute(place) == whole
