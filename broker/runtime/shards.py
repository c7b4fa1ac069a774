"""Runs the group shards: one per partition of __consumer_offsets, loaded from its log, driven by
requests and timers.

The decisions are broker/state's. Here a decision's records are appended, then it is taken over,
then its answers go out, in one turn of the loop, so that no two decisions are made on the same
state.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from kstore._fast.builder import build_batch
from kstore._fast.records import Record
from kstore.broker.runtime.coordinator_log import (
    TURN_SECONDS,
    append,
    log_of,
    partition_of,
    read_records,
)
from kstore.broker.runtime.timers import TimerTable
from kstore.broker.runtime.topics import OFFSETS_TOPIC, offsets_topic_configs
from kstore.broker.state.group_result import (
    GroupContext,
    GroupRecord,
    GroupSettings,
    Result,
    TimerEvent,
    TimerKey,
    Token,
)
from kstore.broker.state.group_shard import GroupShard
from kstore.broker.state.topic_rules import NewTopic, TopicError
from kstore.errors import ErrorCode, error_for
from kstore.protocol.log_records import (
    RECORD_TYPES,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker
    from kstore.log import Log
    from kstore.protocol.schema import Message

__all__ = [
    "OFFSETS_TOPIC",
    "Asker",
    "GroupCoordinator",
    "GroupPartition",
    "coordinator_of",
    "partition_of",
]

LOGGER = logging.getLogger(__name__)
ANSWERS_PER_TURN = 32
RETRY_MS = 1000
"""When a timer's records can't be appended, it fires again after so long."""
INT16 = Struct(">h")
MARKER_TYPE = Struct(">hh")
ABORT, COMMIT = 0, 1
LOAD_WAIT_SECONDS = 1.0
"""How long a client that looks for its coordinator may be kept waiting for the groups to load."""


class Asker(Protocol):
    """What a shard is told of who asks; an API handler's context has it."""

    @property
    def api_version(self) -> int:
        """The request's version."""

    @property
    def client_id(self) -> str | None:
        """What the client calls itself."""

    @property
    def client_host(self) -> str:
        """Where it is."""


