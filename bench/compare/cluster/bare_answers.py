"""The answers of a bare peer, which keeps no metadata, to a producer. It serves few APIs in old
versions, and every topic exists. It opens no socket.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bench.frames import Answer, string

__all__ = ["HOST", "answer"]

PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 18, 22
VERSIONS = {PRODUCE: 7, FETCH: 4, METADATA: 1, API_VERSIONS: 0, INIT_PRODUCER_ID: 1}
"""Fetch is not answered, but without it librdkafka sends no batches of magic 2."""
HOST = "127.0.0.1"
UNSUPPORTED_VERSION = 35


def answer(head: bytes, ports: Sequence[int], partitions: int) -> tuple[bytes, bool]:
    """The answer's frame for a request with these first bytes, and whether it is a Produce. The
    brokers 0, 1, ... have these ports, and lead the partitions of each topic in turns.
    """
    key, version = struct.unpack_from(">hh", head)
    request = Answer(head)  # whose own first field is as long as these two
    request.skip(4)
    request.string()
    if key == API_VERSIONS:
        rows = b"".join(struct.pack(">hhh", each, 0, most) for each, most in VERSIONS.items())
        body = struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(VERSIONS)) + rows
    elif key == METADATA:
        topics = [request.string() for _ in range(request.take("i"))]
        body = _metadata(topics, ports, partitions)
    elif key == INIT_PRODUCER_ID:
        body = struct.pack(">ihqh", 0, 0, 1, 0)
    elif key == PRODUCE:
        body = _acknowledged(request, version)
    else:
        raise ValueError(f"a request with API key {key}")
    return struct.pack(">i", 4 + len(body)) + head[4:8] + body, key == PRODUCE


def _metadata(topics: list[str], ports: Sequence[int], partitions: int) -> bytes:
    parts = [struct.pack(">i", len(ports))]
    for node, port in enumerate(ports):
        parts += [struct.pack(">i", node), string(HOST), struct.pack(">ih", port, -1)]
    parts.append(struct.pack(">ii", 0, len(topics)))
    for topic in topics:
        parts += [struct.pack(">h", 0), string(topic), struct.pack(">?i", False, partitions)]
        for each in range(partitions):
            leader = each % len(ports)
            parts.append(struct.pack(">hiiiiii", 0, each, leader, 1, leader, 1, leader))
    return b"".join(parts)


def _acknowledged(request: Answer, version: int) -> bytes:
    """For the one batch that a producer sends at a time."""
    if version != VERSIONS[PRODUCE]:
        raise ValueError(f"Produce v{version}")
    request.string()  # the transactional id
    request.skip(6)
    topics, topic, partitions = request.take("i"), request.string(), request.take("i")
    if (topics, partitions) != (1, 1):
        raise ValueError(f"Produce to {topics} topics, {partitions} partitions of the first")
    row = struct.pack(">ihqqq", request.take("i"), 0, 0, -1, 0)
    return struct.pack(">i", 1) + string(topic) + struct.pack(">i", 1) + row + struct.pack(">i", 0)
