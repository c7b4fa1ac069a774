"""The Persister of a broker. It finds the coordinator of a share-partition and sends requests to
it. One request can have many share-partitions of a group. If this broker is the coordinator, no
request is sent.

If the coordinator moves or is loading, this finds it again and retries for some seconds. All
requests are safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kstore.broker.runtime.coordinators.partition_writer import settle
from kstore.broker.runtime.peers.batches import PeerBatches
from kstore.broker.runtime.shares.persister import Persister
from kstore.broker.state.shares.persisted import (
    SharePartitionKey,
    ShareState,
    ShareSummary,
    ShareWrite,
    StateBatch,
)
from kstore.errors import ErrorCode, KafkaError, NetworkError, RequestTimedOutError, error_for
from kstore.protocol.shares.state import (
    DeletePartition,
    DeleteShareGroupStateRequest,
    DeleteTopic,
    InitializePartition,
    InitializeShareGroupStateRequest,
    InitializeTopic,
    PartitionResult,
    ReadPartition,
    ReadResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadTopic,
    StateBatchRow,
    SummaryResult,
    WritePartition,
    WriteShareGroupStateRequest,
    WriteTopic,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator
    from kstore.protocol.schema import Struct

__all__ = ["CoordinatorPersister"]

T = TypeVar("T")
TIMEOUT_S = 10.0
"""The timeout of one request."""
PATIENCE_S = 15.0
"""The time for all attempts: about as long as Kafka's five attempts take."""
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class _Kind(NamedTuple):
    """A kind of request: its message, and the structure of a topic in it."""

    request: type[Any]
    topic: type[Any]


INITIALIZE = _Kind(InitializeShareGroupStateRequest, InitializeTopic)
READ = _Kind(ReadShareGroupStateRequest, ReadTopic)
WRITE = _Kind(WriteShareGroupStateRequest, WriteTopic)
DELETE = _Kind(DeleteShareGroupStateRequest, DeleteTopic)
SUMMARY = _Kind(ReadShareGroupStateSummaryRequest, ReadTopic)


class _StateRequest(NamedTuple):
    """One share-partition, and its row of a request."""

    key: SharePartitionKey
    row: Struct


Batches = PeerBatches[_StateRequest, Any]


class CoordinatorPersister(Persister):
    """The Persister that sends requests to coordinators. See persister.py."""

    def __init__(self, node: Node, coordinator: Lazy[ShareCoordinator], peers: Lazy[Peers]) -> None:
        self._node = node
        self._coordinator = coordinator
        self._peers = peers
        self._batches: dict[tuple[_Kind, str], Batches] = {}
        self._asking: Counter[tuple[_Kind, str]] = Counter()

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """See Persister."""
        row = InitializePartition(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        await self._ask(
            INITIALIZE,
            _StateRequest(key, row),
            lambda here: here.initialize(key, state_epoch, start_offset),
            _nothing,
        )

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """See Persister."""
        row = ReadPartition(partition=key.partition, leader_epoch=leader_epoch)
        return await self._ask(
            READ, _StateRequest(key, row), lambda here: here.read(key, leader_epoch), _state_of
        )

    async def write(self, key: SharePartitionKey, change: ShareWrite) -> None:
        """See Persister."""
        row = WritePartition(
            partition=key.partition,
            state_epoch=change.state_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=[StateBatchRow(**batch._asdict()) for batch in change.batches],
        )
        await self._ask(
            WRITE, _StateRequest(key, row), lambda here: here.write(key, change), _nothing
        )

    def begin_write(self, key: SharePartitionKey, change: ShareWrite) -> Awaitable[None] | None:
        """See Persister. If this broker is the coordinator and its log accepts the record at once,
        this needs no task and no turn of the loop.
        """
        try:
            future = self._coordinator().begin_write(key, change)
        except KafkaError:  # it is on another broker, or is loading
            return self.write(key, change)
        return None if future is None else self._settled(future, key, change)

    async def _settled(
        self, future: asyncio.Future[int], key: SharePartitionKey, change: ShareWrite
    ) -> None:
        try:
            await settle(future, TIMEOUT_S)
        except KafkaError as error:
            if not _asks_again(error):
                raise
            await self.write(key, change)

    async def delete(self, key: SharePartitionKey) -> None:
        """See Persister."""
        row = DeletePartition(partition=key.partition)
        await self._ask(DELETE, _StateRequest(key, row), lambda here: here.delete(key), _nothing)

    async def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareSummary:
        """See Persister."""
        row = ReadPartition(partition=key.partition, leader_epoch=leader_epoch)
        return await self._ask(
            SUMMARY,
            _StateRequest(key, row),
            lambda here: here.read_summary(key, leader_epoch),
            _summary_of,
        )

    async def close(self) -> None:
        """Stop sending requests."""
        for batches in list(self._batches.values()):
            await batches.close()

    async def _ask(
        self,
        kind: _Kind,
        request: _StateRequest,
        here: Callable[[ShareCoordinator], Awaitable[T]],
        result_of: Callable[[Any], T],
    ) -> T:
        """The coordinator's answer, on whichever broker it is. Raises KafkaError."""
        deadline = self._node.loop.time() + PATIENCE_S
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                coordinator = self._coordinator()
                node_id = await coordinator.leader_of(str(request.key))
                if node_id == self._node.node_id:
                    return await here(coordinator)
                answer = await self._ask_peer(node_id, kind, request)
                if answer.error_code == ErrorCode.NONE:
                    return result_of(answer)
                raise error_for(answer.error_code, answer.error_message)
            except KafkaError as error:
                if not _asks_again(error) or self._node.loop.time() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _ask_peer(self, node_id: int, kind: _Kind, request: _StateRequest) -> Any:
        """The row of a broker's response. Each request has one group and one kind of row."""
        place = (kind, request.key.group_id)
        batches = self._batches.get(place)
        if batches is None:
            batches = self._batches[place] = Batches(
                self._node.loop,
                self._peers,
                lambda requests: _request(kind, requests),
                _answers,
                TIMEOUT_S,
            )
        self._asking[place] += 1
        try:
            return await batches.ask(node_id, request)
        finally:
            self._asking[place] -= 1
            if not self._asking[place]:
                del self._asking[place]
                del self._batches[place]


def _asks_again(error: KafkaError) -> bool:
    """Whether to try again: the coordinator has moved, or has not answered."""
    return error.code in AGAIN or isinstance(error, NetworkError | RequestTimedOutError)


def _request(kind: _Kind, requests: Sequence[_StateRequest]) -> Any:
    """One request for all rows, in their order: a topic may be in it more than once."""
    request = kind.request(group_id=requests[0].key.group_id)
    topic_id = None
    for key, row in requests:
        if key.topic_id != topic_id:
            topic_id = key.topic_id
            request.topics.append(kind.topic(topic_id=topic_id))
        request.topics[-1].partitions.append(row)
    return request


def _answers(response: Any) -> list[PartitionResult | ReadResult | SummaryResult]:
    return [row for topic in response.results for row in topic.partitions]


def _nothing(row: PartitionResult) -> None:
    """The result of a row without data."""


def _state_of(row: ReadResult) -> ShareState:
    batches = tuple(
        StateBatch(item.first_offset, item.last_offset, item.delivery_state, item.delivery_count)
        for item in row.state_batches
    )
    return ShareState(row.state_epoch, row.start_offset, batches)


def _summary_of(row: SummaryResult) -> ShareSummary:
    return ShareSummary(
        row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count
    )
