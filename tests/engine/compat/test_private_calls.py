"""Private names of other packages are used in the compat modules only."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRIVATE = re.compile(
    r"noqa: SLF001|\b(keras\.src|jax\._src|tensorflow\.python)\b|\"jaxlib\._|getattr\(\w+, f?\"_[a-z{]"
)
ALLOWED = {
    "engine/compat/keras.py",
    "engine/compat/tensorflow.py",
    "engine/compat/jax.py",
    "tui/compat.py",
    "engine/process/main.py",  # atexit._run_exitfuncs of Python
    "engine/training/notebook.py",  # sys._current_frames of Python
}
OF_PYTHON = {"_exit", "_replace"}  # os._exit, and the public method of a NamedTuple
FILES = {path: path.relative_to(ROOT) for part in ("engine", "presets", "tui") for path in (ROOT / part).rglob("*.py")}


def names_made(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


def test_private_names_are_used_in_the_compat_modules_only() -> None:
    texts = {str(name): path.read_text(encoding="utf-8") for path, name in FILES.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    ours = {made for tree in trees.values() for made in names_made(tree)} | OF_PYTHON
    used = {
        name
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr) and node.attr not in ours
    }
    assert {name for name, text in texts.items() if PRIVATE.search(text)} | used == ALLOWED


def test_no_private_method_of_textual_is_overridden_but_in_its_compat_module() -> None:
    modules = [".".join(name.with_suffix("").parts) for name in FILES.values() if name.parts[0] == "tui"]
    overridden = set()
    for module in [importlib.import_module(f"tpu_console.{name}") for name in modules]:
        kinds = [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]
        for kind in kinds:
            theirs = {name for base in kind.__mro__ if base.__module__.startswith("textual.") for name in vars(base)}
            ours = {name for name, value in vars(kind).items() if inspect.isfunction(value)}
            overridden |= {f"{kind.__name__}.{name}" for name in ours & theirs if re.match("_[^_]", name)}
    assert overridden == {"QuietApp._fatal_error"}
