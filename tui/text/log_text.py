"""Reads ``console.log`` as messages: without native prefixes, with errors marked and framework noise set apart."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

_PREFIXES = re.compile(
    r"""
    ([IWEF])\d{4}\ \d\d:\d\d:[\d.]+\ +\d+\ [^\s\]]+:\d+\]\ ?               # absl, XLA: I0000 00:00:179.7  12 a.cc:1]
    | \d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d[.,]\d+:\ ([IWEF])\ [^\s\]]+:\d+\]\ ? # TensorFlow: 2026-… I a/b.cc:1]
    | (DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):(?:\d{4}-\d\d-\d\d\ [\d:.,]+:)?[\w.]+:(?:\d+:)?\ ?  # Python's logging
    | (WARNING|ERROR):\ (?=All\ log\ messages)
    """,
    re.VERBOSE,
)
_HARMLESS = re.compile(
    r"""
    All\ log\ messages\ before\ absl::InitializeLog
    | oneDNN\ custom\ operations\ are\ on
    | Could\ not\ find\ (?:cuda\ drivers|TensorRT)
    | failed\ call\ to\ cuInit:.*(?:\(303\)|\(100\)|NO_DEVICE|no\ CUDA-capable\ device)  # no GPU, or a hidden one
    | This\ TensorFlow\ binary\ is\ optimized
    | To\ enable\ the\ following\ instructions
    | Unable\ to\ register\ cu\w+\ (?:factory|plugin)
    | computation\ placer\ already\ registered
    | GeneratorDatasetOp::Dataset\ will\ not\ be\ optimized
    | Local\ rendezvous\ is\ aborting\ with\ status:\ OUT_OF_RANGE
    | Created\ device\ /job:
    | XLA\ service\ 0x
    | StreamExecutor\ device\ \(
    | Compiled\ cluster\ using\ XLA
    | disabling\ MLIR\ crash\ reproducer
    | ^Extension\ modules:  # of faulthandler
    """,
    re.VERBOSE,
)
_ALARM = re.compile(
    r"^[\w.]*(?:Error|Exception|Interrupt)\b|\b(?:error|exception)s?:|\b(?:fatal|failed|aborted|core dumped)\b", re.I
)
_CRASHES = {
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
}
# What Python's faulthandler writes if native code crashes, and before it Abseil's, which libtpu installs.
_CRASH = re.compile(rf"Fatal Python error: ({'|'.join(_CRASHES)})|\*\*\* (SIG[A-Z]+) received")
_CRASH_REPORT = re.compile(
    r"\s|$|Stack \(most recent|(?:Current t|T)hread 0x|Current thread's C stack|Extension modules:|PC: |@ "
)
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = re.compile(r"(?:During handling of|The above exception)")
_CONTINUED = (" ", "Traceback", "\t")


class Message(Struct, frozen=True):
    """One line of the log."""

    text: str  # the line without its native prefix
    # Whether it reports an error. Of a traceback, only its last line does.
    is_error: bool = False
    is_noise: bool = False  # whether frameworks write it on healthy machines too
    count: int = 1  # how often it was written in a row


def read_messages(lines: Iterable[str]) -> list[Message]:
    """Return the log's messages; equal neighbors become one with a count."""
    messages: list[Message] = []
    is_in_traceback = False
    for line in lines:
        text, severity = line, ""
        while (prefix := _PREFIXES.match(text)) is not None:
            severity = severity or next(group for group in prefix.groups() if group)[0]
            text = text[prefix.end() :]
        is_noise = bool(_HARMLESS.search(text))
        is_error = not is_noise and (severity in {"E", "F", "C"} if severity else bool(_ALARM.search(text)))
        message = Message(text, is_error, is_noise)
        if _TRACEBACK in line or _CHAINED.match(line):
            is_in_traceback, message = _TRACEBACK in line, Message(message.text)
        elif is_in_traceback:
            is_in_traceback = not line or line.startswith(_CONTINUED)
            message = Message(message.text, is_error=not is_in_traceback)
        if messages and message.text and replace(messages[-1], count=1) == message:
            message = replace(message, count=messages.pop().count + 1)
        messages.append(message)
    return messages


def crash_in(log: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the signal of the crash with which a log ends, if there was one, and the log without the report on it.

    Of the report, the line of Python in which it happened stays, before the last line.
    """
    signal, before = "", log
    for end in range(len(log) - 1, -1, -1):
        if (crash := _CRASH.match(log[end])) is not None:
            signal, before = crash[2] or _CRASHES[crash[1]], log[:end]
        elif not _CRASH_REPORT.match(log[end]):
            break
    place = next((line.strip() for line in log[len(before) :] if line.startswith("  File ")), None)
    return signal, [*before[:-1], place, *before[-1:]] if place is not None else before
