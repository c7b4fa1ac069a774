"""Fetch from frame to answer: every version, limits, errors, the long poll and sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from tests.broker.harness.plane_harness import NODE_ID, TOPIC_ID, Client, Plane, framed
from tests.record_requests import fetch_part as part
from tests.record_requests import fetch_request, only

VERSIONS = range(4, 19)
INITIAL, FINAL = 0, -1


def append(plane: Plane, count: int = 1, *, size: int = 10, partition: int = 0) -> bytes:
    """One batch of this number of records; returns its bytes in the log."""
    batch = bytearray(build_batch([b"v" * size] * count, timestamp=1))
    code, *_ = plane.partition(partition).append_batches(batch)
    assert code == 0
    return bytes(batch)


def request(version: int, *parts: FetchPartition, **more: Any) -> FetchRequest:
    return fetch_request(TOPIC_ID if version >= 13 else "t", *parts, **more)


def found(response: FetchResponse) -> dict[int, tuple[int, int]]:
    """Partition to (error code, bytes of records)."""
    return {
        p.partition_index: (p.error_code, len(p.records or b""))
        for topic in response.responses
        for p in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_answered_as_they_lie_in_the_log(plane: Plane, version: int) -> None:
    data = append(plane, 2) + append(plane, 3)

    response = plane.client().call(version, request(version, part(0)))

    answer = PartitionData(
        partition_index=0, high_watermark=5, last_stable_offset=5, aborted_transactions=None,
        records=data,
    )  # fmt: skip
    if version >= 5:
        answer.log_start_offset = 0
    topic = FetchableTopicResponse(partitions=[answer])
    if version >= 13:
        topic.topic_id = TOPIC_ID
    else:
        topic.topic = "t"
    assert response == FetchResponse(responses=[topic])


def test_with_flush_always_a_fetch_waits_for_the_disk(tmp_path: Path) -> None:
    plane = Plane(tmp_path, flush="always")
    asked: list[tuple[Any, int]] = []
    plane.table.on_unsynced = asked.extend
    client = plane.client()
    client.send(12, request(12, part(0), max_wait_ms=1000))
    data = append(plane, 2)
    plane.loop.turn()
    assert (plane.partition().waiting, plane.partition().high_watermark) == (1, 0)
    assert only(plane.client().call(12, request(12, part(0)))).high_watermark == 0
    [(log, end)] = asked
    log.sync_until(end)
    plane.loop.turn()
    [(_, response)] = client.answers()
    answer = only(response)
    assert (bytes(answer.records), answer.high_watermark) == (data, 2)
    plane.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_answers(plane: Plane, version: int) -> None:
    response = plane.client().call(version, request(version))
    assert response.responses == []
    answer = only(plane.client().call(version, request(version, part(0))))
    assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (0, 0, b"")


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [-1, 3, 2**62])
def test_offsets_outside_the_log(plane: Plane, version: int, offset: int) -> None:
    append(plane, 2)
    answer = only(plane.client().call(version, request(version, part(offset))))
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.last_stable_offset) == (-1, -1)


def test_offset_inside_a_batch_gives_the_whole_batch(plane: Plane) -> None:
    append(plane, 2)
    data = append(plane, 3)
    assert bytes(only(plane.client().call(12, request(12, part(3)))).records) == data


@pytest.mark.parametrize("version", [12, 13])
def test_unknown_topics_and_partitions(plane: Plane, version: int) -> None:
    client = plane.client()
    wanted = request(version, part(0, partition=7))
    other = FetchTopic(partitions=[part(0)])
    other.topic, other.topic_id = "u", UUID(int=5)
    wanted.topics.append(other)
    response = client.call(version, wanted)
    codes = [topic.partitions[0].error_code for topic in response.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [unknown, ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else unknown]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, 0), (3, 0), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epochs_are_checked(plane: Plane, epoch: int, error: int) -> None:
    wanted = request(16, part(0, current_leader_epoch=epoch))
    answer = only(plane.client().call(16, wanted))
    assert answer.error_code == error
    if error == ErrorCode.FENCED_LEADER_EPOCH:
        assert answer.current_leader == LeaderIdAndEpoch(leader_id=NODE_ID, leader_epoch=3)


@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_partition_that_is_led_elsewhere(plane: Plane, version: int) -> None:
    """The response names the leader from version 16 on (KIP-951), as Kafka's does."""
    partition = plane.partition()
    partition.online, partition.leader_id = False, 9
    answer = only(plane.client().call(version, request(version, part(0))))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = (9, 3) if version >= 16 else (-1, -1)
    assert answer.current_leader == LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])


