"""A consumer without fetching: a user that polls and listens, over the real group client. `events`
has its callbacks in order; `read` moves its positions as if records had been returned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self

from kstore.clients.core.consumer.subscription import (
    Position,
    SubscriptionPattern,
    SubscriptionState,
)
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.coordinator import GroupCoordinatorClient
from kstore.config.client.configs import client_settings
from kstore.errors import KafkaError, raise_for
from kstore.record import build_batch
from kstore.types import TopicPartition
from tests.record_requests import only, produce_request

FAST = {
    "heartbeat.interval.ms": "200",
    "session.timeout.ms": "6000",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "metadata.max.age.ms": "500",
    "auto.offset.reset": "earliest",
}
PATIENCE_S = 60


class Poller:
    """One member. It polls all the time, until `is_polling` is False."""

    def __init__(self, bootstrap: str, group_id: str, **settings: Any) -> None:
        config = FAST | {"bootstrap.servers": bootstrap, "group.id": group_id}
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        if config.get("group.protocol") == "consumer":
            for name in ("heartbeat.interval.ms", "session.timeout.ms"):
                config.pop(name)
        self.settings = client_settings("consumer", config)
        self.subscription = SubscriptionState()
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.errors: list[Exception] = []
        self.is_polling = True
        self.on_revoked: Callable[[], Any] | None = None
        self._safe = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.cluster = ClusterClient(self.settings)
        self.group = GroupCoordinatorClient(self.cluster, self.settings, self.subscription, self)
        self._task = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._task.done():
            return
        self._safe.set()
        await self.group.close()
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.cluster.close()

    async def vanish(self) -> None:
        """End without a request, as a killed process does."""
        self._task.cancel()
        self.group._is_closed = True
        await self.cluster.close()

    async def subscribe(self, *topics: str) -> None:
        self.cluster.watch_topics(topics)
        await self.cluster.refresh(topics)
        self.subscription.subscribe(topics)

    async def subscribe_pattern(self, pattern: str) -> None:
        self.subscription.subscribe_pattern(SubscriptionPattern(pattern))

    @property
    def owned(self) -> frozenset[TopicPartition]:
        rows = self.subscription.partitions.values()
        return frozenset(row.tp for row in rows if row.reading and not row.revoking)

    def read(self, partitions: Iterable[TopicPartition], offset: int) -> None:
        """Records up to an offset were handed out."""
        for tp in partitions:
            self.subscription.partitions[tp].seek(Position(offset))

    async def _poll(self) -> None:
        while True:
            if self.is_polling:
                self._safe.set()
                self.group.on_poll(int(time.monotonic() * 1000))
                try:
                    self.group.raise_error()
                except (KafkaError, ValueError) as error:
                    self.errors.append(error)
            else:
                self._safe.clear()
            await asyncio.sleep(0.01)

    # The hand-over.

    async def safe_point(self) -> Mapping[TopicPartition, Position]:
        await self._safe.wait()
        return self.subscription.consumed()

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self.events.append(("revoked", frozenset(partitions)))
            if self.on_revoked is not None:
                await self.on_revoked()

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("assigned", frozenset(partitions)))

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self.events.append(("lost", frozenset(partitions)))


async def produce(poller: Poller, tp: TopicPartition, count: int) -> None:
    """Append records, in one batch, by the poller's connections."""
    async with asyncio.timeout(PATIENCE_S):
        await poller.cluster.retrying(lambda: _produce(poller, tp, count), 30_000, [tp.topic])


async def _produce(poller: Poller, tp: TopicPartition, count: int) -> None:
    if tp.topic not in poller.cluster.view.topics:
        await poller.cluster.refresh([tp.topic])
    batch = build_batch([(b"k", b"v%d" % i) for i in range(count)])
    request = produce_request(tp.topic, batch, first=tp.partition, acks=-1, timeout_ms=10_000)
    leader = poller.cluster.view.leader(tp)
    response: Any = await poller.cluster.ask(leader, request, at_most=12)
    raise_for(only(response).error_code)
