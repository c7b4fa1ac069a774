"""Fetches records for the consumer in advance: one request per leader at a time. Responses go to
the inbox.

core/consumer/fetch_plan.py decides what to fetch and interprets responses. Nothing here waits: a
request is sent as soon as a broker without one has something to fetch, and its response triggers
the next.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from kstore._fast.clients.fetched import FetchedRecords
from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.consumer.fetch_plan import (
    FetchLimits,
    FetchPlan,
    Outcome,
    RequestedPartition,
)
from kstore.clients.core.consumer.fetch_session import FetchSession, Wanted
from kstore.clients.core.consumer.inbox import Failure, Inbox, OnTruncation
from kstore.clients.core.consumer.positions import parse_reset
from kstore.clients.core.consumer.subscription import SubscriptionState
from kstore.clients.core.metadata import Broker
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.connection import BrokerConnection
from kstore.errors import InvalidPartitionEpochError, KafkaError, error_for
from kstore.protocol.logs.fetch import FetchRequest, FetchResponse
from kstore.protocol.schema import Message
from kstore.types import TopicPartition

__all__ = ["Fetcher"]

_log = logging.getLogger("kstore.clients.consumer")
TOPIC_IDS = 13
LANE = "fetch"
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class _Node:
    """A broker that is fetched from."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session = FetchSession()
        self.connection: BrokerConnection | None = None
        self.is_busy = False
        self.failures = 0
        self.requested: dict[TopicPartition, RequestedPartition] = {}
        self.by_id = False
        self.names: dict[Any, str] = {}


