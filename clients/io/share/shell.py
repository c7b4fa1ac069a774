"""The share consumer on its loop: the common part of ShareConsumer and AIOShareConsumer.

Records are fetched when poll() has none: records that are acquired too early only hold locks while
other members wait. Acknowledgements are sent with the next fetch, or alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from kstore.clients.core.share.acknowledgements import AcknowledgeType
from kstore.clients.core.share.holdings import Acknowledged, Held, Holdings
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.share.membership import Membership
from kstore.clients.io.share.node import ShareNode
from kstore.errors import InvalidGroupIdError, KafkaError
from kstore.types import TopicPartition

__all__ = ["InterruptedPollError", "ShareShell"]


class InterruptedPollError(Exception):
    """wakeup() has interrupted the call."""


class ShareShell:
    """Create it on the loop. All calls are on the loop, except `wakeup`, and `holdings` where
    noted.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        if not settings["group.id"]:
            raise InvalidGroupIdError("a share consumer needs group.id")
        self.settings = settings
        self.holdings = Holdings()
        self.completed: deque[Acknowledged] = deque()
        """The results of acknowledgements, for the user's callback."""
        self.topics: frozenset[str] = frozenset()
        self.lock_timeout_ms: int | None = None
        """How long this consumer holds an acquired record, as in the last response."""
        self.is_explicit: bool = settings["share.acknowledgement.mode"].lower() == "explicit"
        self._one_at_a_time = settings["share.acquire.mode"].lower() == "record_limit"
        self.loop = asyncio.get_running_loop()
        self.cluster = ClusterClient(settings, loop=self.loop)
        self.event = asyncio.Event()
        self.failures: deque[KafkaError] = deque()
        self._is_woken = False
        self._is_polling = False
        self._is_closed = False
        self._membership = Membership(self.cluster, settings, self._assignment_came)
        self._nodes: dict[int, ShareNode] = {}
        self._last_node = -1
        self._tasks: set[asyncio.Task[None]] = set()
        self._commits: list[dict[TopicPartition, KafkaError | None]] = []
        """The results of the commits that wait."""
        self.cluster.on_update.append(self.event.set)

    # ---- subscription ----

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from the next poll on."""
        self.topics = frozenset(topics)
        self.cluster.watch_topics(self.topics)
        self._membership.subscribe(self.topics)

    async def unsubscribe(self) -> None:
        """Release the held records, leave the group, read nothing."""
        await self._give_back(self._api_timeout_ms)
        self.topics = frozenset()
        self._membership.subscribe(self.topics)
        await self._membership.leave()

    @property
    def _api_timeout_ms(self) -> int:
        wait_ms: int = self.settings["default.api.timeout.ms"]
        return wait_ms

    def assignment(self) -> list[TopicPartition]:
        """The partitions from the coordinator; other members may have the same ones."""
        found = []
        for topic_id, index in self._membership.member.assigned:
            name = self.cluster.view.topic_name(topic_id)
            if name is not None:
                found.append(TopicPartition(name, index))
        return sorted(found)

    def _assignment_came(self) -> None:
        self._look_up_unknown()
        self.event.set()

    def _look_up_unknown(self) -> None:
        """The coordinator's assignment contains a topic that the metadata does not: the broker of
        the metadata may be cut off.
        """
        ids = {topic_id for topic_id, _ in self._membership.member.assigned}
        if any(self.cluster.view.topic_name(each) is None for each in ids):
            self.cluster.want_refresh()

    # ---- records ----

    async def poll(self, timeout_ms: float | None, max_records: int) -> list[Held]:
        """Records as soon as there are any; empty if timeout_ms is over. In explicit mode, raises
        RuntimeError if records of the last poll were not acknowledged.
        """
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if self._is_polling:
            raise RuntimeError(
                "poll() is already running: only one thread or task may use a consumer"
            )
        if not self.topics:
            raise RuntimeError("the consumer is not subscribed to anything: call subscribe()")
        self._settle_last()
        self._is_polling = True
        try:
            return await self._polled(timeout_ms, max_records)
        finally:
            self._is_polling = False

    def _settle_last(self) -> None:
        """The records of the last poll are accepted, or the user has acknowledged them."""
        held = self.holdings.in_hand
        if held and self.is_explicit:
            first = held[0]
            raise RuntimeError(
                f"{len(held)} records of the last poll() are not acknowledged, the first is "
                f"{first.tp} offset {first.offset}; share.acknowledgement.mode is explicit"
            )
        self.holdings.acknowledge_all(AcknowledgeType.ACCEPT)

    async def _polled(self, timeout_ms: float | None, max_records: int) -> list[Held]:
        deadline_s = None if timeout_ms is None else self.loop.time() + timeout_ms / 1000
        self._membership.polled()
        while True:
            if self._is_woken:
                self._is_woken = False
                raise InterruptedPollError("wakeup() was called")
            self.event.clear()
            error = self._membership.take_error()
            if error is None and self.failures:
                error = self.failures.popleft()
            if error is not None:
                raise error
            found = self.holdings.take(max_records, self.loop.time() * 1000)
            if found:
                self.flush()
                return found
            self._fetch(max_records)
            if deadline_s is not None and self.loop.time() >= deadline_s:
                self.flush()
                await asyncio.sleep(0)
                return []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await self.event.wait()

    def _fetch(self, max_records: int) -> None:
        """Fetch from every leader that has no outstanding request and does not pause; with
        record_limit, from one at a time.
        """
        self._look_up_unknown()
        wanted: dict[int, set[TopicPartition]] = {}
        for tp in self.assignment():
            try:
                wanted.setdefault(self.cluster.view.leader(tp), set()).add(tp)
            except KafkaError:
                self.cluster.want_refresh()
        requested = [node_id for node_id in sorted(wanted) if not self._node(node_id).is_pausing]
        idle = [node_id for node_id in requested if not self._node(node_id).is_fetching]
        if self._one_at_a_time:
            if len(idle) < len(requested):
                return
            later = [node_id for node_id in idle if node_id > self._last_node]
            idle = (later or idle)[:1]
            self._last_node = idle[0] if idle else -1
        for node_id in idle:
            node = self._node(node_id)
            node.is_fetching = True
            self._run(node.fetch(wanted[node_id], max_records))

    def _node(self, node_id: int) -> ShareNode:
        if node_id not in self._nodes:
            self._nodes[node_id] = ShareNode(self, node_id, self._membership.member.member_id)
        return self._nodes[node_id]

    def _run(self, coroutine: Any) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wakeup(self) -> None:
        """Interrupt a waiting poll, or the next one. Any thread may call it."""
        self._is_woken = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: no poll is running
            self.loop.call_soon_threadsafe(self.event.set)

    # ---- acknowledgements ----

    def flush(self) -> None:
        """Send acknowledgements without waiting, if no fetch carries them."""
        for node_id in self.holdings.nodes_to_send():
            node = self._node(node_id)
            if not node.is_fetching:
                self._run(node.acknowledge())

    async def commit(self, timeout_ms: float | None) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements, in implicit mode for all records of the last poll, and wait for
        the responses: for each partition None or the first error. Raises TimeoutError after
        timeout_ms.
        """
        if not self.is_explicit:
            self.holdings.acknowledge_all(AcknowledgeType.ACCEPT)
        patience_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        nodes = [self._node(node_id) for node_id in sorted(self.holdings.nodes_to_notify())]
        found: dict[TopicPartition, KafkaError | None] = {}
        self._commits.append(found)
        try:
            async with asyncio.timeout(patience_ms / 1000):
                # Acknowledgements of an outstanding request are answered first: the node takes
                # turns.
                await asyncio.gather(*(node.acknowledge() for node in nodes))
        finally:
            self._commits = [each for each in self._commits if each is not found]
        return found

    def done(self, result: Acknowledged) -> None:
        """The broker has answered, or the request failed."""
        if result.types:
            self.completed.append(result)
            for found in self._commits:
                found[result.tp] = found.get(result.tp) or result.error
        self.event.set()

    # ---- close ----

    async def _give_back(self, timeout_ms: float) -> None:
        """Send acknowledgements, and end the sessions: the brokers release the remaining
        records.
        """
        nodes = list(self._nodes.values())
        if nodes:
            closing = [self.loop.create_task(node.close()) for node in nodes]
            await asyncio.wait(closing, timeout=timeout_ms / 1000)
            for task in closing:
                task.cancel()
        self._nodes = {}
        self.holdings = Holdings()

    async def close(self, timeout_ms: float) -> None:
        """Release the held records, leave the group, close the connections."""
        self._is_closed = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._give_back(timeout_ms)
                    await self._membership.close()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await self.cluster.close()
