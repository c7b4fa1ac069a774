"""Records are written at their offsets: by several writers at once, in pieces that are too large
for a topic, and where another client has written. A real broker, no Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from kstore.clients import AdminClient, NewTopic
from kstore.clients.core.replication import Piece
from kstore.clients.io.cluster import ClusterClient
from kstore.config.client.configs import client_settings
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.jobs.offset_writer import OffsetWriter, Row, pieces, require_given_offsets
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition
from tests.pipeline.jobs.conftest import records_of


def rows(*offsets: int, text: bytes = b"v") -> Iterator[Row]:
    """A record at each offset."""
    for offset in offsets:
        yield Row(offset, 1_000 + offset, b"k", text + b"%d" % offset, [("h", None)])


def on(broker: Broker, work: Callable[[ClusterClient], Awaitable[None]]) -> None:
    """Run with a client of the broker."""

    async def run() -> None:
        settings = client_settings("admin", {"bootstrap.servers": broker.bootstrap_servers}, {})
        cluster = ClusterClient(settings)
        try:
            await require_given_offsets(cluster)
            await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(run())


def create(broker: Broker, name: str, **configs: str) -> TopicPartition:
    """A topic of one partition that keeps old records."""
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    wanted = NewTopic(name, 1, configs={"retention.ms": "-1"} | configs)
    with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([wanted])
    return TopicPartition(name, 0)


def test_pieces_end_at_holes_and_leave_repeated_offsets_out() -> None:
    found = list(pieces(rows(3, 4, 4, 7, 8, 2, 9), 0))
    assert [(piece.base_offset, piece.end_offset) for piece in found] == [(3, 5), (7, 10)]


def test_two_writers_of_the_same_records_write_each_once(broker: Broker) -> None:
    tp = create(broker, "twice")
    parts = [next(pieces(rows(*span), 0)) for span in ((0, 1, 2), (5, 6), (9,))]

    async def work(cluster: ClusterClient) -> None:
        one, other = OffsetWriter(cluster, tp, 10_000), OffsetWriter(cluster, tp, 10_000)
        await one.open()
        await other.open()
        assert (one.position, other.last) == (0, None)
        await one.write(parts[0])
        for part in parts:
            await other.write(part)
        for part in parts[1:]:
            await one.write(part)
        assert (one.written, one.already_there) == (3, 3)
        assert (other.written, other.already_there) == (3, 3)
        later = OffsetWriter(cluster, tp, 10_000)
        await later.open()
        assert later.position == 10
        assert later.last is not None
        assert (later.last.offset, later.last.value) == (9, b"v9")

    on(broker, work)
    expected = [(n, 1_000 + n, b"k", b"v%d" % n, [("h", None)]) for n in (0, 1, 2, 5, 6, 9)]
    assert records_of(broker, "twice") == {0: expected}


def test_what_somebody_else_has_written_there_is_an_error(broker: Broker) -> None:
    tp = create(broker, "others")

    async def work(cluster: ClusterClient) -> None:
        one, other = OffsetWriter(cluster, tp, 10_000), OffsetWriter(cluster, tp, 10_000)
        await one.open()
        await other.open()
        await one.write(next(pieces(rows(0, 1), 0)))
        with pytest.raises(PipelineError, match="partition 0, offset 1: the target has another"):
            await other.write(next(pieces(rows(0, 1, 2, text=b"w"), 0)))

    on(broker, work)


def test_a_piece_that_is_too_large_is_halved(broker: Broker) -> None:
    tp = create(broker, "small", max_message_bytes="1500")
    big = Piece(0, 9, next(pieces(rows(*range(9), text=b"x" * 500), 0)).data)

    async def work(cluster: ClusterClient) -> None:
        writer = OffsetWriter(cluster, tp, 10_000)
        await writer.open()
        await writer.write(big)
        assert (writer.written, writer.position) == (9, 9)
        alone = next(pieces(rows(9, text=b"x" * 2000), 0))
        with pytest.raises(PipelineError, match=r"small, partition 0, offset 9: .*larger"):
            await writer.write(alone)

    on(broker, work)
    assert [row[0] for row in records_of(broker, "small")[0]] == list(range(9))