class GroupPartition:
    """One partition of __consumer_offsets: its log, its shard, its timers, its parked requests."""

    def __init__(self, coordinator: GroupCoordinator, index: int) -> None:
        self._coordinator = coordinator
        self._place = TopicPartition(OFFSETS_TOPIC, index)
        self.shard = GroupShard(coordinator.settings)
        self.error_code: int = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """NONE once it is loaded; what to answer until then, or after a failure."""
        self._timers: TimerTable[TimerKey, TimerEvent] = TimerTable(
            coordinator.loop, self._timer_fired
        )

    @property
    def log(self) -> Log:
        """The partition's log; KafkaError if this broker does not have it."""
        return log_of(self._coordinator.broker, self._place)

    async def load(self) -> None:
        """Replay the log and start the members' sessions; a bad record makes it unavailable."""
        from kstore.log.errors import LogError

        try:
            await self._replay_log()
        except (ValueError, LogError) as error:
            self.error_code = ErrorCode.NOT_COORDINATOR
            LOGGER.error("the groups of %s can't be loaded: %s", self._place, error)
            return
        self.error_code = ErrorCode.NONE
        for result in self.shard.loaded(self._coordinator.context()):
            self._take(result)

    async def _replay_log(self) -> None:
        async for record in read_records(self.log):
            self._replay(record)

    def _replay(self, record: Record) -> None:
        key_bytes = record.key
        batch = record.batch
        if key_bytes is None:
            return
        if batch.is_control:
            _, kind = MARKER_TYPE.unpack_from(key_bytes)
            if kind in (ABORT, COMMIT):
                committed = kind == COMMIT
                self.shard.replay_transaction_end(batch.producer_id, committed=committed)
            return
        (record_type,) = INT16.unpack_from(key_bytes)
        if record_type not in RECORD_TYPES:
            return  # of a group protocol that is not served
        key = decode_key(key_bytes)
        value_bytes = record.value
        replayed = GroupRecord(key, None)
        if value_bytes is not None:
            replayed = GroupRecord(key, *decode_value(key, value_bytes))
        producer_id = batch.producer_id if batch.is_transactional else -1
        self.shard.replay(replayed, record_offset=record.offset, producer_id=producer_id)

    async def handle(self, request: Message, asked: Asker) -> Message:
        """Decide, append, and answer, at once or when the group is ready to. KafkaError if it
        can't.
        """
        if self.error_code != ErrorCode.NONE:
            raise error_for(self.error_code)
        parked: asyncio.Future[Message] = self._coordinator.loop.create_future()
        result = self.shard.handle(request, self._coordinator.context(parked, asked))
        self._take(result)
        return result.response if result.response is not None else await parked

    def expire_offsets(self) -> None:
        """Delete what is past its retention."""
        if self.error_code == ErrorCode.NONE:
            self._take(self.shard.expire_offsets(self._coordinator.now_ms()))

    def forget_topic(self, name: str) -> None:
        """Delete all offsets of a deleted topic."""
        if self.error_code == ErrorCode.NONE:
            self._take(self.shard.forget_topic(name))

    def close(self) -> None:
        """Stop the timers and tell everybody parked to look for another coordinator."""
        self._timers.clear()
        self.error_code = ErrorCode.NOT_COORDINATOR
        for token, response in self.shard.unloaded():
            _answer(token, response)

    def _timer_fired(self, event: TimerEvent) -> None:
        result = self.shard.expire(event, self._coordinator.context())
        try:
            self._take(result)
        except Exception:
            LOGGER.exception("%s: %r is tried again in %d ms", self._place, event, RETRY_MS)
            self._timers.set(("retry", repr(event)), RETRY_MS, event)

    def _take(self, result: Result) -> None:
        """Append the records, take the decision over, set its timers, give its answers."""
        base_offset = self._append(result) if result.records else -1
        self.shard.commit(result, base_offset)
        for change in result.timers:
            if change.event is None:
                self._timers.cancel(change.key)
            elif not (change.only_if_absent and change.key in self._timers):
                self._timers.set(change.key, change.delay_ms, change.event)
        self._answer_some(result.completions)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """A marker was appended; while the log is being read, the marker will be read too."""
        if self.error_code == ErrorCode.NONE:
            self.shard.replay_transaction_end(producer_id, committed=committed)

    def _append(self, result: Result) -> int:
        now_ms = self._coordinator.now_ms()
        producer_id, producer_epoch = result.producer or (-1, -1)
        batch = build_batch(
            [
                (
                    encode_key(item.key),
                    None if item.value is None else encode_value(item.value, item.value_version),
                )
                for item in result.records
            ],
            timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=-1 if result.producer is None else 0,
            transactional=result.producer is not None,
        )
        return self._coordinator.append(self._place, batch)

    def _answer_some(self, completions: tuple[tuple[Token, Message], ...]) -> None:
        """A big group's answers are spread over turns of the loop."""
        for token, response in completions[:ANSWERS_PER_TURN]:
            _answer(token, response)
        if len(completions) > ANSWERS_PER_TURN:
            rest = completions[ANSWERS_PER_TURN:]
            self._coordinator.loop.call_soon(self._answer_some, rest)


