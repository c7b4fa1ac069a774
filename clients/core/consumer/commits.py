"""Committed offsets of a group: builds requests and interprets responses. The shell
(io/coordinator) sends, waits and retries.

With KIP-232 a commit has the partition epoch of the offset in addition to the leader epoch, and
OffsetFetch returns both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from kstore.clients.core.consumer.positions import committable, committed_position
from kstore.clients.core.consumer.subscription import Position
from kstore.clients.core.group.group_step import (
    COORDINATOR_LOADING,
    COORDINATOR_MOVED,
    CommitClaim,
)
from kstore.errors import (
    CommitFailedError,
    ErrorCode,
    InvalidLeaderEpochError,
    InvalidPartitionEpochError,
    KafkaError,
    RebalanceInProgressError,
    error_for,
)
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)
from kstore.protocol.schema import ZERO_UUID
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.protocol.transactions.transactions import TxnOffsetCommitRequestPartition

__all__ = [
    "AutoCommit",
    "Commit",
    "CommitVerdict",
    "Verdict",
    "commit_request",
    "commit_row",
    "commit_verdict",
    "commits_of",
    "fetch_request",
    "fetched_offset",
    "fetched_offsets",
    "request_version",
]

R = TypeVar("R", OffsetCommitRequestPartition, "TxnOffsetCommitRequestPartition")
BY_TOPIC_ID = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by id."""
RETRIED = COORDINATOR_LOADING | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
MOVED = COORDINATOR_MOVED | {ErrorCode.REQUEST_TIMED_OUT}
NO_MEMBER = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Commit(NamedTuple):
    """The committed offset of a partition: converts between the users' form and the protocol's."""

    position: Position
    metadata: str = ""


def commits_of(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, Commit]:
    """From the users' form. Raises ValueError for an unreadable offset epoch."""
    return {
        tp: Commit(committed_position(given, uses_partition_epochs=True), given.metadata)
        for tp, given in offsets.items()
    }


def commit_row(row: type[R], partition: int, commit: Commit, *, partition_epochs: bool) -> R:
    """A partition's row of OffsetCommit or TxnOffsetCommit. ``partition_epochs``: the broker
    supports KIP-232.
    """
    position = commit.position
    return row(
        partition_index=partition,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        committed_metadata=commit.metadata,
        partition_epoch=position.partition_epoch if partition_epochs else -1,
    )


def fetched_offset(row: OffsetFetchResponsePartitions) -> OffsetAndMetadata:
    """The users' form of a partition's row of OffsetFetch."""
    position = Position(row.committed_offset, row.committed_leader_epoch, row.partition_epoch)
    return committable(position, row.metadata or "")


def request_version(names: Iterable[str], topic_ids: Mapping[str, UUID]) -> int:
    """The newest version of OffsetCommit and OffsetFetch that may be used: by id only if all topics
    have one.
    """
    known = all(topic_ids.get(name, ZERO_UUID) != ZERO_UUID for name in names)
    return BY_TOPIC_ID if known else BY_TOPIC_ID - 1


