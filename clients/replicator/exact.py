"""Makes exact copies of logs (`kstore replicate --exact`): batch by batch and byte for byte, with
producer ids, transaction markers and leader epochs.

Before it writes, the target's leaders get leader epochs above the source's, so that the target and
the source never use the same epoch, and the target's brokers stop using the source's producer ids.
When the source has a new leader, it is checked again that the source has the copy's last batch.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.clients.core.exact_copies import ExactCopy, header_of, plan_exact, unlike
from kstore.clients.core.replication import PartitionCopy, Plan, Step
from kstore.clients.replicator.copying import Copier
from kstore.clients.replicator.exact_wire import (
    IDS_PER_CLUSTER,
    batch_at,
    delete_before,
    end_of_epoch,
    raise_leader_epoch,
    reserve_ids,
)
from kstore.clients.replicator.options import Event, ReplicationError
from kstore.errors import ErrorCode, OffsetOutOfRangeError, error_for
from kstore.record import BatchView

if TYPE_CHECKING:
    from kstore.clients.replicator.topics import TopicCopier
    from kstore.protocol.logs.fetch import PartitionData
    from kstore.types import TopicPartition

__all__ = ["ExactCopier"]

LOOK_AGAIN_S = 0.05


class ExactCopier(Copier):
    """A Copier of whole logs."""

    exact = True
    topics: TopicCopier
    """The target's topics; the creator sets it."""
    _least_id = 0
    """Producer ids from here on belong to the target."""
    _asked: frozenset[int] = frozenset()
    """The target's brokers that know it."""

    def _copy_of(self, tp: TopicPartition) -> PartitionCopy:
        return ExactCopy(tp)

    # ---- leaders and producer ids of the target ----

    async def _locate(self, copy: PartitionCopy) -> None:
        assert isinstance(copy, ExactCopy)
        await self.reserve_ids()
        await self.topics.raise_least_id(copy.tp.topic, self._least_id)
        epoch = self._source.view.partition(copy.tp).leader_epoch
        theirs = self._target.view.partition(copy.tp).leader_epoch
        if theirs <= epoch:
            await raise_leader_epoch(self._target, copy.tp, epoch + 1)
            await self._target.refresh([copy.tp.topic])
        if copy.step == Step.LOCATE:
            copy.source_epoch = epoch
            await super()._locate(copy)

    async def reserve_ids(self, seen: int = 0) -> None:
        """Make all brokers of the target use only producer ids above all of the source's that were
        seen.
        """
        least = max(self._least_id, (seen // IDS_PER_CLUSTER + 1) * IDS_PER_CLUSTER)
        if least > self._least_id:
            self._asked = frozenset()
        brokers = frozenset(self._target.view.brokers)
        for node in brokers - self._asked:
            await reserve_ids(self._target, node, least)
        self._least_id = least
        self._asked = brokers

    # ---- checks of the copy ----

    async def check_all(self) -> None:
        """Compare the last batches of all copies with the source's. Raises KafkaError or
        ReplicationError.
        """
        for copy in list(self.copies.values()):
            while copy.step in (Step.LOCATE, Step.CHECK):
                await asyncio.sleep(LOOK_AGAIN_S)
            if copy.step == Step.COPY:
                await self._compare(copy)

    async def _check(self, copy: PartitionCopy) -> None:
        await self._compare(copy)
        copy.checked()

    async def _compare(self, copy: PartitionCopy) -> None:
        assert isinstance(copy, ExactCopy)
        tp, last = copy.tp, copy.position - 1
        theirs = await self._last_batch(copy)
        if theirs is None:
            return
        mine = header_of(theirs)
        ours = None
        with suppress(OffsetOutOfRangeError):  # deleted there, or lost: the epochs tell
            ours = await batch_at(self._source, tp, last, copy.source_epoch)
        if ours is not None and ours.base_offset <= last and unlike(header_of(ours), mine):
            raise ReplicationError(
                f"{tp}: the batch at offset {last} is another one in the target (offsets "
                f"{mine.base_offset} to {mine.last_offset}, leader epoch {mine.leader_epoch}) than "
                f"in the source ({ours.base_offset} to {ours.last_offset}, leader epoch "
                f"{ours.leader_epoch}): it is not a copy of this topic, or the source has lost "
                "records; nothing was changed"
            )
        if mine.leader_epoch >= 0:
            found = await end_of_epoch(self._source, tp, copy.source_epoch, mine.leader_epoch)
            if found.leader_epoch != mine.leader_epoch and ours is None:
                raise self._truncated(copy, found.end_offset, mine.leader_epoch)
            if 0 <= found.end_offset < copy.position and found.leader_epoch >= 0:
                raise self._truncated(copy, found.end_offset, mine.leader_epoch)

    def _truncated(self, copy: PartitionCopy, end: int, epoch: int) -> ReplicationError:
        where = f"at offset {end}" if end >= 0 else "earlier"
        return ReplicationError(
            f"{copy.tp}: leader epoch {epoch} ends {where} in the source and at {copy.position} in "
            "the target: the source has lost records (an unclean election), or the target is no "
            "copy of it; nothing was changed. Delete the copy to start again"
        )

    async def _last_batch(self, copy: PartitionCopy) -> BatchView | None:
        """The copy's last batch, when all in-sync replicas have it; None if it has none."""
        while copy.position > 0:
            last = copy.position - 1
            with suppress(OffsetOutOfRangeError):
                found = await batch_at(self._target, copy.tp, last, copy.leader_epoch, wait_ms=100)
                if found is None:
                    continue  # the high watermark is below it
                return found
            return None
        return None

    # ---- reads ----

    def _is_the_same(self, copy: PartitionCopy) -> bool:
        if not super()._is_the_same(copy):
            return False
        if self._source.view.leader_epoch(copy.tp) == copy.source_epoch:
            return True
        assert isinstance(copy, ExactCopy)
        copy.refetch()
        self._touch(copy)
        return False

    async def _plan(self, copy: PartitionCopy, row: PartitionData) -> Plan:
        found = plan_exact(row.records or b"", copy.fetch_offset)
        if found.largest_producer_id >= self.topics.least_ids.get(copy.tp.topic, 0):
            await self.reserve_ids(found.largest_producer_id)
            await self.topics.raise_least_id(copy.tp.topic, self._least_id)
        assert isinstance(copy, ExactCopy)
        if row.log_start_offset > max(copy.log_start, 0) and copy.position >= row.log_start_offset:
            await self._delete_before(copy, row.log_start_offset)
        return found.plan

    async def _delete_before(self, copy: ExactCopy, start: int) -> None:
        """The source has deleted the records before this offset."""
        code = await delete_before(self._target, copy.tp, start)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return  # the high watermark is behind
        if code != ErrorCode.NONE and error_for(code).retriable:
            self._target.want_refresh()
            return  # the next response of the source triggers it again
        copy.log_start = start
        if code != ErrorCode.NONE:
            message = f"{copy.tp}: the copy keeps offsets below {start}: {error_for(code)}"
            self._report(Event("trouble", message, copy.tp, start))
