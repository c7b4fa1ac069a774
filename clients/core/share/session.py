"""A share session with one broker (KIP-932): requests contain only what has changed since the last.

The first request has epoch 0 and no acknowledgements, the next 1, and so on; -1 ends the session
and releases the records that the member still holds there. After any failure the next request
starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from kstore.clients.core.share.acknowledgements import ranges
from kstore.errors import ErrorCode
from kstore.protocol.shares.acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestAcknowledgementBatch,
)
from kstore.protocol.shares.fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchRequestAcknowledgementBatch,
)

__all__ = ["SESSION_ERRORS", "ShareSession"]

NEW_EPOCH, LAST_EPOCH, MAX_EPOCH = 0, -1, 0x7FFFFFFF
SESSION_ERRORS = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
Partition = tuple[UUID, int]
Types = Mapping[Partition, Mapping[int, int]]


class ShareSession:
    """One broker's session. There is one outstanding request at a time."""

    def __init__(self) -> None:
        self.epoch = NEW_EPOCH
        self._known: frozenset[Partition] = frozenset()

    @property
    def is_new(self) -> bool:
        """Whether the broker has no session, so that nothing can be acknowledged."""
        return self.epoch == NEW_EPOCH

    def fill_fetch(
        self, request: ShareFetchRequest, wanted: Iterable[Partition], types: Types
    ) -> None:
        """Fill a request that fetches exactly these partitions, and acknowledges records of some of
        them.
        """
        names = frozenset(wanted)
        request.share_session_epoch = self.epoch
        request.topics = []
        topics: dict[UUID, FetchTopic] = {}
        for topic_id, index in sorted((names - self._known) | set(types)):
            if topic_id not in topics:
                topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
                request.topics.append(topics[topic_id])
            batches = [
                ShareFetchRequestAcknowledgementBatch(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    acknowledge_types=list(each.types),
                )
                for each in ranges(types.get((topic_id, index), {}))
            ]
            topics[topic_id].partitions.append(
                FetchPartition(partition_index=index, acknowledgement_batches=batches)
            )
        request.forgotten_topics_data = _forgotten(self._known - names)
        self._known = names

    def fill_acknowledge(
        self, request: ShareAcknowledgeRequest, types: Types, *, is_last: bool = False
    ) -> None:
        """Fill a request that acknowledges, and ends the session if it is the last."""
        request.share_session_epoch = LAST_EPOCH if is_last else self.epoch
        topics: dict[UUID, AcknowledgeTopic] = {}
        for topic_id, index in sorted(types):
            topic = topics.setdefault(topic_id, AcknowledgeTopic(topic_id=topic_id, partitions=[]))
            batches = [
                ShareAcknowledgeRequestAcknowledgementBatch(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    acknowledge_types=list(each.types),
                )
                for each in ranges(types[topic_id, index])
            ]
            topic.partitions.append(
                AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            )
        request.topics = list(topics.values())
        if is_last:
            self.failed()

    def answered(self) -> None:
        """The broker has accepted the request."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def failed(self) -> None:
        """The request failed, or the session does not exist any more: the next request starts
        again.
        """
        self.epoch, self._known = NEW_EPOCH, frozenset()


def _forgotten(gone: Iterable[Partition]) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for topic_id, index in sorted(gone):
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[]))
        topics[topic_id].partitions.append(index)
    return list(topics.values())