@pytest.mark.parametrize("version", [14, 15])
def test_a_follower_that_is_no_replica_is_refused(plane: Plane, version: int) -> None:
    wanted = request(version, part(0))
    if version >= 15:
        wanted.replica_state = ReplicaState(replica_id=2, replica_epoch=1)
    else:
        wanted.replica_id = 2
    answer = only(plane.client().call(version, wanted))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_reader_with_another_history_is_told_where_it_parts(plane: Plane) -> None:
    plane.partition().leader_epoch = 1
    append(plane, 2)
    plane.partition().leader_epoch = 3
    append(plane, 2)

    def ask(offset: int, epoch: int) -> PartitionData:
        wanted = request(12, part(offset, last_fetched_epoch=epoch))
        return only(plane.client().call(12, wanted))

    assert ask(3, 2).diverging_epoch == EpochEndOffset(epoch=1, end_offset=2)
    assert ask(3, 1).diverging_epoch == EpochEndOffset(epoch=1, end_offset=2)
    assert ask(3, 2).records == b""
    assert ask(3, 3).diverging_epoch == EpochEndOffset()
    assert len(ask(3, 3).records) > 0
    assert ask(3, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch above all"
    assert ask(3, 0).error_code == 0


def test_byte_limits(plane: Plane) -> None:
    size = len(append(plane, 1, size=1000))
    append(plane, 1, size=1000)
    append(plane, 1, size=1000, partition=1)
    client = plane.client()

    def sizes(max_bytes: int, *parts: FetchPartition) -> list[int]:
        response = client.call(12, request(12, *parts, max_bytes=max_bytes))
        return [length for _, length in found(response).values()]

    both = part(0), part(0, partition=1)
    assert sizes(1 << 20, *both) == [2 * size, size]
    assert sizes(2 * size, *both) == [2 * size, 0]
    assert sizes(2 * size - 1, *both) == [size, 0], "only whole batches"
    assert sizes(1, *both) == [size, 0], "the first batch always goes"
    assert sizes(0, *both) == [size, 0]
    assert sizes(1 << 20, part(0, max_bytes=1), part(0, partition=1, max_bytes=1)) == [size, 0]
    assert sizes(1 << 20, part(2, max_bytes=1), part(0, partition=1, max_bytes=1)) == [0, size]


def test_the_brokers_own_limit_holds(tmp_path: Path) -> None:
    plane = Plane(tmp_path, fetch_max_bytes=1500)
    size = len(append(plane, 1, size=1000))
    append(plane, 1, size=1000)
    response = plane.client().call(12, request(12, part(0), max_bytes=1 << 30))
    assert found(response) == {0: (0, size)}
    plane.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_cut_anywhere_ends_the_connection(plane: Plane, version: int) -> None:
    wanted = request(version, part(0), part(0, partition=1))
    if version >= 7:
        named = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "t"}
        wanted.forgotten_topics_data = [ForgottenTopic(partitions=[1, 2], **named)]
    whole = plane.client().frame(version, wanted)[4:]
    for size in range(8, len(whole)):
        client = plane.client()
        client.feed(framed(whole[:size]))
        assert client.transport.closed, f"cut at {size} of {len(whole)}"
        assert client.raw_answers() == []


# ---- the long poll ----


def poll(client: Client, *parts: FetchPartition, **more: Any) -> None:
    client.send(12, request(12, *parts, **{"max_wait_ms": 500, "min_bytes": 1} | more))


