"""Copies committed offsets, so that a group that moves to the target continues at the right record.

Offsets are equal in both clusters, but epochs are not: leader epochs are omitted unless the copy is
exact, partition epochs always. A commit is limited to the end of the target's log (after it a
consumer would be out of range) and advances as the log grows. The target's own commits are never
moved back: a group that has read further there keeps its position, and a group with members there
is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from kstore.clients.core.consumer.commits import commit_row, commits_of
from kstore.clients.io.cluster import GROUP
from kstore.clients.replicator.options import Event, ReplicationOptions, Report
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.groups.group_admin import ListGroupsRequest, ListGroupsResponse
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.clients.io.cluster import ClusterClient
    from kstore.protocol.schema import Message

__all__ = ["GroupCopier", "offsets_to_commit"]

MANY_GROUPS = 8  # the first version of OffsetFetch with a list of groups
BY_NAME = 9  # the last versions that name topics, which both requests have
SHARE = "share"  # groups without committed offsets
Offsets = dict[TopicPartition, OffsetAndMetadata]
HAS_MEMBERS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
}


def offsets_to_commit(
    source: Mapping[TopicPartition, OffsetAndMetadata],
    target: Mapping[TopicPartition, OffsetAndMetadata],
    log_ends: Mapping[TopicPartition, int],
) -> Offsets:
    """The offsets to commit in the target; `log_ends` are its log end offsets, by copied
    partition.
    """
    found: Offsets = {}
    for tp, committed in source.items():
        if tp not in log_ends:
            continue
        offset = min(committed.offset, log_ends[tp])
        there = target.get(tp)
        if there is None or offset > there.offset:
            epoch = committed.leader_epoch if offset == committed.offset else -1
            found[tp] = OffsetAndMetadata(offset, committed.metadata, epoch)
    return found


class GroupCopier:
    """`sync` checks all groups once."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        options: ReplicationOptions,
        report: Report,
    ) -> None:
        self._source, self._target = source, target
        self._options, self._report = options, report
        self._active: set[str] = set()
        self.copied: dict[str, int] = {}
        """The groups, and the number of partitions whose offsets were written so far."""

    async def sync(self, log_ends: Mapping[TopicPartition, int]) -> None:
        """Copy the offsets of all selected groups."""
        for group in await self._groups():
            ours = await self._offsets(self._source, group)
            if not any(tp in log_ends for tp in ours):
                continue
            theirs = await self._offsets(self._target, group)
            wanted = offsets_to_commit(ours, theirs, log_ends)
            if wanted:
                await self._commit(group, wanted)

    async def _groups(self) -> list[str]:
        pattern = self._options.groups
        if pattern is None:
            return []
        found: set[str] = set()
        for node in list(self._source.view.brokers):
            requested = await self._source.ask(node, ListGroupsRequest())
            answer = cast(ListGroupsResponse, requested)
            if answer.error_code:
                raise error_for(answer.error_code, "listing groups of the source")
            found.update(
                row.group_id
                for row in answer.groups
                if row.group_type.lower() != SHARE and pattern.fullmatch(row.group_id)
            )
        return sorted(found)

    async def _ask(self, cluster: ClusterClient, group: str, request: Message) -> Message:
        node = await cluster.coordinator(GROUP, group)
        try:
            return await cluster.ask(node, request, at_most=BY_NAME)
        except KafkaError:
            cluster.forget_coordinator(GROUP, group)
            raise

    async def _offsets(self, cluster: ClusterClient, group: str) -> Offsets:
        """A group's committed offsets; offsets of open transactions do not count yet."""
        node = await cluster.coordinator(GROUP, group)
        versions = (await cluster.connection(node)).versions
        if versions.choose(OffsetFetchRequest.API_KEY, at_most=BY_NAME) >= MANY_GROUPS:
            rows = [OffsetFetchRequestGroup(group_id=group, topics=None)]
            request = OffsetFetchRequest(groups=rows)
        else:
            request = OffsetFetchRequest(group_id=group, topics=None)
        answer = cast(OffsetFetchResponse, await self._ask(cluster, group, request))
        found = answer.groups[0] if answer.groups else answer
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if found.error_code:
            cluster.forget_coordinator(GROUP, group)
            raise error_for(found.error_code, f"offsets of group {group!r}")
        return {
            TopicPartition(topic.name, row.partition_index): OffsetAndMetadata(
                row.committed_offset,
                row.metadata or "",
                row.committed_leader_epoch if self._options.exact else -1,
            )
            for topic in found.topics or ()
            for row in topic.partitions
            if row.committed_offset >= 0 and not row.error_code
        }

    async def _commit(self, group: str, offsets: Offsets) -> None:
        request = OffsetCommitRequest(group_id=group, topics=_rows(offsets))
        answer = cast(OffsetCommitResponse, await self._ask(self._target, group, request))
        failed = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code
        }
        codes = set(failed.values())
        if codes & HAS_MEMBERS:
            if group not in self._active:
                self._active.add(group)
                message = f"group {group} has members in the target: its offsets are not changed"
                self._report(Event("group", message))
            return
        self._active.discard(group)
        for tp, code in failed.items():
            self._target.forget_coordinator(GROUP, group)
            raise error_for(code, f"group {group!r}: offset {offsets[tp].offset} of {tp}")
        self.copied[group] = self.copied.get(group, 0) + len(offsets)


def _rows(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[OffsetCommitRequestTopic]:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for tp, commit in commits_of(offsets).items():
        topic = topics.setdefault(tp.topic, OffsetCommitRequestTopic(name=tp.topic))
        topic.partitions.append(
            commit_row(OffsetCommitRequestPartition, tp.partition, commit, partition_epochs=False)
        )
    return list(topics.values())
