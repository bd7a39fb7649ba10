import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tpu_console.engine.config.user_code import call_user_function
from tpu_console.engine.errors import UserCodeError, did_you_mean
from tpu_console.engine.runs.failures import explain, log_text, own_line

LOG = "console.log"


# They stand for those of TensorFlow and JAX.
OpError = type("OpError", (Exception,), {"__module__": "tensorflow.python.framework.errors_impl"})
ResourceExhaustedError = type("ResourceExhaustedError", (OpError,), {"__module__": OpError.__module__})
JaxRuntimeError = type("JaxRuntimeError", (RuntimeError,), {"__module__": "jax.errors"})

DAMAGED = "The image file /data/a b.jpg is damaged: its header is valid, but it cannot be decoded."

GRAPH = """Graph execution error:

Detected at node compile_loss/SparseSoftmaxCrossEntropyWithLogits defined at (most recent call last):
  File "<string>", line 1, in <module>
  File "train.py", line 3, in fit

Received a label value of 11 which is outside the valid range of [0, 10).  Label values: 3 11
\t [[{{node compile_loss/SparseSoftmaxCrossEntropyWithLogits}}]] [Op:__inference_multi_step_on_iterator_1234]
"""
SEVERAL = "2 root error(s) found.\n  (0) ABORTED:  Bad\n\t [[x]]\n  (1) ABORTED: y"
NO_MEMORY = "The device ran out of memory."
LABELS = "Received a label value of 11 which is outside the valid range of [0, 10).  Label values: 3 11"


@pytest.mark.parametrize(
    ("error", "what", "why", "remedy"),
    [
        (MemoryError(), NO_MEMORY, "MemoryError", "batch_size"),
        (ResourceExhaustedError("OOM for shape[9]\nmore\n"), NO_MEMORY, "OOM for shape[9]", "batch_size"),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of 9 bytes."), NO_MEMORY, "Out of 9 bytes.", "batch_size"),
        (JaxRuntimeError("INTERNAL: it broke"), "JaxRuntimeError: INTERNAL: it broke", "", "log"),
        (RuntimeError("RESOURCE_EXHAUSTED: x"), "RuntimeError: RESOURCE_EXHAUSTED: x", "", "log"),
        (OSError(errno.ENOSPC, "No space left"), "The disk is full.", "[Errno 28] No space left", "Free space"),
        (ModuleNotFoundError("No module 'x'", name="x"), "x cannot be imported.", "No module 'x'", "install x"),
        (ValueError(""), "ValueError: ValueError", "", "log"),
        (KeyError("first\nsecond"), "KeyError: 'first\\nsecond'", "", "log"),
        (OpError(GRAPH), f"OpError: {LABELS}", "", "labels"),
        (OpError(SEVERAL), "OpError: Bad", "", "labels"),
        (OpError(f"Graph execution error:\n\nassertion failed: [{DAMAGED}] [[x]]"), DAMAGED, "", "Replace the file"),
    ],
)
def test_an_error_is_one_sentence_with_its_cause_and_what_to_do(
    error: Exception, what: str, why: str, remedy: str
) -> None:
    told = explain(error, LOG)
    assert (told.what, told.log) == (what, LOG)
    assert told.why.startswith(why)
    assert bool(told.why) == bool(why)
    assert remedy in told.remedy
    assert log_text(error).endswith("\n")


# TensorFlow raises the same class for full memory.
NO_SPACE = "{{function_node x}} %s; No space left on device\nmore"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, None])
def test_a_full_disk_is_named(number: int | None, tmp_path: Path) -> None:
    path = str(tmp_path / "best.keras")
    error = OSError(number, os.strerror(number), path) if number else ResourceExhaustedError(NO_SPACE % path)
    told = explain(error, LOG)
    assert "full: best.keras " in told.what
    assert str(tmp_path) in told.what
    assert "free" in told.why


def test_a_package_that_a_function_of_the_user_imports_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "hub.py").write_text("def build(*_):\n    import gone_hub.models\n", encoding="utf-8")
    with pytest.raises(UserCodeError) as raised:
        call_user_function(f"{tmp_path / 'hub.py'}:build")
    told = explain(raised.value, LOG)
    assert told.what.endswith("'gone_hub'")
    assert told.remedy.endswith("install gone-hub")


def test_the_last_line_of_a_file_of_one_s_own_is_shown(tmp_path: Path) -> None:
    path, code = tmp_path / "train.py", "import json\n\njson.loads('{')\n"
    path.write_text(code)
    with pytest.raises(ValueError, match="Expecting") as raised:
        exec(compile(code, str(path), "exec"), {})
    told = explain(raised.value, LOG)
    assert (f"{path}, line 3:" in told.why, told.why.rpartition(": ")[2]) == (True, "json.loads('{')")
    assert "that line" in told.remedy


def test_the_log_of_a_user_s_mistake_has_the_user_s_lines_and_no_traceback_of_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    return {}['x']\n", encoding="utf-8")
    with pytest.raises(UserCodeError) as raised:
        call_user_function(f"{tmp_path}/mine.py:make")
    lines = log_text(raised.value).splitlines()
    at = lines.index("    return {}['x']")
    assert f"{tmp_path}/mine.py" in lines[at - 1]
    assert any(line.startswith("Error: ") and "KeyError" in line for line in lines[at:])
    assert not [line for line in lines if "Traceback" in line or "user_code.py" in line]


def test_a_package_installed_for_the_user_is_not_the_user_s_code(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "packaged.py"
    package.parent.mkdir(parents=True)
    package.write_text("def call(f):\n    return f()['x']\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        f"import sys\nsys.path.insert(0, {str(package.parent)!r})\n"
        "import packaged\ndef make():\n    return packaged.call(dict)\n",
        encoding="utf-8",
    )
    with pytest.raises(UserCodeError) as raised:
        call_user_function(f"{tmp_path}/mine.py:make")
    assert raised.value.__cause__ is not None
    assert f"{tmp_path}/mine.py, line 5:" in own_line(raised.value.__cause__)


@pytest.mark.parametrize(
    ("word", "choices", "hint"),
    [
        ("epoch", ["epochs", "early"], "did you mean 'epochs'?"),
        ("Adma", ["adam", "sgd"], "did you mean 'adam'?"),
        ("fash", ["fashion-mnist", "digits"], "did you mean 'fashion-mnist'?"),
        ("patience", ["early_stopping.patience", "x"], "did you mean 'early_stopping.patience'?"),
        ("lr", ["fine_tuning.learning_rate", "optimizer.learning_rate"], "did you mean 'optimizer.learning_rate'?"),
        ("a.lr", ["a.learning_rate", "b.learning_rate", "a.clip"], "did you mean 'a.learning_rate'?"),
        ("xyzzy", ["b", "a"], "valid: a, b"),
        ("x", ["xylophone", "a"], "valid: a, xylophone"),
    ],
)
def test_the_nearest_name_is_given_or_else_all(word: str, choices: Sequence[str], hint: str) -> None:
    assert did_you_mean(word, choices) == hint
