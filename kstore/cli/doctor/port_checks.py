"""Checks of a broker's listeners on its own machine: ports in use, and names without an address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from kstore.cli.doctor.findings import Check, Finding, Limits, Severity
from kstore.cli.doctor.machine import Machine

__all__ = ["PORT_CHECKS"]

ERROR = Severity.ERROR
HTTP_LISTENERS = ("kstore.http.listener", "kstore.metrics.listener")


def ports(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """Whether the broker could listen; a running broker already does."""
    if machine.pid is not None:
        return
    wanted = [("listeners", each.host, each.port) for each in machine.config.listeners]
    for name in HTTP_LISTENERS:
        url = urlsplit(machine.config[name] or "")
        if url.hostname and url.port:
            wanted.append((name, url.hostname, url.port))
    for name, host, port in wanted:
        problem = _refusal(host, port) if port else None
        if problem is not None:
            yield Finding(
                ERROR, f"{name} {host}:{port}", problem, "The broker cannot start there.",
                f"ss -ltnp 'sport = :{port}' shows who has the port; stop it, or change {name}",
            )  # fmt: skip


def _refusal(host: str, port: int) -> str | None:
    from kstore.net.transport import ListenError, bind

    try:
        for sock in bind(host, port, backlog=1):
            sock.close()
    except ListenError as problem:
        return str(problem)
    return None


def advertised(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """Whether the names that clients receive have an address."""
    for listener in machine.config.advertised_listeners:
        try:
            socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
        except OSError as problem:
            yield Finding(
                ERROR, f"advertised.listeners {listener}",
                f"{listener.host} cannot be resolved here: {problem.strerror or problem}",
                "Clients get this name from their first connection, and then cannot connect.",
                f"getent hosts {listener.host}; then add the name to DNS, or change "
                "advertised.listeners",
            )  # fmt: skip


PORT_CHECKS: tuple[Check[Machine], ...] = (
    Check("ports", "whether the broker can listen on its ports", ports),
    Check("advertised", "whether advertised.listeners have an address", advertised),
)
