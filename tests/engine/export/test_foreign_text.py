"""No text of a run becomes code in its script: not its name, keys, values, columns, classes, paths or devices."""

import ast
import json
import math
from datetime import date
from functools import cache, reduce
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.helpers import run_forked, small_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.code import Imports, docstring, literal, write
from tpu_console.engine.data.images.files import image_folder
from tpu_console.engine.data.places import locate
from tpu_console.engine.errors import UntrustedCodeError, UserCodeError
from tpu_console.engine.export.export import export_run
from tpu_console.engine.export.script import Script, script_of
from tpu_console.engine.messages import Reporter
from tpu_console.engine.runs import events
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.runs.state import reduce as step

_DO = "__import__('os').system('touch PWNED')"
_ATTACKS = (
    f'"""\n{_DO}\n"""',
    f'\\"""\n{_DO}\n"""',
    f'"); {_DO}; ("',
    f"'); {_DO}; ('",
    f"a=1) if 0 else {_DO} or dict(b",
    f'": 1}}, a={_DO}, **{{"',
    f"\n{_DO}\n#",
    f"{{{_DO}}}",
    "class",
    "__debug__",
    "\ufb01",
    "\\",
    "\u2028\x00\x7f\ud800🙂\n",
    "<img src=http://evil.example/x> [a](http://evil.example) $x$ `b` ![c](d)",
)
_TEXT = st.one_of(
    st.sampled_from(_ATTACKS),
    st.text(min_size=1, max_size=20),
    st.text("\"'\\\n#{}()=,`a", min_size=1, max_size=12),
    st.tuples(st.text(max_size=3), st.sampled_from(_ATTACKS)).map("".join),
)
_PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), _TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_OPTIONS = st.dictionaries(_TEXT, _PLAIN, min_size=1, max_size=3)
_MINE = "mine.py:thing"


def beginning(name: str = "cpu", backend: str = "tensorflow", monitor: str = "val_x") -> list[events.Event]:
    """What a run wrote before its first step; all of its texts can be foreign."""
    replicas = tuple(events.Replica(number, "cpu:0", "CPU", "here") for number in range(2))
    return [
        events.AcceleratorReady(name, name, name, replicas, {}, backend),
        events.DataReady(1000, 200, (8, 8, 3), 2, cache=name, augmentation=name, shuffle_buffer=10),
        events.FitStarted(1, 30, 32, 32, 1, execution_reason=name, monitor=monitor),
        events.Noticed(name),
    ]


def state(*texts: str) -> RunState:
    """The state of a run that begins so."""
    return reduce(lambda before, event: step(before, event, 1e9), beginning(*texts), RunState())


def own(name: str, options: dict[str, Any], more: dict[str, Any]) -> RunConfig:
    """A run with the user's functions; the values of a configuration are set without being checked."""
    config = small_config(dataset=_MINE, model=_MINE, loss=_MINE, checkpoint={"monitor": "auto"})
    stopping = config.early_stopping.model_copy(update={"patience": 3, "monitor": name})
    data = config.data.model_copy(update={"options": options})
    changes = {"name": name, "weights": name, "callbacks": (_MINE,), "model_options": more, "data": data}
    return config.model_copy(update=changes | {"early_stopping": stopping})


def of_files(dataset: str, **options: Any) -> RunConfig:
    """A run on files; the values of a configuration are set without being checked."""
    config = small_config(dataset="image-csv", data={"options": {"path": "/a.csv"}}, model_options={"hidden": [4]})
    changed = {"dataset": dataset, "data": config.data.model_copy(update={"options": options})}
    return config.model_copy(update=changed)


def table(name: str) -> tuple[RunConfig, dict[str, Any]]:
    """A run on an image table, and what it noted of the files."""
    path, images = f"/nowhere/{name}.csv", f"/nowhere/{name}"
    record = {"classes": [name, "b"], "label_columns": [name], "id_column": name, "suffix": name}
    left_out = {"left_out": {image_folder(path, images): [name]}}
    return of_files("image-csv", path=path, images=images, image_size=(8, 8)), record | left_out


def folder(name: str) -> tuple[RunConfig, dict[str, Any]]:
    """A run on a folder of images."""
    path = f"/nowhere/{name}"
    options = {"path": path, "validation_path": path, "image_size": (8, 8), "resize": "crop"}
    return of_files("image-folder", **options), table(name)[1] | {"left_out": {locate(path): [name]}}


def texts(name: str) -> tuple[RunConfig, dict[str, Any]]:
    """A run on a table of texts."""
    config = of_files("text-csv", path=f"/nowhere/{name}", inputs=name, label=name)
    return config, {"class_names": [name, "b"], "words": [name] * 4}


