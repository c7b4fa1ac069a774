"""Runs the group shards: one per partition of __consumer_offsets, loaded from its log, driven by
requests and timers.

The decisions are broker/state's. Here a decision's records are appended, then it is taken over, in
one turn of the loop, so that no two decisions are made on the same state. Then its answers go out:
at once, or, where followers have to have the records, once they do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from struct import Struct
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from kstore._fast.record.builder import build_batch, build_single_batch
from kstore._fast.record.records import Record
from kstore.broker.runtime.coordinators.partition_writer import refusal_of, settle
from kstore.broker.runtime.coordinators.partitions import TURN_SECONDS, read_records
from kstore.broker.runtime.coordinators.runtime import Coordinator, CoordinatorPartition
from kstore.broker.runtime.groups.regex_rights import RegexRights
from kstore.broker.runtime.groups.topic_matches import TopicMatches
from kstore.broker.runtime.timers import TimerTable
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC, offsets_topic_configs
from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard, group_id_of
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result, Token
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.groups.timers import RegexesDue, TimerEvent, TimerKey
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.coordinator_records.framing import (
    RECORD_TYPES,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.runtime.groups.expansion_gates import ExpansionGates
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.topic_rules import NewTopic
    from kstore.broker.state.security.authorizer import Authorizer
    from kstore.config import BrokerConfig
    from kstore.protocol.schema import Message

__all__ = [
    "OFFSETS_TOPIC",
    "Asker",
    "GroupCoordinator",
    "GroupPartition",
]

T = TypeVar("T")
LOGGER = logging.getLogger(__name__)
ANSWERS_PER_TURN = 32
RETRY_MS = 1000
"""When a timer's records can't be appended, it fires again after so long."""
INT16 = Struct(">h")
MARKER_TYPE = Struct(">hh")
ABORT, COMMIT = 0, 1


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


class GroupPartition(CoordinatorPartition):
    """One partition of __consumer_offsets: its log, its shard, its timers, its parked requests."""

    def __init__(self, coordinator: GroupCoordinator, place: TopicPartition) -> None:
        super().__init__(coordinator.topic, coordinator.writer, place)
        self._coordinator = coordinator
        self.shard = GroupShard(coordinator.settings)
        self._timers: TimerTable[TimerKey, TimerEvent] = TimerTable(
            coordinator.loop, self._timer_fired
        )

    def loaded(self) -> None:
        """Start the members' sessions."""
        self.shard.check()
        for group_id in list(self.shard.groups):
            result = self.shard.resume(group_id, self._coordinator.context(group_id))
            try:
                self._take(result)
            except KafkaError as error:
                LOGGER.error("%s: a group can't go on where it was: %s", self.place, error)

    async def replay_log(self) -> None:
        """Take over every record of the log."""
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

    def answer(self, request: Message, asked: Asker) -> Message | Awaitable[Message]:
        """Decide and append. The answer, or what to wait for: the group to be ready, or followers
        and disk to have what it rests on. KafkaError if it can't.
        """
        self.check()
        parked: asyncio.Future[Message] = self._coordinator.loop.create_future()
        group_id, new_id = group_id_of(request), ""
        if not getattr(request, "member_id", None):
            new_id = str(uuid4())
        context = self._coordinator.context(group_id, parked, asked, new_id)
        result = self.shard.handle(request, context)
        self._take(result)
        if result.response is None:
            return parked
        told = self.writer.to_be_committed(self.place)
        return result.response if told is None else self._settled(told, result.response)

    async def _settled(self, told: asyncio.Future[int], response: Message) -> Message:
        await settle(told, self._coordinator.commit_timeout_s)
        return response

    async def settled(self) -> None:
        """Wait until what was decided so far can't be lost any more; KafkaError if it may be."""
        told = self.writer.to_be_committed(self.place)
        if told is not None:
            await settle(told, self._coordinator.commit_timeout_s)

    def expire_offsets(self) -> None:
        """Delete what is past its retention."""
        if self.error_code == ErrorCode.NONE:
            result = self.shard.expire_offsets(self._coordinator.now_ms())
            if result.records:
                self._take(result)

    def forget_topic(self, name: str) -> None:
        """Delete all offsets of a deleted topic."""
        if self.error_code == ErrorCode.NONE:
            result = self.shard.forget_topic(name)
            if result.records:
                self._take(result)

    def close(self) -> None:
        """Stop the timers and tell everybody parked to look for another coordinator."""
        super().close()
        self._timers.clear()
        for token, response in self.shard.unloaded():
            _answer(token, response)

    def _timer_fired(self, event: TimerEvent) -> None:
        key = self._timers.fired
        assert key is not None
        if isinstance(event, RegexesDue) and self._unmatched(event):
            self._coordinator.spawn(self._match(key, event))
        else:
            self._expire(key, event)

    def _unmatched(self, event: RegexesDue) -> set[str]:
        """A group's regular expressions that were not yet matched with the topics."""
        regexes = self.shard.subscribed_regexes(event.group_id)
        return self._coordinator.topic_matches.lacks(regexes)

    async def _match(self, key: TimerKey, event: RegexesDue) -> None:
        """Match what is new in slices, each expression once, then go on."""
        tried: set[str] = set()
        while self.error_code == ErrorCode.NONE and (left := self._unmatched(event) - tried):
            tried |= left
            await self._coordinator.topic_matches.prepare(left, self.topic.image)
        if self.error_code == ErrorCode.NONE:
            self._expire(key, event)

    def _expire(self, key: TimerKey, event: TimerEvent) -> None:
        context = self._coordinator.context(event.group_id)
        if isinstance(event, RegexesDue):
            regexes = self.shard.subscribed_regexes(event.group_id)
            context = context._replace(found=self._coordinator.found(event.group_id, regexes))
        result = self.shard.expire(event, context)
        try:
            self._take(result)
        except Exception:
            LOGGER.exception("%s: %r is tried again in %d ms", self.place, event, RETRY_MS)
            # Under its own key: what sets the timer anew, as a heartbeat does, takes it back.
            self._timers.set(key, RETRY_MS, event)

    def _take(self, result: Result) -> None:
        """Append the records, take the decision over, set its timers, give its answers."""
        base_offset = self._append(result) if result.records else -1
        self.shard.commit(result, base_offset)
        for change in result.timers:
            if change.event is None:
                self._timers.cancel(change.key)
            elif not (change.only_if_absent and change.key in self._timers):
                self._timers.set(change.key, change.delay_ms, change.event)
        if result.completions:
            told = self.writer.to_be_committed(self.place)
            if told is None:
                self._answer_some(result.completions)
            else:
                self._answer_when(told, result.completions)

    def _answer_when(
        self, told: asyncio.Future[int], completions: tuple[tuple[Token, Message], ...]
    ) -> None:
        """Answer once the followers have what the answers rest on, or tell why not."""

        def give_up() -> None:
            if not told.done():
                told.set_result(ErrorCode.REQUEST_TIMED_OUT)

        def answer(_: asyncio.Future[int]) -> None:
            timer.cancel()
            problem = refusal_of(told.result())
            if problem is None:
                self._answer_some(completions)
                return
            for token, _response in completions:
                _refuse(token, problem)

        timer = self._coordinator.loop.call_later(self._coordinator.commit_timeout_s, give_up)
        told.add_done_callback(answer)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """A marker was appended; while the log is being read, the marker will be read too."""
        if self.error_code == ErrorCode.NONE:
            self.shard.replay_transaction_end(producer_id, committed=committed)

    def _append(self, result: Result) -> int:
        now_ms = self._coordinator.now_ms()
        records = [
            (
                encode_key(item.key),
                None if item.value is None else encode_value(item.value, item.value_version),
            )
            for item in result.records
        ]
        if len(records) == 1 and result.producer is None:
            ((key, value),) = records
            batch = build_single_batch(value, key, timestamp=now_ms)
        else:
            producer_id, producer_epoch = result.producer or (-1, -1)
            batch = build_batch(
                records,
                timestamp=now_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=-1 if result.producer is None else 0,
                transactional=result.producer is not None,
            )
        self.check()  # not if it was given up, and is led anew meanwhile
        return self.writer.append(self.place, batch)

    def _answer_some(self, completions: tuple[tuple[Token, Message], ...]) -> None:
        """A big group's answers are spread over turns of the loop."""
        for token, response in completions[:ANSWERS_PER_TURN]:
            _answer(token, response)
        if len(completions) > ANSWERS_PER_TURN:
            rest = completions[ANSWERS_PER_TURN:]
            self._coordinator.loop.call_soon(self._answer_some, rest)


