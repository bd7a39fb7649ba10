"""The command line in this process: help, presets, suggestions, errors, completion."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from tests.helpers import ROOT, small_config
from tests.tui.command_tree import all_commands
from tests.tui.made_runs import made_run
from tpu_console.engine.config.reading import parse_assignment, parse_config, run_command, valid_keys, with_changes
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.cli import cli
from tpu_console.tui.commands.options import absolute

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tui.calling import Call
    from tpu_console.engine.config.run_config import RunConfig

BUILTIN = [path.stem for path in (ROOT / "presets").glob("*.toml")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", [[], *map(str.split, all_commands())], ids=" ".join)
def test_every_help_has_examples_and_exit_codes(command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"])
    assert result.exit_code == 0
    assert "Examples:\n    " in result.output
    assert "130  interrupted" in result.output
    examples = "    tpu-console "
    assert all(len(line) <= 80 or line.startswith(examples) for line in result.output.splitlines())


@pytest.mark.parametrize(
    ("args", "nearest"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["atach"], "did you mean 'attach'?"),
        (["run", "digits-cnn", "--epoch-s", "3"], "--epochs"),
    ],
)
def test_misspelt_commands_and_options_name_the_nearest(call: Call, args: list[str], nearest: str) -> None:
    err = call.refused(*args)
    assert nearest in err


def test_options_before_a_command_are_not_lost_and_no_terminal_says_what_to_use_instead(call: Call) -> None:
    assert "'runs'" in call.refused("--theme", "nord", "runs")
    assert " run PRESET" in call.refused()


def test_all_problems_of_a_command_are_reported_together(call: Call, home: Path) -> None:
    err = call.refused("run", "digits-cnn", "--epochs", "-1", "--set", "optimizer.nme=3", "--set", "batchsize=7")
    lines = err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("Error: ") for line in lines)
    assert "'optimizer.name'" in err
    assert "'batch_size'" in err
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["digits-cnn", "--set", "epochs=1", "--set", "seed=2", "--set", "epochs =3"], "--set epochs is given 2 times"),
        (["digits-cn"], "There is no preset 'digits-cn'; did you mean 'digits-cnn'?"),
        (["./mine.py:build"], "--set model="),
        (["nothere.toml"], "nothere.toml: cannot be read: No such file or directory"),
        (["digits-cnn", "--batch-size", "5000"], "larger than the 1,437 training examples"),
        (["digits-cnn", "--accelerator", "tpux"], "'tpux' is not an accelerator"),
        (["digits-cnn", "--epochs", "many"], "'many' is not a valid integer"),
        (["digits-cnn", "--preset-file", "none.toml"], "'none.toml' does not exist"),
    ],
)
def test_combinations_that_cannot_be_trained_are_refused_before_anything_starts(
    call: Call, home: Path, args: list[str], sentence: str
) -> None:
    err = call.refused("run", *args)
    assert sentence in err
    assert not (home / "runs").exists()


def test_data_that_cannot_be_trained_and_a_file_without_its_ending_say_what_to_type(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos").mkdir()
    (tmp_path / "wine.csv").write_text("a,b\n1,2\n")
    films = "".join(f"{n},one more film that was seen,{n % 2},{n % 3}\n" for n in range(9))
    (tmp_path / "films.csv").write_text(f"id,what,good,stars\n{films}")
    (tmp_path / "mine.toml").touch()
    (tmp_path / "digits-cnn").mkdir()  # a preset's name wins
    for name, expected, sentence in (
        ("my photos", 1, "is not in a known format"),
        ("./wine.csv", 1, "The first line must name the columns"),
        ("films.csv", 1, "--set data.options.label=good"),
        ("./nothing", 1, "nothing does not exist"),
        ("mine", 2, "write ./mine.toml"),
    ):
        code, _, err = call("run", name)
        assert (code, sentence in err) == (expected, True)
    assert "epochs:" in call("run", "digits-cnn", "--epochs", "0")[2]


def test_broken_preset_file_is_reported_and_the_rest_is_listed(call: Call, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text('dataset = "digits"\nmodel = "cnn"\nbatch_size = 0\nepohs = 3\n')
    code, out, err = call("presets", "--preset-file", str(broken))
    assert code == 2
    assert [line.split()[0] for line in out.splitlines()[1:]] == sorted(BUILTIN)
    assert len(err.splitlines()) == 3  # batch_size, epochs missing, epohs unknown
    assert err.count("broken.toml: ") == 3


def test_presets_are_marked_as_built_in_or_yours(call: Call, home: Path) -> None:
    (home / "presets").mkdir()
    (home / "presets" / "mine.toml").write_text('dataset = "digits"\nmodel = "mlp"\nbatch_size = 8\nepochs = 1\n')
    _, out, _ = call("presets")
    assert "mine" in out
    assert next(line.split()[1] for line in out.splitlines() if line.startswith("mine")) == "yours"
    found = call.json("presets")
    assert {preset["name"]: preset["yours"] for preset in found} == {**dict.fromkeys(BUILTIN, False), "mine": True}


def test_unwritable_home_is_one_clear_error(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "file"))
    error, advice = call.refused("run", "digits-cnn", "--json", code=1).splitlines()
    assert ("cannot be written" in error, "TPU_CONSOLE_HOME" in advice) == (True, True)


@pytest.mark.parametrize("group", [(), ("runs",)], ids=str)
def test_the_list_of_commands_has_the_first_sentence_of_each_help(group: tuple[str, ...]) -> None:
    listed = CliRunner().invoke(cli, [*group, "--help"], terminal_width=400).output
    for name, command in all_commands().items():
        if name.split()[:-1] == list(group):
            first = (command.help or "").split("\n\n")[0].replace("\n", " ")
            (line,) = re.findall(rf"^  {name.split()[-1]}  +(.*)$", listed, re.MULTILINE)
            assert first.startswith(line.removesuffix("..."))


def test_the_commands_fit_in_a_head_and_work_under_their_earlier_names() -> None:
    context = click.Context(cli)
    assert len(cli.list_commands(context)) <= 20
    for earlier, today in (("show", "runs show"), ("annotate", "runs tag"), ("profile", "runs profile")):
        assert cli.get_command(context, earlier) is all_commands()[today]


def test_runs_lists_the_runs_unless_a_command_is_named(call: Call, home: Path) -> None:
    create_run("one").journal.touch()
    assert call("runs", "--json") == call("runs", "list", "--json")
    assert call("runs", "shwo")[0] == 2
    assert "'show'" in call("runs", "shwo")[2]


def test_trouble_of_the_machine_is_a_sentence_and_a_bug_is_in_a_log(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([OSError(28, "No space left on device", "/data/x"), ZeroDivisionError("by design")])

    def broken(*_: object, **__: object) -> None:
        raise next(errors)

    monkeypatch.setattr(all_commands()["runs list"], "callback", broken)
    assert "/data/x: " in call.refused("runs", code=1)
    err = call.refused("runs", code=1)
    assert len(err.splitlines()) == 2
    assert str(home / "errors.log") in err
    assert "ZeroDivisionError: by design" in (home / "errors.log").read_text()


def test_completion_script_comes_with_instructions(call: Call) -> None:
    for shell, needed in (("bash", "complete -o nosort"), ("fish", "complete")):
        first, *script = call.out("completion", shell).splitlines()
        assert first.startswith("# ")
        assert f"tpu-console completion {shell}" in first
        assert needed in "".join(script)


def complete(*words: str) -> list[str]:
    """Ask as bash does for completions of the last word."""
    result = CliRunner().invoke(
        cli,
        prog_name="tpu-console",
        env={
            "_TPU_CONSOLE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["tpu-console", *words]),
            "COMP_CWORD": str(len(words)),
        },
    )
    return [line.partition(",")[2] for line in result.output.splitlines()]


def test_shell_completes_presets_runs_keys_and_accelerators(home: Path) -> None:
    run = create_run("one")
    run.journal.touch()
    assert complete("run", "fash") == complete("sweep", "fash") == ["fashion-mnist-cnn"]
    assert complete("run", "photo") == ["photo"]  # no preset: the shell completes files
    assert complete("attach", run.run_id[:8]) == [run.run_id]
    keys = ["optimizer.schedule=", "optimizer.scale_with_replicas="]
    assert complete("run", "digits-cnn", "--set", "optimizer.sc") == keys
    assert complete("run", "digits-cnn", "--accelerator", "s") == ["sim:2", "sim:4", "sim:8"]
    assert complete("run", "digits-cnn", "--accelerator", "t") == ["tpu", "tpu:"]
    assert complete("run", "digits-cnn", "--backend", "") == ["auto", "tensorflow", "jax"]
    assert complete("run", "digits-cnn", "--host") == ["--hosts", "--host-index"]
    assert complete("at") == ["attach"]
    assert complete("runs", "co") == ["compare"]
    assert len(complete("run", "digits-cnn", "--set", "o")) == sum(key.startswith("o") for key in valid_keys())


FRAMEWORKS = {"tensorflow", "keras", "jax", "pandas", "sklearn", "tensorflow_hub"}


HEAVY = FRAMEWORKS | {"textual", "numpy"}


@pytest.mark.parametrize(
    ("args", "absent"),
    [
        (["--help"], HEAVY | {"pydantic", "psutil"}),
        (["run", "--help"], HEAVY | {"pydantic", "psutil"}),
        (["presets"], HEAVY),
        (["run", "digits-cn"], HEAVY),
        (["runs"], FRAMEWORKS | {"textual"}),
        (["attach"], FRAMEWORKS | {"textual"}),
    ],
)
def test_no_command_imports_more_than_it_needs(args: list[str], absent: set[str]) -> None:
    made_run()
    script = (
        "import sys; from tpu_console.tui.cli import main; main(sys.argv[1:]);"
        "print('modules', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split()[1:])
    assert {"click", "tpu_console"} <= modules
    assert not modules & absent


@pytest.mark.parametrize("words", ["", "runs show "])
def test_completing_a_name_imports_little(words: str, home: Path) -> None:
    create_run("one").journal.touch()
    variables = {
        "_TPU_CONSOLE_COMPLETE": "bash_complete",
        "COMP_WORDS": f"tpu-console {words}",
        "COMP_CWORD": str(len(words.split()) + 1),
    }
    script = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules));from tpu_console.tui.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    *offered, modules = done.stdout.splitlines()
    assert len(offered) == (1 if words else len(cli.list_commands(click.Context(cli))))
    assert not {name.partition(".")[0] for name in modules.split()} & (HEAVY | {"pydantic", "psutil"})


def test_missing_data_of_a_preset_names_its_source(call: Call, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("KERAS_HOME", str(home))
    err = call.refused("run", "imdb-text")
    assert f"looked for at {home / 'IMDB Dataset.csv'}" in err
    assert "'IMDB Dataset.csv' of https:" in err
    assert f"{home}/datasets" in err  # of the KERAS_HOME that is set
    assert "~/.keras" not in err
    _, _, err = call("run", "imdb-text", "--set", "data.options.path=mine.csv")
    assert "mine.csv" in err
    assert "kaggle" not in err


def test_a_path_does_not_depend_on_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert [absolute("~/a/../b"), absolute("a")] == ["/home/me/b", f"{tmp_path}/a"]
    assert absolute("~no-such-user/a.csv") == f"{tmp_path}/~no-such-user/a.csv"


OPTIONS = {"--epochs": "epochs", "--batch-size": "batch_size", "--accelerator": "accelerator"}


def _run(command: str, base: RunConfig) -> RunConfig:
    """Do what the command line does with its options."""
    words = shlex.split(command)[3:]
    changes: list[tuple[str, Any]] = []
    for option, value in zip(words[::2], words[1::2], strict=True):
        key = OPTIONS.get(option)
        changes.append(parse_assignment(f"{key}={value}" if key else value))
    return with_changes(base, changes)


CHANGES: list[dict[str, Any]] = [
    {"epochs": 3, "batch_size": 7, "accelerator": "sim:4"},
    {"model": "mlp", "model_options": {"hidden": [64]}},
    {"model": "mlp", "model_options": {"dropout": 0.3}},
    {"model": "my net.py:build", "model_options": {"units": 3, "name": "a b"}},
    {"name": "123", "steps_per_epoch": 9},
    {"name": "true", "metrics": ["accuracy", "auc"]},
    {"model_options": {"filters": [8]}},
    {"dataset": "d.py:load", "data": {"options": {"n": 1, "kind": "7"}}},
]


@pytest.mark.parametrize("changes", CHANGES, ids="-".join)
@pytest.mark.parametrize("preset", ["digits-cnn", "plant-pathology-efficientnet"])
def test_the_command_makes_the_configuration_of_the_form(preset: str, changes: dict[str, Any]) -> None:
    base = find_preset(preset).config
    plain = {"model": "cnn", "model_options": {}, "fine_tuning": {}}  # only pretrained models have a second phase
    config = parse_config(base.model_dump(mode="json") | plain | changes)
    assert _run(run_command(config, base, preset), base) == config


def test_a_removed_custom_option_is_removed_from_the_command() -> None:
    base = small_config(model="m.py:f", model_options={"a": 1, "b": 2})
    config = base.model_copy(update={"model_options": {"b": 2}})
    assert _run(run_command(config, base, "own"), base) == config