class _Shape(ast.NodeTransformer):
    """Takes all values out of a syntax tree: what stays is the same for every run of a kind, unless a text is code."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        is_number = isinstance(node, ast.Call) and ast.unparse(node.func) == "float"
        plain = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.UnaryOp)
        parts = ast.iter_child_nodes(node)
        if is_number or (
            isinstance(node, plain) and all(isinstance(p, ast.Constant | ast.Load | ast.USub) for p in parts)
        ):
            return ast.Constant(0)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "thing":
            assert all(isinstance(keyword.value, ast.Constant) for keyword in node.keywords)
            node.keywords = []
        return node


def code_of(written: Script) -> str:
    """The code cells of the notebook, whose other cells hold nothing that a browser would load, run or set."""
    notebook = nbformat.reads(written.notebook, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "code" or not {*cell.source} & {*"<>[]`$!*\\"}
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def shapes(written: Script) -> list[str]:
    """The syntax trees of a script and of its notebook, without values."""
    return [ast.dump(_Shape().visit(ast.parse(text))) for text in (written.text, code_of(written))]


RETURNED = {"returned": ["arrays", "examples"]}


@cache
def usual(kind: Any = None) -> list[str]:
    """The shapes of a run whose texts are single letters."""
    if kind is None:
        return shapes(script_of(own("a", {"a": 1}, {"a": 1}), state("a", "b", "val_c"), RETURNED, "d"))
    config, record = kind("a")
    return shapes(script_of(config, state(), record, "b"))


@settings(max_examples=40, deadline=None)
@given(name=_TEXT, options=_OPTIONS, more=_OPTIONS, backend=_TEXT)
@example("x", {f"a=1) if 0 else {_DO} or dict(b": 1}, {f"b=1) if 0 else {_DO} or dict(c": 1}, "jax")
@example(f'"""\n{_DO}\n"""', {"a": math.inf, "b": -math.nan, "c": date(2026, 1, 1)}, {"class": 1, "a": 2}, "torch")
def test_keys_values_and_names_of_own_code_stay_texts(
    name: str, options: dict[str, Any], more: dict[str, Any], backend: str
) -> None:
    assume(backend not in {"tensorflow", "jax"} and not any(part in f"val_{name}" for part in ("loss", "acc")))
    hostile = script_of(own(name, options, more), state(name, backend, f"val_{name}"), RETURNED, name)
    assert shapes(hostile) == usual()


@settings(max_examples=30, deadline=None)
@given(name=_TEXT, kind=st.sampled_from((table, folder, texts)))
@example(f'"""\n{_DO}\n"""', texts)
@example(f'"]; {_DO}; ["', texts)
@example("\\", texts)
def test_paths_columns_and_classes_stay_texts(name: str, kind: Any) -> None:
    assume("\0" not in name)
    config, record = kind(name)
    assert shapes(script_of(config, state(), record, name)) == usual(kind)


@given(value=_PLAIN)
def test_a_plain_value_is_written_as_itself(value: Any) -> None:
    read = eval(write(literal(value)), {"__builtins__": {"float": float}})
    assert repr(read) == repr(json.loads(json.dumps(value, default=str)))


@given(text=_TEXT)
def test_a_docstring_holds_its_text(text: str) -> None:
    assume("\r" not in text and "\0" not in text and text.isprintable())
    assert ast.literal_eval(docstring(text)) == f"{text}\n"


@pytest.mark.parametrize("reference", ["a..b:c", "a.class:c", "a.1:c", "a:class", "two words.py:c", "a;b.py:c"])
def test_what_no_import_can_name_is_refused(reference: str) -> None:
    with pytest.raises(UserCodeError, match="plain import"):
        Imports().own(reference)


def written_run(folder: Path, config: str, started_in: Path) -> Path:
    """A run's folder with a hostile name, which somebody else has written."""
    run = folder / f'20261122-120000-a"""; {_DO}; """'
    run.mkdir()
    run.joinpath("config.toml").write_text(config)
    run.joinpath("inputs.json").write_text('{"returned": ["arrays", "arrays"]}')
    written = [events.RunStarted("a", events.RunSource.PROCESS, 1, "h", folder=str(started_in)), *beginning()]
    run.joinpath("events.jsonl").write_bytes(b"".join(encode(event, 1e9) for event in written))
    return run


_CONFIG = f"""
name = "a"
dataset = "mine.py:data"
model = "mine.py:build"
callbacks = ["csv_logger(filename='../../outside.csv')"]
batch_size = 10
epochs = 1
[data.options]
"a=1) if 0 else {_DO} or dict(b" = 1
c = inf
[model_options]
"b=1) if 0 else {_DO} or dict(c" = 1
lambda = "{_DO}"
[checkpoint]
enabled = false
"""
_MINE_CODE = """
import keras
import numpy as np

def data(**options):
    assert len(options) == 2 and options["c"] == float("inf"), options
    part = np.zeros((80, 8, 8, 3), "float32"), np.zeros(80, "int32")
    return part, part

def build(shape, classes, **options):
    assert len(options) == 2, options
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes)])
"""


@pytest.mark.slow
def test_the_script_of_a_hostile_run_trains_and_does_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, elsewhere, work = (tmp_path / name for name in ("code", "elsewhere", "deep/work"))
    for one in (code, elsewhere, work):
        one.mkdir(parents=True)
    (code / "mine.py").write_text(_MINE_CODE)
    run = written_run(elsewhere, _CONFIG, code)
    monkeypatch.chdir(elsewhere)
    out = work / "train.py"
    with (tmp_path / "messages").open("w") as messages:
        with pytest.raises(UntrustedCodeError, match=r"mine\.py:data"):
            export_run(Reporter(messages), str(run), str(out), "script")
        assert not out.exists()
        export_run(Reporter(messages), str(run), str(out), "script", trust=True)
    assert f'0, "{code}"' in out.read_text()  # where the run was started
    run_forked(out.read_text().replace("steps_per_epoch=30", "steps_per_epoch=2"), cwd=work)
    assert {path.name for path in tmp_path.rglob("*")} & {"PWNED", "outside.csv"} == {"outside.csv"}
    assert (work / "outside.csv").exists()
