"""What clients have pushed (KIP-714): the last value of each of their metrics, with deltas added
up, for whoever shows metrics.

Bounded in clients and in series; the client that was silent longest goes first. Nothing is stored
on disk.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from kstore.broker.state.otlp import Point, decode_metrics
from kstore.broker.state.telemetry import Instances

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["Telemetry", "telemetry_of"]

MAX_SERIES = 200_000
PER_TURN = 100
"""Points decoded before other work on the loop has its turn."""

Series = tuple[str, tuple[tuple[str, str], ...]]


class _Client:
    """The series of one client."""

    def __init__(self) -> None:
        self.client_id = ""
        self.values: dict[Series, tuple[float, bool]] = {}


class Telemetry:
    """The client instances of one broker, and what they have pushed."""

    def __init__(self) -> None:
        self.instances = Instances()
        self.pushes = 0
        self.unreadable = 0
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()
        self._series = 0

    async def take(self, instance_id: UUID, client_id: str, data: bytes | bytearray) -> None:
        """Take in a push; OtlpError where it can't be read (what came before it counts)."""
        client = self._clients.setdefault(instance_id, _Client())
        client.client_id = client_id
        self._clients.move_to_end(instance_id)
        self.pushes += 1
        for count, point in enumerate(decode_metrics(data), 1):
            self._note(client, point)
            if count % PER_TURN == 0:
                await asyncio.sleep(0)
        while self._series > MAX_SERIES and len(self._clients) > 1:
            _, dropped = self._clients.popitem(last=False)
            self._series -= len(dropped.values)

    def _note(self, client: _Client, point: Point) -> None:
        key = (point.name, point.attributes)
        known = client.values.get(key)
        if known is None:
            if len(client.values) >= MAX_SERIES:
                return
            self._series += 1
        before = known[0] if known is not None and point.delta else 0.0
        client.values[key] = (before + point.value, point.counter)

    def lines(self) -> Iterator[str]:
        """Every series in Prometheus's text form, grouped by name; empty lines while they are
        grouped, so that whoever writes them can breathe.
        """
        families: dict[str, list[tuple[dict[str, str], Series, float, bool]]] = {}
        for instance_id, client in list(self._clients.items()):
            yield ""
            whose = {"client_instance_id": str(instance_id), "client_id": client.client_id}
            for key, (value, counter) in list(client.values.items()):
                families.setdefault(_metric_name(key[0]), []).append((whose, key, value, counter))
        for name, rows in sorted(families.items()):
            yield f"# TYPE {name} {'counter' if rows[0][3] else 'gauge'}"
            for whose, (_, attributes), value, _ in rows:
                labels = whose | {_label_name(key): text for key, text in attributes}
                inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
                yield f"{name}{{{inner}}} {value!r}"


def telemetry_of(broker: Broker) -> Telemetry:
    """The broker's telemetry, made at the first call."""
    if broker.telemetry is None:
        broker.telemetry = Telemetry()
    found: Telemetry = broker.telemetry
    return found


def _metric_name(name: str) -> str:
    return "kafka_client_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _label_name(key: str) -> str:
    return re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", key) or "_"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