def commit_request(
    group_id: str,
    claim: CommitClaim,
    commits: Mapping[TopicPartition, Commit],
    topic_ids: Mapping[str, UUID],
    *,
    partition_epochs: bool,
) -> OffsetCommitRequest:
    """A request for all offsets. Raises ValueError for a negative offset. ``partition_epochs``: the
    broker supports KIP-232.
    """
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for tp, commit in sorted(commits.items()):
        if commit.position.offset < 0:
            raise ValueError(f"{tp}: {commit.position.offset} is not a committable offset")
        row = topics.get(tp.topic)
        if row is None:
            topic_id = topic_ids.get(tp.topic, ZERO_UUID)
            row = OffsetCommitRequestTopic(name=tp.topic, topic_id=topic_id, partitions=[])
            topics[tp.topic] = row
        row.partitions.append(
            commit_row(
                OffsetCommitRequestPartition,
                tp.partition,
                commit,
                partition_epochs=partition_epochs,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=claim.generation,
        member_id=claim.member_id,
        group_instance_id=claim.instance_id,
        topics=list(topics.values()),
    )


class Verdict(Enum):
    """What to do after a response."""

    DONE = "done"
    RETRY = "retry"
    MOVED = "moved"
    """Look up the coordinator again, then retry."""
    FAILED = "failed"


class CommitVerdict(NamedTuple):
    """The result of an OffsetCommit response as a whole."""

    verdict: Verdict
    error: KafkaError | None = None
    membership_code: int = 0
    """If not 0, the member must know it (its `commit_failed`)."""
    taken: frozenset[TopicPartition] = frozenset()
    """The partitions whose offsets were committed."""


def commit_verdict(request: OffsetCommitRequest, response: OffsetCommitResponse) -> CommitVerdict:
    """The worst error of the partitions: one that is not retriable, else one that is."""
    names = {topic.topic_id: topic.name for topic in request.topics}
    found: dict[TopicPartition, int] = {}
    for topic in response.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for row in topic.partitions:
            found[TopicPartition(name, row.partition_index)] = row.error_code
    taken = frozenset(tp for tp, code in found.items() if code == ErrorCode.NONE)
    failed = {tp: code for tp, code in found.items() if code != ErrorCode.NONE}
    for tp, code in failed.items():
        if code not in RETRIED and code not in MOVED:
            return _refused(tp, code, failed, taken)
    if not failed:
        return CommitVerdict(Verdict.DONE, taken=taken)
    code = max(failed.values(), key=lambda code: code in MOVED)
    verdict = Verdict.MOVED if code in MOVED else Verdict.RETRY
    return CommitVerdict(verdict, error_for(code), taken=taken)


def _refused(
    tp: TopicPartition,
    code: int,
    failed: Mapping[TopicPartition, int],
    taken: frozenset[TopicPartition],
) -> CommitVerdict:
    same = sorted(tp for tp, other in failed.items() if other == code)
    names = ", ".join(map(str, same))
    error: KafkaError
    membership = code
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        error = RebalanceInProgressError(
            "the group is rebalancing: call poll() until that is done, then commit what is still "
            "assigned"
        )
    elif code in NO_MEMBER:
        error = CommitFailedError(
            f"the commit was refused ({error_for(code).error_name}): the partitions may have been "
            "given to other members. Poll more often, or take fewer records (max.poll.records)"
        )
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        error = error_for(code)
    else:
        error, membership = _about_offsets(code, names), 0
    return CommitVerdict(Verdict.FAILED, error, membership, taken)


def _about_offsets(code: int, names: str) -> KafkaError:
    if code == ErrorCode.INVALID_PARTITION_EPOCH:
        return InvalidPartitionEpochError(
            f"the offsets of {names} are of an earlier topic of this name: the topic was "
            "deleted and created again; seek to where you want to continue, then commit"
        )
    if code == ErrorCode.INVALID_LEADER_EPOCH:
        return InvalidLeaderEpochError(
            f"the offsets of {names} have an older leader epoch than the committed ones: a member "
            "with newer metadata has committed since, or the log was truncated"
        )
    return error_for(code, f"commit of {names}: {error_for(code).description}")


def fetch_request(
    group_id: str,
    claim: CommitClaim | None,
    partitions: Collection[TopicPartition],
    topic_ids: Mapping[str, UUID],
    partition_epoch: Callable[[TopicPartition], int] | None = None,
) -> OffsetFetchRequest:
    """A request for committed offsets (version 8 and later). ``claim`` is the claim of a member of
    the consumer protocol: a former member gets an error. ``partition_epoch`` identifies the
    partitions if topics are named (KIP-232), if the broker checks it.
    """
    topics: dict[str, OffsetFetchRequestTopics] = {}
    for tp in sorted(partitions):
        row = topics.get(tp.topic)
        if row is None:
            topic_id = topic_ids.get(tp.topic, ZERO_UUID)
            row = OffsetFetchRequestTopics(
                name=tp.topic, topic_id=topic_id, partition_indexes=[], partition_epochs=[]
            )
            topics[tp.topic] = row
        row.partition_indexes.append(tp.partition)
        if partition_epoch is not None:
            row.partition_epochs.append(partition_epoch(tp))
    for row in topics.values():
        if max(row.partition_epochs, default=-1) < 0:
            row.partition_epochs = []
    group = OffsetFetchRequestGroup(group_id=group_id, topics=list(topics.values()))
    if claim is not None:
        group.member_id, group.member_epoch = claim.member_id, claim.generation
    return OffsetFetchRequest(groups=[group], require_stable=True)


def fetched_offsets(
    request: OffsetFetchRequest, response: OffsetFetchResponse
) -> dict[TopicPartition, OffsetAndMetadata | None] | KafkaError:
    """The offsets, None for partitions without one; or the error of the response."""
    group = response.groups[0]
    if group.error_code != ErrorCode.NONE:
        return error_for(group.error_code)
    names = {topic.topic_id: topic.name for topic in request.groups[0].topics or ()}
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for row in topic.partitions:
            tp = TopicPartition(name, row.partition_index)
            code = row.error_code
            if code == ErrorCode.INVALID_PARTITION_EPOCH:
                code = ErrorCode.UNKNOWN_TOPIC_ID  # the metadata is older than the topic
            if code != ErrorCode.NONE:
                return error_for(code, f"committed offset of {tp}")
            found[tp] = None if row.committed_offset < 0 else fetched_offset(row)
    return found


class AutoCommit:
    """When enable.auto.commit commits: every auto.commit.interval.ms, in a poll; one commit at a
    time.
    """

    def __init__(self, interval_ms: int, backoff_ms: int) -> None:
        self._interval_ms = interval_ms
        self._backoff_ms = backoff_ms
        self._next_ms: int | None = None
        self._in_progress = False

    def is_due(self, now_ms: int) -> bool:
        """Whether to commit now; the first call only starts the clock."""
        if self._next_ms is None:
            self._next_ms = now_ms + self._interval_ms
        return not self._in_progress and now_ms >= self._next_ms

    def begin(self, now_ms: int) -> None:
        """A commit was sent."""
        self._in_progress = True
        self._next_ms = now_ms + self._interval_ms

    def end(self, now_ms: int, *, retry: bool) -> None:
        """The commit is done; ``retry``: it failed, and may succeed after retry.backoff.ms."""
        self._in_progress = False
        if retry:
            self._next_ms = now_ms + self._backoff_ms
