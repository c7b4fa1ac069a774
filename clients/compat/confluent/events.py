"""Pending callbacks for a user's poll(), each called once in the caller's thread; and the callbacks
about the client: errors and statistics.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kstore.clients.compat.confluent.error import KafkaError
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread

__all__ = ["Events"]

DOWN_S = 1.0
"""How often to check whether any broker can be reached."""


class Events:
    """Pending calls. Any thread may call `put`; the user's thread calls `serve`."""

    def __init__(
        self,
        own: Mapping[str, Any],
        kind: str,
        thread: LoopThread,
        cluster: ClusterClient,
        waiting: Callable[[], int],
    ) -> None:
        self._due: deque[Callable[[], object]] = deque()
        self._poll_event = threading.Condition()
        self._kind, self._thread, self._cluster, self._waiting = kind, thread, cluster, waiting
        self._error_cb: Callable[[KafkaError], object] | None = own["error_cb"]
        self._stats_cb: Callable[[str], object] | None = own["stats_cb"]
        self._logger = own["logger"]
        self._stats_s = own["statistics.interval.ms"] / 1000
        self._since = self._stats_at = self._looked_at = time.monotonic()
        self._is_down = False
        self.counts = {"txmsgs": 0, "rxmsgs": 0}

    def __len__(self) -> int:
        return len(self._due)

    def put(self, call: Callable[[], object]) -> None:
        """Add a call."""
        with self._poll_event:
            self._due.append(call)
            self._poll_event.notify()

    def serve(self, timeout: float | None = 0) -> int:
        """Call the pending callbacks, after waiting up to timeout seconds (below 0: forever) for
        the first. Returns their number. An exception propagates to the caller, and the remaining
        calls stay.
        """
        if timeout == 0:  # the usual case between messages
            self.look()
            return self._call_all() if self._due else 0
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while True:
            self.look()
            with self._poll_event:
                left = DOWN_S if deadline is None else min(deadline - time.monotonic(), DOWN_S)
                if not self._due and left > 0:
                    self._poll_event.wait(left)
            if self._due or (deadline is not None and time.monotonic() >= deadline):
                return self._call_all()

    def _call_all(self) -> int:
        called = 0
        for _ in range(len(self._due)):
            try:
                call = self._due.popleft()
            except IndexError:
                break  # another thread serves too
            call()
            called += 1
        return called

    def look(self) -> None:
        """Emits statistics, and reports when all brokers are down."""
        now = time.monotonic()
        if self._stats_cb is not None and self._stats_s and now >= self._stats_at + self._stats_s:
            self._stats_at = now
            stats_cb, text = self._stats_cb, json.dumps(self._statistics())
            self.put(lambda: stats_cb(text))
        if now < self._looked_at + DOWN_S:
            return
        self._looked_at = now
        was_down, self._is_down = self._is_down, self._cluster.is_cut_off
        if self._is_down and not was_down:
            found = KafkaError(KafkaError._ALL_BROKERS_DOWN, "no broker can be reached")
            if self._logger is not None:
                self._logger.error("no broker of %s can be reached", self._servers)
            if self._error_cb is not None:
                error_cb = self._error_cb
                self.put(lambda: error_cb(found))

    @property
    def _servers(self) -> str:
        return ",".join(self._cluster.settings["bootstrap.servers"])

    def _statistics(self) -> dict[str, Any]:
        view = self._cluster.view
        brokers = {
            f"{row.host}:{row.port}/{row.node_id}": {
                "name": f"{row.host}:{row.port}/{row.node_id}",
                "nodeid": row.node_id,
                "nodename": f"{row.host}:{row.port}",
            }
            for row in view.brokers.values()
        }
        topics = {
            name: {
                "topic": name,
                "partitions": {
                    str(row.partition): {"partition": row.partition, "leader": row.leader}
                    for row in topic.partitions
                },
            }
            for name, topic in view.topics.items()
        }
        client_id = self._cluster.settings["client.id"]
        now = time.monotonic()
        return {
            "name": f"{client_id}#{self._kind}", "client_id": client_id, "type": self._kind,
            "ts": int(now * 1e6), "time": int(time.time()), "age": int((now - self._since) * 1e6),
            "replyq": len(self._due), "msg_cnt": self._waiting(), "brokers": brokers,
            "topics": topics, **self.counts,
        }  # fmt: skip

    def close(self) -> None:
        """Stop."""
        self._due.clear()
