"""One partition of __consumer_offsets in the group coordinator. It is loaded from its log, and
driven by requests and timers.

broker/state makes the decisions. This file appends the records of a decision and applies it, as one
step (step_line.py), so no two decisions are made on the same state. Then the responses are sent: at
once, or once followers have the records if that is required.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from uuid import uuid4

from kstore._fast.record.builder import build_batch, build_single_batch
from kstore._fast.record.records import Record
from kstore.broker.runtime.coordinators.partition_writer import refusal_of, settle
from kstore.broker.runtime.coordinators.partitions import read_records
from kstore.broker.runtime.coordinators.runtime import CoordinatorPartition
from kstore.broker.runtime.groups.step_line import Step, StepLine
from kstore.broker.runtime.response_future import ResponseFuture
from kstore.broker.runtime.slices import Slices
from kstore.broker.runtime.timers import TimerTable
from kstore.broker.state.distribution import Distribution
from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard, group_id_of
from kstore.broker.state.groups.coordinator.tables import QUICK
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result, Token
from kstore.broker.state.groups.timers import RegexesDue, TimerEvent, TimerKey
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode, KafkaError, error_for
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
    from kstore.broker.runtime.groups.topic_matches import TopicMatches
    from kstore.broker.state.groups.settings import GroupSettings
    from kstore.protocol.schema import Message

__all__ = ["REBALANCES", "GroupPartition", "PartitionHost", "Requester"]

T = TypeVar("T")
Completion: TypeAlias = tuple[Token, "Message | KafkaError"]
LOGGER = logging.getLogger(__name__)
ANSWERS_PER_TURN = 8
"""The limit of responses in one turn of the loop. Other work waits until all of them are sent."""
RETRY_MS = 1000
"""The time after which a timer fires again if its records could not be appended."""
INT16 = Struct(">h")
MARKER_TYPE = Struct(">hh")
ABORT, COMMIT = 0, 1
OFFSETS = frozenset({0, 1})
"""Record types of commits."""
REBALANCES = {3: "consumer", 11: "share", 17: "streams"}
"""Record types that contain the epoch of a group."""


class Requester(Protocol):
    """What a shard knows about the client. The context of an API handler has it."""

    @property
    def api_version(self) -> int:
        """The request's version."""

    @property
    def client_id(self) -> str | None:
        """The client's id."""

    @property
    def client_host(self) -> str:
        """The client's address."""

    @property
    def extended(self) -> bool:
        """Whether it asks for kstore's tagged fields in responses."""


class PartitionHost(Protocol):
    """What all partitions share. The coordinator implements it."""

    topic: CoordinatorTopic
    writer: PartitionWriter
    loop: asyncio.AbstractEventLoop
    settings: GroupSettings
    commit_timeout_s: float
    topic_matches: TopicMatches
    commits_refused: Counter[int]
    rebalances: Mapping[str, Distribution]
    has_ended: Callable[[TopicPartition, int], bool]
    """Whether a producer's transaction has got a marker on a partition since it was verified."""

    def context(
        self,
        group_id: str,
        token: Token = None,
        requested: Requester | None = None,
        new_id: str = "",
    ) -> GroupContext:
        """What a shard may know about its environment, for one group."""

    def found(
        self, group_id: str, regexes: Mapping[str, frozenset[str]]
    ) -> Mapping[str, frozenset[str]]:
        """The topics that a group's regular expressions match now."""

    def now_ms(self) -> int:
        """Wall time."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background."""


