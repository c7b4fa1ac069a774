"""Fetches over a blocking socket: what is an error, and which brokers are not asked this way."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from uuid import UUID

import pytest

from kstore.clients.replicator.blocking_fetches import BlockingFetcher, Leader, leader_of
from kstore.config.client.configs import client_settings
from kstore.errors import ErrorCode, NetworkError
from kstore.protocol.logs.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kstore.protocol.registry import encode_response
from kstore.types import TopicPartition

TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=1)
VERSION = 13


@contextmanager
def asked(*frames: bytes) -> Iterator[BlockingFetcher]:
    """A fetcher that has sent a request to a broker that sends these frames, and no more."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"".join(frames))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        address = listener.getsockname()
        settings = client_settings("consumer", {"bootstrap.servers": "localhost:1"})
        fetcher = BlockingFetcher(address, settings)
        leader = Leader(address, VERSION, 0, TOPIC_ID)
        fetcher.ask(leader, TP, 5, isolation=0, partition_bytes=100)
        try:
            yield fetcher
        finally:
            fetcher.close()
            thread.join()


def response(correlation_id: int = 0, code: int = 0, throttle_ms: int = 0) -> bytes:
    """The frame of a response with one partition."""
    row = PartitionData(partition_index=0, error_code=code, high_watermark=7, records=b"abc")
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])
    answer = FetchResponse(throttle_time_ms=throttle_ms, responses=[topic])
    return encode_response(answer, VERSION, correlation_id)


def test_the_response_to_the_request() -> None:
    with asked(response()) as fetcher:
        assert fetcher.is_waiting
        found = fetcher.answer()
        assert (bytes(found.records or b""), found.high_watermark) == (b"abc", 7)
        assert not fetcher.is_waiting
        assert not fetcher.is_throttled


def test_a_throttled_response_has_its_records() -> None:
    with asked(response(throttle_ms=10)) as fetcher:
        assert bytes(fetcher.answer().records or b"") == b"abc"
        assert fetcher.is_throttled


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "closed the connection"),
        ([response()[:20]], "closed the connection"),
        ([response(correlation_id=1)], "does not belong"),
        ([response()[:4] + b"\0" * (len(response()) - 4)], "can't be read"),
        ([b"\xff" * 10], "can't be read"),
        ([response(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)], "error 6"),
    ],
)
def test_anything_else_is_an_error(frames: list[bytes], message: str) -> None:
    with asked(*frames) as fetcher, pytest.raises(NetworkError, match=message):
        fetcher.answer()


def cluster(protocol: str, *, version: int = VERSION, topic_id: UUID = TOPIC_ID) -> SimpleNamespace:
    """A client that knows the leader of every partition."""

    async def connection(node: int, *, lane: str) -> SimpleNamespace:
        choose: Callable[[int], int] = lambda key: version  # noqa: E731
        return SimpleNamespace(peer=("::1", 9092), versions=SimpleNamespace(choose=choose))

    view = SimpleNamespace(
        leader=lambda tp: 1, leader_epoch=lambda tp: 3, topic_id=lambda name: topic_id
    )
    settings = {"security.protocol": protocol}
    return SimpleNamespace(settings=settings, view=view, connection=connection)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (cluster("PLAINTEXT"), Leader(("::1", 9092), VERSION, 3, TOPIC_ID)),
        (cluster("SASL_PLAINTEXT"), None),
        (cluster("SSL"), None),
        (cluster("PLAINTEXT", version=12), None),
        (cluster("PLAINTEXT", topic_id=UUID(int=0)), None),
    ],
)
def test_only_leaders_without_tls_and_sasl_that_know_topic_ids(
    known: SimpleNamespace, expected: Leader | None
) -> None:
    assert asyncio.run(leader_of(known, TP)) == expected  # type: ignore[arg-type]
