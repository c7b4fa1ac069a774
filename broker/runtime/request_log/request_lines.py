"""The request log: a line for each randomly chosen request and a warning for each slow request. A
line has the client and how the time was spent.

The number of lines is limited; beyond the limit the log reports how many were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kstore.broker.runtime.log_limit import WINDOW_S, LogLimit
from kstore.broker.runtime.log_lines import printable
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore._fast.network.request_times import TimedRequest
    from kstore.broker.runtime.node import Node

__all__ = ["RequestLines", "api_name", "client_name"]

MAX_LINES = 5000
"""The limit of lines in 10 s."""
MAX_SLOW_LINES = 100
MAX_SLOW_LINES_OF_API = 20
MAX_NAME_CHARS = 100
NOT_SENT = "the connection ended before the answer was sent"
ALL = "requests"
requests = logging.getLogger("kstore.request")
slow_requests = logging.getLogger("kstore.request.slow")


def api_name(api_key: int) -> str:
    """Kafka's name of an API."""
    api = APIS.get(api_key)
    return str(api_key) if api is None else api.name


def client_name(client_id: bytes | None) -> str:
    """A client's id with unprintable characters escaped; clients choose it."""
    if client_id is None:
        return ""
    return printable(client_id[: 4 * MAX_NAME_CHARS].decode("utf-8", "replace"))[:MAX_NAME_CHARS]


class RequestLines:
    """Writes the lines."""

    def __init__(self, node: Node) -> None:
        self._apis: frozenset[str] = frozenset()
        self._clients: frozenset[str] = frozenset()
        self._report = node.report
        self._lines = LogLimit(node.loop, _report_rest, of_group=MAX_LINES, of_all=MAX_LINES)
        self._slow = LogLimit(
            node.loop, _report_rest_slow, of_group=MAX_SLOW_LINES_OF_API, of_all=MAX_SLOW_LINES
        )

    def choose(self, apis: Sequence[str], clients: Sequence[str]) -> None:
        """Log randomly chosen requests only of these APIs and clients; an empty list means all.
        Slow requests are always logged.
        """
        unknown = set(apis) - {api.name for api in APIS.values()}
        if unknown:
            self._report(
                f"kstore.request.log.apis names {', '.join(sorted(unknown))}, which is not an API: "
                "use Kafka's names, such as Produce or ConsumerGroupHeartbeat"
            )
        self._apis, self._clients = frozenset(apis), frozenset(clients)

    def report(self, connection: Connection, timed: TimedRequest) -> None:
        """Write the line of a completed request."""
        name, client = api_name(timed.api_key), client_name(timed.client_id)
        if timed.slow:
            if slow_requests.isEnabledFor(logging.WARNING) and self._slow.admits(name):
                _write(slow_requests, logging.WARNING, connection, timed, name, client)
        elif (
            requests.isEnabledFor(logging.INFO)
            and (not self._apis or name in self._apis)
            and (not self._clients or client in self._clients)
            and self._lines.admits(ALL)
        ):
            _write(requests, logging.INFO, connection, timed, name, client)


def _write(
    logger: logging.Logger,
    level: int,
    connection: Connection,
    timed: TimedRequest,
    name: str,
    client: str,
) -> None:
    parts = timed.parts()
    total = parts.pop("total")
    story = ", ".join(f"{part} {us / 1000:.3f}" for part, us in parts.items() if us)
    logger.log(
        level,
        '%s of %s version %d from client "%s" (%s, %s) took %.3f ms: %s; %d bytes, correlation'
        " id %d%s",
        "slow request" if timed.slow else "request",
        name,
        timed.api_version,
        client,
        printable(connection.principal),
        connection.peer,
        total / 1000,
        story or "no part took a microsecond",
        timed.size_bytes,
        timed.correlation_id,
        f"; {NOT_SENT}" if timed.lost else "",
        extra={"fields": _fields(connection, timed, name, client, parts, total)},
    )


def _fields(
    connection: Connection,
    timed: TimedRequest,
    name: str,
    client: str,
    parts: dict[str, int],
    total: int,
) -> dict[str, Any]:
    return {
        "event": "slow request" if timed.slow else "request",
        "api": name,
        "version": timed.api_version,
        "client_id": client,
        "principal": connection.principal,
        "listener": connection.listener,
        "connection": connection.peer,
        "correlation_id": timed.correlation_id,
        "request_bytes": timed.size_bytes,
        "total_ms": total / 1000,
        **{f"{part}_ms": us / 1000 for part, us in parts.items()},
        "answered": not timed.lost,
    }


def _report_rest(group: str, count: int) -> None:
    requests.warning("%s more requests were left out in the last %g s", f"{count:,}", WINDOW_S)


def _report_rest_slow(group: str, count: int) -> None:
    slow_requests.warning(
        "%s more slow requests%s were left out in the last %g s",
        f"{count:,}",
        f" of {group}" if group else "",
        WINDOW_S,
    )
