"""Requests of the controller to other brokers about a contraction: where logs begin and end, and
which groups have not read the retired partitions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kstore.broker.state.metadata.contraction_rules import behind_words, records_left
from kstore.errors import ErrorCode, error_for
from kstore.protocol.groups.groups_behind import GroupsBehindRequest
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kstore.broker.runtime.controller.decisions import Decisions
    from kstore.broker.state.controller.state import Contraction
    from kstore.protocol.schema import Message

__all__ = ["RetiredLogs"]

OFFSETS_TOPIC = "__consumer_offsets"
EARLIEST, LATEST = -2, -1
DEBUGGING_CONSUMER = -2
"""The replica id of a requester that is not a replica."""


class RetiredLogs:
    """Sends requests to brokers that the controller knows. Raises KafkaError if one cannot be
    reached.
    """

    def __init__(self, controller: Decisions) -> None:
        self._controller = controller

    # ---- groups ----

    async def who_is_behind(self, change: Contraction, timeout_s: float) -> str:
        """The message about groups that read remaining partitions and have not read the retired
        ones, or whose coordinator does not answer. "" if there are no such groups.
        """
        offsets = self._controller.state.topics.get(OFFSETS_TOPIC)
        if offsets is None:
            return ""
        wanted: dict[int, set[int]] = defaultdict(set)
        for index, partition in enumerate(offsets.partitions):
            wanted[partition.leader].add(index)
        name, topic_id = change.topic
        retirement = self._controller.state.retirement(name)
        if retirement is None:
            return ""
        request = GroupsBehindRequest(
            topic_name=name, topic_id=topic_id,
            retired_from=retirement.first, retired_epoch=retirement.epoch,
            retired_partition_epoch=retirement.partition_epoch,
        )  # fmt: skip
        asking = {node: asyncio.ensure_future(self._ask(node, request)) for node in wanted}
        await asyncio.wait(asking.values(), timeout=timeout_s)
        groups: set[str] = set()
        silent: set[int] = set()
        for node, answer in asking.items():
            if not answer.done():
                answer.cancel()
            elif answer.exception() is None and answer.result().error_code == ErrorCode.NONE:
                groups.update(answer.result().groups)
                wanted[node] -= set(answer.result().partitions)
            silent |= wanted[node]
        if groups:
            return behind_words(groups)
        if silent:
            numbers = ", ".join(map(str, sorted(silent)))
            return (
                f"group coordinators could not say which groups are behind ({OFFSETS_TOPIC} "
                f"{numbers})"
            )
        return ""

    # ---- logs ----

    async def are_empty(self, change: Contraction) -> bool:
        """Whether the retired partitions are empty."""
        name = change.topic.name
        topic = self._controller.state.topics.get(name)
        if topic is None or topic.topic_id != change.topic.topic_id:
            return False
        retired = range(change.first, len(topic.partitions))
        starts = await self._offsets(name, retired, EARLIEST)
        if len(starts) < len(retired):
            return False
        ends = await self._offsets(name, retired, LATEST)
        return starts == ends

    async def check_priors(self, name: str, first: int) -> None:
        """Raise KafkaError if the retiring partitions must be read *after* remaining ones: an
        expansion added them, and records from before it still exist. A contraction requires the
        opposite order, so this would be a cycle.
        """
        topic = self._controller.state.topics[name]
        priors = {
            prior
            for partition in topic.partitions[first:]
            for prior in partition.prior_leader_epochs
        }
        if not priors:
            return
        starts = await self._offsets(name, {index for index, _ in priors}, EARLIEST)
        left = {
            index
            for index, epoch in priors
            if await self._epoch_end(name, index, epoch) > starts.get(index, -1)
        }
        if left:
            raise error_for(ErrorCode.POLICY_VIOLATION, records_left(name, left))

    async def _offsets(
        self, name: str, indexes: Iterable[int], timestamp: int
    ) -> Mapping[int, int]:
        """The offsets of those partitions whose leader answers."""
        found: dict[int, int] = {}
        by_leader: dict[int, list[int]] = defaultdict(list)
        for index in indexes:
            partition = self._controller.state.partition(name, index)
            if partition is not None and partition.leader >= 0:
                by_leader[partition.leader].append(index)
        for leader, led in by_leader.items():
            rows = [ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in led]
            request = ListOffsetsRequest(
                replica_id=DEBUGGING_CONSUMER,
                topics=[ListOffsetsTopic(name=name, partitions=rows)],
            )
            answer = await self._ask(leader, request)
            for row in answer.topics[0].partitions:
                if row.error_code == ErrorCode.NONE:
                    found[row.partition_index] = row.offset
        return found

    async def _epoch_end(self, name: str, index: int, epoch: int) -> int:
        partition = self._controller.state.partition(name, index)
        if partition is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        row = OffsetForLeaderPartition(partition=index, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=DEBUGGING_CONSUMER,
            topics=[OffsetForLeaderTopic(topic=name, partitions=[row])],
        )
        answer = await self._ask(partition.leader, request)
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise error_for(found.error_code)
        return int(found.end_offset)

    async def _ask(self, node: int, request: Message) -> Any:
        broker = self._controller.state.brokers.get(node)
        if broker is None:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"broker {node} is not alive")
        try:
            return await self._controller.channels.ask(broker, request)
        except OSError as problem:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, str(problem)) from problem
