"""The log as messages: real lines of TensorFlow, XLA, JAX, Python's logging and tracebacks."""

from tpu_console.tui.text.outcome import Message, crash_in, read_messages

_CUINIT = (
    "E0000 00:00:1795329117.604768   12618 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: "
    "Failed call to cuInit: UNKNOWN ERROR (303)"
)


def test_a_native_prefix_is_stripped_and_its_severity_kept() -> None:
    messages = {
        "I0000 00:00:1795.738543   12618 port.cc:153] Loaded runtime": Message("Loaded runtime"),
        "W1122 05:47:51.447911 31055 a/b.cc:185] slow": Message("slow"),
        "2026-11-22 07:11:00.123456: F tensorflow/core/c.cc:7] dead": Message("dead", is_error=True),
        "2026-11-22 07:11:00.1: I tensorflow/c.cc:7] E0000 00:00:1.2 3 d.cc:1] x": Message("x"),
        "WARNING:2026-11-22 07:11:00,123:jax._src.xla_bridge:791: No TPU": Message("No TPU"),
        "ERROR:mine:no such column": Message("no such column", is_error=True),
        "ValueError: no such column": Message("ValueError: no such column", is_error=True),
        "my own line: error-free": Message("my own line: error-free"),
    }
    assert {line: read_messages([line]) for line in messages} == {line: [one] for line, one in messages.items()}


def test_the_usual_lines_of_a_cpu_machine_are_noise_and_no_errors() -> None:
    lines = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795329111.738543   12618 port.cc:153] oneDNN custom operations are on. You may see …",
        "I0000 00:00:1795329111.739408   12618 cudart_stub.cc:31] Could not find cuda drivers on your machine, …",
        _CUINIT,
    ]
    assert all(message.is_noise and not message.is_error for message in read_messages(lines))
    assert read_messages(ABORT)[-1].is_noise, "the modules of a crash"
    (message,) = read_messages([_CUINIT.replace("UNKNOWN ERROR (303)", "CUDA_ERROR_UNKNOWN (999)")])
    assert (message.is_error, message.is_noise) == (True, False), "a broken driver"


def test_a_traceback_is_one_error() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "errors.py", line 3, in failed',
        '    raise ValueError("error: bad")',
        "ValueError: error: bad",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "errors.py", line 9, in run',
        "KeyError",
        "done",
    ]
    errors = [message.text for message in read_messages(lines) if message.is_error]
    assert errors == ["ValueError: error: bad", "KeyError"]


def test_equal_neighbors_are_counted() -> None:
    counted = [Message("again", count=3), Message("other"), Message(""), Message("")]
    assert read_messages(["again", "again", "again", "other", "", ""]) == counted


ABORT = [
    "F0000 00:00:1795.4  12 init.cc:7] libtpu version mismatch",
    "*** SIGABRT received at time=1795391700 on cpu 1 ***",
    "PC: @     0x7f0a  (unknown)  raise",
    "    @     0x7f0b  1024  (unknown)",
    "Fatal Python error: Aborted",
    "",
    "Stack (most recent call first):",
    '  File "mine.py", line 3 in data',
    "",
    "Extension modules: numpy._core._multiarray_umath (total: 1)",
]


PLACE = 'File "mine.py", line 3 in data'


def test_a_crash_at_the_end_of_a_log_is_named_and_its_report_is_left_out() -> None:
    for log, signal, left in (
        (ABORT, "SIGABRT", [PLACE, ABORT[0]]),
        (["Epoch 1", *ABORT[:4]], "SIGABRT", ["Epoch 1", ABORT[0]]),
        (["Fatal Python error: Segmentation fault", *ABORT[5:]], "SIGSEGV", [PLACE]),
        ([*ABORT, "resumed: importing"], "", [*ABORT, "resumed: importing"]),
        (["Epoch 1", "  indented", ""], "", ["Epoch 1", "  indented", ""]),
        ([], "", []),
    ):
        assert crash_in(log) == (signal, left)
