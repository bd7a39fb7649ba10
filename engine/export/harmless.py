"""Checks a finished script before it is written: it holds only code that this package writes.

Texts of a run are untrusted, and `.code` keeps them in strings. If one of them ever became code, that code would need
something which no script uses.
"""

from __future__ import annotations

import ast
import re

_NODES = """
Add And Assign Attribute BinOp BoolOp Call Compare Constant Dict DictComp Div Eq Expr For FormattedValue FunctionDef
GeneratorExp Gt If IfExp In Invert JoinedStr List ListComp Load Mod Module Mult Name Not NotEq NotIn Return Set Slice
Store Sub Subscript Tuple USub UnaryOp With arg arguments comprehension keyword withitem alias
"""
_IMPORTS = """\
import keras
import numpy as np
import os
import pandas as pd
import re
import sys
import tensorflow as tf
import unicodedata
from collections import Counter
from keras import layers
from pathlib import Path
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
""".splitlines()
_BUILTINS = ("enumerate", "float", "isinstance", "len", "print", "range", "sorted", "str", "zip")
_MODULES = ("keras", "layers", "np", "os", "pd", "re", "sys", "tf", "unicodedata")
_OF_MODULES = re.compile(
    r"""
    keras\.(Input|Model|Sequential|layers\.BatchNormalization|config\.set_dtype_policy|utils\.set_random_seed)
    |keras\.(datasets\.\w+\.load_data|distribution\.(DataParallel|set_distribution))
    |keras\.(applications|callbacks|constraints|initializers|losses|metrics|ops|optimizers(\.schedules)?)\.\w+
    |keras\.regularizers\.\w+ | layers\.(?!Lambda|TFSMLayer|TorchModuleWrapper|JaxLayer|FlaxLayer)\w+
    |np\.(arange|array|bincount|random\.default_rng|sort|zeros)
    |os\.(environ|walk) | pd\.read_csv | re\.sub | sys\.path\.insert | unicodedata\.category
    |tf\.(cast|float32|int32|one_hot|random\.set_seed|reduce_min|round|shape|uint8|image\.resize(_with_\w+)?)
    |tf\.(data\.(AUTOTUNE|Dataset\.(counter|from_tensor_slices))|io\.(decode_jpeg|gfile\.GFile|read_file))
    |tf\.config\.(LogicalDeviceConfiguration|experimental_connect_to_cluster|list_physical_devices)
    |tf\.config\.set_(logical_device_configuration|visible_devices)
    |tf\.distribute\.(MirroredStrategy|TPUStrategy|cluster_resolver\.TPUClusterResolver)
    |tf\.tpu\.experimental\.initialize_tpu_system
    """,
    re.VERBOSE,
)
_METHODS = """
append argmax as_posix astype batch build built cache compile epoch fit flat_map flatten get history index isin
items jit_compile join layers load_weights lower map most_common permutation prefetch relative_to repeat reshape save
scope shuffle split startswith str strip suffix sum take to_numpy trainable unbatch
"""


def foreign_line(script: str, own_imports: list[str]) -> int | None:
    """Return the number of the first line with code that this package does not write; None if there is none.

    `own_imports` are the lines that import the user's functions and classes.
    """
    try:
        tree = ast.parse(script)
        compile(tree, "", "exec")
    except (SyntaxError, ValueError) as error:
        return getattr(error, "lineno", None) or 1
    nodes = list(ast.walk(tree))
    names = {name for node in nodes for name in _defined(node)} | {*_BUILTINS}
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        match node:
            case ast.Import() | ast.ImportFrom():
                is_known = ast.unparse(node) in {*_IMPORTS, *own_imports}
            case ast.Name():
                is_known = node.id in names
            case ast.Attribute():
                is_known = id(node) in inner or _is_known(node)
            case _:
                is_known = type(node).__name__ in _NODES.split()
        if not is_known:
            return getattr(node, "lineno", 1)
    return None


def _defined(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.arg(arg=name):
            return [name]
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name for alias in node.names]
    return []


def _is_known(attribute: ast.expr) -> bool:
    parts: list[str] = []
    while isinstance(attribute, ast.Attribute):
        parts.insert(0, attribute.attr)
        attribute = attribute.value
    if isinstance(attribute, ast.Name) and attribute.id in _MODULES:
        return _OF_MODULES.fullmatch(".".join((attribute.id, *parts))) is not None
    return {*parts} <= {*_METHODS.split()}