def test_a_fetch_without_data_waits_for_an_append(plane: Plane) -> None:
    client = plane.client()
    poll(client, part(0), part(0, partition=1))
    assert client.answers() == []
    assert [timer.delay_s for timer in plane.loop.timers] == [0.5]

    append(plane, 2, partition=1)
    assert client.answers() == [], "woken in the next turn of the loop"
    plane.loop.turn()

    [(_, response)] = client.answers()
    assert [p.high_watermark for p in response.responses[0].partitions] == [0, 2]
    assert plane.fetch.parked == 0
    assert plane.partition().waiting == plane.partition(1).waiting == 0


def test_a_fetch_that_waited_long_enough_is_answered_with_what_there_is(plane: Plane) -> None:
    client = plane.client()
    poll(client, part(0), min_bytes=10_000)
    append(plane, 1)
    plane.loop.turn()
    assert client.answers() == []
    plane.loop.fire_timers()
    [(_, response)] = client.answers()
    assert found(response)[0][1] > 0


def test_min_bytes_counts_over_partitions(plane: Plane) -> None:
    size = len(append(plane, 1, size=500))
    client = plane.client()
    poll(client, part(0), part(0, partition=1), min_bytes=size + 1)
    assert client.answers() == []
    append(plane, 1, partition=1)
    plane.loop.turn()
    assert len(client.answers()) == 1


def test_many_appends_in_a_turn_wake_a_fetch_once(plane: Plane) -> None:
    client = plane.client()
    poll(client, part(0))
    for _ in range(10):
        append(plane, 1)
    assert len(plane.loop.soon) == 1
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert only(response).high_watermark == 10


def test_errors_are_answered_at_once(plane: Plane) -> None:
    client = plane.client()
    poll(client, part(0), part(9, partition=1))
    [(_, response)] = client.answers()
    assert found(response) == {0: (0, 0), 1: (ErrorCode.OFFSET_OUT_OF_RANGE, 0)}


def test_a_deleted_topic_wakes_who_waits(plane: Plane) -> None:
    client = plane.client()
    poll(client, part(0))
    plane.table.remove_topic(b"t")
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_waiting_fetches_are_answered_when_the_broker_stops(plane: Plane) -> None:
    client = plane.client()
    poll(client, part(0))
    plane.fetch.answer_parked()
    assert len(client.answers()) == 1
    assert plane.fetch.parked == 0


# ---- sessions ----


def open_session(client: Client, *parts: FetchPartition, version: int = 13) -> int:
    response = client.call(version, request(version, *parts, session_epoch=INITIAL))
    assert response.error_code == 0
    return response.session_id


def incremental(
    client: Client, session_id: int, epoch: int, *parts: FetchPartition,
    forget: list[int] | None = None,
) -> FetchResponse:  # fmt: skip
    wanted = request(13, *parts, session_id=session_id, session_epoch=epoch)
    if forget:
        wanted.forgotten_topics_data = [ForgottenTopic(topic_id=TOPIC_ID, partitions=forget)]
    return client.call(13, wanted)


def test_a_session_answers_only_what_changed(plane: Plane) -> None:
    client = plane.client()
    session_id = open_session(client, part(0), part(0, partition=1))
    assert session_id == 100

    quiet = incremental(client, session_id, 1)
    assert (quiet.error_code, quiet.session_id, quiet.responses) == (0, session_id, [])

    append(plane, 1, partition=1)
    assert list(found(incremental(client, session_id, 2))) == [1]
    again = found(incremental(client, session_id, 3))
    assert list(again) == [1], "it has not moved on: the data comes again"
    assert found(incremental(client, session_id, 4, part(1, partition=1))) == {}


def test_a_moved_high_watermark_is_news_without_data(plane: Plane) -> None:
    client = plane.client()
    size = len(append(plane, 1))
    session_id = open_session(client, part(0), part(0, partition=1))
    append(plane, 1, partition=1)
    response = incremental(client, session_id, 1, part(0, max_bytes=size))
    assert found(response)[1][1] > 0


def test_sessions_take_and_forget_partitions(plane: Plane) -> None:
    client = plane.client()
    append(plane, 1)
    append(plane, 1, partition=1)
    session_id = open_session(client, part(1))
    assert list(found(incremental(client, session_id, 1, part(0, partition=1)))) == [1]
    assert list(found(incremental(client, session_id, 2, forget=[1]))) == []


