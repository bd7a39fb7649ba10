"""Writes a run as plain Keras, or its model in another format; arguments are checked before Keras is imported."""

import shutil
import tempfile
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

from ..accelerators.backend import importing
from ..config.reading import load_config
from ..config.user_code import is_own_source, references_of
from ..data.kinds.table import read_record
from ..errors import ConfigError, ConsoleError, UntrustedCodeError, one_line
from ..jobs.predict import Checkpoint, open_trained
from ..messages import Reporter
from ..runs.follower import StateReader
from ..runs.run_directory import find_run, newest_run_named
from ..storage.files import write_whole
from ..storage.paths import check_place

_ENDINGS = {"script": ".py", "notebook": ".ipynb"}
_FORMATS = {"savedmodel": "tf_saved_model", "tflite": "litert", "onnx": "onnx"}


def export_run(
    reporter: Reporter, run: str | None, out: str | None, form: str, *, force: bool = False, trust: bool = False
) -> dict[str, Any]:
    """Write a run as a script or a notebook of plain Keras; no code that its files name is run.

    `run` is as in `find_run`; a preset's name stands for its newest run. By default, the file is named after the run.
    Returns the run, the file, and what differs from the run. Raises `UntrustedCodeError` for code that none of the
    user's runs has used, and `ConsoleError` if the file exists, or the run cannot be exported as code.
    """
    found = (newest_run_named(run) if run else None) or find_run(run)
    label = found.run_id[16:] if found.run_id[:8].isdecimal() else ""
    path = Path(out) if out else Path.cwd() / f"{label or found.run_id}{_ENDINGS[form]}"
    check_place(path, force=force)
    try:
        config = load_config(found.config)
    except ConfigError as error:
        if found.config.exists():
            raise
        what, remedy = f"The run {found.run_id} has no configuration.", "Use the code that trained it."
        raise ConsoleError(what, why="It was trained by a notebook or script, or imported.", remedy=remedy) from error
    record = read_record(found.inputs, config.dataset) if found.inputs.exists() else {}
    state = StateReader(found).catch_up()
    folder = Path(state.started.folder if state.started else "")
    # Relative paths begin in the folder where the run was started.
    with chdir(folder) if folder.is_absolute() and folder.is_dir() else nullcontext():
        foreign = [name for _, name in references_of(config) if not is_own_source(name)]
        if foreign and not trust:
            what = f"The script would import {foreign[0]}, which none of your runs has used."
            raise UntrustedCodeError(what, remedy="If you trust the run's author, add --trust.")
        reporter.progress("writing the code", 0, None, "seconds")
        from .script import script_of

        script = script_of(config, state, record, found.run_id)
    write_whole(path, script.text if form == "script" else script.notebook)
    return {"run": found.run_id, "out": str(path), "differences": script.differences}


def convert_run(
    reporter: Reporter,
    run: str | None,
    out: str,
    form: str,
    checkpoint: Checkpoint = "last",
    *,
    force: bool = False,
    trust: bool = False,
) -> dict[str, Any]:
    """Convert a run's model into a SavedModel, a TFLite or an ONNX file; return the run, its model, result and size.

    Raises `UntrustedCodeError` if the model has code that may not run, and `ConsoleError` if it cannot be converted, or
    the place cannot be written.
    """
    path = Path(out)
    check_place(path, force=force)
    trained = open_trained(run, checkpoint, trust=trust, takes_function=True)
    with importing():
        import keras

    reporter.progress("converting", 0, None, "seconds")
    model = trained.load_model()
    with tempfile.TemporaryDirectory(prefix=".tpu-console-", dir=path.parent) as folder:
        draft = Path(folder) / f"model.{form}"  # Keras wants this ending of a TFLite file
        try:
            zeros = {one.name: keras.ops.zeros([side or 1 for side in one.shape], one.dtype) for one in model.inputs}
            model(zeros if len(zeros) > 1 else next(iter(zeros.values())))  # Keras exports what was called once
            model.export(str(draft), format=_FORMATS[form], verbose=False)
        except Exception as error:  # converters raise many kinds of errors for layers that they do not know
            what = f"Keras {keras.__version__} cannot convert the model to {form}."
            remedy = "Another format may work: --savedmodel, --tflite, --onnx."
            raise ConsoleError(what, why=one_line(error, 300), remedy=remedy) from error
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif draft.is_dir():
            path.unlink(missing_ok=True)
        draft.replace(path)
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    return {"run": trained.run.run_id, "model": str(trained.model_path), "out": str(path), "bytes": size}
