import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpu_console.engine.config.user_code import (
    call_model_function,
    call_user_function,
    missing_import,
    reference_problem,
    source_file,
)
from tpu_console.engine.errors import UserCodeError

MINE = """
import neighbor_of_mine

SIZE = 3

def make(scale, *, extra=0):
    return neighbor_of_mine.BASE * scale + extra

def fail(*arguments):
    limit = 4
    raise ValueError("no such size")  # here

def fail_deep(*arguments):
    return int("x")  # there
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A person's folder, which is the current one; nothing of it stays imported."""
    path, modules = list(sys.path), {*sys.modules}
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "neighbor_of_mine.py").write_text("BASE = 10\n", encoding="utf-8")
    package = tmp_path / "package_of_mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text("def make():\n    return 'made'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        del sys.modules[name]


def failure(reference: str, *arguments: object, **options: object) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        call_user_function(reference, *arguments, **options)
    return caught.value


def test_a_function_of_a_file_or_package_is_called_and_may_import_its_neighbors(folder: Path) -> None:
    assert call_user_function("mine.py:make", 2, extra=1) == 21
    assert call_user_function(f"{folder}/mine.py:make", 2) == 20
    assert call_user_function("package_of_mine.models:make") == "made"


@pytest.mark.parametrize(("name", "line"), [("fail", "raise ValueError"), ("fail_deep", 'return int("x")')])
def test_a_function_that_raises_shows_its_line(folder: Path, name: str, line: str) -> None:
    error = failure(f"mine.py:{name}", 1)
    assert f"mine.py:{name} raised ValueError: " in error.what
    number = next(i for i, text in enumerate(MINE.splitlines(), 1) if line in text)
    assert error.why.startswith(f"File {folder}/mine.py, line {number}: {line}")
    assert error.remedy


def test_a_model_function_may_take_only_options(folder: Path) -> None:
    (folder / "nets.py").write_text(
        "def plain():\n    return 'plain'\ndef wide(units=8):\n    return units\ndef both(shape, classes, units=8):\n"
        "    return shape, classes, units\n",
        encoding="utf-8",
    )
    made = [
        call_model_function(f"nets.py:{name}", (4,), 3, options)
        for name, options in (("plain", {}), ("wide", {}), ("wide", {"units": 2}), ("both", {"units": 2}))
    ]
    assert made == ["plain", 8, 2, ((4,), 3, 2)]
    with pytest.raises(UserCodeError, match="unexpected keyword argument 'depth'"):
        call_model_function("nets.py:both", (4,), 3, {"depth": 2})


def test_a_missing_option_or_function_is_named(folder: Path) -> None:
    error = failure("mine.py:make", 1, size=2)
    assert "'size'" in error.what
    assert error.why == f"File {folder}/mine.py, line 6"
    for reference, what in {
        "mine.py:mak": "did you mean 'make'?",
        "mine.py:SIZE": "not a function",
        "absent.py:make": f"There is no file {folder}/absent.py.",
        "absent_package:make": "cannot be imported: ModuleNotFoundError",
        "package_of_mine:make": "it defines no function",
    }.items():
        assert what in failure(reference).what


@pytest.mark.parametrize(
    ("content", "kind", "number", "line"),
    [
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError", 2, "y = 1 / 0"),
        ("import absent_of_mine\n", "ModuleNotFoundError", 1, "import absent_of_mine"),
        ("def make(:\n    pass\n", "SyntaxError", 1, "def make(:"),
    ],
)
@pytest.mark.parametrize("reference", ["broken.py:make", "broken:make"])
def test_a_file_that_cannot_be_imported_shows_the_line(
    folder: Path, reference: str, content: str, kind: str, number: int, line: str
) -> None:
    (folder / "broken.py").write_text(content, encoding="utf-8")
    error = failure(reference)
    assert f"cannot be imported: {kind}" in error.what
    assert error.why == f"File {folder}/broken.py, line {number}: {line}"


def test_a_file_named_like_an_installed_module_hides_nothing(folder: Path) -> None:
    (folder / "json.py").write_text("def make():\n    return 'mine'\n", encoding="utf-8")
    assert call_user_function("json.py:make") == "mine"
    import json

    assert json.loads("1") == 1


def test_the_file_of_a_function_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "parcel_of_mine" / "inner"
    inner.mkdir(parents=True)
    for file in (inner.parent / "__init__.py", inner / "__init__.py", inner / "deep.py"):
        file.write_text("raise SystemExit('it was imported')\n", encoding="utf-8")
    assert source_file("parcel_of_mine.inner.deep:data") == inner / "deep.py"
    assert source_file("parcel_of_mine.inner:data") == inner / "__init__.py"
    assert source_file("parcel_of_mine/inner/deep.py:data") == inner / "deep.py"
    assert source_file("json.decoder:JSONDecoder") is not None
    for missing in ("parcel_of_mine.inner.gone:data", "json.decoder.gone:data", "gone:data", "gone.py:data"):
        assert source_file(missing) is None


def test_a_missing_file_function_or_package_is_found_without_importing(folder: Path) -> None:
    (folder / "odd.py").write_text(
        "raise SystemExit('it was imported')\nif True:\n    from json import dumps as write\nsize = 3\n",
        encoding="utf-8",
    )
    (folder / "broken.py").write_text("def make(:\n", encoding="utf-8")
    (folder / "open.py").write_text("from odd import *\n", encoding="utf-8")
    for there in ("mine.py:make", "odd.py:write", "odd:size", "open.py:any", "json:dumps", "keras.layers:Dense"):
        assert reference_problem(there) == ""
    assert "no file" in reference_problem("gone.py:make")
    assert reference_problem("mine.py:fial").endswith("'fail'?")
    assert "'gone_of_mine'" in reference_problem("gone_of_mine:make")
    assert "'package_of_mine.gone'" in reference_problem("package_of_mine.gone:make")
    assert "line 1 is" in reference_problem("broken.py:make")


def test_a_missing_package_of_a_file_is_found_without_importing(folder: Path) -> None:
    text = "import json, neighbor_of_mine\nfrom package_of_mine import x\nfrom . import y\n"
    (folder / "needy.py").write_text(text + "try:\n    import gone\nexcept ImportError:\n    pass\ndef make(): 1\n")
    assert missing_import("needy.py:make") == ""
    (folder / "needy.py").write_text(text + "import keras, gone_of_mine.inner\ndef make(): 1\n")
    assert missing_import("needy.py:make") == "gone_of_mine"
    assert missing_import("nothing.py:make") == ""
