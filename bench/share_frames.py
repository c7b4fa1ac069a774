"""Ready-made frames of a share group's member for the load generator, written by hand from the
protocol's documentation, like those of frames.py: heartbeats, ShareFetch with acknowledgements, and
the requests for a group's settings and offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from bench.frames import Answer, compact, unsigned
from tests.conformance.wire import request_frame

__all__ = [
    "FINAL_EPOCH",
    "Acquired",
    "Range",
    "fetched",
    "heartbeat",
    "heartbeat_answer",
    "lag",
    "lag_answer",
    "set_of_group",
    "set_of_group_error",
    "share_fetch",
]

SHARE_GROUP_HEARTBEAT, SHARE_FETCH, DESCRIBE_OFFSETS, ALTER_CONFIGS = 76, 78, 90, 44
FINAL_EPOCH = -1
GROUP_RESOURCE, SET = 32, 0
ACCEPTED = 1
Range = tuple[int, int]
"""First and last offset."""


class Acquired(NamedTuple):
    """The content of the answer to `share_fetch`."""

    errors: tuple[int, int, int]
    """The partition in the answer, and its acknowledgements."""
    ranges: list[Range]
    deliveries: int
    """The highest delivery count."""


def heartbeat(group: str, member: str, epoch: int, topic: str) -> bytes:
    """ShareGroupHeartbeat v1: epoch 0 joins, -1 leaves."""
    body = compact(group) + compact(member) + struct.pack(">i", epoch) + b"\x00"
    body += unsigned(2) + compact(topic) + b"\x00"
    return request_frame(SHARE_GROUP_HEARTBEAT, 1, body, flexible=True)


def heartbeat_answer(answer: bytes) -> tuple[int, int, bool]:
    """Error code, member epoch, and whether partitions are assigned, in the answer."""
    found = Answer(answer, flexible_header=True)
    found.skip(4)
    code = found.take("h")
    found.compact()
    found.compact()
    epoch = found.take("i")
    found.skip(4)
    if found.take("b") < 0:
        return code, epoch, False
    return code, epoch, found.unsigned() > 1


def share_fetch(
    group: str,
    member: str,
    epoch: int,
    topic_id: bytes,
    accepted: Sequence[Range],
    *,
    max_records: int,
) -> bytes:
    """ShareFetch v1 of partition 0. It accepts the previous records, and requests up to 50 MB
    within half a second, as Java's client does. The final epoch fetches nothing.
    """
    ends = epoch == FINAL_EPOCH
    waits = (0, 0, 0, 0, 0) if ends else (500, 1, 50 << 20, max_records, max_records)
    body = compact(group) + compact(member) + struct.pack(">iiiiii", epoch, *waits)
    if accepted or epoch == 0:
        body += unsigned(2) + topic_id + unsigned(2) + struct.pack(">i", 0)
        body += unsigned(len(accepted) + 1)
        for first, last in accepted:
            body += struct.pack(">qq", first, last) + unsigned(2) + bytes((ACCEPTED, 0))
        body += b"\x00\x00"
    else:
        body += unsigned(1)
    return request_frame(SHARE_FETCH, 1, body + unsigned(1) + b"\x00", flexible=True)


def fetched(answer: bytes) -> Acquired:
    """The content of the answer to `share_fetch`, of at most one partition."""
    found = Answer(answer, flexible_header=True)
    found.skip(4)
    code = found.take("h")
    found.compact()
    found.skip(4)
    partition_code = acknowledge_code = deliveries = 0
    ranges = []
    for _ in range(found.unsigned() - 1):
        found.skip(16)
        for _ in range(found.unsigned() - 1):
            found.skip(4)
            partition_code = found.take("h")
            found.compact()
            acknowledge_code = found.take("h")
            found.compact()
            found.skip(9)
            found.skip(max(0, found.unsigned() - 1))
            for _ in range(found.unsigned() - 1):
                ranges.append((found.take("q"), found.take("q")))
                deliveries = max(deliveries, found.take("h"))
                found.skip(1)
            found.skip(1)
        found.skip(1)
    return Acquired((code, partition_code, acknowledge_code), ranges, deliveries)


def set_of_group(group: str, config: str, value: str) -> bytes:
    """IncrementalAlterConfigs v1 of one setting of a group."""
    body = unsigned(2) + struct.pack(">b", GROUP_RESOURCE) + compact(group) + unsigned(2)
    body += compact(config) + struct.pack(">b", SET) + compact(value) + b"\x00\x00\x00\x00"
    return request_frame(ALTER_CONFIGS, 1, body, flexible=True)


def set_of_group_error(answer: bytes) -> int:
    """The error code in the answer to `set_of_group`."""
    found = Answer(answer, flexible_header=True)
    found.skip(4)
    found.unsigned()
    return found.take("h")


def lag(group: str, topic: str) -> bytes:
    """DescribeShareGroupOffsets v1 of partition 0."""
    body = unsigned(2) + compact(group) + unsigned(2) + compact(topic) + unsigned(2)
    body += struct.pack(">i", 0) + b"\x00\x00\x00"
    return request_frame(DESCRIBE_OFFSETS, 1, body, flexible=True)


def lag_answer(answer: bytes) -> int:
    """The number of records that are not done, in the answer to `lag`."""
    found = Answer(answer, flexible_header=True)
    found.skip(4)
    found.unsigned()
    found.compact()
    found.unsigned()
    found.compact()
    found.skip(16)
    found.unsigned()
    found.skip(16)  # partition, start offset, leader epoch
    return found.take("q")
