"""Threads check produced batches with much data, in their connection's order."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from kstore._fast.record.batch_view import BatchView, batches
from kstore._fast.record.builder import build_batch
from kstore._fast.record.compression import compress
from kstore._fast.record.crc32c import checksum
from kstore._fast.record.unpack import Verdict, look_into
from kstore.acls import Acl, AclOperation, AclPermission, AclResourceType
from kstore.broker.state.security.authorizer import Authorizer
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import ProduceRequest
from tests.broker.harness.plane_harness import Client, Plane
from tests.record_requests import fetch_part, fetch_request, only, produce_request
from tests.reference.acl_rules import load

VERSION = 9
LIMITS = {"partitions": 4}
GZIP, LZ4, ZSTD = 1, 3, 4
MB = 1 << 20
Jobs = list[tuple[int, bytes, int, int, int]]


class Threads:
    """Stands for the threads: keeps what they are asked, and answers when the test says so."""

    def __init__(self, plane: Plane) -> None:
        self.asked: list[tuple[Any, Jobs]] = []
        plane.produce.unpack_later = lambda connection, jobs: self.asked.append((connection, jobs))

    def answer(self) -> list[int]:
        """Give the first waiting request its results; returns the partitions of its batches."""
        connection, jobs = self.asked.pop(0)
        for place, batch, *given in jobs:
            connection.verdicts[place] = look_into(batch, *given)
        connection.admitted()
        return [job[0] for job in jobs]


def zstd(size: int, codec: int = ZSTD, **more: Any) -> bytes:
    return build_batch([bytes(size)], timestamp=1, compression=codec, **more)


def request(*batches: bytes, acks: int = 1) -> ProduceRequest:
    at = [index % 4 for index in range(len(batches))]
    return produce_request("t", *batches, at=at, acks=acks)


def stored(plane: Plane) -> list[BatchView]:
    """The batches of the first partition."""
    wanted = fetch_request("t", fetch_part(max_bytes=8 * MB), max_bytes=8 * MB)
    return list(batches(only(plane.client().call(12, wanted)).records))


def codes(client: Client) -> list[list[int]]:
    return [[code for code, _ in rows] for rows in client.produced()]


def test_small_batches_are_looked_at_at_once(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    for codec in (1, 2, 3, 4):
        client.send(VERSION, request(zstd(60_000, codec)))
    assert threads.asked == []
    assert codes(client) == [[0]] * 4


def test_a_batch_that_holds_much_waits_and_what_is_behind_it_too(plane: Plane) -> None:
    threads, client, other = Threads(plane), plane.client(), plane.client()
    client.feed(
        client.frame(VERSION, request(zstd(100), zstd(MB), zstd(100), zstd(MB)))
        + client.frame(VERSION, request(zstd(10)))
    )
    assert client.answers() == []
    assert plane.partition().log_end_offset == 0, "all of a request is appended, or nothing yet"
    assert other.call(VERSION, request(zstd(10))).responses
    assert threads.answer() == [1, 3]
    assert codes(client) == [[0, 0, 0, 0], [0]]
    assert [plane.partition(i).log_end_offset for i in range(4)] == [3, 1, 1, 1]


def test_the_loop_decompresses_only_so_much_in_a_turn(plane: Plane) -> None:
    """Many small batches are as expensive as a large one: when the turn has done enough, a thread
    checks the rest.
    """
    threads, client = Threads(plane), plane.client()
    frames = [client.frame(VERSION, request(zstd(200_000))) for _ in range(60)]
    client.feed(b"".join(frames))
    rounds = 0
    while threads.asked:
        rounds += 1
        assert threads.answer() == [0]
    assert codes(client) == [[0]] * 60
    assert rounds == 2, "each turn has its own budget of 4 MB"


def test_too_much_is_message_too_large_and_says_so(plane: Plane) -> None:
    """Producers split a batch if the error says that it is too large."""
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(zstd(40 * MB)))
    threads.answer()
    [(_, response)] = client.answers()
    [row] = response.responses[0].partition_responses
    assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "decompress to more than" in row.error_message
    assert plane.partition().log_end_offset == 0


def test_a_batch_above_the_topics_limit_is_not_looked_into(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    incompressible = bytes(i * i % 251 for i in range(2000))
    batch = build_batch([incompressible], timestamp=1, compression=LZ4)
    log = plane.partition().log
    log.configure(replace(log.config, max_message_bytes=100))
    client.send(VERSION, request(batch))
    assert codes(client) == [[ErrorCode.MESSAGE_TOO_LARGE]]
    assert threads.asked == []


def test_nobody_looks_into_what_may_not_be_written(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    plane.plane.authorizer = Authorizer(["User:root"])
    client.connection.principal = "User:alice"
    client.send(VERSION, request(zstd(MB)))
    assert codes(client) == [[ErrorCode.TOPIC_AUTHORIZATION_FAILED]]
    rule = Acl(AclResourceType.TOPIC, "t", "User:alice", AclOperation.WRITE, AclPermission.ALLOW)
    load(plane.plane.authorizer, [rule])
    client.send(VERSION, request(zstd(MB)))
    assert len(threads.asked) == 1
    load(plane.plane.authorizer, [])
    threads.answer()
    assert codes(client) == [[ErrorCode.TOPIC_AUTHORIZATION_FAILED]], "as the rules are by then"


def test_a_gzip_batch_that_lies_about_its_size_is_refused_at_once(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    batch = bytearray(zstd(8 * MB, GZIP))
    struct.pack_into("<I", batch, len(batch) - 4, 100)
    struct.pack_into(">I", batch, 17, checksum(bytes(batch[21:])))
    client.send(VERSION, request(bytes(batch)))
    assert threads.asked == []
    assert codes(client) == [[ErrorCode.INVALID_RECORD]]


def test_a_thread_writes_batches_in_the_topics_compression(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    plane.partition().configure(stored_codec=GZIP, stored_level=-1, min_insync_replicas=1)
    for batch in (zstd(MB), build_batch([bytes(MB // 2)], timestamp=1)):
        client.send(VERSION, request(batch))
        assert threads.answer() == [0]
    assert codes(client) == [[0], [0]]
    assert [batch.compression for batch in stored(plane)] == [GZIP, GZIP]


def test_a_max_timestamp_is_put_right_after_a_threads_look_too(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    batch = bytearray(zstd(MB))
    struct.pack_into(">q", batch, 35, 99)
    struct.pack_into(">I", batch, 17, checksum(bytes(batch[21:])))
    client.send(VERSION, request(bytes(batch)))
    threads.answer()
    assert codes(client) == [[0]]
    assert stored(plane)[0].max_timestamp == 1


def test_a_compacted_topic_wants_keys_in_what_a_thread_has_seen(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    log = plane.partition().log
    log.configure(replace(log.config, cleanup_policy=("compact",)))
    keyed = build_batch([(b"k", bytes(MB))], timestamp=1, compression=ZSTD)
    for batch, code in ((zstd(MB), ErrorCode.INVALID_RECORD), (keyed, 0)):
        client.send(VERSION, request(batch))
        threads.answer()
        assert codes(client) == [[code]]


def test_a_client_that_has_gone_is_not_answered(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    client.send(VERSION, request(zstd(MB)))
    client.connection.connection_lost(None)
    threads.answer()
    assert plane.partition().log_end_offset == 0
    assert client.connection.is_closed


def test_a_verdict_without_a_status_is_none() -> None:
    assert Verdict().status == -1


def test_what_is_no_compressed_payload_goes_to_a_thread(plane: Plane) -> None:
    threads, client = Threads(plane), plane.client()
    batch = bytearray(build_batch([b"x" * 100], timestamp=1))
    struct.pack_into(">h", batch, 21, ZSTD)
    struct.pack_into(">I", batch, 17, checksum(bytes(batch[21:])))
    client.send(VERSION, request(bytes(batch)))
    assert threads.answer() == [0]
    assert codes(client) == [[ErrorCode.INVALID_RECORD]]
    assert compress(ZSTD, b"x")
