"""Copies records: for every partition it looks up where the target ends, fetches from there, and
writes the records at their offsets. PartitionCopy decides the next step of a partition.

There is one outstanding fetch per broker of the source, and one piece in flight per partition of
the target. Pieces that are ready at the same time share a request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.rate_limit import RateLimit
from kstore.clients.core.replication import (
    PartitionCopy,
    Piece,
    Plan,
    Step,
    grouped,
    plan_pieces,
)
from kstore.clients.replicator.options import (
    Event,
    ReplicationError,
    ReplicationOptions,
    Report,
)
from kstore.clients.replicator.wire import EARLIEST, LATEST, end_of, fetch, produce, record_at
from kstore.errors import (
    ErrorCode,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    error_for,
)
from kstore.record import InvalidBatchError, Record
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients.io.cluster import ClusterClient
    from kstore.protocol.logs.fetch import PartitionData
    from kstore.protocol.logs.produce import PartitionProduceResponse

__all__ = ["Copier"]

FETCH_WAIT_MS = 250
BUSY_FETCH_WAIT_MS = 5  # while others of the broker have no room
FIRST_PAUSE_MS, MAX_PAUSE_MS = 50, 2_000
LONG_PAUSE_MS, MAX_LONG_PAUSE_MS = 1_000, 60_000
AHEAD_TRIES = 8  # a source whose leader changed may report an old end for a while
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


class Copier:
    """Runs until it is cancelled. Partitions can be added and dropped at any time."""

    exact = False
    is_patient = False
    """Whether a partition is retried after every error of a broker, because the copy runs forever;
    otherwise only after retriable errors.
    """
    groups_batches = False
    """Whether the target accepts several batches of a partition per request."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        options: ReplicationOptions,
        report: Report,
    ) -> None:
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        self.changed = asyncio.Event()
        """Set when any partition has made progress."""
        self._source, self._target = source, target
        self._options, self._report = options, report
        self._isolation = int(options.isolation_level == "read_committed" and not self.exact)
        self._limit = RateLimit(options.rate_limit)
        self._touched: dict[PartitionCopy, None] = {}
        self._busy: set[PartitionCopy] = set()  # a request to the target is outstanding
        self._resting: set[PartitionCopy] = set()  # after an error: no requests
        self._ids: dict[str, UUID] = {}
        self._failures: dict[PartitionCopy, int] = {}
        self._ahead: dict[PartitionCopy, int] = {}
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._fetchers: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_held = False  # by the rate limit
        self._broken: BaseException | None = None

    # ---- partitions ----

    def add(self, tp: TopicPartition) -> None:
        """Also copy this partition."""
        if tp not in self.copies:
            self._ids.setdefault(tp.topic, self._source.view.topic_id(tp.topic))
            copy = self.copies[tp] = self._copy_of(tp)
            self._touch(copy)

    def _copy_of(self, tp: TopicPartition) -> PartitionCopy:
        return PartitionCopy(tp)

    def stop(self, tp: TopicPartition, problem: Exception) -> None:
        """Fail a partition, and report why."""
        copy = self.copies[tp]
        if copy.step != Step.STOPPED:
            copy.stop(problem)
            self._report(Event("failed", str(problem), tp, copy.position))
        self.changed.set()

    async def source_end(self, tp: TopicPartition) -> int:
        """The end of what can be read from the source now, with the isolation level."""
        epoch = self._source.view.leader_epoch(tp)
        return await end_of(self._source, tp, epoch, LATEST, self._isolation)

    # ---- the loop ----

    async def run(self) -> None:
        """Run until cancelled. Outstanding requests are dropped then, which is safe."""
        try:
            while self._broken is None:
                await self._work.wait()
                self._work.clear()
                self._begin(may_send=self._may_send())
            raise self._broken
        finally:
            tasks = [*self._tasks, *self._fetchers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _may_send(self) -> bool:
        wait_s = self._limit.wait_s(asyncio.get_running_loop().time())
        if wait_s > 0 and not self._is_held:
            self._is_held = True
            asyncio.get_running_loop().call_later(wait_s, self._release)
        return not self._is_held

    def _release(self) -> None:
        self._is_held = False
        self._work.set()

    def _begin(self, *, may_send: bool) -> None:
        """Start the next steps of the changed partitions."""
        ready: dict[int, list[PartitionCopy]] = {}
        touched, self._touched = self._touched, {}
        for copy in touched:
            if copy in self._resting:
                continue
            if copy.step == Step.COPY:
                self._fetch_from(copy)
            if copy in self._busy:
                continue
            if copy.step == Step.LOCATE:
                self._busy.add(copy)
                self._spawn(self._at_target(copy, self._locate(copy)))
            elif copy.step == Step.CHECK:
                self._busy.add(copy)
                self._spawn(self._at_target(copy, self._check(copy)))
            elif copy.peek() and may_send:
                ready.setdefault(_leader(self._target, copy.tp), []).append(copy)
            elif copy.peek():
                self._touched[copy] = None
        for node, copies in ready.items():
            self._send(node, copies)

    def _touch(self, copy: PartitionCopy) -> None:
        self._touched[copy] = None
        self._work.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()
            self._work.set()
            self.changed.set()

    # ---- errors ----

    def _rest(self, copy: PartitionCopy, error: KafkaError) -> None:
        """A retriable error: retry after a pause. Other errors end the partition's copy, unless the
        copy runs forever.
        """
        is_passing = error.retriable or error.code == ErrorCode.OFFSET_OUT_OF_RANGE
        message = f"{copy.tp} at offset {copy.position}"
        if not (is_passing or self.is_patient):
            self.stop(copy.tp, ReplicationError(f"{message}: {error}"))
            return
        failures = self._failures[copy] = self._failures.get(copy, 0) + 1
        pause_s = _pause_s(failures) if is_passing else _long_pause_s(failures)
        if not is_passing:
            text = f"{message}: {error}; trying again in {pause_s:.0f} s"
            self._report(Event("trouble", text, copy.tp, copy.position))
        elif failures == 10:
            text = f"{message}: tried {failures} times: {error}"
            self._report(Event("trouble", text, copy.tp, copy.position))
        self._resting.add(copy)
        asyncio.get_running_loop().call_later(pause_s, self._rested, copy)

    def _rested(self, copy: PartitionCopy) -> None:
        self._resting.discard(copy)
        self._touch(copy)

    async def _at_target(self, copy: PartitionCopy, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except KafkaError as error:
            copy.locate()
            self._source.want_refresh()
            self._target.want_refresh()
            self._rest(copy, error)
        except ReplicationError as error:
            self.stop(copy.tp, error)
        finally:
            self._busy.discard(copy)
            self._touch(copy)

    async def _at_source(self, copy: PartitionCopy, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except KafkaError as error:
            self._source.want_refresh()
            self._rest(copy, error)
        except ReplicationError as error:
            self.stop(copy.tp, error)
        else:
            self._rested(copy)

    # ---- the target's end ----

    async def _locate(self, copy: PartitionCopy) -> None:
        epoch = self._target.view.partition(copy.tp).leader_epoch
        copy.located(await end_of(self._target, copy.tp, epoch, LATEST), epoch)

    async def _check(self, copy: PartitionCopy) -> None:
        """Check that the target's last record equals the source's record at the same offset. If one
        of them has no record there (deleted, compacted), nothing can be checked.
        """
        tp, last = copy.tp, copy.position - 1
        if last < 0:
            copy.checked()
            return
        theirs = await self._readable(copy, last)
        if theirs is not None:
            try:
                epoch = self._source.view.partition(tp).leader_epoch
                ours = (await record_at(self._source, tp, last, epoch, self._isolation)).record
            except OffsetOutOfRangeError:
                ours = None
            if ours is not None and not _same(ours, theirs):
                raise ReplicationError(
                    f"{tp}: offset {last} has another record in the target than in the source: "
                    "another program has written to it, or it is a copy of another topic; nothing "
                    "was changed"
                )
        copy.checked()

    async def _readable(self, copy: PartitionCopy, offset: int) -> Record | None:
        """The target's record at an offset, when all in-sync replicas have it."""
        failures = 0
        while True:
            try:
                found = await record_at(self._target, copy.tp, offset, copy.leader_epoch, 0)
            except OffsetOutOfRangeError:
                return None  # deleted there
            if found.record is not None or found.end_offset > offset:
                return found.record
            failures += 1
            await asyncio.sleep(_pause_s(failures))

    # ---- reads ----

    def _fetch_from(self, copy: PartitionCopy) -> None:
        node = _leader(self._source, copy.tp)
        if node < 0:
            self._source.want_refresh()
            self._rest(copy, LeaderNotAvailableError())
            return
        if node not in self._fetchers:
            task = asyncio.get_running_loop().create_task(self._fetch_loop(node))
            self._fetchers[node] = task
            task.add_done_callback(self._done)
        self._room.set()

    async def _fetch_loop(self, node: int) -> None:
        while True:
            self._room.clear()
            chosen, others_wait = self._hungry(node)
            if not chosen:
                await self._room.wait()
                continue
            try:
                await self._fetch(
                    node, chosen, BUSY_FETCH_WAIT_MS if others_wait else FETCH_WAIT_MS
                )
            except KafkaError as error:
                self._source.want_refresh()
                for copy in chosen:
                    self._rest(copy, error)

    def _hungry(self, node: int) -> tuple[list[PartitionCopy], bool]:
        """The partitions of this broker that have room for more, and whether some do not."""
        mine = [
            copy
            for copy in self.copies.values()
            if copy.step == Step.COPY
            and copy not in self._resting
            and _leader(self._source, copy.tp) == node
            and self._is_the_same(copy)
        ]
        full = sum(copy.buffered_bytes for copy in self.copies.values())
        room = full < self._options.buffer_bytes
        limit = self._options.partition_buffer_bytes
        chosen = [c for c in mine if c.buffered_bytes < limit and (room or not c.buffered_bytes)]
        return chosen, len(chosen) < len(mine)

    def _is_the_same(self, copy: PartitionCopy) -> bool:
        """Whether the source's topic is the one that the copy started with."""
        topic = copy.tp.topic
        if self._source.view.topic_id(topic) == self._ids[topic]:
            return True
        message = (
            f"{copy.tp}: the topic was deleted and created again in the source; delete the copy"
        )
        self.stop(copy.tp, ReplicationError(message))
        return False

    async def _fetch(self, node: int, chosen: Iterable[PartitionCopy], wait_ms: int) -> None:
        view = self._source.view
        requested = {copy.tp: (copy, copy.fetch_offset, copy.source_epoch) for copy in chosen}
        rows = await fetch(
            self._source,
            node,
            [(tp, at, view.leader_epoch(tp)) for tp, (_, at, _) in requested.items()],
            isolation=self._isolation,
            wait_ms=wait_ms,
            max_bytes=self._options.fetch_bytes,
            partition_bytes=self._options.fetch_bytes // 4,
        )
        for tp, row in rows.items():
            copy, at, epoch = requested[tp]
            if (copy.step, copy.fetch_offset, copy.source_epoch) == (Step.COPY, at, epoch):
                await self._take(copy, row)

    async def _take(self, copy: PartitionCopy, row: PartitionData) -> None:
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._resting.add(copy)  # now, because the next fetch is about to be built
            self._spawn(self._at_source(copy, self._out_of_range(copy)))
            return
        if row.error_code:
            self._source.want_refresh()
            self._rest(copy, error_for(row.error_code))
            return
        self._failures.pop(copy, None)
        self._ahead.pop(copy, None)
        end = row.last_stable_offset if self._isolation else row.high_watermark
        began = copy.fetch_offset, copy.source_epoch
        try:
            plan = await self._plan(copy, row)
        except InvalidBatchError as error:
            message = f"{copy.tp} from offset {copy.fetch_offset}: the source sent {error}"
            self.stop(copy.tp, ReplicationError(message))
            return
        if copy.step == Step.COPY and (copy.fetch_offset, copy.source_epoch) == began:
            copy.fetched(plan, end)
        self._touch(copy)
        self.changed.set()

    async def _plan(self, copy: PartitionCopy, row: PartitionData) -> Plan:
        """The pieces of a response. Raises InvalidBatchError for a damaged one."""
        aborted = [(t.producer_id, t.first_offset) for t in row.aborted_transactions or ()]
        data = row.records or b""
        plan = plan_pieces(data, copy.fetch_offset, aborted if self._isolation else None)
        return plan._replace(pieces=list(grouped(plan.pieces))) if self.groups_batches else plan

    async def _out_of_range(self, copy: PartitionCopy) -> None:
        """The source does not have the offset: its log starts after it, or ends before it."""
        tp, at = copy.tp, copy.fetch_offset
        epoch = self._source.view.partition(tp).leader_epoch
        start = await end_of(self._source, tp, epoch, EARLIEST)
        if at < start:
            self._lost(copy, start)
            return
        end = await end_of(self._source, tp, epoch, LATEST)
        tries = self._ahead[copy] = self._ahead.get(copy, 0) + 1
        if at > end and tries >= AHEAD_TRIES:
            raise ReplicationError(
                f"{tp}: the target has offsets up to {at}, the source ends at {end}: the target is "
                "not a copy of this source, or the source has lost records; nothing was changed"
            )
        raise OffsetOutOfRangeError(f"{tp}: offset {at} is after the source's end {end}")

    def _lost(self, copy: PartitionCopy, start: int) -> None:
        """The source's log start offset has passed the offset to fetch."""
        tp, at = copy.tp, copy.fetch_offset
        if at > 0:
            message = (
                f"{tp}: the source has deleted offsets {at} to {start - 1}, which the target lacks"
            )
            if self._options.on_loss == "fail":
                raise ReplicationError(f"{message}; --on-loss=skip continues at {start}")
            self._report(Event("loss", f"{message}; continuing at {start}", tp, at))
        copy.skip_to(start)

    # ---- writes ----

    def _send(self, node: int, copies: Iterable[PartitionCopy]) -> None:
        """Write the pieces that are ready for one broker, in as few requests as possible."""
        if node < 0:
            self._target.want_refresh()
            for copy in copies:
                self._rest(copy, LeaderNotAvailableError())
            return
        chosen: list[tuple[PartitionCopy, Piece]] = []
        size = 0
        for copy in copies:
            if chosen and size + copy.peek() > self._options.request_bytes:
                self._spawn(self._produce(node, chosen))
                chosen, size = [], 0
            piece = copy.next_piece()
            if piece is not None:
                self._busy.add(copy)
                chosen.append((copy, piece))
                size += len(piece.data)
                self._limit.sent(len(piece.data))
        if chosen:
            self._spawn(self._produce(node, chosen))

    async def _produce(self, node: int, chosen: list[tuple[PartitionCopy, Piece]]) -> None:
        try:
            rows = await produce(self._target, node, chosen, exact=self.exact)
        except KafkaError as error:
            self._target.want_refresh()
            for copy, _ in chosen:
                copy.locate()
                self._busy.discard(copy)
                self._rest(copy, error)
            return
        for copy, _ in chosen:
            self._busy.discard(copy)
            self._answered(copy, rows.get(copy.tp))
            self._touch(copy)
        self._room.set()
        self.changed.set()

    def _answered(self, copy: PartitionCopy, row: PartitionProduceResponse | None) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR if row is None else row.error_code
        if code == ErrorCode.NONE:
            copy.acknowledged()
            self._failures.pop(copy, None)
        elif code == ErrorCode.INVALID_PRODUCE_OFFSET and row is not None:
            copy.refused(row.log_end_offset)
        elif code in TOO_LARGE and copy.split():
            pass
        else:
            message = row.error_message if row is not None else None
            copy.locate()
            self._target.want_refresh()
            self._rest(copy, error_for(code, message or None, produce=True))


def _leader(cluster: ClusterClient, tp: TopicPartition) -> int:
    """The broker id of a partition's leader, -1 if unknown."""
    topic = cluster.view.topics.get(tp.topic)
    if topic is None or tp.partition >= len(topic.partitions):
        return -1
    leader = topic.partitions[tp.partition].leader
    return leader if leader in cluster.view.brokers else -1


def _pause_s(failures: int) -> float:
    return pause_ms(failures, FIRST_PAUSE_MS, MAX_PAUSE_MS, random.random()) / 1000


def _long_pause_s(failures: int) -> float:
    """After an error that a person must fix."""
    return pause_ms(failures, LONG_PAUSE_MS, MAX_LONG_PAUSE_MS, random.random()) / 1000


def _same(ours: Record, theirs: Record) -> bool:
    def parts(record: Record) -> tuple[object, ...]:
        return record.timestamp, record.key, record.value, list(record.headers)

    return parts(ours) == parts(theirs)