class GroupPartition(CoordinatorPartition):
    """One partition of __consumer_offsets: its log, its shard, its timers, its parked requests."""

    def __init__(self, coordinator: PartitionHost, place: TopicPartition) -> None:
        super().__init__(coordinator.topic, coordinator.writer, place)
        self._coordinator = coordinator
        self.shard = GroupShard(coordinator.settings)
        self._timers: TimerTable[TimerKey, TimerEvent] = TimerTable(
            coordinator.loop, self._timer_fired
        )
        self._line = StepLine(coordinator.loop)

    def loaded(self) -> None:
        """Start the members' sessions. Requests wait for that."""
        self.shard.check()
        self._line.begin(self._resume())

    def _resume(self) -> Work[None]:
        for group_id in list(self.shard.groups):
            try:
                context = self._coordinator.context(group_id)
                yield from self._take((yield from self.shard.resume(group_id, context)))
            except KafkaError as error:
                LOGGER.error("%s: a loaded group can't continue: %s", self.place, error)
            yield

    async def replay_log(self) -> None:
        """Apply every record of the log."""
        slices = Slices()
        async for record in read_records(self.log):
            more = self._replay(record)
            if more is not None:
                await slices.do(more)

    def _replay(self, record: Record) -> Work[None] | None:
        """Apply a record. Yields while work is left."""
        key_bytes = record.key
        batch = record.batch
        if key_bytes is None:
            return None
        if batch.is_control:
            _, kind = MARKER_TYPE.unpack_from(key_bytes)
            if kind in (ABORT, COMMIT):
                committed = kind == COMMIT
                return self.shard.replay_transaction_end(batch.producer_id, committed=committed)
            return None
        (record_type,) = INT16.unpack_from(key_bytes)
        if record_type not in RECORD_TYPES:
            return None  # of an unsupported group protocol
        key = decode_key(key_bytes)
        value_bytes = record.value
        replayed = GroupRecord(key, None)
        if value_bytes is not None:
            replayed = GroupRecord(key, *decode_value(key, value_bytes))
        producer_id = batch.producer_id if batch.is_transactional else -1
        self.shard.replay(replayed, record_offset=record.offset, producer_id=producer_id)
        return None

    def answer(self, request: Message, requested: Requester) -> Message | ResponseFuture:
        """Decide and append. Returns the response, or a late one if earlier steps are not done, the
        group is not ready, or followers or the disk do not have the records yet. Raises KafkaError.
        """
        self.check()
        late = ResponseFuture()
        if self._line.is_free:
            if (answer := self._answer_quickly(request, requested, late)) is not None:
                return answer
            step = self._line.begin(self._answer(request, requested, late))
            if step.done:
                return step.result()
        else:
            step = self._line.begin(self._answer_in_line(request, requested, late))
        step.when_done(partial(_pass_on, late))
        return late

    def _answer_in_line(
        self, request: Message, requested: Requester, late: ResponseFuture
    ) -> Work[Message | ResponseFuture]:
        self.check()
        answer = self._answer_quickly(request, requested, late)
        return (yield from self._answer(request, requested, late)) if answer is None else answer

    def _answer_quickly(
        self, request: Message, requested: Requester, late: ResponseFuture
    ) -> Message | ResponseFuture | None:
        """The response, ``late`` if the request is parked, or None if it needs a step."""
        if type(request).__name__ not in QUICK:
            return None
        result = self.shard.quick(request, self._context(request, requested, late))
        if result is None:
            return None
        if result.edit is not None:
            self.shard.make(result.edit)
        for change in result.timers:
            if change.event is None:
                self._timers.cancel(change.key)
            else:
                self._timers.set(change.key, change.delay_ms, change.event)
        return late if result.response is None else self._committed(result.response)

    def _answer(
        self, request: Message, requested: Requester, late: ResponseFuture
    ) -> Work[Message | ResponseFuture]:
        self.check()  # it may have waited for earlier steps
        result = yield from self.shard.decide(request, self._context(request, requested, late))
        yield from self._take(result)
        if result.refused:
            self._coordinator.commits_refused.update(result.refused)
        return late if result.response is None else self._committed(result.response)

    def _context(
        self, request: Message, requested: Requester, late: ResponseFuture
    ) -> GroupContext:
        new_id = "" if getattr(request, "member_id", None) else str(uuid4())
        return self._coordinator.context(group_id_of(request), late, requested, new_id)

    def _committed(self, response: Message) -> Message | ResponseFuture:
        """The response, at once if it can't be lost any more."""
        durable = self.writer.to_be_committed(self.place)
        return response if durable is None else self._settled(durable, response)

    def apply_event(self, event: TimerEvent) -> Step[None]:
        """Apply an external event to a group, after the earlier steps."""
        return self._line.begin(self._apply_event(event))

    def _apply_event(self, event: TimerEvent) -> Work[None]:
        self.check()
        context = self._coordinator.context(event.group_id)
        yield from self._take((yield from self.shard.follow(event, context)))

    def view(self, look: Callable[[GroupShard], Work[T]]) -> Step[T]:
        """The result of ``look`` for the shard, after the earlier steps."""
        return self._line.begin(self._view(look))

    def _view(self, look: Callable[[GroupShard], Work[T]]) -> Work[T]:
        self.check()
        return (yield from look(self.shard))

    def _settled(self, durable: asyncio.Future[int], response: Message) -> ResponseFuture:
        """The response, once it can no longer be lost."""
        late = ResponseFuture()
        self._answer_when(durable, [(late, response)])
        return late

    async def settled(self) -> None:
        """Wait until earlier decisions can no longer be lost. Raises KafkaError if they may be."""
        durable = self.writer.to_be_committed(self.place)
        if durable is not None:
            await settle(durable, self._coordinator.commit_timeout_s)

    async def expire_offsets(self) -> None:
        """Delete offsets that are past their retention."""
        await self._take_parts(self.shard.expiry(self._coordinator.now_ms()))

    async def forget_topic(self, name: str, first: int) -> None:
        """Delete all offsets of a deleted topic, or of its partitions from index ``first`` on."""
        await self._take_parts(self.shard.forget_topic(name, first))

    async def _take_parts(self, parts: Iterator[Result]) -> None:
        """Process parts one after the other. Other steps may run in between."""
        more = True
        while more and self.error_code == ErrorCode.NONE:
            more = await self._line.begin(self._part(parts)).wait()
            await asyncio.sleep(0)

    def _part(self, parts: Iterator[Result]) -> Work[bool]:
        """Process one part. Returns whether there was one."""
        result = next(parts, None)
        if result is not None and result.records:
            yield from self._take(result)
        return result is not None

    def close(self) -> None:
        """Stop the timers. Parked requests get an error, after which clients look for the
        coordinator.
        """
        super().close()
        self._timers.clear()
        self._line.close()
        self._answer_soon(self.shard.unloaded())

    def _timer_fired(self, event: TimerEvent) -> None:
        key = self._timers.fired
        assert key is not None
        if isinstance(event, RegexesDue) and self._unmatched(event):
            self._coordinator.spawn(self._match(key, event))
        else:
            self._expire(key, event)

    def _unmatched(self, event: RegexesDue) -> set[str]:
        """A group's regular expressions that are not matched with the current topics yet."""
        regexes = self.shard.subscribed_regexes(event.group_id)
        return self._coordinator.topic_matches.lacks(regexes)

    async def _match(self, key: TimerKey, event: RegexesDue) -> None:
        """Match new expressions in slices, then apply the event."""
        tried: set[str] = set()
        while self.error_code == ErrorCode.NONE and (left := self._unmatched(event) - tried):
            tried |= left
            await self._coordinator.topic_matches.prepare(left, self.topic.image)
        if self.error_code == ErrorCode.NONE:
            self._expire(key, event)

    def _expire(self, key: TimerKey, event: TimerEvent) -> None:
        self._line.begin_soon(self._follow(key, event))

    def _follow(self, key: TimerKey, event: TimerEvent) -> Work[None]:
        if key in self._timers:
            return  # an earlier step has set it again
        context = self._coordinator.context(event.group_id)
        if isinstance(event, RegexesDue):
            regexes = self.shard.subscribed_regexes(event.group_id)
            context = context._replace(found=self._coordinator.found(event.group_id, regexes))
        result = yield from self.shard.follow(event, context)
        try:
            yield from self._take(result)
        except Exception:
            LOGGER.exception("%s: trying %r again in %d ms", self.place, event, RETRY_MS)
            # It has the timer's key: setting the timer again, as a heartbeat does, cancels it.
            self._timers.set(key, RETRY_MS, event)

    def _take(self, result: Result) -> Work[None]:
        """Append the records, apply the decision, send its responses, and set its timers."""
        base_offset = (yield from self._append(result)) if result.records else -1
        yield from self.shard.take_over(result, base_offset)
        self._count_rebalances(result.records)
        if result.completions:
            durable = self.writer.to_be_committed(self.place)
            if durable is None:
                self._answer_soon(result.completions)
            else:
                self._answer_when(durable, result.completions)
        for change in result.timers:
            if change.event is None:
                self._timers.cancel(change.key)
            elif not (change.only_if_absent and change.key in self._timers):
                self._timers.set(change.key, change.delay_ms, change.event)
            yield

    def _count_rebalances(self, records: Sequence[GroupRecord]) -> None:
        """Count rebalances: each new epoch of a group is one."""
        if records and records[0].key.RECORD_TYPE not in OFFSETS:
            for record in records:
                kind = REBALANCES.get(record.key.RECORD_TYPE)
                if kind is not None and record.value is not None:
                    self._coordinator.rebalances[kind].record(1)

    def _answer_when(self, durable: asyncio.Future[int], completions: Sequence[Completion]) -> None:
        """Send the responses once the followers have the records that they depend on, or send an
        error.
        """

        def give_up() -> None:
            if not durable.done():
                durable.set_result(ErrorCode.REQUEST_TIMED_OUT)

        def answer(_: asyncio.Future[int]) -> None:
            timer.cancel()
            problem = refusal_of(durable.result())
            if problem is None:
                self._answer_some(completions)
            else:
                self._answer_some([(token, problem) for token, _ in completions])

        timer = self._coordinator.loop.call_later(self._coordinator.commit_timeout_s, give_up)
        durable.add_done_callback(answer)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """Called when a marker was appended. If the log is still being read, the marker will be
        read, too.
        """
        if self.error_code == ErrorCode.NONE:
            self._line.begin(self.shard.replay_transaction_end(producer_id, committed=committed))

    def _append(self, result: Result) -> Work[int]:
        now_ms = self._coordinator.now_ms()
        records: list[tuple[bytes, bytes | None]] = []
        for item in result.records:
            value = None if item.value is None else encode_value(item.value, item.value_version)
            records.append((encode_key(item.key), value))
            yield
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
        self.check()  # fails if it was unloaded meanwhile, also if this broker leads it again
        if result.producer is not None and self._coordinator.has_ended(self.place, producer_id):
            # After the marker, they would belong to a transaction that never ends.
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.writer.append(self.place, batch, self.append_ended)

    def _answer_soon(self, completions: Sequence[Completion]) -> None:
        """Send answers in later turns of the loop: sending one may begin the next step, and a step
        may be in progress.
        """
        if completions:
            self._coordinator.loop.call_soon(self._answer_some, completions)

    def _answer_some(self, completions: Sequence[Completion], first: int = 0) -> None:
        """Send some responses. Those of a large group are spread over several turns of the loop."""
        end = min(first + ANSWERS_PER_TURN, len(completions))
        for place in range(first, end):
            token, answer = completions[place]
            assert isinstance(token, ResponseFuture)
            token.give(answer)
        if end < len(completions):
            self._coordinator.loop.call_soon(self._answer_some, completions, end)


def _pass_on(late: ResponseFuture, step: Step[Message | ResponseFuture]) -> None:
    """A step that had to wait is done: give its answer, now or later."""
    try:
        answer = step.result()
    except Exception as problem:  # noqa: BLE001 - the receiver gets it
        late.give(problem)
        return
    if isinstance(answer, ResponseFuture):
        if answer is not late:
            answer.when_given(late.give)
    else:
        late.give(answer)
