"""`tpu-console preflight` with a real process that says what the job says; the compiler itself is tested elsewhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import replace
from tests.made_verdicts import FITS, REFUSED, TOO_LARGE, UNKNOWN, result_of, speaking, telling
from tests.tui.calling import Call
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.errors import ConsoleError, Finding, Severity
from tpu_console.engine.preflight.choice import save_verdict
from tpu_console.engine.preflight.result import Verdict, from_dict
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.jobs import checks
from tpu_console.tui.jobs.checks import exit_code, read_verdicts
from tpu_console.tui.jobs.job_process import log_file
from tpu_console.tui.text.checks import verdict_lines

NAME = "cifar10-vgg-augmented"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[ConsoleError]:
    """What the TPU compiler lacks, in a list; nothing by default."""
    missing: list[ConsoleError] = []

    def check() -> None:
        if missing:
            raise missing[0]

    monkeypatch.setattr("tpu_console.tui.jobs.checks.check_compiler", check)
    return missing


@pytest.fixture
def job(jobs_from: Callable[[Any], None], compiler: list[ConsoleError]) -> Callable[[Any], None]:
    assert not compiler
    return jobs_from


def given() -> dict[str, Any]:
    options: dict[str, Any] = json.loads(log_file("preflight").read_text().splitlines()[0])
    return options


def test_the_worst_choice_decides_the_exit_code() -> None:
    cases: dict[int, list[list[Verdict]]] = {
        0: [[FITS]],
        1: [[UNKNOWN], [FITS, UNKNOWN], []],
        3: [[REFUSED], [TOO_LARGE, REFUSED, FITS]],
        4: [[TOO_LARGE], [UNKNOWN, TOO_LARGE]],
    }
    for code, verdicts in cases.items():
        assert {exit_code(each) for each in verdicts} == {code}


@pytest.mark.parametrize("verdict", [REFUSED, TOO_LARGE])
def test_what_has_to_change_is_not_hidden_by_advice_on_speed(verdict: Verdict) -> None:
    change = Finding(Severity.INFO, "It fits with batch_size=8.", is_change=True)
    config = find_preset(NAME).config
    advised = read_verdicts(config, result_of([replace(verdict, findings=(change,))]))
    lines = verdict_lines(config, advised, NAME, None)
    assert f"change       {change.text}" in lines
    assert not [line for line in lines if line.startswith("note")]


def test_the_choices_reach_the_job_each_once(call: Call, job: Callable[[Any], None]) -> None:
    job(telling([FITS]))
    command = ["--on", "v5e-8,v3-8", "--on", "V5LITEPOD-8", "--batch-size", "32", "--batch-size", "128"]
    more = ["--batch-size", "32", "--precision", "mixed_bfloat16", "--search", "--no-cache", "--set", "seed=5"]
    call.out("preflight", NAME, *command, *more)
    options = given()
    config = parse_config(options.pop("config"))
    assert (config.name, config.seed) == (find_preset(NAME).config.name, 5)
    assert options == {
        "on": ["v5e-8", "v3-8"],
        "batches": [32, 128],
        "precisions": ["mixed_bfloat16"],
        "search": True,
        "use_cache": False,
        "limit_s": 4 * 7200.0,
    }


def test_the_name_of_data_is_no_function(
    call: Call, job: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = "".join(f"film no {n},{n % 2}\n" for n in range(100))
    (tmp_path / "train.csv").write_text(f"text,label\n{rows}")
    job(telling([FITS]))
    call.out("preflight", "hf:films", "--set", f"data.options.data_dir={tmp_path}", "--on", "v5e-8")
    assert given()["config"]["dataset"] == "hf"


@pytest.mark.parametrize(("options", "jobs"), [([], ["call", "preflight"]), (["--no-call"], ["preflight"])])
def test_a_dataset_function_of_unknown_shapes_is_called_first(
    call: Call, job: Callable[[Any], None], tmp_path: Path, options: list[str], jobs: list[str]
) -> None:
    job(telling([FITS]))
    data = f"dataset={tmp_path / 'mine.py'}:data"
    call.out("preflight", NAME, "--set", data, *options)
    assert [name for name in ("call", "preflight") if log_file(name).exists()] == jobs


def test_a_custom_model_needs_only_a_dataset(call: Call, job: Callable[[Any], None], tmp_path: Path) -> None:
    job(telling([FITS]))
    model = f"{tmp_path / 'mine.py'}:build"
    assert "--set dataset=cifar10" in call.refused("preflight", model)
    settings = ("--set", "dataset=cifar10", "--set", "augmentation.flip=horizontal", "--batch-size", "64")
    out = call.out("preflight", model, *settings)
    assert "inspect cifar10 --set augmentation.flip=horizontal" in " ".join(out.split())
    config = parse_config(given()["config"])
    assert (config.model, config.dataset, given()["batches"]) == (model, "cifar10", [64])


def test_json_holds_every_figure_and_reads_back(call: Call, job: Callable[[Any], None]) -> None:
    job(telling([replace(FITS, hosts=2), REFUSED]))
    save_input_speed(find_preset(NAME).config, [{"name": "first", "per_s": 900.0}, {"name": "later", "per_s": 1000.0}])
    code, out, _ = call("preflight", NAME, "--json")
    found = json.loads(out)
    assert (code, found["exit_code"], found["config"]) == (3, 3, find_preset(NAME).config.name)
    fits, refused = found["verdicts"]
    assert (fits["global_batch"], refused["headroom"], refused["kaggle"]) == (1024, None, None)
    assert fits["kaggle"]["week"] == pytest.approx(22.3 / 72000)
    feeding = fits.pop("input")
    assert (feeding["wanted_per_s"], feeding["measured_per_s"]) == (441_379.0, 1000.0)
    assert feeding["cores_needed"] == -(-441_379 * feeding["cores"] // 2000)
    likely = fits.pop("likely")
    # 1,024 images a step for two hosts, at 1,000 per second each.
    assert (likely["limited_by"], likely["low_s"]) == ("input", pytest.approx(0.512))
    known = {key: value for key, value in fits.items() if key not in {"global_batch", "headroom", "kaggle"}}
    assert from_dict(known).bound == FITS.bound


def test_a_cached_verdict_needs_no_process(call: Call, job: Callable[[Any], None]) -> None:
    job(speaking("raise AssertionError"))
    save_verdict(find_preset(NAME).config, FITS)
    out = call.out("preflight", NAME)
    assert ("cached" in out, f" inspect {NAME} --speed" in out, "\x1b" in out) == (True, True, False)


@pytest.mark.usefixtures("forked_jobs")
def test_without_the_compiler_there_are_a_lower_bound_advice_and_the_line_to_install(
    call: Call, compiler: list[ConsoleError]
) -> None:
    compiler.append(ConsoleError("No compiler.", remedy="pip install it"))
    code, out, err = call("preflight", "digits-cnn", "--batch-size", "17", "--on", "v5e-8,v3-8")
    assert (code, out.count("could not tell  >")) == (1, 2)
    assert "means at least" in out
    assert "17 per replica" in out
    assert err.splitlines()[-2:] == ["Error: No compiler.", "pip install it"]


def test_what_fails_still_gives_the_advice(call: Call, job: Callable[[Any], None]) -> None:
    job(speaking("reporter.error(ConsoleError('It failed.', why='Why.', remedy='What to do.'))"))
    code, out, err = call("preflight", "digits-cnn", "--set", "batch_size=17")
    assert (code, "multiple" in out) == (1, True)
    assert err.splitlines()[-3:] == ["Error: It failed.", "Why.", "What to do."]
    code, out, _ = call("preflight", "digits-cnn", "--set", "batch_size=17", "--json")
    found = json.loads(out)
    assert (code, found["exit_code"], found["verdicts"], found["error"]["what"]) == (1, 1, [], "It failed.")
    assert any("multiple" in one["text"] for one in found["advice"])


def test_a_compiler_that_crashes_or_hangs_is_a_sentence_with_the_log(
    call: Call, job: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job(speaking("os.kill(os.getpid(), 11)"))
    code, _, err = call("preflight", "digits-cnn")
    assert (code, "SIGSEGV" in err, str(log_file("preflight")) in err) == (1, True, True)
    # A busy machine needs seconds to start a job, which then ends at its limit by itself.
    assert checks.STUCK_S >= 10
    monkeypatch.setattr(checks, "STUCK_S", 0.1)
    job(speaking("time.sleep(600)"))
    code, _, err = call("preflight", "digits-cnn", "--limit", "0.4")
    assert (code, "no result after 0.50 s" in err) == (1, True)


def test_bad_usage(call: Call) -> None:
    for line, said in {
        "digits-cnn --on v5f-8": "did you mean 'v5p-8'?",
        "digits-cnn --on ,": "names no TPU",
        "digits-cn": "did you mean 'digits-cnn'?",
        "digits-cnn --batch-size 0": "--batch-size",
        "digits-cnn --precision int8": "mixed_bfloat16",
        "digits-cnn --set epochs=-1": "epochs",
    }.items():
        assert said in call.refused("preflight", *line.split())
