"""The producer's loop: it sends the batches that core/producer/sender.py selects, and passes the
responses to it.

Everything here runs on one event loop. It handles requests and connections; the core handles order,
numbers and retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kstore._fast.clients.accumulator import Accumulator
from kstore._fast.clients.producer_batch import ProducerBatch
from kstore.clients.core.producer.partitioner import preferences
from kstore.clients.core.producer.produce import ProduceExtensions, produce_request, produce_results
from kstore.clients.core.producer.sender import NEVER_MS, Sender, Verdict
from kstore.clients.io.cluster import ANY, ClusterClient
from kstore.clients.io.connection import BrokerConnection
from kstore.errors import (
    FencedLeaderEpochError,
    KafkaError,
    LeaderNotAvailableError,
    NetworkError,
    UnsupportedVersionError,
    raise_for,
)
from kstore.protocol.logs.produce import ProduceRequest, ProduceResponse
from kstore.protocol.schema import ZERO_UUID, Message
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kstore.types import TopicPartition

__all__ = ["SendLoop", "monotonic_ms"]

PRODUCE = 0
FIRST_BY_ID = 13
FOREVER_MS = 0x7FFFFFFF
WEIGH_MS = 100
LONGEST_TIMER_MS = 3_600_000


def monotonic_ms() -> int:
    """The clock of the batches."""
    return time.monotonic_ns() // 1_000_000


class SendLoop:
    """Sends the accumulator's batches. Call `start` first."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: Mapping[str, Any],
        accumulator: Accumulator,
        sender: Sender,
        acks: int,
    ) -> None:
        self.at_most_version = 32767
        self._cluster = cluster
        self._settings = settings
        self._accumulator = accumulator
        self._sender = sender
        self._acks = acks
        self._max_in_flight: int = settings["max.in.flight.requests.per.connection"]
        self._in_flight: dict[int, int] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._muted_until: dict[int, int] = {}
        self._extensions: dict[BrokerConnection, ProduceExtensions] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER_MS
        self._expire_at = 0
        self._weigh_at = 0
        self._landed = asyncio.Event()
        self._is_scheduled = False
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        cluster.on_update.append(self.metadata_came)

    # ---- the pass ----

    def soon(self) -> None:
        """Make the loop check what is due, once, after its current work."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Send what is due, and set the timer for the next check."""
        self._is_scheduled = False
        accumulator = self._accumulator
        accumulator.woken = accumulator.timed = False
        if self._is_closed:
            return
        now_ms = monotonic_ms()
        if now_ms >= self._weigh_at:
            self._weigh_at = now_ms + WEIGH_MS
            for name in accumulator.topic_names():
                self._choose_available(name)
        if now_ms >= self._expire_at:
            self._expire_at = now_ms + min(self._sender.expire(now_ms), 1000)
        due = self._sender.due(now_ms, self._leader)
        if due.by_leader and self._sender.state.needs_id:
            self._once("id", self._fetch_id)
            due.by_leader.clear()
        wait_ms = due.wait_ms
        for node, partitions in due.by_leader.items():
            muted_ms = self._muted_until.get(node, 0) - now_ms
            if muted_ms > 0:
                wait_ms = min(wait_ms, muted_ms)
                continue
            connection = self._connections.get(node)
            if connection is None or connection.is_lost:
                self._once(node, partial(self._connect, node))
                continue
            while self._in_flight.get(node, 0) < self._max_in_flight:
                batches = self._sender.take(partitions, now_ms)
                if not batches:
                    break
                self._send(node, connection, batches, now_ms)
        if due.leaderless:
            self._cluster.want_refresh()
            wait_ms = min(wait_ms, self._settings["retry.backoff.ms"])
        nodes = self._cluster.view.brokers
        accumulator.quiet = bool(nodes) and all(
            self._in_flight.get(node, 0) >= self._max_in_flight for node in nodes
        )
        if accumulator.incomplete:
            wait_ms = min(wait_ms, self._expire_at - now_ms)
        if wait_ms <= self._settings["linger.ms"]:
            accumulator.timed = True
        self._set_timer(now_ms, wait_ms)

    def _set_timer(self, now_ms: int, wait_ms: int) -> None:
        at = now_ms + wait_ms
        if self._timer is not None:
            if now_ms < self._timer_at <= at:
                return  # it runs early enough
            self._timer.cancel()
            self._timer = None
        if wait_ms < NEVER_MS:
            self._timer_at = at
            wait_s = min(wait_ms, LONGEST_TIMER_MS) / 1000
            self._timer = self._loop.call_later(wait_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.run()

    def _leader(self, tp: TopicPartition) -> int:
        topic = self._cluster.view.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return -1
        row = topic.partitions[tp.partition]
        if self._sender.fenced and self._sender.is_over(tp, topic.topic_id, row.leader_epoch):
            return -1
        leader = row.leader
        return leader if leader in self._cluster.view.brokers else -1

    def _once(self, key: object, work: Any) -> None:
        """Run a task unless one with the same key is running."""
        if key not in self._tasks and not self._is_closed:
            task = self._loop.create_task(work())
            self._tasks[key] = task
            task.add_done_callback(partial(self._task_ended, key))

    def _task_ended(self, key: object, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and task.exception() is not None:
            self._loop.call_exception_handler(
                {"message": f"the producer's task {key!r} failed", "exception": task.exception()}
            )
        self.soon()

    # ---- connections and the producer id ----

    async def _connect(self, node: int) -> None:
        try:
            connection = await self._cluster.connection(node)
        except KafkaError:
            self._cluster.want_refresh()
            await asyncio.sleep(self._settings["retry.backoff.ms"] / 1000)
            return
        self._connections[node] = connection
        self._extensions = {c: e for c, e in self._extensions.items() if not c.is_lost}
        versions, settings = connection.versions, self._settings
        self._extensions[connection] = ProduceExtensions(
            settings["kstore.kip253.enable"] and versions.has("kstore.kip253"),
            settings["kstore.kip359.enable"] and versions.has("kstore.kip359"),
            versions.has("kstore.kip391"),
            versions.has("kstore.kip232"),
        )

    async def _fetch_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=FOREVER_MS)

        async def ask() -> InitProducerIdResponse:
            answer = await self._cluster.ask(ANY, request)
            assert isinstance(answer, InitProducerIdResponse)
            if answer.error_code:
                self._cluster.elsewhere()
            raise_for(answer.error_code)
            return answer

        try:
            answer = await self._cluster.retrying(ask, self._settings["max.block.ms"])
        except KafkaError as error:
            if not error.retriable:
                self._sender.drop_all(error)
            return
        self._sender.state.take(answer.producer_id, answer.producer_epoch)

    # ---- requests and responses ----

    def _send(
        self, node: int, connection: BrokerConnection, batches: list[ProducerBatch], now_ms: int
    ) -> None:
        extensions = self._extensions[connection]
        if batches[0].first_offset >= 0 and not extensions.given_offsets:
            problem = UnsupportedVersionError(
                f"{connection.address} does not accept given offsets (kstore.kip391)"
            )
            self._all_failed(batches, problem, sent=False)
            return
        view = self._cluster.view
        at_most = self.at_most_version
        if any(view.topic_id(batch.topic) == ZERO_UUID for batch in batches):
            at_most = min(at_most, FIRST_BY_ID - 1)
        try:
            version = connection.versions.choose(PRODUCE, at_most=at_most)
            request = produce_request(
                batches,
                view,
                extensions,
                acks=self._acks,
                timeout_ms=self._settings["request.timeout.ms"],
                by_id=version >= FIRST_BY_ID,
                transactional_id=self._settings["transactional.id"],
            )
            future = connection.send(request, version, answered=self._acks != 0)
        except KafkaError as error:
            self._all_failed(batches, error, sent=False)
            return
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        if self._acks == 0:
            self._loop.create_task(self._written(node, connection, batches))
            return
        future.add_done_callback(partial(self._answered, node, batches, request))

    async def _written(
        self, node: int, connection: BrokerConnection, batches: list[ProducerBatch]
    ) -> None:
        """acks 0: done when the system has accepted it."""
        await connection.drain()
        self._in_flight[node] -= 1
        for batch in batches:
            if connection.is_lost:
                self._failed(batch, NetworkError(f"lost {connection.address}"), sent=True)
            else:
                self._sender.succeeded(batch, -1)
        self._progress()

    def _answered(
        self,
        node: int,
        batches: list[ProducerBatch],
        request: ProduceRequest,
        future: asyncio.Future[Message],
    ) -> None:
        self._in_flight[node] -= 1
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            lost = error if isinstance(error, KafkaError) else NetworkError(str(error))
            self._all_failed(batches, lost, sent=True)
            return
        response = future.result()
        assert isinstance(response, ProduceResponse)
        if response.throttle_time_ms > 0:
            self._muted_until[node] = monotonic_ms() + response.throttle_time_ms
        results = produce_results(response, self._cluster.view)
        for batch in batches:
            result = results.get(batch.tp)
            if result is None:
                missing = NetworkError(f"the broker's response does not include {batch.tp}")
                self._failed(batch, missing, sent=True)
            elif result.error is None:
                self._sender.succeeded(batch, result.base_offset)
            else:
                if isinstance(result.error, FencedLeaderEpochError):
                    self._note_fenced(batch.tp, request)
                self._failed(batch, result.error, sent=True)
                if result.is_redirected:
                    batch.retry_at_ms = 0  # the leader is known already
        self._progress()

    def _note_fenced(self, tp: TopicPartition, request: ProduceRequest) -> None:
        """Its epoch is outdated, whatever the current metadata says."""
        view = self._cluster.view
        topic_id = view.topic_id(tp.topic)
        for topic in request.topic_data:
            if topic.name == tp.topic or topic.topic_id == topic_id != ZERO_UUID:
                epochs = [r.current_leader_epoch for r in topic.partition_data if r.index == tp[1]]
                self._sender.fenced[tp] = (topic_id, max(epochs, default=-1))

    def _all_failed(
        self, batches: Iterable[ProducerBatch], error: KafkaError, *, sent: bool
    ) -> None:
        for batch in batches:
            self._failed(batch, error, sent=sent)
        self._progress()

    def _failed(self, batch: ProducerBatch, error: KafkaError, *, sent: bool) -> None:
        verdict = self._sender.failed(batch, error, monotonic_ms(), sent=sent)
        if verdict is Verdict.WRONG_COUNT:
            self.regroup(batch.topic)
        elif error.refresh_metadata or isinstance(error, (NetworkError, LeaderNotAvailableError)):
            self._cluster.want_refresh()

    async def landed(self) -> None:
        """Wait for the next response."""
        await self._landed.wait()

    def _progress(self) -> None:
        self._landed.set()
        self._landed = asyncio.Event()
        self._accumulator.quiet = False
        self.soon()

    # ---- metadata ----

    def metadata_came(self) -> None:
        """Update numbers of partitions; if they have increased, keys may have moved."""
        accumulator, view = self._accumulator, self._cluster.view
        for name in accumulator.topic_names():
            topic = view.topics.get(name)
            count = accumulator.partition_count(name)
            if topic is None or not topic.partitions or name in self._sender.regrouping:
                continue
            if count and topic.count != count:
                if any(extensions.partition_count for extensions in self._extensions.values()):
                    self.regroup(name)
                    continue
                accumulator.set_partitions(name, topic.count)
            self._choose_available(name)
        self.soon()

    def _choose_available(self, name: str) -> None:
        """Records without a key are sent where a leader is available, and less often where batches
        wait.
        """
        topic = self._cluster.view.topics.get(name)
        if topic is None:
            return
        rows = topic.partitions[: topic.count]
        led = [row.partition for row in rows if row.leader >= 0]
        weights = None
        if self._settings["partitioner.adaptive.partitioning.enable"]:
            backlog = self._accumulator.backlog(name)
            if len(backlog) == len(rows):
                weights = preferences(led, backlog)
        is_plain = weights is None and len(led) == len(rows)
        self._accumulator.set_choices(name, [] if is_plain else led, weights)

    def regroup(self, topic: str) -> None:
        """Partition the topic's records again when none of them is in flight (KIP-253)."""
        if topic not in self._sender.regrouping:
            self._sender.regrouping.add(topic)
            self._once(("regroup", topic), partial(self._regroup, topic))

    async def _regroup(self, topic: str) -> None:
        accumulator = self._accumulator
        old_count = accumulator.partition_count(topic)
        accumulator.set_partitions(topic, 0)
        while self._sender.is_under_way(topic):
            await self._landed.wait()
        try:
            await self._cluster.refresh([topic])
        except KafkaError:
            self._cluster.want_refresh()
        view = self._cluster.view.topics.get(topic)
        count = view.count if view is not None else old_count
        if count == old_count:  # the broker knows more than its metadata, or less than ours
            await asyncio.sleep(self._settings["retry.backoff.ms"] / 1000)
        self._sender.regroup(topic, count)
        self._progress()

    async def open_topic(self, topic: str, timeout_ms: float) -> None:
        """Wait until the topic accepts records. Raises the brokers' error about it."""
        deadline = self._loop.time() + timeout_ms / 1000
        while topic in self._sender.regrouping:
            landed = self._landed
            async with asyncio.timeout_at(deadline):
                await landed.wait()
        if self._accumulator.partition_count(topic):
            return

        async def ask() -> None:
            if topic not in self._cluster.view.topics:
                create = self._settings["kstore.auto.create.topics"]
                await self._cluster.refresh([topic], create=create)
            self._cluster.view.topic(topic)

        await self._cluster.retrying(ask, timeout_ms)
        if not self._accumulator.partition_count(topic):
            count = self._cluster.view.topic(topic).count
            self._accumulator.set_partitions(topic, count)
            self._choose_available(topic)
            self._cluster.watch_topics(self._accumulator.topic_names())

    # ---- close ----

    async def close(self) -> None:
        """Stop sending; the caller handles the remaining records."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