def test_partitions_that_gave_data_go_behind_the_others(plane: Plane) -> None:
    client = plane.client()
    size = len(append(plane, 1, size=500))
    append(plane, 1, size=500, partition=1)
    wanted = request(13, part(0), part(0, partition=1), session_epoch=INITIAL, max_bytes=size)
    first = client.call(13, wanted)
    assert [length for _, length in found(first).values()] == [size, 0]
    order = []
    for epoch in (1, 2, 3):
        more = request(13, session_id=first.session_id, session_epoch=epoch, max_bytes=size)
        response = client.call(13, more)
        order += [index for index, (_, length) in found(response).items() if length]
    assert order == [0, 1, 0], "the first answer of a session does not turn the order"


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [
        (999, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (100, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_requests_of_another_session(plane: Plane, session_id: int, epoch: int, error: int) -> None:
    client = plane.client()
    assert open_session(client, part(0)) == 100
    response = incremental(client, session_id, epoch)
    assert (response.error_code, response.session_id, response.responses) == (error, 0, [])


def test_a_session_of_names_is_not_continued_with_ids(plane: Plane) -> None:
    client = plane.client()
    session_id = open_session(client, part(0), version=12)
    response = incremental(client, session_id, 1)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_final_epoch_ends_the_session(plane: Plane) -> None:
    client = plane.client()
    session_id = open_session(client, part(0))
    response = client.call(13, request(13, part(0), session_id=session_id, session_epoch=FINAL))
    assert (response.session_id, list(found(response))) == (0, [0])
    assert plane.sessions.sessions == {}


def test_a_new_session_replaces_the_old_one(plane: Plane) -> None:
    client = plane.client()
    session_id = open_session(client, part(0))
    wanted = request(13, part(0), session_id=session_id, session_epoch=INITIAL)
    assert client.call(13, wanted).session_id == 101
    assert list(plane.sessions.sessions) == [101]


def test_an_error_is_told_again_until_it_is_gone(plane: Plane) -> None:
    client = plane.client()
    session_id = open_session(client, part(0))
    partition = plane.partition()
    partition.online = False
    for epoch in (1, 2):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found(incremental(client, session_id, epoch)) == {0: (code, 0)}
    partition.online = True
    assert found(incremental(client, session_id, 3)) == {0: (0, 0)}
    assert found(incremental(client, session_id, 4)) == {}


def test_a_session_finds_a_topic_that_comes_later(plane: Plane) -> None:
    client = plane.client()
    late = UUID(int=77)
    wanted = fetch_request(late, 0, max_wait_ms=500, session_epoch=INITIAL)
    response = client.call(13, wanted)
    assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    plane.add_topic("late", late, 1)
    assert found(incremental(client, response.session_id, 1)) == {0: (0, 0)}


def test_a_waiting_session_answers_what_changed(plane: Plane) -> None:
    client = plane.client()
    session_id = open_session(client, part(0), part(0, partition=1))
    client.send(13, request(13, max_wait_ms=500, session_id=session_id, session_epoch=1))
    assert client.answers() == []
    append(plane, 1)
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert list(found(response)) == [0]


def test_a_session_that_takes_too_many_partitions_ends(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client asks for all of them from then on, with a session or without."""
    monkeypatch.setattr(
        "kstore.broker.state.replication.fetch_session_cache.MAX_SESSION_PARTITIONS", 2
    )
    client = plane.client()
    session_id = open_session(client, part(0), part(0, partition=1))
    response = incremental(client, session_id, 1, part(0, partition=2))
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plane.sessions.sessions == {}
    assert open_session(client, *(part(0, partition=index) for index in range(3))) == 0


def test_without_room_for_a_session_the_answer_has_none(tmp_path: Path) -> None:
    plane = Plane(tmp_path, max_sessions=1)
    client = plane.client()
    assert open_session(client, part(0)) == 100
    assert open_session(client, part(0)) == 0
    plane.close()
