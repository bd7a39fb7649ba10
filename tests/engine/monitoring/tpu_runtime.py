"""A stand-in for the metric service of a TPU's runtime: a real gRPC server that speaks libtpu's protocol.

It writes the protocol byte by byte, from the numbers in Google's ``tpu_metric_service.proto``, and knows nothing of
how the engine reads it.
"""

from __future__ import annotations

import struct
import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Mapping

METHOD = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"

GIB = 1 << 30


def varint(number: int) -> bytes:
    """A whole number, seven bits a byte."""
    parts = []
    while True:
        number, low = number >> 7, number & 0x7F
        parts.append(low | (0x80 if number else 0))
        if not number:
            return bytes(parts)


def block(field: int, content: bytes) -> bytes:
    """A field of bytes: a text or a message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def whole(field: int, number: int) -> bytes:
    """A field with a whole number."""
    return varint(field << 3) + varint(number)


def double(field: int, number: float) -> bytes:
    """A field with a floating-point number."""
    return varint(field << 3 | 1) + struct.pack("<d", number)


def response(metric: str, figures: Mapping[int, float]) -> bytes:
    """A MetricResponse { TPUMetric { name, description, Metric… } } of one gauge a device."""
    metrics = b""
    for device, figure in figures.items():
        attribute = block(1, b"device-id") + block(2, whole(3, device))
        gauge = whole(2, figure) if isinstance(figure, int) else double(1, figure)
        timestamp = whole(1, 1_795_200_000)
        metrics += block(3, block(1, attribute) + block(2, timestamp) + block(3, gauge))
    return block(1, block(1, metric.encode()) + block(2, b"a description") + metrics)


class Runtime(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is untyped
    """The server; figures may be changed while it runs.

    Args:
        figures: By metric, then by device; a metric that is not among them is not supported.
        port: Where it listens; 0 for any free port.

    Attributes:
        asked: The metrics it was asked for.
        awake: Cleared, it takes questions and does not answer.
        raw: What it answers whatever is asked, where set.
    """

    def __init__(self, figures: Mapping[str, Mapping[int, float]], port: int = 0) -> None:
        self.figures = dict(figures)
        self.asked: list[str] = []
        self.awake = threading.Event()
        self.awake.set()
        self.raw: bytes | None = None
        self._server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(self,), options=(("grpc.so_reuseport", 0),))
        self.port: int = self._server.add_secure_port(f"localhost:{port}", grpc.local_server_credentials())
        self._server.start()

    def service(self, handler_call_details: Any) -> Any:
        """Find who answers a call."""
        return grpc.unary_unary_rpc_method_handler(self._answer) if handler_call_details.method == METHOD else None

    def _answer(self, request: bytes, context: Any) -> bytes:
        assert request[:1] == b"\x0a"  # metric_name
        metric = request[2 : 2 + request[1]].decode()
        self.asked.append(metric)
        self.awake.wait(60)
        if metric not in self.figures:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Unsupported metric name: {metric}")
        return self.raw if self.raw is not None else response(metric, self.figures[metric])

    def close(self) -> None:
        """Be gone, at once."""
        self.awake.set()
        self._server.stop(None).wait()
