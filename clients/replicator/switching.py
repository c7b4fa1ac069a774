"""The planned switch from a source to its exact copy: when the source has no more writers and no
open transaction, the copy is compared with it, and accepts records of its own from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from kstore.clients.core.exact_copies import header_of, unlike
from kstore.clients.replicator.exact_wire import batch_at
from kstore.clients.replicator.options import Event, ReplicationError, Report
from kstore.clients.replicator.wire import EARLIEST, LATEST, end_of
from kstore.errors import OffsetNotAvailableError, OffsetOutOfRangeError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients.io.cluster import ClusterClient
    from kstore.clients.replicator.exact import ExactCopier
    from kstore.clients.replicator.topics import TopicCopier

__all__ = ["Ends", "Switch"]

PAUSE_S = 0.2
REPORT_AFTER = 25  # checks
Ends = Mapping[TopicPartition, int]


class Switch:
    """One switch of all topics that are copied."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        topics: TopicCopier,
        copier: ExactCopier,
        report: Report,
    ) -> None:
        self._source, self._target = source, target
        self._topics, self._copier, self._report = topics, copier, report
        self._timeout_ms: int = source.settings["default.api.timeout.ms"]

    async def check_earlier(self) -> None:
        """Check topics that an earlier run had switched before it was killed: the source must not
        have newer records. Raises ReplicationError if it has.
        """
        for name in self._topics.passed_over:
            for row in self._source.view.topics[name].partitions:
                tp = TopicPartition(name, row.partition)
                check = partial(self._check_earlier, tp)
                await self._source.retrying(check, self._timeout_ms, [name])
            message = f"topic {name} was switched by an earlier run: the copy has all of the source"
            self._report(Event("switched", message))

    async def _check_earlier(self, tp: TopicPartition) -> None:
        """Whether the copy has the source's last batch."""
        epoch = self._source.view.leader_epoch(tp)
        end = await _end_of(self._source, tp, 0)
        if end == 0 or end == await end_of(self._source, tp, epoch, EARLIEST):
            return  # nothing is left to compare
        has_all = await _end_of(self._target, tp, 0) >= end
        if has_all:
            ours = await batch_at(self._source, tp, end - 1, epoch)
            try:
                theirs = await batch_at(
                    self._target, tp, end - 1, self._target.view.leader_epoch(tp)
                )
            except OffsetOutOfRangeError:
                return  # the copy has deleted it
            if ours is None or theirs is None:
                raise OffsetNotAvailableError(f"{tp}: offset {end - 1} is not committed yet")
            if max(ours.base_offset, theirs.base_offset) >= end:
                return  # compacted away, there or here: nothing is left to compare
            has_all = not unlike(header_of(ours), header_of(theirs))
        if not has_all:
            raise ReplicationError(
                f"{tp}: an earlier run has switched the topic, then the source has had records: "
                f"offset {end - 1} of the source is not in the copy, which accepts records now"
            )

    async def fence(self) -> None:
        """Make the source's topics refuse producers; markers of open transactions are still
        accepted.
        """
        for name in self._names():
            await self._topics.set_mirror(self._source, name, on=True)
            self._report(Event("fenced", f"topic {name} of the source refuses producers"))

    async def until_at_rest(self) -> Ends:
        """Wait until the copy has the whole source, which has no open transaction and has not grown
        between two checks; returns the partitions' end offsets.
        """
        before: Ends | None = None
        looks = 0
        while True:
            ends, stable = await self._ends(self._source, 0), await self._ends(self._source, 1)
            copied = await self._ends(self._target, 0)
            open_ones = [tp for tp in ends if stable[tp] != ends[tp]]
            missing = [tp for tp in ends if copied[tp] < ends[tp]]
            if not open_ones and not missing and ends == before:
                return ends
            before = ends
            looks += 1
            if looks % REPORT_AFTER == 0:
                self._report_open(open_ones, missing)
            await asyncio.sleep(PAUSE_S)
            self._raise_failures()

    def _raise_failures(self) -> None:
        for copy in self._copier.copies.values():
            if copy.problem is not None:
                raise ReplicationError(f"the copy is not switched: {copy.problem}")

    def _report_open(self, open_ones: list[TopicPartition], missing: list[TopicPartition]) -> None:
        why = "the source still grows: stop its producers"
        if open_ones:
            why = f"transactions are open in {len(open_ones)} partitions, the first: {open_ones[0]}"
        elif missing:
            why = f"{len(missing)} partitions are not copied, the first: {missing[0]}"
        self._report(Event("waiting", why))

    async def finish(self, ends: Ends) -> None:
        """Compare the copy with the source, and make the target's topics accept records. Raises
        ReplicationError if they differ, or if the source has grown meanwhile.
        """
        copied = await self._ends(self._target, 0)
        for tp, end in ends.items():
            if copied[tp] != end:
                raise ReplicationError(
                    f"{tp} ends at {copied[tp]} in the target and at {end} in the source: "
                    "the copy is not switched"
                )
        await self._copier.check_all()
        self._raise_failures()
        for name in self._names():
            await self._topics.set_mirror(self._target, name, on=False)
        for tp, end in (await self._ends(self._source, 0)).items():
            if end != ends[tp]:
                raise ReplicationError(
                    f"{tp}: a producer wrote to the source during the switch: offsets "
                    f"{ends[tp]} to {end - 1} are not in the copy, which accepts records now"
                )

    def _names(self) -> list[str]:
        return sorted({tp.topic for tp in self._copier.copies})

    async def _ends(self, cluster: ClusterClient, isolation: int) -> dict[TopicPartition, int]:
        found = {}
        for tp in list(self._copier.copies):
            ask = partial(_end_of, cluster, tp, isolation)
            found[tp] = await cluster.retrying(ask, self._timeout_ms, [tp.topic])
        return found


async def _end_of(cluster: ClusterClient, tp: TopicPartition, isolation: int) -> int:
    return await end_of(cluster, tp, cluster.view.leader_epoch(tp), LATEST, isolation)
