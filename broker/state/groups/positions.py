"""Positions in heartbeats (KIP-253): the positions that members of a group report and request. They
are soft state from each member's last heartbeat. The step that decides about a heartbeat reads
them, and the shard's `take_over` stores them.

A member that waits until a prior partition is read gets the larger of the last reported position
and the committed offset. So a partition without an owner, or one that has just moved, cannot block
it forever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kstore.broker.state.groups.contract import ShardState
from kstore.broker.state.groups.result import GroupContext, Report, Result
from kstore.broker.state.metadata.image import NO_EPOCH, MetadataImage, partition_epoch_error
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import NeedPositionTopic, PositionPartition, PositionTopic
from kstore.protocol.schema import ZERO_UUID

__all__ = ["Positions", "committed_offset", "exchange"]

PartitionKey = tuple[str, int]
NO_POSITION = -1


class Positions:
    """The reports of the groups of one shard. Groups that do not use positions have none."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Report]] = {}

    def of(self, group_id: str, members: Iterable[str]) -> dict[str, Report]:
        """The reports of current members."""
        reports = self._groups.get(group_id)
        if not reports:
            return {}
        return {member: reports[member] for member in members if member in reports}

    def replace(self, group_id: str, reports: dict[str, Report]) -> None:
        """Replace a group's reports."""
        if reports:
            self._groups[group_id] = reports
        else:
            self._groups.pop(group_id, None)

    def __len__(self) -> int:
        return len(self._groups)


def exchange(
    shard: ShardState, positions: Positions, request: Any, result: Result, ctx: GroupContext
) -> Result:
    """Add to the response to a heartbeat the positions that it requests, and the partitions that
    any member requests. Returns the reports to store.
    """
    response: Any = result.response
    if response is None or response.error_code != ErrorCode.NONE:
        return result
    group_id: str = request.group_id
    group: Any = shard.groups.get(group_id)
    members = () if group is None else group.members
    known = positions.of(group_id, members)
    if not (request.need_position or request.position or known):
        return result
    report = _report(request, ctx.image)
    member_id: str = getattr(response, "member_id", None) or request.member_id
    reports = {name: each for name, each in known.items() if name != member_id}
    if (report.needed or report.positions) and getattr(response, "member_epoch", 0) >= 0:
        reports[member_id] = report
    if ctx.extended:
        response.need_position = _need(reports.values())
    response.position = _answer(shard, group_id, report.needed, reports.values(), ctx.image)
    return result._replace(reports=(group_id, reports))


def committed_offset(
    shard: ShardState, group_id: str, topic: str, index: int, image: MetadataImage | None
) -> int:
    """The group's committed offset for this partition, and not for one of a deleted topic with the
    same name. -1 if there is none.
    """
    stored = shard.offsets.get(group_id, topic, index)
    if stored is None:
        return NO_POSITION
    known = None if image is None else image.topics.get(topic)
    if known is not None:
        if stored.topic_id not in (ZERO_UUID, known.topic_id):
            return NO_POSITION
        if image is not None and image.has_replaced(topic, index, stored.partition_epoch):
            return NO_POSITION
    return stored.offset


def _report(request: Any, image: MetadataImage | None) -> Report:
    """The request's report about existing partitions. Others are left out, so that they use no
    memory.
    """

    def exists(topic: str, index: int, epoch: int = NO_EPOCH) -> bool:
        if image is None:
            return True
        there = image.partition(topic, index)
        return there is not None and not partition_epoch_error(epoch, there.partition_epoch)

    needed = frozenset(
        (topic.topic, index)
        for topic in request.need_position
        for index in topic.partitions
        if exists(topic.topic, index)
    )
    reported = {
        (topic.topic, row.partition): (row.position, _epoch(image, topic.topic, row.partition))
        for topic in request.position
        for row in topic.partitions
        if row.position >= 0 and exists(topic.topic, row.partition, row.partition_epoch)
    }
    return Report(needed, reported)


def _epoch(image: MetadataImage | None, topic: str, index: int) -> int:
    there = None if image is None else image.partition(topic, index)
    return NO_EPOCH if there is None else there.partition_epoch


def _need(reports: Iterable[Report]) -> list[NeedPositionTopic]:
    wanted = sorted(set().union(*(report.needed for report in reports)))
    topics: dict[str, NeedPositionTopic] = {}
    for topic, index in wanted:
        row = topics.setdefault(topic, NeedPositionTopic(topic=topic, partitions=[]))
        row.partitions.append(index)
    return list(topics.values())


def _answer(
    shard: ShardState,
    group_id: str,
    needed: Iterable[PartitionKey],
    reports: Iterable[Report],
    image: MetadataImage | None,
) -> list[PositionTopic]:
    reported = [report.positions for report in reports]
    topics: dict[str, PositionTopic] = {}
    for topic, index in sorted(needed):
        best = committed_offset(shard, group_id, topic, index, image)
        epoch = _epoch(image, topic, index)
        for positions in reported:
            position, of_life = positions.get((topic, index), (NO_POSITION, epoch))
            if of_life == epoch:  # otherwise the report is about another topic of that name
                best = max(best, position)
        row = topics.setdefault(topic, PositionTopic(topic=topic, partitions=[]))
        found = PositionPartition(partition=index, position=best, partition_epoch=epoch)
        row.partitions.append(found)
    return list(topics.values())