class GroupCoordinator:
    """All group partitions of this broker, and what is common to them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        self.settings = _settings(broker.config)
        self.internal_topics: Any = None
        """Who makes topics for streams groups (runtime/internal_topics.py), once one needs any."""
        self._partitions: list[GroupPartition] = []
        self._loading: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to load the groups, if there are any; requests are told to wait until theirs are
        in.
        """
        topic = self.broker.image.topics.get(OFFSETS_TOPIC)
        if topic is not None and not self._partitions:
            self._partitions = [GroupPartition(self, i) for i in range(len(topic.partitions))]
            self._loading = self.loop.create_task(self._load())
            self._schedule_expiry()

    async def _load(self) -> None:
        for partition in sorted(self._partitions, key=lambda item: item.log.size_bytes):
            await partition.load()

    async def close(self) -> None:
        """Stop loading and timers; answer everybody parked."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        for partition in self._partitions:
            partition.close()
        self._partitions = []

    async def ensure(self) -> None:
        """Make __consumer_offsets if it is missing, and wait for new partitions to be ready;
        TopicError.
        """
        if self._partitions:
            return
        config = self.broker.config
        await self.broker.topics.ensure(
            NewTopic(
                OFFSETS_TOPIC,
                config["offsets.topic.num.partitions"],
                config["offsets.topic.replication.factor"],
                configs=offsets_topic_configs(config),
            )
        )
        self.start()
        await self.wait_loaded()

    async def wait_loaded(self) -> None:
        """Wait a moment for loading to end; requests of what is not loaded by then are refused."""
        if self._loading is not None and not self._loading.done():
            await asyncio.wait({self._loading}, timeout=LOAD_WAIT_SECONDS)

    async def handle(self, group_id: str, request: Message, ctx: Asker) -> Message:
        """Let the group's shard answer; KafkaError where it can't, in Kafka's terms."""
        partition = await self.partition(group_id)
        return await partition.handle(request, ctx)

    async def partition(self, group_id: str) -> GroupPartition:
        """The partition that keeps a group, made if none exists yet; KafkaError."""
        try:
            await self.ensure()
        except TopicError as error:
            LOGGER.error("%s can't be made: %s", OFFSETS_TOPIC, error)
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        return self._partitions[partition_of(group_id, len(self._partitions))]

    async def loaded_partition(self, group_id: str) -> GroupPartition:
        """As `partition`, but KafkaError until it is loaded."""
        partition = await self.partition(group_id)
        if partition.error_code != ErrorCode.NONE:
            raise error_for(partition.error_code)
        return partition

    @property
    def partitions(self) -> list[GroupPartition]:
        """All partitions; none if nobody has used a group yet."""
        return self._partitions

    async def forget_topic(self, name: str) -> None:
        """A topic was deleted: no group has offsets in it any more."""
        await self.wait_loaded()
        for partition in self._partitions:
            partition.forget_topic(name)

    def transaction_ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """A transaction's marker was appended to a partition of __consumer_offsets."""
        if index < len(self._partitions):
            self._partitions[index].transaction_ended(producer_id, committed=committed)

    def append(self, place: TopicPartition, batch: bytes) -> int:
        """Append to a partition's log and return the base offset; KafkaError in the coordinator's
        terms.
        """
        return append(self.broker, place, batch)

    def now_ms(self) -> int:
        """Wall time."""
        return self.broker.now_ms()

    def context(self, token: Token = None, asked: Asker | None = None) -> GroupContext:
        """What a shard may know of the world."""
        return GroupContext(
            now_ms=self.now_ms(),
            new_id=self._new_id,
            token=token,
            api_version=asked.api_version if asked is not None else 0,
            client_id=(asked.client_id or "") if asked is not None else "",
            client_host=f"/{asked.client_host}" if asked is not None else "",
            image=self.broker.image,
            group_config=self._group_config,
        )

    def _group_config(self, group_id: str, name: str) -> Any:
        return self.broker.configs.group(group_id)[name]

    def _new_id(self) -> str:
        return str(uuid4())

    def _schedule_expiry(self) -> None:
        interval_ms = self.broker.config["offsets.retention.check.interval.ms"]
        self._expiry = self.loop.call_later(interval_ms / 1000, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiry()
        for delay, partition in enumerate(self._partitions):
            self.loop.call_later(delay * TURN_SECONDS, partition.expire_offsets)


def coordinator_of(broker: Broker) -> GroupCoordinator:
    """The broker's coordinator; the first call makes it and begins to load the groups."""
    if broker.groups is None:
        broker.groups = GroupCoordinator(broker)
        broker.groups.start()
    coordinator: GroupCoordinator = broker.groups
    return coordinator


def _answer(token: Token, response: Message) -> None:
    assert isinstance(token, asyncio.Future)
    if not token.done():  # its connection may be gone
        token.set_result(response)


def _settings(config: Any) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        streams_max_size=config["group.streams.max.size"],
        consumer_max_size=config["group.consumer.max.size"],
        consumer_assignors=tuple(config["group.consumer.assignors"]),
        consumer_migration_policy=config["group.consumer.migration.policy"].lower(),
        consumer_regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
        check_invariants=config["kstore.check.invariants"],
    )
