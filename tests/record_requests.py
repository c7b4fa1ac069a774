"""Requests that many tests send: Produce, Fetch, ListOffsets, OffsetCommit and OffsetFetch for one
topic, and the only row of their responses; joins of groups, and the producer's fields in requests
of a transaction. A topic is a name, or an id in the versions with ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kstore.protocol.groups.offsets import OffsetCommitRequest
from kstore.protocol.logs.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kstore.protocol.schema import ZERO_UUID, Message
from tests.plain_messages import Ask


def produce_request(
    topic: str | UUID, *batches: bytes | None, first: int = 0, at: Sequence[int] | None = None,
    count: int = -1, acks: int = 1, timeout_ms: int = 1000, row: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ProduceRequest:  # fmt: skip
    """A batch for each partition from ``first`` on, or for the partitions ``at``. ``row`` has more
    fields for each row; ``count`` is KIP-253's partition count.
    """
    rows = [
        PartitionProduceData(index=at[i] if at else first + i, records=data, **(row or {}))
        for i, data in enumerate(batches)
    ]
    named = {"topic_id" if isinstance(topic, UUID) else "name": topic}
    data = [TopicProduceData(partition_data=rows, partition_count=count, **named)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data, **fields)


def fetch_part(
    offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20, **fields: Any
) -> FetchPartition:
    """One partition from an offset on."""
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields
    )


def fetch_request(
    topic: str | UUID, *parts: FetchPartition | int, node: int | None = None, epoch: int = -1,
    **fields: Any,
) -> FetchRequest:  # fmt: skip
    """A number is an offset of partition 0. The request waits only if ``max_wait_ms`` says so. With
    ``node`` (and its broker ``epoch``) it comes from a follower.
    """
    rows = [fetch_part(part) if isinstance(part, int) else part for part in parts]
    named = {"topic_id" if isinstance(topic, UUID) else "topic": topic}
    if node is not None:
        fields["replica_state"] = ReplicaState(replica_id=node, replica_epoch=epoch)
    topics = [FetchTopic(partitions=rows, **named)] if rows else []
    return FetchRequest(topics=topics, **{"max_wait_ms": 0, "min_bytes": 1, **fields})


def commit_request(
    topic: str, offsets: Mapping[int, int], group: str = "g", *, topic_id: UUID = ZERO_UUID,
    row: Mapping[str, Any] | None = None, **fields: Any,
) -> OffsetCommitRequest:  # fmt: skip
    """An offset for each partition. ``row`` has more fields for each row. Without ``fields`` the
    committer is no member of the group.
    """
    rows = [
        {"partition_index": index, "committed_offset": offset, **(row or {})}
        for index, offset in offsets.items()
    ]
    named = {"name": topic, "topic_id": topic_id, "partitions": rows}
    return Ask.OffsetCommit(group_id=group, topics=[named], **fields)


def list_request(
    topic: str, timestamp: int = -1, partition: int = 0, row: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Message:  # fmt: skip
    """ListOffsets of one partition; -1 requests its end."""
    asked = {"partition_index": partition, "timestamp": timestamp, **(row or {})}
    topics = [{"name": topic, "partitions": [asked]}]
    return Ask.ListOffsets(**{"replica_id": -1, "topics": topics, **fields})


def offsets_request(
    topic: str, *partitions: int, group: str = "g", topic_id: UUID = ZERO_UUID,
    require_stable: bool = False, **who: Any,
) -> Message:  # fmt: skip
    """OffsetFetch of one group, from version 8 on."""
    row = {"name": topic, "topic_id": topic_id, "partition_indexes": list(partitions)}
    groups = [{"group_id": group, "topics": [row], **who}]
    return Ask.OffsetFetch(groups=groups, require_stable=require_stable)


def join_request(
    group: str = "g", member_id: str = "", metadata: bytes = b"", *, ms: int = 30_000, **fields: Any
) -> Message:
    """JoinGroup of a consumer with the assignor "range"; both of its timeouts are ``ms``."""
    said = {
        "session_timeout_ms": ms, "rebalance_timeout_ms": ms, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }  # fmt: skip
    return Ask.JoinGroup(group_id=group, member_id=member_id, **(said | fields))


def producer_fields(name: str, who: Any, epoch: int = 0) -> dict[str, Any]:
    """The producer's fields in requests of a transaction; ``who``: InitProducerId's response."""
    found = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch + epoch}
    return {"transactional_id": name, **found}


def add_request(name: str, who: Any, topics: Mapping[str, list[int]], epoch: int = 0) -> Message:
    """AddPartitionsToTxn, up to version 3."""
    rows = [{"name": topic, "partitions": list(indexes)} for topic, indexes in topics.items()]
    said = producer_fields(name, who, epoch) | {"topics": rows}
    return Ask.AddPartitionsToTxn(**{f"v3_and_below_{key}": said[key] for key in said})


def only(response: Any) -> Any:
    """The only row in the response to a request about one partition."""
    [topic] = response.responses
    is_fetched = hasattr(topic, "partitions")
    [partition] = topic.partitions if is_fetched else topic.partition_responses
    return partition
