"""Checks in seconds whether a TPU server answers at an address, before a framework tries for minutes."""

from __future__ import annotations

from urllib.parse import urlsplit

import grpc

LIMIT_S = 5.0

_PORT = 8470  # where Cloud TPU servers listen
_REASON_S = 0.5
_OPTIONS = (("grpc.enable_http_proxy", 0),)


def what_is_wrong(address: str, limit_s: float = LIMIT_S) -> str:
    """Return why no TPU can be at ``grpc://HOST:PORT``, in one sentence; empty if a gRPC server answers."""
    parts = urlsplit(address)
    try:
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError:
        return f"'{address}' has no port number after its last colon."
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with grpc.insecure_channel(where, _OPTIONS) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=limit_s)
        except grpc.FutureTimeoutError:
            reason = _why_not_ready(channel)
            return f"No gRPC server answered at {where} within {limit_s:g} s{reason and f' ({reason})'}."
    return ""


def _why_not_ready(channel: grpc.Channel) -> str:
    """Return why the channel cannot connect, which a call reports; empty if it still tries."""
    try:
        channel.unary_unary("/tpu_console/Reason")(b"", timeout=_REASON_S)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return str(error.details()).rpartition(": ")[2].strip("] ")
    return ""