class Fetcher:
    """Call `kick` when anything has changed; `arrived` is called when the inbox has more, `place`
    when positions must be looked up. All on the loop, except `taken`.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: Mapping[str, Any],
        subscription: SubscriptionState,
        *,
        arrived: Callable[[], None],
        place: Callable[[], None],
        on_truncation: OnTruncation,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._arrived = arrived
        self._place = place
        self.inbox = Inbox(self.taken, on_truncation)
        self.plan = FetchPlan(
            subscription,
            _limits(settings),
            reset=parse_reset(settings["auto.offset.reset"]),
            read_committed=settings["isolation.level"] == "read_committed",
            check_crcs=settings["check.crcs"],
            replica_max_age_ms=settings["metadata.max.age.ms"],
            uses_partition_epochs=settings["kstore.kip232.enable"],
        )
        self._nodes: dict[int, _Node] = {}
        self._loop = asyncio.get_running_loop()
        self._is_kicked = False
        self._is_held = False
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake: asyncio.TimerHandle | None = None

    # ---- requests ----

    def kick(self) -> None:
        """Check soon what can be fetched."""
        if not (self._is_kicked or self._is_closed):
            self._is_kicked = True
            self._loop.call_soon(self._ask)

    def taken(self, item: FetchedRecords | Failure | None) -> None:
        """The user has finished with something, or (None) has paused it; called in the user's
        thread.
        """
        if isinstance(item, Failure):
            for row in (item.owner, *item.others):
                if row is not None:
                    self.plan.raised(row)
        else:
            if item is not None:
                self.plan.taken(item)
            if not self._is_held:
                return
        try:
            self._loop.call_soon_threadsafe(self.kick)
        except RuntimeError:  # the loop is closed: nothing is fetched any more
            return

    def _ask(self) -> None:
        self._is_kicked = False
        if self._is_closed:
            return
        self._is_held = True  # until it is known: what is taken meanwhile counts
        busy = [node.node_id for node in self._nodes.values() if node.is_busy]
        now_ms = self._loop.time() * 1000
        found = self.plan.next_round(self._cluster.view, busy, self.inbox.waiting_bytes, now_ms)
        self._is_held = found.is_held
        if found.unknown:
            self._cluster.want_refresh()
        if found.wake_ms is not None:
            self._wake_at(found.wake_ms / 1000)
        for node_id, wanted in found.requests.items():
            node = self._nodes.get(node_id)
            if node is None:
                node = self._nodes[node_id] = _Node(node_id)
            node.is_busy = True
            if node.connection is None or node.connection.is_lost:
                self._run(self._connect(node))
                continue
            try:
                self._send(node, node.connection, wanted)
            except KafkaError as error:  # the broker has no version of Fetch that we support
                self._refused(node, error)

    def _wake_at(self, when: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._loop.call_at(when, self.kick)

    def _run(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, node: _Node) -> None:
        try:
            node.connection = await self._cluster.connection(node.node_id, lane=LANE)
        except KafkaError as error:
            if not error.retriable:
                self.inbox.fail(Failure(error))
                self._arrived()
            await self._pause(node)
            self._cluster.want_refresh()
        finally:
            node.is_busy = False
        self.kick()

    async def _pause(self, node: _Node) -> None:
        node.failures += 1
        await asyncio.sleep(self._pause_ms(node.failures) / 1000)

    def _pause_ms(self, failures: int) -> float:
        return pause_ms(
            failures,
            self._settings["retry.backoff.ms"],
            self._settings["retry.backoff.max.ms"],
            random.random(),
        )

    def _send(
        self, node: _Node, connection: BrokerConnection, wanted: dict[TopicPartition, Wanted]
    ) -> None:
        settings = self._settings
        version = connection.versions.choose(FetchRequest.API_KEY)
        request = FetchRequest(
            max_wait_ms=settings["fetch.max.wait.ms"],
            min_bytes=settings["fetch.min.bytes"],
            max_bytes=settings["fetch.max.bytes"],
            isolation_level=ISOLATION_LEVELS[settings["isolation.level"]],
            rack_id=settings["client.rack"],
        )
        node.by_id = version >= TOPIC_IDS
        if node.by_id:
            node.names = {row.topic_id: tp.topic for tp, row in wanted.items()}
        node.session.fill(request, wanted, by_id=node.by_id)
        node.requested = self.plan.ask(node.node_id, wanted)
        future = connection.send(request, version, extra_wait_ms=request.max_wait_ms)
        future.add_done_callback(partial(self._answered, node))

    # ---- responses ----

    def _answered(self, node: _Node, future: asyncio.Future[Message]) -> None:
        node.is_busy = False
        if self._is_closed or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._failed(node)
            return
        response = cast(FetchResponse, future.result())
        if not node.session.answered(response):
            self.plan.failed(node.requested)
            self.kick()
            return
        if response.error_code:
            self._refused(node, error_for(response.error_code))
            return
        node.failures = 0
        for endpoint in response.node_endpoints:
            self._cluster.view.update_broker(
                Broker(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            )
        try:
            self._take(node, response)
        except Exception as problem:  # noqa: BLE001 - a defect: poll() raises it
            self.plan.failed(node.requested)
            self.inbox.fail(Failure(problem))
            self._arrived()
        self.kick()

    def _take(self, node: _Node, response: FetchResponse) -> None:
        now_ms = self._loop.time() * 1000
        view = self._cluster.view
        requested, node.requested = node.requested, {}
        other_lives: dict[
            TopicPartition, tuple[RequestedPartition, InvalidPartitionEpochError]
        ] = {}
        arrived = False
        for topic in response.responses:
            name = topic.topic or node.names.get(topic.topic_id, "")
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                row = requested.pop(tp, None)
                if row is None:
                    continue
                outcome = self.plan.answered(row, data, view, now_ms)
                if isinstance(outcome.error, InvalidPartitionEpochError):
                    other_lives[tp] = row, outcome.error
                elif outcome.error is not None or outcome.records is not None:
                    self._put(row, outcome)
                    arrived = True
                self._follow_up(row, outcome, now_ms)
        if other_lives:
            self._report_other_lives(other_lives)
            arrived = True
        if arrived:
            self._arrived()

    def _put(self, requested: RequestedPartition, outcome: Outcome) -> None:
        if outcome.records is not None:
            self.inbox.put(outcome.records)
        if outcome.error is not None:
            row = requested.progress.row
            self.plan.block(row)
            self.inbox.fail(Failure(outcome.error, row))

    def _report_other_lives(
        self, found: dict[TopicPartition, tuple[RequestedPartition, InvalidPartitionEpochError]]
    ) -> None:
        """KIP-232: one error for all partitions of the response."""
        epochs = {tp: error.partition_epochs[tp] for tp, (_, error) in found.items()}
        rows = [requested.progress.row for requested, _ in found.values()]
        for row in rows:
            self.plan.block(row)
        self.inbox.fail(Failure(InvalidPartitionEpochError(epochs), rows[0], rows[1:]))

    def _follow_up(self, requested: RequestedPartition, outcome: Outcome, now_ms: float) -> None:
        if outcome.refresh:
            self._cluster.want_refresh()
        if outcome.pause:
            requested.progress.pause_until_ms = now_ms + self._pause_ms(1)
        if outcome.jump:
            reset = self._settings["auto.offset.reset"]
            _log.warning("%s; it continues by auto.offset.reset=%s", outcome.jump, reset)
        if outcome.place:
            self._place()

    def _refused(self, node: _Node, error: KafkaError) -> None:
        """A top-level error that is not about the session."""
        self.plan.failed(node.requested)
        if not error.retriable:
            self.inbox.fail(Failure(error))
            self._arrived()
        node.is_busy = True
        self._run(self._again(node))

    def _failed(self, node: _Node) -> None:
        """The connection is lost."""
        node.session.failed()
        self.plan.failed(node.requested)
        node.is_busy = True
        self._run(self._again(node))

    async def _again(self, node: _Node) -> None:
        self._cluster.want_refresh()
        try:
            await self._pause(node)
        finally:
            node.is_busy = False
        self.kick()

    # ---- close ----

    async def close(self) -> None:
        """Stop fetching, and close the brokers' sessions without waiting for it."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        if self._wake is not None:
            self._wake.cancel()
        for node in self._nodes.values():
            connection = node.connection
            if connection is not None and not connection.is_lost and node.session.is_open:
                request = FetchRequest(max_wait_ms=0)
                node.session.fill_last(request)
                connection.send(request, connection.versions.choose(FetchRequest.API_KEY))


def _limits(settings: Mapping[str, Any]) -> FetchLimits:
    partition_bytes = settings["max.partition.fetch.bytes"]
    waiting_bytes = settings["kstore.fetch.ahead.bytes"]
    if waiting_bytes < 0:
        waiting_bytes = settings["fetch.max.bytes"]
    return FetchLimits(partition_bytes, max(2 * partition_bytes, 1), max(waiting_bytes, 1))
