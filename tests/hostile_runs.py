"""Run folders, presets and reports as a careless or hostile hand leaves them; each is made by a few lines of code.

`make_all(home)` writes one run folder for each entry of `RUNS`. Nothing here is meant to be trained or continued: every
reader has to get through all of it without hanging, without a traceback and without sending a control sequence.
"""

import json
import os
import socket
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from tpu_console.engine.runs.events import Replica, ReplicaMemory, Sample
from tpu_console.engine.runs.journal import EVENT_TYPES
from tpu_console.engine.runs.metrics import Metric

MARK = "EVILMARK"
"""Stands in every payload, behind the control characters, so that a sequence of the console's own is not mistaken."""

HOSTILE = (
    f"\x1b]52;c;{MARK}\x07\x1b]0;{MARK}\x1b\\\x1b[2J\x1b[31m{MARK}\x9b31m{MARK}\x90{MARK}\x9c\x07\x08\x7f{MARK}\r{MARK}\n"
    f"\u202e{MARK}\u2066{MARK}\u200f\u061c\u200b\ufeff\u2028{MARK}[red]{MARK}[/] [@click=app.quit]{MARK}[/] "
    f"[link=https://{MARK}]x[/link]"
)
"""Clipboard and title sequences, colours, C1 controls, a line of its own, bidirectional overrides, markup."""

UNSAFE = {*map(chr, (*range(0x20), 0x7F, *range(0x80, 0xA0)))} - {"\n"} | set(
    "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\u2028\u2029\ufeff"
)
"""Characters that may not be in any output."""

GOOD = 'dataset = "digits"\nmodel = "cnn"\nbatch_size = 32\nepochs = 2\n'
T0 = 1_790_000_000.0
EVENT_CLASSES: tuple[type[Any], ...] = tuple(EVENT_TYPES.values())
RUNS: dict[str, Callable[[Path], object]] = {}


