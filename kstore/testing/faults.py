"""Faults in running brokers, through their HTTP API: an error, a delay, no response, a lost
connection.

A fault is active from the call until its `with` block ends or it is removed. The broker decides
which requests match and how it responds (kstore/broker/state/faults.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

__all__ = ["Fault", "Faults"]

TIMEOUT_S = 30.0
PAUSE_S = 0.01


class Fault:
    """A fault in one broker or several. As a context manager it is removed at the end of
    the block.
    """

    def __init__(self, faults: Faults, numbers: Mapping[int, int]) -> None:
        self._faults = faults
        self._numbers = dict(numbers)
        self._struck = 0

    @property
    def struck(self) -> int:
        """The number of requests that the fault has matched, on all running brokers."""
        counts = self._faults.counts()
        now = sum(counts.get((node, number), 0) for node, number in self._numbers.items())
        return self._struck + now

    def wait(self, count: int = 1, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the fault has matched ``count`` requests. Raises TimeoutError after
        ``timeout_s`` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while (struck := self.struck) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the fault has matched {struck} requests, not {count}")
            time.sleep(PAUSE_S)

    def remove(self) -> None:
        """Remove the fault. If it has ended, this has no effect."""
        for node, number in self._numbers.items():
            self._struck += self._faults.remove(node, number)
        self._numbers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


class Faults:
    """Injects faults into brokers. ``urls()`` returns the URLs of their HTTP APIs by broker id.

    ``api`` is the name or key of an API, or None for all APIs. The other arguments select requests:

    - ``topic``, ``partition``, ``client_id``: requests with these (``*`` and ``?`` are wildcards).
    - ``node``: requests to this broker.
    - ``count``: the first requests only, counted for each broker.
    - ``probability`` and ``seed``: a random share of the requests, repeatable.
    - ``when="after"``: the request is executed, and only its response is affected.
    - ``brokers=True``: requests between brokers instead of those from clients.

    Invalid arguments raise ValueError. Example: ``with faults.error("Produce",
    "NOT_LEADER_OR_FOLLOWER", count=2) as fault: ...``.
    """

    def __init__(self, urls: Callable[[], Mapping[int, str]]) -> None:
        self._urls = urls

    def error(self, api: str | int | None, code: str | int, **matching: Any) -> Fault:
        """Respond with an error, given by name or number. With ``partition`` only this partition
        gets the error.
        """
        return self.add(action="error", api=api, code=code, **matching)

    def delay(self, api: str | int | None, delay_ms: int, **matching: Any) -> Fault:
        """Handle requests ``delay_ms`` milliseconds late or, with ``when="after"``, respond to them
        late.
        """
        return self.add(action="delay", api=api, delay_ms=delay_ms, **matching)

    def drop(self, api: str | int | None, **matching: Any) -> Fault:
        """Do not respond to the request, nor to later ones on the same connection."""
        return self.add(action="drop", api=api, **matching)

    def disconnect(self, api: str | int | None, **matching: Any) -> Fault:
        """Close the connection."""
        return self.add(action="disconnect", api=api, **matching)

    def add(self, **fault: Any) -> Fault:
        """Inject a fault from the fields of POST /faults. Raises ValueError for invalid fields."""
        nodes = dict(self._urls())
        if fault.get("node") is not None:
            nodes = {node: url for node, url in nodes.items() if node == fault["node"]}
            if not nodes:
                raise ValueError(f"broker {fault['node']} is not running")
        numbers = {}
        for node, url in nodes.items():
            numbers[node] = _call(url, "POST", "/faults", fault)["faults"][0]["id"]
        return Fault(self, numbers)

    def counts(self) -> dict[tuple[int, int], int]:
        """The number of matched requests of each active fault, by (broker id, number of the
        fault).
        """
        return {
            (node, row["id"]): row["struck"]
            for node, url in self._urls().items()
            for row in _call(url, "GET", "/faults")["faults"]
        }

    def remove(self, node: int, number: int) -> int:
        """Remove one fault. Returns the number of requests that it matched; 0 if the fault or its
        broker no longer exists.
        """
        url = self._urls().get(node)
        if url is None or (node, number) not in self.counts():
            return 0
        rows = _call(url, "DELETE", f"/faults/{number}")["faults"]
        return sum(row["struck"] for row in rows)

    def clear(self) -> None:
        """Remove all faults from all running brokers."""
        for url in self._urls().values():
            _call(url, "DELETE", "/faults")


def _call(url: str, method: str, path: str, row: Mapping[str, Any] | None = None) -> Any:
    """The JSON of the response. Raises ValueError with the broker's message if it refused the
    request.
    """
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        body = None if row is None else json.dumps(row)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        response = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status >= 300:
        raise ValueError(response["error"])
    return response
