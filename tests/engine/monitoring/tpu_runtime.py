"""A stand-in for the metric service of a TPU's runtime: a real gRPC server that speaks libtpu's protocol."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc

from tpu_console.engine.monitoring.sampler import METHOD, messages

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30


def response(metric: str, figures: Mapping[int, float]) -> bytes:
    """Return the answer with one gauge per device; `test_libtpu` compares its fields with libtpu's."""
    answer = messages()["MetricResponse"]()
    answer.metric.name = metric
    for device, figure in figures.items():
        one = answer.metric.metrics.add()
        one.attribute.value.int_attr = device
        setattr(one.gauge, "as_int" if isinstance(figure, int) else "as_double", figure)
    content: bytes = answer.SerializeToString()
    return content


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
        metric = messages()["MetricRequest"].FromString(request).metric_name
        self.asked.append(metric)
        self.awake.wait(60)
        if metric not in self.figures:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Unsupported metric name: {metric}")
        return self.raw if self.raw is not None else response(metric, self.figures[metric])

    def close(self) -> None:
        """Be gone, at once."""
        self.awake.set()
        self._server.stop(None).wait()
