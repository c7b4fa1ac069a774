"""The cost of an authorizer per request: the CPU time of the data plane from a request's frame to
its answer, with and without an authorizer, in turns. The rights were looked up before, so they come
from memory. There are rules for 1,000 other users.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bench.measure import Settings, in_turns
from bench.report import Goal, Row
from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.broker.state.security.authorizer import Authorizer
from kstore.protocol.logs.fetch import FetchPartition, FetchRequest, FetchTopic
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kstore.protocol.schema import Message
from kstore.record import build_batch
from tests.broker.harness.plane_harness import Client, Plane
from tests.reference.acl_rules import load

__all__ = ["rows"]

GOAL = Goal(1.0, at_least=False, of="value")
METADATA = 3
ME = "User:me"


def _requests() -> dict[str, tuple[int, Message]]:
    data = PartitionProduceData(index=0, records=build_batch([b"v" * 100]))
    produce = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    part = FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=[part])])
    return {
        "Fetch, nothing new": (12, fetch),
        "Metadata, kept answer": (12, MetadataRequest(topics=None)),
        "Produce, one record of 100 B": (9, produce),
    }


def _rules() -> Authorizer:
    topic = AclResourceType.TOPIC
    authorizer = Authorizer()
    mine = [Acl(topic, "t", ME, each) for each in (AclOperation.READ, AclOperation.WRITE)]
    others = [Acl(topic, f"t{i}", f"User:u{i}", AclOperation.READ) for i in range(1000)]
    load(authorizer, mine + others)
    return authorizer


def _us(client: Client, frame: bytes, count: int) -> float:
    """CPU microseconds per request."""
    connection, written = client.connection, client.transport.written
    size = len(frame)
    begin = time.thread_time_ns()
    for _ in range(count):
        view = memoryview(connection.get_buffer(-1))  # type: ignore[arg-type]
        view[:size] = frame
        view.release()
        connection.buffer_updated(size)
        written.clear()
    return (time.thread_time_ns() - begin) / count / 1000


def rows(settings: Settings) -> list[Row]:
    """The measured rows."""
    plane = Plane(settings.scratch / "rights")
    plane.server.answers[METADATA] = MetadataResponse().encode(12)
    client = plane.client()
    client.connection.principal = ME
    authorizer = _rules()
    count = settings.pick(20_000, 2_000)
    found = []

    def turn(used: Authorizer | None, frame: bytes) -> float:
        plane.plane.authorizer = used
        return _us(client, frame, count)

    try:
        for name, (version, request) in _requests().items():
            frame = client.frame(version, request)
            cases: dict[str, Callable[[], float]] = {
                "with": partial(turn, authorizer, frame),
                "without": partial(turn, None, frame),
            }
            us = in_turns(cases, settings.pick(15, 5))
            note = f"{us['without']:.2f} us without, {us['with']:.2f} us with an authorizer"
            row = Row("rights", name, us["with"] - us["without"], "us", goal=GOAL, note=note)
            found.append(row)
    finally:
        plane.close()
    return found
