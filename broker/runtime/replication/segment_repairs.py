"""Restores damaged and lost parts of segments from another replica while the log is in use.

The records of a part are fetched from the leader, or from another replica that has them committed
in the same leader epoch. `Log.rewrite` writes them in place if they fit. `Log.refill` restores them
if a sealed segment was truncated or is missing. Parts that no replica has are reported; damaged
parts are also hidden from readers. One part is repaired at a time. After a failure, a partition is
tried again after a pause that doubles each time.

Followers cannot copy past damage in their leader's log, so the partition would stop. Once every
other replica has shown that it does not have the damaged part either, the leader resolves this: if
the part is not committed, it truncates its log there; otherwise followers get an empty batch in its
place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kstore.broker.state.replication.follower import BackOff, cut_at_damage, nobody_has
from kstore.errors import ErrorCode, KafkaError, NetworkError, error_for
from kstore.log.errors import LogError
from kstore.protocol.logs.fetch import FetchPartition, FetchRequest, FetchTopic
from kstore.protocol.schema import ZERO_UUID
from kstore.record import InvalidBatchError, batches

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore._fast.broker.replica_state import ReplicaState
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.runtime.replication.replicas import Hosted, Replicas
    from kstore.log import Log
    from kstore.log.local.recovery_report import Loss
    from kstore.log.segments.damage import Damage
    from kstore.types import TopicPartition

__all__ = ["SegmentRepairs"]

log = logging.getLogger("kstore.broker")

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 60.0
LOOK_PAUSE_S = 1.0
"""The pause between checks for followers that damage blocks. These checks send no requests."""
ASK_TIMEOUT_S = 30.0
PIECE_BYTES = 1 << 20
REFILL_BYTES = 8 << 20
"""Bytes of a lost part that are fetched before they are written."""
LARGEST_PART_BYTES = 64 << 20
"""Larger parts are not repaired but reported to the operator, because a part is in memory until it
is written.
"""


class _Tries:
    """The state of a partition with damage."""

    __slots__ = ("ask_s", "given_up", "has_none", "parts", "pauses", "since_ms")

    def __init__(self) -> None:
        self.pauses = BackOff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self.ask_s = 0.0
        """The time before which no other replica is asked."""
        self.parts: list[Damage] = []
        self.since_ms = 0
        """Since when these damaged parts, and no others, are known."""
        self.has_none: set[tuple[Damage, int]] = set()
        """Part to the replicas that were asked and do not have its records."""
        self.given_up: set[Damage] = set()
        """Parts that were reported as lost."""


class SegmentRepairs:
    """The partitions of this broker with damage. All methods run on the broker's loop."""

    def __init__(
        self,
        node: Node,
        table: PartitionTable,
        metadata: MetadataCache,
        replicas: Replicas,
        peers: Lazy[Peers],
    ) -> None:
        self._node = node
        self._table = table
        self._metadata = metadata
        self._replicas = replicas
        self._peers = peers
        self._due: dict[TopicPartition, float] = {}  # the time of the next attempt
        self._tries: dict[TopicPartition, _Tries] = {}
        self._reported: dict[Damage | Loss, str] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    def note(self, place: TopicPartition) -> None:
        """Called when a damaged or lost part of a partition was found."""
        self._due.setdefault(place, self._tries_of(place).ask_s)
        self._wake()

    def note_role(self, place: TopicPartition) -> None:
        """Called when this broker begins to lead or follow a partition: other replicas can be
        asked.
        """
        if place in self._due:
            self._due[place] = self._tries_of(place).ask_s = self._node.loop.time()
            self._wake()

    def close(self) -> None:
        """Called when the broker stops; waits for a part that is being written."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _tries_of(self, place: TopicPartition) -> _Tries:
        return self._tries.setdefault(place, _Tries())

    def _wake(self) -> None:
        self._news.set()
        if self._task is None and not self._closed:
            self._task = self._node.loop.create_task(self._work())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("repairing segments failed", exc_info=problem)

    async def _work(self) -> None:
        loop = self._node.loop
        while self._due:
            self._news.clear()
            place = min(self._due, key=self._due.__getitem__)
            wait_s = self._due[place] - loop.time()
            if wait_s > 0:
                timer = loop.call_later(wait_s, self._news.set)
                await self._news.wait()
                timer.cancel()
                continue
            tries = self._tries_of(place)
            asks = loop.time() >= tries.ask_s
            if asks:
                tries.ask_s = loop.time() + tries.pauses.pause_s(loop.time())
            self._due[place] = tries.ask_s
            if not await self._repair(place, tries, asks=asks):
                del self._due[place]

    async def _repair(self, place: TopicPartition, tries: _Tries, *, asks: bool) -> bool:
        """Try to repair all damaged parts of a partition once. Returns whether to try again."""
        partition = self._replicas.find(place)
        known = self._replicas.hosted.get(place)
        if partition is None or partition.log is None or known is None:
            return True  # it has no role yet
        damaged: Log = partition.log
        if len(known.replicas) == 1:
            return False
        if self._holds_up_followers(partition):
            await self._let_followers_on(place, partition, tries)
            self._due[place] = min(self._due[place], self._node.loop.time() + LOOK_PAUSE_S)
            if partition.log is not damaged:
                return True  # the replica was stopped meanwhile
        for damage in damaged.damaged_parts() if asks else ():
            why = await self._repair_part(place, damaged, known, damage, tries)
            part = f"bytes {damage.position} to {damage.end_position - 1} of {damage.segment}"
            self._report(place, damage, part, why)
        for loss in damaged.lost_parts() if asks else ():
            why = await self._refill(place, damaged, known, loss)
            part = (
                f"offsets {loss.first_offset} to {loss.next_offset - 1}, lost from {loss.segment},"
            )
            self._report(place, loss, part, why)
        return bool(damaged.damaged_parts() or damaged.lost)

    def _report(
        self, place: TopicPartition, part: Damage | Loss, words: str, why: str | None
    ) -> None:
        """Report why a part could not be restored, once for each reason. None: it was restored."""
        if why is None:
            self._reported.pop(part, None)
        elif self._reported.get(part) != why:
            self._reported[part] = why
            log.warning("%s: %s can't be restored from another replica yet: %s", place, words, why)

    def _holds_up_followers(self, partition: Partition) -> bool:
        """Whether this broker leads the partition, and damage in its log blocks followers."""
        replication = partition.replication
        return replication is not None and any(
            (damage.first_offset, damage.next_offset) not in replication.lost_parts
            for damage in partition.log.damaged_parts()
        )

    async def _let_followers_on(
        self, place: TopicPartition, partition: Partition, tries: _Tries
    ) -> None:
        """Let followers continue after parts that no other replica has."""
        replication = partition.replication
        parts = partition.log.damaged_parts()
        if parts != tries.parts:
            tries.parts, tries.since_ms = parts, self._table.replication.now_ms()
            tries.has_none = {each for each in tries.has_none if each[0] in parts}
            tries.given_up.intersection_update(parts)
        if replication is None or partition.proposed_isr is not None:
            return  # the controller may know replicas that this broker does not
        ends: dict[int, int | None] = {}
        for node_id in partition.replicas:
            if node_id == self._node.node_id:
                continue
            # A follower's next fetch shows up to where it has copied, perhaps before the damage was
            # known.
            follower = replication.follower(node_id)
            fetched = follower is not None and follower.last_fetch_ms > tries.since_ms
            ends[node_id] = follower.log_end_offset if follower is not None and fetched else None
        starts = [damage.first_offset for damage in parts]
        offset = cut_at_damage(starts, partition.high_watermark, [*ends.values()])
        if offset is not None:
            await self._drop_uncommitted(place, partition, offset)
            return  # the broker leads in a new epoch
        for damage in parts:
            has_none = [(damage, node_id) in tries.has_none for node_id in ends]
            if damage.next_offset <= partition.high_watermark and nobody_has(
                damage.first_offset, [*ends.values()], has_none
            ):
                self._leave_committed(partition.log, replication, damage, tries)

    def _leave_committed(
        self, damaged: Log, replication: ReplicaState, damage: Damage, tries: _Tries
    ) -> None:
        """Let followers continue after committed damage: they get an empty batch. The damaged bytes
        stay in the file.
        """
        lost = damage.first_offset, damage.next_offset
        if lost not in replication.lost_parts:
            replication.lost_parts = (*replication.lost_parts, lost)
        if damage in tries.given_up:
            return
        tries.given_up.add(damage)
        damaged.log_dir.count_lost(lost[1] - lost[0])
        log.error(
            "%s: offsets %d to %d are lost: they are damaged and no other replica has them; "
            "followers get an empty batch in their place",
            damaged.topic_partition, lost[0], lost[1] - 1,
        )  # fmt: skip

    async def _drop_uncommitted(
        self, place: TopicPartition, partition: Partition, offset: int
    ) -> None:
        """Drop uncommitted damage, with everything after it."""
        end = partition.log_end_offset
        try:
            await self._replicas.drop_uncommitted(place, offset)
        except (LogError, OSError) as problem:
            self._node.report(
                f"{place}: its log can't be cut at damaged offset {offset}: {problem}"
            )
            return
        log.error(
            "%s: offsets %d to %d are lost: %d is damaged, no other replica has it, and it was "
            "not committed; the log continues at %d",
            place, offset, end - 1, offset, partition.log_end_offset,
        )  # fmt: skip

    async def _repair_part(
        self, place: TopicPartition, damaged: Log, known: Hosted, damage: Damage, tries: _Tries
    ) -> str | None:
        """Restore one part from the first replica that has it. Returns None, or the reason if no
        replica has it.
        """
        if damage.size_bytes > LARGEST_PART_BYTES:
            return f"{damage.size_bytes} bytes are too many: the limit is {LARGEST_PART_BYTES}"

        async def write_from(source: int) -> str | None:
            try:
                data = await self._fetch(
                    source, place, damaged, known,
                    damage.first_offset, damage.next_offset, damage.size_bytes, whole=True,
                )  # fmt: skip
            except KafkaError as problem:
                if problem.code == ErrorCode.CORRUPT_MESSAGE:
                    tries.has_none.add((damage, source))  # the part is damaged there, too
                raise
            why = await self._in_thread(damaged.rewrite, damage, data)
            if why is not None and _has_no_records(data, damage):
                tries.has_none.add((damage, source))
            return why

        what = (
            f"bytes {damage.position} to {damage.end_position - 1} of {damage.segment}, offsets "
            f"{damage.first_offset} to {damage.next_offset - 1}, which were damaged,"
        )
        return await self._from_any(place, known, write_from, what)

    async def _refill(
        self, place: TopicPartition, damaged: Log, known: Hosted, loss: Loss
    ) -> str | None:
        """Restore a lost part from the replicas that have records of it. Returns None, or the
        reason if some of it is still missing.
        """

        def left() -> Loss | None:
            parts = (each for each in damaged.lost_parts() if each.segment == loss.segment)
            return next(parts, None)

        async def refill_from(source: int) -> str | None:
            while (part := left()) is not None:  # in pieces
                data = await self._fetch(
                    source, place, damaged, known,
                    part.first_offset, part.next_offset, REFILL_BYTES, whole=False,
                )  # fmt: skip
                why = await self._in_thread(damaged.refill, part, data)
                if why is not None:
                    return why
            return None

        what = (
            f"offsets {loss.first_offset} to {loss.next_offset - 1}, which were lost from "
            f"{loss.segment},"
        )
        return await self._from_any(place, known, refill_from, what)

    async def _from_any(
        self,
        place: TopicPartition,
        known: Hosted,
        write_from: Callable[[int], Awaitable[str | None]],
        what: str,
    ) -> str | None:
        """Write the records of the first replica that has them, and report it. Returns None, or the
        reason if no replica has them.
        """
        problems = []
        for source in self._sources(known):
            try:
                why = await write_from(source)
            except (KafkaError, LogError, OSError) as problem:
                why = str(problem)
            if why is None:
                log.warning("%s: %s were copied again, from broker %d", place, what, source)
                return None
            problems.append(f"broker {source}: {why}")
        return "; ".join(problems) or "no other replica is alive"

    def _sources(self, known: Hosted) -> list[int]:
        """The other live replicas: the leader first, then the in-sync replicas."""
        living = {*self._metadata.image.brokers} - {self._node.node_id}
        alive = {*known.replicas, known.leader} & living
        return sorted(alive, key=lambda i: (i != known.leader, i not in known.isr, i))

    async def _in_thread(
        self, write: Callable[..., str | None], part: Damage | Loss, data: bytes
    ) -> str | None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="kstore-repair")
        loop = self._node.loop
        return await loop.run_in_executor(self._thread, write, part, data)

    async def _fetch(
        self, source: int, place: TopicPartition, damaged: Log, known: Hosted,
        first_offset: int, next_offset: int, most_bytes: int, *, whole: bool,
    ) -> bytes:  # fmt: skip
        """Committed batches of another replica for these offsets, from the first offset on, with at
        most one piece more than ``most_bytes``. ``whole``: no batches if only some of the offsets
        are committed there. Raises NetworkError if it has none of them, and KafkaError.
        """
        found = bytearray()
        offset = first_offset
        while offset < next_offset and len(found) <= most_bytes:
            requested = FetchPartition(
                partition=place.partition,
                current_leader_epoch=known.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=PIECE_BYTES,
            )
            topic = FetchTopic(topic_id=damaged.topic_id or ZERO_UUID, partitions=[requested])
            request = FetchRequest(max_bytes=PIECE_BYTES, topics=[topic])
            response = await self._peers().ask(source, request, ASK_TIMEOUT_S)
            if response.error_code != ErrorCode.NONE or not response.responses:
                raise error_for(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            [answer] = response.responses[0].partitions
            if answer.error_code != ErrorCode.NONE:
                raise error_for(answer.error_code)
            taken, offset_after = _batches_below(bytes(answer.records or b""), next_offset)
            if answer.high_watermark < next_offset and (whole or not (found or taken)):
                raise NetworkError(
                    f"only offsets below {answer.high_watermark} are committed there"
                )
            found += taken
            if offset_after <= offset:
                break  # it has no more
            offset = offset_after
        return bytes(found)


def _has_no_records(data: bytes, damage: Damage) -> bool:
    """Whether whole batches from another replica show that it has no records in a damaged part."""
    views = list(batches(data))
    return (
        bool(views)
        and views[-1].next_offset >= damage.next_offset
        and not any(view.records_count for view in views)
    )


def _batches_below(records: bytes, limit: int) -> tuple[bytes, int]:
    """The whole batches that begin below an offset, and where to continue. Raises NetworkError."""
    end, offset = 0, -1
    try:
        for view in batches(records, verify=True):
            offset = view.next_offset
            if view.base_offset >= limit:
                break
            end = view.position + view.size_bytes
    except InvalidBatchError as error:
        if not end:
            raise NetworkError(f"it did not send a complete batch: {error}") from error
    return records[:end], offset
