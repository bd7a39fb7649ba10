"""Reads the offline runs of W&B, ``run-*.wandb``: records of its protocol in the framing of LevelDB's log.

Recent versions of the library have no reader for them in Python, only in its own program. So the framing is read here,
and the records by the library's protocol.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError
from ..machine.install import install_line
from ..storage.files import open_regular
from .other_runs import MOST_POINTS, Point, Recorded, check_size, is_step, number_of, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

_BLOCK = 32768
_FILE_HEADER = struct.Struct("<4sHB")  # ``:W&B``, a magic number, the version
_HEADER = struct.Struct("<IHB")  # checksum, length, and which part of a record it is
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
_LARGEST_RECORD = 64 << 20
_OWN = ("_timestamp", "_step", "_runtime", "_wandb", "epoch")


def read_wandb(path: Path) -> Recorded:
    """Read an offline run; raise `ConsoleError` if the file is not one, or is damaged."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ImportError as error:
        raise ConsoleError(
            "wandb is not installed; its library describes these files.",
            remedy=f"To install it: {install_line('wandb')}",
        ) from error
    check_size(path)
    recorded = Recorded(path.stem, "W&B", (path,))
    config: dict[str, Any] = {}
    with open_regular(path) as file:
        for number, data in enumerate(_records(file, path), 1):
            record = Record()
            try:
                record.ParseFromString(data)
            except Exception as error:  # of the implementation of protobuf that is installed
                raise unreadable(path, f"its record {number:,} is damaged") from error
            if record.HasField("run"):
                recorded.name = record.run.display_name or record.run.run_id or path.stem
                config |= {item.key: _value(item.value_json) for item in record.run.config.update}
            elif record.HasField("history"):
                values = {
                    item.key or ".".join(item.nested_key): _value(item.value_json) for item in record.history.item
                }
                _add(recorded, values, path)
    recorded.config = {key: value for key, value in config.items() if key != "_wandb"}
    return recorded


def _add(recorded: Recorded, values: dict[str, Any], path: Path) -> None:
    step, at = number_of(values.get("_step")), number_of(values.get("_timestamp")) or 0.0
    named = {name.removeprefix("epoch/"): value for name, value in values.items()}
    epoch = number_of(named.get("epoch"))
    numbers = {name: value for name, value in named.items() if name not in _OWN and isinstance(value, int | float)}
    logs = {name: float(value) for name, value in numbers.items() if not isinstance(value, bool)}
    if epoch is not None and is_step(epoch):
        recorded.epochs.append(Point(int(epoch), at, logs))
    elif step is not None and is_step(step):
        recorded.steps.append(Point(int(step), at, logs))
    if len(recorded.epochs) + len(recorded.steps) > MOST_POINTS:
        raise unreadable(path, f"it has more than {MOST_POINTS:,} entries")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _records(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the records of a file; if the last one was cut off, it is left out."""
    header = file.read(_FILE_HEADER.size)
    if len(header) < _FILE_HEADER.size or _FILE_HEADER.unpack(header) != (b":W&B", 0xBEE1, 0):
        raise unreadable(path, "it does not begin like a file of W&B")
    position, parts, size = _FILE_HEADER.size, list[bytes](), 0
    while True:
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:  # the rest of a block is padding
            file.read(left)
            position += left
            continue
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return
        _, length, kind = _HEADER.unpack(head)
        data = file.read(length)
        position += _HEADER.size + length
        if len(data) < length:
            return
        size += length
        if kind not in {_FULL, _FIRST, _MIDDLE, _LAST} or size > _LARGEST_RECORD:
            raise unreadable(path, f"it is damaged near byte {position:,}")
        parts.append(data)
        if kind in {_FULL, _LAST}:
            yield b"".join(parts)
            parts, size = [], 0
