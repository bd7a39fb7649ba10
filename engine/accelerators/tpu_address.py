"""Looks whether a TPU server answers at an address, in seconds, before a framework tries for minutes."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

LIMIT_S = 5.0

_PORT = 8470  # where Cloud TPU servers listen
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4


def what_is_wrong(address: str, limit_s: float = LIMIT_S) -> str:
    """Greet a server as gRPC does (RFC 9113, section 3.4), and look for the settings frame it must begin with.

    Args:
        address: ``grpc://HOST:PORT``.
        limit_s: Longest wait for the connection, and again for the answer.

    Returns:
        Why no TPU can be there, in one sentence; empty where a gRPC server answers.
    """
    parts = urlsplit(address)
    try:
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError:
        return f"'{address}' has no port number after its last colon."
    try:
        with socket.create_connection((host, port), limit_s) as connection:
            connection.sendall(_HELLO)
            answer = connection.recv(9)
    except TimeoutError:
        return f"{host}:{port} did not answer within {limit_s:.0f} s."
    except socket.gaierror:
        return f"There is no machine named {host}."
    except OSError as error:
        return f"{host}:{port}: {(error.strerror or str(error)).lower()}."
    if len(answer) < 9 or answer[3] != _SETTINGS:
        return f"What listens at {host}:{port} speaks something else than gRPC."
    return ""