class GroupCoordinator(Coordinator[GroupPartition]):
    """All group partitions of this broker, and what is common to them."""

    def __init__(
        self,
        node: Node,
        topic: CoordinatorTopic,
        writer: PartitionWriter,
        configs: DynamicConfigs,
        gates: Lazy[ExpansionGates],
        authorizer: Authorizer | None,
    ) -> None:
        super().__init__(topic, writer, lambda place: GroupPartition(self, place))
        self.settings = _settings(node.config)
        self.commit_timeout_s: float = node.config["offsets.commit.timeout.ms"] / 1000
        """How long an answer waits for the followers."""
        self.regex_rights = RegexRights(authorizer)
        self.topic_matches = TopicMatches()
        self._node = node
        self._configs = configs
        self._gates = gates
        """What holds partitions back, once a topic wants that."""
        self._line = asyncio.Lock()
        self._in_line = 0
        """Requests that are not decided on yet: what comes behind them must not overtake them."""
        self._expiry: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """There are groups: look for offsets past their retention now and then."""
        self._schedule_expiry()

    async def close(self) -> None:
        """Stop loading and timers; answer everybody parked."""
        if self._expiry is not None:
            self._expiry.cancel()
        await super().close()

    def new_topic(self) -> NewTopic:
        """__consumer_offsets, as the settings want it."""
        return self.topic.as_configured(
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
            offsets_topic_configs(self._node.config),
        )

    def answer(self, group_id: str, request: Message, ctx: Asker) -> Message | Awaitable[Message]:
        """Let the group's shard answer, at once where nothing has to be waited for; KafkaError
        where it can't, in Kafka's terms. Requests are decided on in the order in which they come:
        of two commits on one connection the second counts.
        """
        if self._in_line or self.topic.image.ordered or not self._by_index:
            return self._answer_later(group_id, request, ctx)
        return self.find(group_id).answer(request, ctx)

    async def handle(self, group_id: str, request: Message, ctx: Asker) -> Message:
        """As `answer`, waiting for what has to be waited for."""
        answer = self.answer(group_id, request, ctx)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _answer_later(self, group_id: str, request: Message, ctx: Asker) -> Message:
        async with self._turn():
            partition = await self.partition(group_id)
            if self.topic.image.ordered:  # groups see as much as they may (KIP-253)
                await self._gates().refresh()
            answer = partition.answer(request, ctx)
        return await answer if isinstance(answer, Awaitable) else answer

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Behind the requests that came before."""
        self._in_line += 1
        try:
            async with self._line:
                yield
        finally:
            self._in_line -= 1

    async def read(self, group_id: str, view: Callable[[GroupShard], T]) -> T:
        """What the group's shard shows now, once it can't be lost any more; KafkaError."""
        async with self._turn():
            partition = await self.loaded_partition(group_id)
            shown = view(partition.shard)
        await partition.settled()
        return shown

    async def partition(self, group_id: str) -> GroupPartition:
        """The partition that keeps a group, made by a broker that is alone if none exists yet;
        KafkaError.
        """
        if self.topic.made_by_requests and not self._by_index:
            await self.ensure()
        return self.find(group_id)

    async def loaded_partition(self, group_id: str) -> GroupPartition:
        """As `partition`, but KafkaError until it is loaded."""
        partition = await self.partition(group_id)
        partition.check()
        return partition

    async def forget_topic(self, name: str) -> None:
        """A topic was deleted: no group has offsets in it any more."""
        await self.wait_loaded()
        for partition in self.partitions:
            try:
                partition.forget_topic(name)
            except KafkaError as error:
                LOGGER.error("%s: offsets of %s stay: %s", partition.place, name, error)

    def forget_soon(self, name: str) -> None:
        """As `forget_topic`, beside whatever else there is to do."""
        self.spawn(self.forget_topic(name))

    def transaction_ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """A transaction's marker was appended to a partition of __consumer_offsets."""
        found = self._by_index.get(index)
        if found is not None:
            found.transaction_ended(producer_id, committed=committed)

    def now_ms(self) -> int:
        """Wall time."""
        return self._node.now_ms()

    def context(
        self, group_id: str, token: Token = None, asked: Asker | None = None, new_id: str = ""
    ) -> GroupContext:
        """What a shard may know of the world, for one group."""
        return GroupContext(
            now_ms=self.now_ms(),
            new_id=new_id,
            configs=self._configs.group(group_id),
            token=token,
            api_version=asked.api_version if asked is not None else 0,
            client_id=(asked.client_id or "") if asked is not None else "",
            client_host=f"/{asked.client_host}" if asked is not None else "",
            image=self.topic.image,
        )

    def found(
        self, group_id: str, regexes: Mapping[str, frozenset[str]]
    ) -> Mapping[str, frozenset[str]]:
        """What a group's regular expressions find now, given what each found the last time."""
        return {
            regex: self.regex_rights.describable(
                group_id, regex, self.topic_matches.matched(regex, self.topic.image), known
            )
            for regex, known in regexes.items()
        }

    def _schedule_expiry(self) -> None:
        interval_ms = self._node.config["offsets.retention.check.interval.ms"]
        self._expiry = self.loop.call_later(interval_ms / 1000, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiry()
        for delay, partition in enumerate(self.partitions):
            self.loop.call_later(delay * TURN_SECONDS, partition.expire_offsets)


def _answer(token: Token, response: Message) -> None:
    assert isinstance(token, asyncio.Future)
    if not token.done():  # its connection may be gone
        token.set_result(response)


def _refuse(token: Token, problem: KafkaError) -> None:
    assert isinstance(token, asyncio.Future)
    if not token.done():
        token.set_exception(problem)


def _settings(config: BrokerConfig) -> GroupSettings:
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