def hostile_value(hint: Any, text: str = HOSTILE) -> Any:
    """Return a plain value of an event's field, by its annotation, with a text wherever one can be."""
    plain = {int: 1, float: 1.0, bool: True, str: text, Any: text, type(None): None}
    if hint in plain:
        return plain[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return hostile_value(arguments[0], text)
    if origin is dict:
        return {text: hostile_value(arguments[1], text)}
    if origin is tuple:
        return [hostile_value(arguments[0], text)]
    assert hint in {Metric, Replica, ReplicaMemory, Sample}, hint
    return {name: hostile_value(inner, text) for name, inner in get_type_hints(hint).items()}


def hostile_event(cls: type[Any], at: float = T0, text: str = HOSTILE) -> dict[str, Any]:
    """Return a record of an event class with a hostile text in every field that takes one."""
    values = {name: hostile_value(get_type_hints(cls)[name], text) for name in cls.__struct_fields__}
    return {"v": 1, "t": at, "type": cls.__name__, **values}


def line(type_: Any = "Noticed", at: Any = T0, **values: Any) -> bytes:
    return json.dumps({"v": 1, "t": at, "type": type_, **values}).encode() + b"\n"


fit = partial(
    line, "FitStarted", T0 + 1, epochs=3, steps_per_epoch=10, global_batch=32, replica_batch=32, steps_per_execution=1
)
finished = partial(line, "RunFinished", T0 + 9, outcome="completed", reason="All epochs.", summary={})


def started(label: str = "hostile", **config: Any) -> bytes:
    return line("RunStarted", label=label, source="host", pid=1, host="elsewhere", config=config)


def progress(at: float = T0 + 2, **changes: Any) -> bytes:
    values = {"epoch": 1, "epoch_step": 1, "step": 1, "elapsed_s": 1.0, "logs": {"loss": 1.0}}
    return line("Progress", at, **{**values, **changes})


def epoch(number: Any = 1, **changes: Any) -> bytes:
    values = {"epoch": number, "step": 10, "epoch_steps": 10, "elapsed_s": 2.0, "seconds": 1.0, "compile_s": 0.5}
    values |= {"validation_s": 0.1, "step_ms": 1.0, "examples_per_s": 10.0, "learning_rate": 0.1, "logs": {"loss": 0.5}}
    return line("EpochEnded", T0 + 3, **{**values, **changes})


def replica(index: int = 0, **changes: Any) -> dict[str, Any]:
    return {"index": index, "device": f"/device:CPU:{index}", "kind": "CPU", "host": "h", **changes}


def ready(replicas: list[dict[str, Any]]) -> bytes:
    values = {"accelerator": "cpu", "reason": "why", "strategy": "s", "replicas": replicas, "versions": {}}
    return line("AcceleratorReady", T0 + 1, **values)


def report(**changes: Any) -> bytes:
    values = {"classes": [], "matrix": [], "mistakes": [], "examples": 0, "accuracy": 0.0, "balanced_accuracy": 0.0}
    return json.dumps({**values, "not_numbers": 0, "is_partial": False, **changes}).encode()


def journal(name: str, *parts: bytes) -> None:
    RUNS[name] = lambda run: (run / "events.jsonl").write_bytes(b"".join(parts))


def beside(name: str, file: str, content: bytes | Callable[[Path], object]) -> None:
    """Add a finished run with one hostile file beside its journal."""

    def make(run: Path) -> None:
        (run / "events.jsonl").write_bytes(started() + fit() + progress() + epoch() + finished())
        content(run / file) if callable(content) else (run / file).write_bytes(content)

    RUNS[name] = make


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def large(path: Path) -> None:
    """Make a file of a gigabyte that takes no room."""
    with path.open("wb") as file:
        file.truncate(1 << 30)


def heartbeat(name: str, content: str | bytes) -> None:
    def make(run: Path) -> None:
        (run / "events.jsonl").write_bytes(started() + fit() + progress())
        (run / "heartbeat.json").write_bytes(content if isinstance(content, bytes) else content.encode())

    RUNS[name] = make


def _everything(run: Path) -> None:
    """Put the hostile text into every field of every event, the configuration, the heartbeat and every report."""
    records = [hostile_event(cls, T0 + at) for at, cls in enumerate(EVENT_CLASSES)]
    (run / "events.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), "utf-8")
    escaped = json.dumps(HOSTILE)
    (run / "config.toml").write_text(f"dataset = {escaped}\n{escaped} = {escaped}\n", "utf-8")
    (run / "heartbeat.json").write_text(json.dumps({"host": HOSTILE, "pid": HOSTILE, "created": HOSTILE}))
    (run / "console.log").write_text(f"{HOSTILE}\n" * 3, "utf-8")
    score = {"name": HOSTILE, "precision": 0.5, "recall": 0.5, "f1": 0.5, "examples": 2}
    mistake = {"label": HOSTILE, "taken_for": HOSTILE, "count": 1, "share": 0.5}
    found = {"examples": 4, "accuracy": 0.5, "balanced_accuracy": 0.5, "matrix": [[1, 1], [1, 1]]}
    for name in ("report.json", "summary.json", "inputs.json"):
        (run / name).write_bytes(report(classes=[score, score], mistakes=[mistake], **found))


def _no_permission(run: Path) -> None:
    (run / "events.jsonl").write_bytes(started())
    (run / "events.jsonl").chmod(0)


RUNS["every text is hostile"] = _everything
journal("type is a list", line(["a"]), line({"a": 1}), line(None), line(7), started())
journal("time is absurd", started(), line(at=1e308), line(at=-5), line(at="soon"), line(at=None), line(at=True))
journal("time is a huge whole number", started(), b'{"v":1,"t":' + b"9" * 300 + b',"type":"Noticed","message":"x"}\n')
journal("version is a list", b'{"v":[1],"t":1,"type":"Noticed","message":"x"}\n', started())
journal("version is huge", b'{"v":1e300,"t":1,"type":"Noticed","message":"x"}\n', started())
journal("newer version", b'{"v":99,"t":1790000000,"type":"Telepathy","x":1}\n', started())
journal("torn", started(), fit(), progress()[:-20])
journal("torn in the middle", started(), fit()[:30] + b"\n", progress())
journal("NUL bytes", started(), b"\x00" * 5000 + b"\n", fit(), b"\x00" * 5000)
journal("not UTF-8", started(), b'{"v":1,"t":1790000000,"type":"Noticed","message":"\xff\xfe\x80"}\n')
journal("lone surrogate", started(), b'{"v":1,"t":1790000000,"type":"Noticed","message":"\\ud800 \\udfff"}\n')
journal("byte order mark", b"\xef\xbb\xbf" + started(), fit())
journal("UTF-16", started().decode().encode("utf-16"))
journal("empty")
journal("line feeds", b"\n" * 10_000)
journal("no line feed", b"x" * 3_000_000)
journal("ten megabytes in one line", started(), line(message="x" * 10_000_000), fit(), progress())
journal("a text of 900 kB", started(), line(message="x" * 900_000), line("PhaseStarted", phase="p" * 900_000))
deep = json.loads(nested(900))
journal("nested deeply", started(), finished(summary={"a": deep}), line(message="\n", x=deep), b"[" * 100_000 + b"\n")
journal("duplicate keys", b'{"v":1,"v":2,"t":1790000000,"t":2,"type":"Noticed","type":"RunStarted","message":"x"}\n')
journal("not objects", b'null\n[]\n3\n"text"\ntrue\nNaN\nInfinity\n-Infinity\n')
journal("unknown types", started(), line("Telepathy"), line("object"), line("__class__"), line("Event"), line(""))
journal("numbers are texts", started(), fit(epochs="NaN", steps_per_epoch="Infinity"), progress(step="NaN", epoch="x"))
journal("numbers are NaN", started(), fit(), progress(elapsed_s="NaN", logs={"loss": "NaN"}), epoch(seconds="Infinity"))
journal(
    "numbers are huge",
    started(),
    fit(epochs=10**30, steps_per_epoch=10**18, global_batch=10**18),
    progress(epoch=10**30),
    progress(step=2**53, epoch=2**53, epoch_step=2**53),
    epoch(10**30),
    epoch(seconds=1e308),
)
journal(
    "as large as can be",
    started(),
    fit(epochs=2**53, steps_per_epoch=2**53, global_batch=2**53, replica_batch=1),
    progress(step=2**53, epoch=2**53, epoch_step=2**53, elapsed_s=1e15, logs={"loss": 1e308}),
    progress(step=0, epoch=0, epoch_step=0, elapsed_s=0, logs={"loss": -1e308}),
    epoch(2**53, seconds=1e15),
)
journal(
    "numbers are negative",
    started(),
    fit(epochs=-5, steps_per_epoch=-1, global_batch=-3, replica_batch=-3),
    progress(step=-7, epoch=-1, epoch_step=-1, elapsed_s=-9.0),
    epoch(-1, step=-1, seconds=-1.0, step_ms=-2.0),
)
journal(
    "numbers are zero",
    started(),
    fit(epochs=0, steps_per_epoch=0, global_batch=0, replica_batch=0, steps_per_execution=0),
    progress(step=0, epoch=0, epoch_step=0, elapsed_s=0),
    epoch(0, seconds=0, step_ms=0.0),
)
journal(
    "values of other kinds",
    started(),
    progress(logs=[1]),
    progress(logs={"loss": {"a": 1}}),
    progress(logs=None),
    progress(step=[1]),
    epoch(logs={"loss": None}),
    fit(epochs={}),
    line("DataReady"),
    line("MemorySampled", replicas=3),
)
journal("backwards", started(), finished(), epoch(3), epoch(1), progress(step=50), progress(step=3), fit(), started())
journal("epoch before anything", epoch(), progress(), finished())
failed = line("RunFailed", T0, what="w", why="y", remedy="r", log="../../../../etc/passwd")
journal("end first and twice", finished(), started(), finished(), failed, finished())
steps = (progress(T0 + n / 1e4, step=n, logs={f"metric {n}": 1.0}) for n in range(1, 5000))
journal("metrics of every name", started(), fit(), *steps)
many = {f"m{n}": 0.1 for n in range(40_000)}
journal("metrics of 40,000 names at once", started(), fit(), progress(logs=many), epoch(logs=many))
epochs = (epoch(n, step=n, logs={f"m{n}": 1.0}) for n in range(1, 1000))
journal("epochs with metrics of every name", started(), fit(), *epochs)
memory = [{"index": n, "used_bytes": n, "peak_bytes": None, "limit_bytes": 0} for n in range(9000)]
devices = ready([replica(n) for n in range(9000)])
journal("replicas without end", started(), devices, fit(), line("MemorySampled", replicas=memory))
devices = ready([replica(10**15), replica(10**15), replica(process=10**12)])
lost = line("HostLost", process=10**14, host="h", silent_s=1e14)
journal("replicas of huge numbers", started(), devices, fit(), lost)
host = {"elapsed_s": 1.0, "cpu_percent": 1e9, "ram_bytes": 1, "ram_limit_bytes": 0, "disk_read_bytes_per_s": -1.0}
hosts = (line("HostSampled", process=n, host=f"h{n}", examples_per_s=-n * 1.0, **host) for n in range(300))
journal("hosts without end", started(), fit(), *hosts)
journal("no replicas", started(), ready([]), fit(), progress())
journal("notices without end", started(), *(line(message=f"notice {n}") for n in range(5000)))
journal(
    "phases without end", started(), *(line("PhaseStarted", T0 + n, phase=f"phase {n}", detail="") for n in range(2000))
)
journal("times go backwards", started(), *(line("PhaseStarted", T0 - n * 1e6, phase="training") for n in range(20)))
RUNS["journal is a folder"] = lambda run: (run / "events.jsonl").mkdir()
RUNS["journal is a pipe"] = lambda run: os.mkfifo(run / "events.jsonl")
RUNS["journal is a device"] = lambda run: zeros(run / "events.jsonl")
RUNS["journal is a link to itself"] = lambda run: loop(run / "events.jsonl")
RUNS["journal is a gigabyte of nothing"] = lambda run: large(run / "events.jsonl")
if os.geteuid():
    RUNS["journal is forbidden"] = _no_permission
beside("log is a pipe", "console.log", os.mkfifo)
beside("log is a device", "console.log", zeros)
beside("log is one line of zeros", "console.log", large)
beside("config is a device", "config.toml", zeros)
beside("config is a pipe", "config.toml", os.mkfifo)
beside("config is a gigabyte", "config.toml", large)
beside("config is a folder", "config.toml", lambda path: path.mkdir())
beside("config is garbage", "config.toml", os.urandom(5000))
beside("config is nested deeply", "config.toml", f"dataset = {nested(50_000)}".encode())
beside("config has a long dotted key", "config.toml", b".".join([b"a"] * 50_000) + b" = 1")
beside("config has a long number", "config.toml", b"epochs = " + b"9" * 10_000)
text = json.dumps(HOSTILE)
beside("config has hostile texts", "config.toml", f"dataset = {text}\nmodel = {text}\n[{text}]\n".encode())
beside("config is for another run", "config.toml", f'name = "no-such-preset"\n{GOOD}'.encode())
beside("report is a pipe", "report.json", os.mkfifo)
beside("report is nested deeply", "report.json", nested(100_000).encode())
wrong: dict[str, Any] = {"examples": "z", "accuracy": [], "balanced_accuracy": None, "not_numbers": 1}
beside(
    "report has other kinds", "report.json", report(classes=[{"name": 5, "precision": "x"}], matrix=[["y"]], **wrong)
)
beside("report is empty", "report.json", report())
absurd = {"name": "a", "precision": 1e300, "recall": "NaN", "f1": -1, "examples": -5}
huge = {"examples": -1, "accuracy": 1e300, "balanced_accuracy": "Infinity"}
beside("report has impossible numbers", "report.json", report(classes=[absurd], matrix=[[-(10**15)]], **huge))
beside("summary and inputs are garbage", "summary.json", os.urandom(2000))
beside("control is a file", "control", b"stop")
beside("checkpoints is a file", "checkpoints", b"")
heartbeat("heartbeat is nested deeply", nested(100_000))
heartbeat("heartbeat is a list", "[1, 2]")
heartbeat("heartbeat has texts", json.dumps({"host": socket.gethostname(), "pid": "x", "created": "y"}))
heartbeat("heartbeat has a negative process", json.dumps({"host": socket.gethostname(), "pid": -1, "created": 0}))
heartbeat("heartbeat has huge numbers", json.dumps({"host": socket.gethostname(), "pid": 10**30, "created": 1e308}))
heartbeat("heartbeat has no finite number", f'{{"host": "{socket.gethostname()}", "pid": 1e400, "created": NaN}}')
heartbeat("heartbeat is garbage", b"\xff\x00\x1b[2J")
beside("heartbeat is a pipe", "heartbeat.json", os.mkfifo)
beside("heartbeat is a gigabyte", "heartbeat.json", large)

NAMES = (
    f"20260101-000000-{HOSTILE.replace('/', '')[:60]}",
    "20260101-000001-two\nlines",
    "20260101-000002-" + os.fsdecode(b"\xff\xfe\x80"),
    "20260101-000003-" + "x" * 230,
    "-rf",
    "--help",
    "[red]20260101[bold] [@click=app.quit]x",
    "20260101-000004-\u202etxt.exe",
    " ",
    "20260101-000005-👩‍🔬 क्‍ष",
)
"""Names of run folders."""


def run_name(number: int) -> str:
    return f"20270101-{number:06d}-hostile"


def make_run(folder: Path, name: str) -> Path:
    run = folder / run_name([*RUNS].index(name))
    run.mkdir(parents=True)
    RUNS[name](run)
    return run


def make_all(home: Path) -> list[Path]:
    """Make every hostile run, runs with hostile names, and hostile presets; return the run folders."""
    runs = [make_run(home / "runs", name) for name in RUNS]
    for name in NAMES:
        run = home / "runs" / name
        run.mkdir()
        (run / "events.jsonl").write_bytes(started() + fit() + progress() + finished())
        runs.append(run)
    make_presets(home)
    return runs


def make_presets(home: Path) -> list[Path]:
    folder = home / "presets"
    folder.mkdir(parents=True)
    text = json.dumps(HOSTILE)
    about = "\n".join(f"{name} = {text}" for name in ("title", "reproduces", "expected_score", "expected_time", "data"))
    contents = {
        "texts.toml": f"{GOOD}[preset]\n{about}\n",
        "settings.toml": f"{GOOD}[data]\noptions = {{path = {text}}}\n[preset]\ntitle = {text}\n",
        f"{HOSTILE.replace('/', '')[:60]}.toml": f'name = "good"\n{GOOD}',
        "two\nlines.toml": f'name = "good"\n{GOOD}[preset]\ntitle = "x"\n',
        os.fsdecode(b"\xff\xfe.toml"): f'name = "good"\n{GOOD}',
        "[red]markup[bold].toml": f'name = "good"\n{GOOD}[preset]\ntitle = "[@click=app.quit]x[/]"\n',
        "keys.toml": f"{GOOD}[preset]\n{text} = {text}\n[{text}]\n",
        "nested.toml": f"{GOOD}[preset]\ntitle = {nested(20_000)}\n",
    }
    for name, content in contents.items():
        (folder / name).write_text(content, "utf-8")
    os.mkfifo(folder / "pipe.toml")
    zeros(folder / "device.toml")
    loop(folder / "loop.toml")
    large(folder / "large.toml")
    (folder / "folder.toml").mkdir()
    return [*folder.iterdir()]


def long_ago(folder: Path) -> None:
    """Make a run's folder so old that nobody waits for its process to begin."""
    for path in (folder, folder / "heartbeat.json"):
        if path.exists():
            os.utime(path, (1e9, 1e9))


def is_safe(*texts: str) -> bool:
    return not UNSAFE & set("".join(texts)) and not any(
        "Traceback" in text or "internal error" in text for text in texts
    )
