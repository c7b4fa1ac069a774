"""Metrics that clients have pushed (KIP-714): the last value of each, with deltas added up.

Memory is limited per client and in total. The client that was inactive for the longest time is
dropped first. Nothing is stored on disk.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from uuid import UUID

from kstore.broker.state.exposition import Family, Kind, Metrics, escaped, number_text
from kstore.broker.state.telemetry.client_metrics import Instances
from kstore.broker.state.telemetry.otlp import Attributes, OtlpTooLargeError, Point, decode_metrics
from kstore.broker.state.work import ROWS_BETWEEN

__all__ = ["Telemetry"]

MAX_BYTES = 64 << 20
"""The limit for all clients: about 200,000 series."""
MAX_CLIENT_BYTES = 4 << 20
"""The limit for one client: about 10,000 series."""
CLIENT_BYTES, SERIES_BYTES, ATTRIBUTE_BYTES = 1024, 400, 160
"""The size of a series in memory, without its texts."""
PER_TURN = 100
"""Steps of decoding before other work on the loop runs."""

Series = tuple[str, Attributes, Attributes]
"""Name, attributes of the client, attributes of the point."""


class _Client:
    """The series of one client."""

    def __init__(self) -> None:
        self.client_id = ""
        self.values: dict[Series, tuple[float, bool]] = {}
        self.resources: dict[Attributes, tuple[Attributes, int]] = {}
        """Each resource once, for all its series, and its size in bytes."""
        self.bytes = CLIENT_BYTES

    def note(self, point: Point) -> None:
        """Store the value of a point; OtlpTooLargeError if the client has too many."""
        resource, size = self.resources.get(point.resource) or (point.resource, 0)
        key = (point.name, resource, point.attributes)
        known = self.values.get(key)
        if known is None:
            size = size or _size(resource)
            # A resource is stored once, but each series shows it, so its size counts for each.
            added = SERIES_BYTES + _text_size(point.name) + _size(point.attributes) + size
            if self.bytes + added > MAX_CLIENT_BYTES:
                raise OtlpTooLargeError(f"a client has more series than {MAX_CLIENT_BYTES} bytes")
            self.resources.setdefault(resource, (resource, size))
            self.bytes += added
        before = known[0] if known is not None and point.delta else 0.0
        self.values[key] = (before + point.value, point.counter)


class Telemetry:
    """The client instances of one broker, and their metrics."""

    def __init__(self) -> None:
        self.instances = Instances()
        self.pushes = 0
        self.unreadable = 0
        self.bytes = 0
        """The size of all metrics, as estimated."""
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()

    async def take(self, instance_id: UUID, client_id: str, data: bytes | bytearray) -> None:
        """Store a push. Raises OtlpError if it is malformed or too large; the points before the
        error are stored.
        """
        self.pushes += 1
        for count, point in enumerate(decode_metrics(data), 1):
            if point is not None:
                self._note(instance_id, client_id, point)
            if count % PER_TURN == 0:
                await asyncio.sleep(0)

    def _note(self, instance_id: UUID, client_id: str, point: Point) -> None:
        client = self._clients.get(instance_id)  # it may be dropped between turns
        if client is None:
            client = self._clients[instance_id] = _Client()
            self.bytes += client.bytes
        self._clients.move_to_end(instance_id)
        before = client.bytes
        client.bytes += _text_size(client_id) - _text_size(client.client_id)
        client.client_id = client_id
        try:
            client.note(point)
        finally:
            self.bytes += client.bytes - before
        while self.bytes > MAX_BYTES and len(self._clients) > 1:
            _, dropped = self._clients.popitem(last=False)
            self.bytes -= dropped.bytes

    def metrics(self) -> Metrics:
        """Every series, ordered by name. Of two with the same name and labels, only the last is
        shown.
        """
        families: dict[str, dict[str, str]] = {}
        counters: set[str] = set()
        for instance_id, client in list(self._clients.items()):
            whose = {"client_instance_id": str(instance_id), "client_id": client.client_id}
            for number, (key, (value, counter)) in enumerate(list(client.values.items())):
                if number % ROWS_BETWEEN == 0:
                    yield ""
                pushed_name, resource, attributes = key
                name = _metric_name(pushed_name)
                pushed = {_label_name(key): text for key, text in (*resource, *attributes)}
                # The broker sets the labels of the client: pushed attributes with these names are
                # left out.
                labels = whose | pushed | whose
                inner = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
                families.setdefault(name, {})[inner] = number_text(value)
                if counter:
                    counters.add(name)
        for name, rows in sorted(families.items()):
            kind: Kind = "pushed counter" if name in counters else "gauge"
            yield Family(name, kind, "Pushed by clients (KIP-714)")
            for inner, value_text in rows.items():
                yield f"{name}{{{inner}}} {value_text}"


def _size(attributes: Attributes) -> int:
    """The bytes of attributes."""
    return sum(ATTRIBUTE_BYTES + _text_size(key) + _text_size(text) for key, text in attributes)


def _text_size(text: str) -> int:
    """The largest size of a text's characters in bytes."""
    return len(text) if text.isascii() else 4 * len(text)


def _metric_name(name: str) -> str:
    return "kafka_client_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _label_name(key: str) -> str:
    return re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", key) or "_"
