"""A fetch session with one broker (KIP-227): requests contain only what has changed since the last.

The broker remembers the rest. After any failure, the next request contains everything again. Also
has the request's row of one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.errors import ErrorCode
from kstore.protocol.logs.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from kstore.types import TopicPartition

__all__ = ["FetchSession", "Wanted"]

NO_SESSION, NEW_SESSION_EPOCH, LAST_EPOCH = 0, 0, -1
MAX_EPOCH = 0x7FFFFFFF
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Wanted(NamedTuple):
    """The request for one partition; the epoch is the leader epoch in the metadata."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchSession:
    """One broker's session. There is one outstanding request at a time."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = NEW_SESSION_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}
        """What the broker knows in this session; empty before a full request."""

    @property
    def is_open(self) -> bool:
        """Whether the broker has a session that should be closed."""
        return self.session_id != NO_SESSION

    def fill(
        self, request: FetchRequest, wanted: Mapping[TopicPartition, Wanted], *, by_id: bool
    ) -> None:
        """Fill a request so that exactly these partitions are fetched.

        `by_id`: topics by id, as from version 13 on.
        """
        request.session_id, request.session_epoch = self.session_id, self._epoch
        if self._epoch == NEW_SESSION_EPOCH:
            self._known = dict(wanted)
            request.topics = _topics(wanted.items(), by_id=by_id)
            return
        known = self._known
        changed = [(tp, row) for tp, row in wanted.items() if known.get(tp) != row]
        gone = [
            (tp, row)
            for tp, row in known.items()
            if tp not in wanted or (by_id and wanted[tp].topic_id != row.topic_id)
        ]
        request.topics = _topics(changed, by_id=by_id)
        request.forgotten_topics_data = _forgotten(gone, by_id=by_id)
        self._known = dict(wanted)

    def fill_last(self, request: FetchRequest) -> None:
        """Fill a request that closes the session."""
        request.session_id, request.session_epoch = self.session_id, LAST_EPOCH
        self.session_id, self._epoch, self._known = NO_SESSION, NEW_SESSION_EPOCH, {}

    def answered(self, response: FetchResponse) -> bool:
        """Process a response. Returns False if the session does not exist any more and the request
        must be sent again.

        Any other top-level error is left to `failed`.
        """
        if response.error_code in SESSION_ERRORS:
            self.session_id, self._epoch, self._known = NO_SESSION, NEW_SESSION_EPOCH, {}
            return False
        if response.error_code:
            self.failed()
            return True
        self.session_id = response.session_id
        if self.session_id == NO_SESSION:
            self._epoch, self._known = NEW_SESSION_EPOCH, {}
        else:
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        return True

    def failed(self) -> None:
        """The request failed: start a new session, which replaces the old one at the broker."""
        self._epoch, self._known = NEW_SESSION_EPOCH, {}


def _topics(rows: Iterable[tuple[TopicPartition, Wanted]], *, by_id: bool) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for tp, row in rows:
        topic = topics.get(tp.topic)
        if topic is None:
            topic = FetchTopic(topic_id=row.topic_id) if by_id else FetchTopic(topic=tp.topic)
            topics[tp.topic] = topic
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=row.leader_epoch,
                fetch_offset=row.offset,
                partition_max_bytes=row.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(
    rows: Iterable[tuple[TopicPartition, Wanted]], *, by_id: bool
) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for tp, row in rows:
        key = tp.topic, row.topic_id
        if key not in topics:
            topics[key] = (
                ForgottenTopic(topic_id=row.topic_id) if by_id else ForgottenTopic(topic=tp.topic)
            )
        topics[key].partitions.append(tp.partition)
    return list(topics.values())
