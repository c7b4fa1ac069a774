"""Parses addresses, and tries to connect to them from here."""

from __future__ import annotations

import socket
from ipaddress import ip_address

__all__ = ["CONNECT_S", "connect_problem", "is_loopback", "split_address"]

CONNECT_S = 3.0


def connect_problem(host: str, port: int, timeout_s: float = CONNECT_S) -> str | None:
    """Why no connection to this address is possible from here; None if it is."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except socket.gaierror as problem:
        return f"{host} cannot be resolved here: {problem.strerror}"
    except TimeoutError:
        return f"no answer from {host}:{port} within {timeout_s:g} s"
    except OSError as problem:
        return f"{host}:{port}: {problem.strerror or problem}"
    return None


def is_loopback(host: str) -> bool:
    """Whether the name refers to the local machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(text: str) -> tuple[str, int]:
    """The host and port of one item of bootstrap.servers, as clients read it."""
    from kstore.clients.io.nodes import parse_servers

    return parse_servers([text])[0]
