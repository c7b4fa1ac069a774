"""A connection: whole frames are answered in order, within limits; bad frames end it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record.builder import build_batch
from kstore.protocol.logs.fetch import FetchRequest
from kstore.protocol.logs.produce import ProduceRequest
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.harness.plane_harness import Client, Plane, framed
from tests.record_requests import fetch_part, fetch_request, produce_request

METADATA, API_VERSIONS, CREATE_TOPICS = 3, 18, 19


def produce(size: int = 10) -> ProduceRequest:
    return produce_request("t", build_batch([b"x" * size]))


def long_poll(offset: int = 0) -> FetchRequest:
    return fetch_request("t", fetch_part(offset, max_bytes=1000), max_wait_ms=500)


def ids(client: Client) -> list[int]:
    return [correlation_id for correlation_id, _ in client.answers()]


@pytest.mark.parametrize("piece", [1, 3, 4, 5, 17, 1000, 70_000])
def test_frames_in_pieces_of_any_size(plane: Plane, piece: int) -> None:
    client = plane.client()
    sizes = [1, 70_000, 3, 300_000, 1, 5000] if piece > 1000 else [1, 200, 5]
    data = b"".join(client.frame(9, produce(size)) for size in sizes)

    client.feed(data, piece)

    assert ids(client) == list(range(1, len(sizes) + 1))
    assert plane.partition().log_end_offset == len(sizes)
    assert plane.plane.queued_bytes == 0


def test_answers_of_one_read_go_out_in_one_write(plane: Plane) -> None:
    client = plane.client()
    writes: list[int] = []
    write = client.transport.write
    client.transport.write = lambda data: (writes.append(len(data)), write(data))[1]
    client.feed(b"".join(client.frame(9, produce()) for _ in range(20)))
    assert len(writes) == 1
    assert len(ids(client)) == 20


def test_a_parked_request_holds_answers_back_but_not_appends(plane: Plane) -> None:
    client = plane.client()
    client.send(12, long_poll(offset=0))
    plane.server.answers[CREATE_TOPICS] = object()
    client.feed(client.frame(9, MetadataRequest())[:0])
    assert client.connection.parked == 1

    other = plane.client()
    assert other.send(9, produce()) == 1

    assert client.answers() == []
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert response.responses[0].partitions[0].high_watermark == 1


def test_produce_behind_a_parked_answer_is_appended_and_answered_in_its_turn(plane: Plane) -> None:
    client = plane.client()
    later = object()
    plane.server.answers[METADATA] = later
    client.send(9, MetadataRequest())
    client.send(9, produce())
    client.send(9, produce())
    assert client.raw_answers() == []
    assert plane.partition().log_end_offset == 2

    [(parked, slot)] = plane.server.parked
    assert parked is later
    slot.complete(b"\x00" * 10)

    numbers = [struct.unpack_from(">i", answer)[0] for answer in client.raw_answers()]
    assert numbers == [1, 2, 3]
    assert client.connection.parked == 0


def test_parked_answers_that_come_in_another_order_are_sent_in_request_order(plane: Plane) -> None:
    client = plane.client()
    plane.server.answers[METADATA] = object()
    for _ in range(4):
        client.send(9, MetadataRequest())
    slots = [slot for _, slot in plane.server.parked]

    def finish(index: int) -> list[int]:
        slots[index].complete(b"body%d" % index)
        return [struct.unpack_from(">i", answer)[0] for answer in client.raw_answers()]

    assert finish(2) == []
    assert finish(0) == [1]
    assert finish(3) == []
    assert finish(1) == [2, 3, 4]


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_answer_written_in_several_turns_keeps_its_place(plane: Plane, size: int) -> None:
    client = plane.client()
    plane.server.answers[METADATA] = object()
    for _ in range(3):
        client.send(9, MetadataRequest())
    first, second, third = (slot for _, slot in plane.server.parked)
    buffer = second.open_large(2 * size)
    buffer.write(b"a" * size)
    third.complete(b"end")
    first.complete(b"begin")
    assert [answer[5:] for answer in client.raw_answers()] == [b"begin"]
    buffer.write(b"b" * size)
    second.close_large()
    assert [answer[5:] for answer in client.raw_answers()] == [b"a" * size + b"b" * size, b"end"]


def test_a_slot_completed_without_a_body_sends_nothing(plane: Plane) -> None:
    client = plane.client()
    plane.server.answers[METADATA] = object()
    client.send(9, MetadataRequest())
    client.send(9, produce())
    plane.server.parked[0][1].complete(None)
    assert [struct.unpack_from(">i", answer)[0] for answer in client.raw_answers()] == [2]


def test_a_slot_that_gives_up_closes_the_connection(plane: Plane) -> None:
    client = plane.client()
    plane.server.answers[METADATA] = object()
    client.send(9, MetadataRequest())
    plane.server.parked[0][1].give_up()
    assert client.transport.closed


def test_completing_after_the_connection_is_lost_does_nothing(plane: Plane) -> None:
    client = plane.client()
    plane.server.answers[METADATA] = object()
    client.send(9, MetadataRequest())
    client.send(12, long_poll())
    client.connection.connection_lost(None)
    plane.server.parked[0][1].complete(b"late")
    assert client.raw_answers() == []
    assert plane.partition().waiting == 0
    assert plane.fetch.parked == 0


def test_too_many_parked_requests_stop_the_reading(tmp_path: Path) -> None:
    plane = Plane(tmp_path, max_parked=3)
    client = plane.client()
    plane.server.answers[METADATA] = object()
    client.feed(b"".join(client.frame(9, MetadataRequest()) for _ in range(5)))
    assert client.connection.parked == 3
    assert not client.transport.reading

    for _, slot in list(plane.server.parked):
        slot.complete(b"x")
    plane.loop.turn()

    assert client.transport.reading
    assert len(plane.server.parked) == 5
    plane.close()


def test_a_transport_that_holds_too_much_stops_the_requests(plane: Plane) -> None:
    client = plane.client()
    client.connection.pause_writing()
    assert not client.transport.reading
    client.feed(b"".join(client.frame(9, produce()) for _ in range(3)))
    assert client.answers() == []
    assert plane.partition().log_end_offset == 0
    client.connection.resume_writing()
    assert ids(client) == [1, 2, 3]
    assert client.transport.reading


def test_shared_budget_of_unfinished_requests(tmp_path: Path) -> None:
    plane = Plane(tmp_path, max_queued_bytes=150_000)
    first, second = plane.client(), plane.client()
    frames = [client.frame(9, produce(100_000)) for client in (first, second)]
    first.feed(frames[0][:1000])
    second.feed(frames[1][:1000])
    assert first.transport.reading
    assert not second.transport.reading

    first.feed(frames[0][1000:])
    plane.loop.turn()

    assert second.transport.reading
    second.feed(frames[1][1000:])
    assert (ids(first), ids(second)) == ([1], [1])
    assert plane.plane.queued_bytes == 0
    plane.close()


def test_a_lost_connection_gives_its_budget_back(tmp_path: Path) -> None:
    plane = Plane(tmp_path, max_queued_bytes=150_000)
    client = plane.client()
    client.feed(client.frame(9, produce(100_000))[:1000])
    assert plane.plane.queued_bytes > 100_000
    client.connection.connection_lost(None)
    assert plane.plane.queued_bytes == 0
    plane.close()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", (1 << 20) + 1), "socket.request.max.bytes"),
        (b"\x16\x03\x01\x02\x00\x01", "speaks TLS"),
        (framed(b""), "shorter than a header"),
        (framed(b"\0\0\0\x09\0\0\0"), "shorter than a header"),
        (framed(struct.pack(">hhih", 999, 0, 1, -1)), "API key 999"),
        (framed(struct.pack(">hhih", -1, 0, 1, -1)), "API key -1"),
        (framed(struct.pack(">hhih", 0, 2, 1, -1)), "version 2"),
        (framed(struct.pack(">hhih", 0, 14, 1, -1)), "version 14"),
        (framed(struct.pack(">hhih", 3, 9, 1, 100)), "cut short"),
        (framed(struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\x07"), "cut short"),
        (framed(struct.pack(">hhi", 18, 99, 1) + b"whatever"), "cut short"),
    ],
)
def test_bad_frames_end_the_connection_with_one_sentence(
    plane: Plane, data: bytes, word: str
) -> None:
    client = plane.client()
    client.feed(client.frame(9, produce()) + data)
    assert client.transport.closed
    [sentence] = plane.server.reports
    assert word in sentence
    assert "10.0.0.1:4711" in sentence
    assert ids(client) == [1], "what came before is answered"


def test_nothing_after_a_bad_frame_is_handled(plane: Plane) -> None:
    client = plane.client()
    client.feed(struct.pack(">i", -1) + client.frame(9, produce()))
    assert plane.partition().log_end_offset == 0


def test_api_versions_of_the_future_is_dispatched_as_unsupported(plane: Plane) -> None:
    plane.server.answers[API_VERSIONS] = b"answer"
    client = plane.client()
    client.feed(framed(struct.pack(">hhihB", 18, 99, 42, -1, 0) + b"whatever"))
    assert client.raw_answers() == [struct.pack(">i", 42) + b"answer"]
    assert plane.server.dispatched[0][:2] == (18, -1)


def test_cached_answers_are_asked_for_once_per_image(plane: Plane) -> None:
    plane.server.answers[METADATA] = b"body"
    client = plane.client()
    for _ in range(3):
        client.send(9, MetadataRequest())
    assert len(client.raw_answers()) == 3
    assert len(plane.server.dispatched) == 1
    client.send(9, MetadataRequest(topics=None))
    client.send(10, MetadataRequest())
    assert len(plane.server.dispatched) == 3
    plane.plane.forget_answers()
    client.send(9, MetadataRequest())
    assert len(plane.server.dispatched) == 4


def test_cached_answers_take_a_bounded_share_of_memory(plane: Plane) -> None:
    plane.server.answers[METADATA] = b"x" * (1 << 20)
    client = plane.client()
    asked = [MetadataRequest(topics=[MetadataRequestTopic(name=f"t{i}")]) for i in range(10)]
    for request in (*asked, asked[9], asked[0]):
        client.send(9, request)
    assert len(plane.server.dispatched) == 11, "the newest is kept, the oldest is not"


def test_a_failing_handler_closes_only_its_connection(plane: Plane) -> None:
    def fail() -> bytes:
        raise ValueError("no")

    plane.server.answers[METADATA] = fail
    client, other = plane.client(), plane.client()
    client.feed(client.frame(9, produce()) + client.frame(9, MetadataRequest()))
    assert client.transport.closed
    assert len(plane.server.failures) == 1
    other.send(9, produce())
    assert ids(other) == [1]


def test_a_connection_that_is_refused_is_closed(plane: Plane) -> None:
    plane.server.refusal = "there are already 3"
    assert plane.client().transport.closed
    assert "there are already 3" in plane.server.reports[0]


def test_idle_connections_are_closed(plane: Plane) -> None:
    client, waiting = plane.client(), plane.client()
    waiting.send(12, long_poll())
    plane.plane.close_idle(600_000)
    assert not client.transport.closed
    plane.plane.close_idle(-1)
    assert not client.transport.closed


@given(data=st.binary(max_size=200), piece=st.integers(1, 50))
def test_garbage_never_breaks_the_plane(shared_plane: Plane, data: bytes, piece: int) -> None:
    client = shared_plane.client()
    shared_plane.server.answers = dict.fromkeys(range(128), b"")
    client.feed(framed(data), piece)
    other = shared_plane.client()
    before = shared_plane.partition().log_end_offset
    other.send(9, produce())
    assert ids(other) == [1]
    assert shared_plane.partition().log_end_offset == before + 1
    client.connection.connection_lost(None)
    other.connection.connection_lost(None)


@pytest.fixture(scope="module")
def shared_plane(tmp_path_factory: pytest.TempPathFactory):
    plane = Plane(tmp_path_factory.mktemp("plane"))
    yield plane
    plane.close()


@pytest.mark.parametrize(("partitions", "is_closed"), [(99, False), (100, True)])
def test_produce_and_fetch_have_a_limit_on_elements(
    tmp_path: Path, partitions: int, is_closed: bool
) -> None:
    plane = Plane(tmp_path, max_elements=100)
    asked = [fetch_part(partition=index) for index in range(partitions)]
    requests = [
        (9, produce_request("t", *[b""] * partitions)),
        (12, fetch_request("t", *asked)),
    ]
    for version, request in requests:
        client = plane.client()
        client.send(version, request)
        assert client.transport.closed == is_closed
    assert all("kstore.request.max.elements" in sentence for sentence in plane.server.reports)
    assert len(plane.server.reports) == (2 if is_closed else 0)
    plane.close()
