"""Faults in running brokers, over their HTTP API: an error, a delay, no answer, a lost connection.

A fault acts from the call until its `with` block ends or it is removed. The broker decides which
requests match and what their answers are (kstore/broker/state/faults.py).
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
    """A fault, on one broker or several."""

    def __init__(self, faults: Faults, numbers: Mapping[int, int]) -> None:
        self._faults = faults
        self._numbers = dict(numbers)
        self._struck = 0

    @property
    def struck(self) -> int:
        """The number of requests that it has matched, on all running brokers."""
        counts = self._faults.counts()
        now = sum(counts.get((node, number), 0) for node, number in self._numbers.items())
        return self._struck + now

    def wait(self, count: int = 1, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it has matched so many requests. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while (struck := self.struck) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the fault has matched {struck} requests, not {count}")
            time.sleep(PAUSE_S)

    def remove(self) -> None:
        """End it; has no effect if it has ended."""
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
    """The faults of the brokers at ``urls()``: node id to the URL of its HTTP API.

    ``api`` is the name or key of an API, or ``None`` for every API. ``topic``, ``partition`` and
    ``client_id`` (``*`` and ``?`` match anything) restrict a fault, ``node`` selects one broker,
    ``count`` ends the fault after so many requests (of each broker), and with ``probability`` and
    ``seed`` it acts at random, in a way that repeats. With ``when="after"`` the request is
    executed, and its answer is lost. ``brokers=True`` affects requests between brokers instead of
    those from clients.
    """

    def __init__(self, urls: Callable[[], Mapping[int, str]]) -> None:
        self._urls = urls

    def error(self, api: str | int | None, code: str | int, **matching: Any) -> Fault:
        """Answer with an error, by name or number; for one partition if one is named."""
        return self.add(action="error", api=api, code=code, **matching)

    def delay(self, api: str | int | None, delay_ms: int, **matching: Any) -> Fault:
        """Handle requests late; or, with ``when="after"``, answer them late."""
        return self.add(action="delay", api=api, delay_ms=delay_ms, **matching)

    def drop(self, api: str | int | None, **matching: Any) -> Fault:
        """Never answer, neither this request nor later ones on the connection."""
        return self.add(action="drop", api=api, **matching)

    def disconnect(self, api: str | int | None, **matching: Any) -> Fault:
        """Close the connection."""
        return self.add(action="disconnect", api=api, **matching)

    def add(self, **fault: Any) -> Fault:
        """Inject the fault that the fields of POST /faults describe. Raises ValueError for invalid
        fields.
        """
        nodes = dict(self._urls())
        if fault.get("node") is not None:
            nodes = {node: url for node, url in nodes.items() if node == fault["node"]}
            if not nodes:
                raise ValueError(f"no broker {fault['node']} runs")
        numbers = {}
        for node, url in nodes.items():
            numbers[node] = _call(url, "POST", "/faults", fault)["faults"][0]["id"]
        return Fault(self, numbers)

    def counts(self) -> dict[tuple[int, int], int]:
        """(node id, fault's number) to the number of matched requests, for all active faults."""
        return {
            (node, row["id"]): row["struck"]
            for node, url in self._urls().items()
            for row in _call(url, "GET", "/faults")["faults"]
        }

    def remove(self, node: int, number: int) -> int:
        """End one fault; returns the number of requests that it matched, 0 if it or its broker no
        longer exists.
        """
        url = self._urls().get(node)
        if url is None or (node, number) not in self.counts():
            return 0
        rows = _call(url, "DELETE", f"/faults/{number}")["faults"]
        return sum(row["struck"] for row in rows)

    def clear(self) -> None:
        """End all faults of all brokers that run."""
        for url in self._urls().values():
            _call(url, "DELETE", "/faults")


def _call(url: str, method: str, path: str, row: Mapping[str, Any] | None = None) -> Any:
    """The response's JSON. Raises ValueError with the broker's message if it was refused."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        body = None if row is None else json.dumps(row)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status >= 300:
        raise ValueError(said["error"])
    return said
