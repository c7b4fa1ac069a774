"""A member of a share group by raw requests, with a session on one broker: what a test wants to see
of ShareFetch and ShareAcknowledge, error codes and all.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tests.broker.harness.wire import Wire
from tests.plain_messages import Ask

Ranges = Sequence[tuple[int, int, Sequence[int]]]


class Row(NamedTuple):
    """What an answer says of a partition."""

    error: int
    acknowledge_error: int
    acquired: list[tuple[int, int, int]]
    size: int


def new_topic(line: Wire, partitions: int = 1) -> tuple[str, UUID]:
    """A topic of a name that no other has, and its id."""
    name = f"t-{uuid.uuid4()}"
    return name, line.make_topic(name, partitions)


class ShareMember:
    """One member, of a topic with one partition."""

    def __init__(self, bootstrap: str, group_id: str, topic_id: UUID, name: str = "") -> None:
        self.line = Wire(bootstrap)
        self.group_id = group_id
        self.member_id = name or str(uuid.uuid4())
        self.topic_id = topic_id
        self.epoch = 0
        """Of the next request."""

    def join(self, topic: str) -> None:
        """Have the group begin in the topic: its state is there when the member has a partition."""
        epoch = 0
        while True:
            self.line.call(Ask.FindCoordinator(key_type=0, coordinator_keys=[self.group_id]))
            who = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": epoch}
            request = Ask.ShareGroupHeartbeat(**who, subscribed_topic_names=[topic])
            response = self.line.call(request)
            if response.error_code == 0:
                epoch = response.member_epoch
                if response.assignment is not None and response.assignment.topic_partitions:
                    return
            time.sleep(0.02)

    @property
    def _who(self) -> dict[str, Any]:
        ids = {"group_id": self.group_id, "member_id": self.member_id}
        return {**ids, "share_session_epoch": self.epoch}

    def fetch(
        self, *ranges: tuple[int, int, Sequence[int]], wait_ms: int = 0, forget: bool = False,
        **fields: Any,
    ) -> tuple[int, Row | None]:  # fmt: skip
        """(the error of all of it, what it says of the partition)."""
        sizes = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        forgotten = [{"topic_id": self.topic_id, "partitions": [0]}] if forget else []
        request = Ask.ShareFetch(
            **self._who, **(sizes | fields), max_wait_ms=wait_ms,
            topics=[] if forget else self._topics(ranges), forgotten_topics_data=forgotten,
        )  # fmt: skip
        return self._take(self.line.call(request))

    def acknowledge(
        self, *ranges: tuple[int, int, Sequence[int]], **fields: Any
    ) -> tuple[int, Row | None]:
        """As fetch; the row's error is that of the acknowledgement."""
        request = Ask.ShareAcknowledge(**self._who, topics=self._topics(ranges), **fields)
        return self._take(self.line.call(request))

    def _topics(self, ranges: Ranges) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in ranges
        ]
        row = {"partition_index": 0, "acknowledgement_batches": batches}
        return [{"topic_id": self.topic_id, "partitions": [row]}]

    def _take(self, response: Any) -> tuple[int, Row | None]:
        if response.error_code == 0:
            self.epoch += 1
        for topic in response.responses:
            for row in topic.partitions:
                acquired = [
                    (one.first_offset, one.last_offset, one.delivery_count)
                    for one in getattr(row, "acquired_records", ())
                ]
                told = getattr(row, "acknowledge_error_code", 0)
                size = len(getattr(row, "records", b"") or b"")
                return response.error_code, Row(row.error_code, told, acquired, size)
        return response.error_code, None

    def leave(self) -> None:
        """End the session."""
        self.epoch = -1
        self.acknowledge()
        self.epoch = 0
