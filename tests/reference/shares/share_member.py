"""A member of a share group by raw requests, with a session on one broker: what a test wants to see
of ShareFetch and ShareAcknowledge, error codes and all.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.metadata.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kstore.protocol.metadata.topics import CreatableTopic, CreateTopicsRequest
from kstore.protocol.registry import APIS, decode_response, encode_request
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
from kstore.protocol.shares.heartbeat import ShareGroupHeartbeatRequest

__all__ = ["Line", "Row", "ShareMember", "new_topic", "set_group"]

GROUP_RESOURCE = 32
Ranges = Sequence[tuple[int, int, Sequence[int]]]


class Row(NamedTuple):
    """What an answer says of a partition."""

    error: int
    acknowledge_error: int
    acquired: list[tuple[int, int, int]]
    size: int


class Line:
    """A connection that asks one request after the other."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)

    def ask(self, request: Any) -> Any:
        """The response, in the highest version."""
        version = APIS[request.API_KEY].max_version
        self._socket.sendall(encode_request(request, version, 1, "test"))
        size = int.from_bytes(self._read(4), "big")
        response = APIS[request.API_KEY].response
        return decode_response(self._read(size), response, version)[1]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data

    def shut_down(self) -> None:
        """End the connection, under another thread that waits for an answer."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def new_topic(line: Line, partitions: int = 1) -> tuple[str, UUID]:
    """A topic of a name that no other has, and its id."""
    name = f"t-{uuid.uuid4()}"
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    made = line.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0]
    assert made.error_code == 0
    return name, made.topic_id


def set_group(line: Line, group_id: str, **settings: object) -> None:
    """Settings of a group: ``share_isolation_level="read_committed"``."""
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=str(value))
        for name, value in settings.items()
    ]
    row = AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group_id, configs=configs
    )
    response = line.ask(IncrementalAlterConfigsRequest(resources=[row])).responses[0]
    assert response.error_code == 0, response


class ShareMember:
    """One member, of a topic with one partition."""

    def __init__(self, bootstrap: str, group_id: str, topic_id: UUID, name: str = "") -> None:
        self.line = Line(bootstrap)
        self.group_id = group_id
        self.member_id = name or str(uuid.uuid4())
        self.topic_id = topic_id
        self.epoch = 0
        """Of the next request."""

    def join(self, topic: str) -> None:
        """Have the group begin in the topic: its state is there when the member has a partition."""
        epoch = 0
        while True:
            self.line.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id]))
            response = self.line.ask(
                ShareGroupHeartbeatRequest(
                    group_id=self.group_id,
                    member_id=self.member_id,
                    member_epoch=epoch,
                    subscribed_topic_names=[topic],
                )
            )
            if response.error_code == 0:
                epoch = response.member_epoch
                if response.assignment is not None and response.assignment.topic_partitions:
                    return
            time.sleep(0.02)

    def fetch(
        self,
        *ranges: tuple[int, int, Sequence[int]],
        max_records: int = 500,
        wait_ms: int = 0,
        batch_size: int = 500,
        mode: int = 0,
        renew: bool = False,
        forget: bool = False,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> tuple[int, Row | None]:
        """(the error of all of it, what it says of the partition)."""
        batches = [
            ShareFetchRequestAcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in ranges
        ]
        row = FetchPartition(partition_index=0, acknowledgement_batches=batches)
        topics = [FetchTopic(topic_id=self.topic_id, partitions=[row])]
        forgotten = [ForgottenTopic(topic_id=self.topic_id, partitions=[0])]
        response = self.line.ask(
            ShareFetchRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                share_session_epoch=self.epoch,
                max_wait_ms=wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                max_records=max_records,
                batch_size=batch_size,
                share_acquire_mode=mode,
                is_renew_ack=renew,
                topics=[] if forget else topics,
                forgotten_topics_data=forgotten if forget else [],
            )
        )
        return self._take(response)

    def acknowledge(
        self, *ranges: tuple[int, int, Sequence[int]], renew: bool = False
    ) -> tuple[int, Row | None]:
        """As fetch; the row's error is that of the acknowledgement."""
        batches = [
            ShareAcknowledgeRequestAcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in ranges
        ]
        row = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        response = self.line.ask(
            ShareAcknowledgeRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                share_session_epoch=self.epoch,
                is_renew_ack=renew,
                topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[row])],
            )
        )
        return self._take(response)

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
