"""ShareFetch and ShareAcknowledge by raw requests; the answers are Kafka 4.3.1's."""

from __future__ import annotations

import socket
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kstore.clients import Producer
from kstore.errors import ErrorCode
from tests.broker.harness.wire import Wire
from tests.conformance.kafka_broker import free_port
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.reference.shares.share_member import Row, ShareMember, new_topic
from tests.reference.transactional_producer import Producer as Transactional

SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}
ACCEPT, RELEASE, REJECT, RENEW, GAP = [1], [2], [3], [4], [0]
NONE = ErrorCode.NONE
LONG_MS = 20_000
PREFIX = "kafka_server_share"


class Group:
    def __init__(self, running: KstoreBroker, **settings: object) -> None:
        self.broker = running
        self.id = f"g-{uuid.uuid4()}"
        self.line = Wire(running)
        self.topic, self.topic_id = new_topic(self.line)
        settings = {"share_auto_offset_reset": "earliest"} | settings
        assert self.line.set_group(self.id, **settings) == 0
        self.first = self.member()
        self.first.join(self.topic)

    def member(self) -> ShareMember:
        return ShareMember(self.broker.bootstrap, self.id, self.topic_id)

    def produce(self, *batches: int) -> None:
        """Batches with these numbers of records."""
        with Producer(self.broker.bootstrap, linger_ms=1000) as producer:
            for count in batches:
                for _ in range(count):
                    producer.send(self.topic, b"value")
                producer.flush()


def acquired(*rows: tuple[int, int, int]) -> Callable[[tuple[int, Row | None]], bool]:
    """Whether an answer has no error, and exactly these rows."""

    def check(answer: tuple[int, Row | None]) -> bool:
        error, row = answer
        found = [] if row is None else row.acquired
        return error == NONE and (row is None or row.error == NONE) and found == list(rows)

    return check


def test_records_are_acquired_acknowledged_and_those_released_come_again(
    running: KstoreBroker,
) -> None:
    group = Group(running)
    group.produce(10, 10)
    member = group.first
    assert acquired((0, 19, 1))(member.fetch())
    assert acquired()(member.fetch())
    types = [*ACCEPT, *RELEASE, *REJECT, *GAP]
    assert member.acknowledge((0, 3, ACCEPT), (4, 7, types), (8, 9, RELEASE)) == (
        NONE, Row(NONE, NONE, [], 0)
    )  # fmt: skip
    assert acquired((5, 5, 2), (8, 9, 2))(member.fetch((10, 19, ACCEPT)))
    assert acquired()(member.fetch((5, 5, ACCEPT), (8, 9, ACCEPT)))
    group.produce(1)
    assert acquired((20, 20, 1))(member.fetch(wait_ms=LONG_MS))


def test_a_batch_ends_a_range_unless_the_record_limit_is_strict(running: KstoreBroker) -> None:
    group = Group(running)
    group.produce(10, 10, 10)
    member = group.first
    assert acquired((0, 9, 1), (10, 19, 1))(member.fetch(max_records=11, batch_size=10))
    error, row = member.fetch(max_records=4, share_acquire_mode=1)
    assert (error, row and row.acquired) == (NONE, [(20, 23, 1)])
    assert acquired((24, 29, 1))(group_fetch(group))


def group_fetch(group: Group, wait_ms: int = 0) -> tuple[int, Row | None]:
    """What another member gets."""
    return group.member().fetch(wait_ms=wait_ms)


def test_sessions_have_epochs(running: KstoreBroker) -> None:
    group = Group(running)
    member = group.first
    member.epoch = 3
    assert member.fetch()[0] == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge()[0] == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = -1
    assert member.fetch()[0] == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    assert member.acknowledge()[0] == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch((0, 0, ACCEPT))[0] == ErrorCode.INVALID_REQUEST
    assert acquired()(member.fetch())
    member.epoch = 2
    assert member.fetch()[0] == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 1
    assert acquired()(member.fetch(forget=True))
    group.produce(1)
    assert acquired()(member.fetch(forget=True))
    assert acquired((0, 0, 1))(member.fetch())


def test_too_many_sessions_and_bad_members_are_refused(
    start_broker: Callable[..., KstoreBroker],
) -> None:
    group = Group(start_broker({"group.share.max.share.sessions": "1"}))
    assert acquired()(group.first.fetch())
    assert group_fetch(group)[0] == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    group.first.leave()
    assert acquired()(group_fetch(group))
    named = ShareMember(group.broker.bootstrap, group.id, group.topic_id, "m" * 37)
    assert named.fetch()[0] == ErrorCode.INVALID_REQUEST


def test_what_is_wrong_with_an_acknowledgement(running: KstoreBroker) -> None:
    group = Group(running)
    group.produce(10)
    member = group.first
    member.fetch()
    other = group.member()
    other.fetch()
    for ranges, code in (
        ([(8, 9, ACCEPT), (0, 1, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(1, 0, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 2, [1, 1])], ErrorCode.INVALID_REQUEST),
        ([(0, 2, [])], ErrorCode.INVALID_REQUEST),
        ([(0, 2, [5])], ErrorCode.INVALID_REQUEST),
        ([(0, 2, RENEW)], ErrorCode.INVALID_REQUEST),
        ([(5, 10, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(10, 10, ACCEPT)], ErrorCode.INVALID_REQUEST),
    ):
        error, row = member.acknowledge(*ranges)
        assert (error, row and row.error) == (NONE, code), ranges
    error, row = other.acknowledge((0, 0, ACCEPT))
    assert (error, row and row.error) == (NONE, ErrorCode.INVALID_RECORD_STATE)
    member.topic_id = uuid.uuid4()
    error, row = member.acknowledge((0, 0, ACCEPT))
    assert (error, row and row.error) == (NONE, ErrorCode.UNKNOWN_TOPIC_ID)


def test_an_acknowledgement_is_not_of_what_its_own_fetch_acquires(running: KstoreBroker) -> None:
    group = Group(running)
    group.produce(1)
    member = group.first
    assert acquired((0, 0, 1))(member.fetch())
    assert member.acknowledge((0, 0, RELEASE))[0] == NONE
    error, row = member.fetch((0, 0, ACCEPT))
    assert (error, row and row[:3]) == (NONE, (NONE, ErrorCode.INVALID_RECORD_STATE, [(0, 0, 2)]))
    assert acquired()(member.fetch((0, 0, ACCEPT)))


def test_members_that_wait_get_what_comes_one_after_the_other(running: KstoreBroker) -> None:
    group = Group(running)
    members = [group.first, *(group.member() for _ in range(3))]
    gone = group.member()
    with ThreadPoolExecutor(5) as pool:
        lost = pool.submit(gone.fetch, wait_ms=LONG_MS, max_records=1, share_acquire_mode=1)
        waiting = [
            pool.submit(member.fetch, wait_ms=LONG_MS, max_records=1, share_acquire_mode=1)
            for member in members
        ]
        # Whether it waited or not: it takes no one's turn.
        gone.line.sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError):
            lost.result()
        group.produce(4)
        answers = [one.result() for one in waiting]
    found = [row.acquired[0][:2] for error, row in answers if error == NONE and row is not None]
    assert sorted(found) == [(offset, offset) for offset in range(4)]


def test_a_lock_ends_in_time_unless_it_is_renewed(running: KstoreBroker) -> None:
    group = Group(running, share_record_lock_duration_ms=1500)
    group.produce(1, 1)
    assert acquired((0, 1, 1))(group.first.fetch())
    assert group.first.fetch((1, 1, RENEW), is_renew_ack=True)[0] == ErrorCode.INVALID_REQUEST
    error, row = group.first.acknowledge((1, 1, RENEW), is_renew_ack=True)
    assert (error, row and row.error) == (NONE, NONE)
    other = group.member()
    error, row = other.fetch(wait_ms=LONG_MS)
    assert (error, row and row.acquired[0][0], row and row.acquired[0][2]) == (NONE, 0, 2)


def test_metrics_say_what_is_in_flight(start_broker: Callable[..., KstoreBroker]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    running = start_broker(
        SETTINGS | {"kstore.metrics.listener": url, "kstore.metrics.max.partitions": "1"}
    )

    def told() -> dict[str, float]:
        with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
            rows = (row.rpartition(" ") for row in answer.read().decode().splitlines())
            return {
                name.removeprefix(PREFIX): float(v)
                for name, _, v in rows
                if name[0] != "#" and "share" in name
            }

    assert not any(name.startswith("partitionmetrics") for name in told())
    group, other = Group(running, share_record_lock_duration_ms=1000), Group(running)
    group.produce(10)
    other.produce(3)
    assert acquired((0, 9, 1))(group.first.fetch())
    assert acquired((0, 2, 1))(other.first.fetch())
    group.first.acknowledge((0, 3, ACCEPT), (6, 6, RELEASE))
    # Of the six, one is available again; the locks of the others end.
    second, third = group.member(), group.member()
    assert acquired((6, 6, 2))(second.fetch())
    error, row = third.fetch(wait_ms=LONG_MS)
    assert (error, row and row.acquired[0][0]) == (NONE, 4)
    place = f'{{consumergroup="{group.id}",topic="{group.topic}",partition="0"}}'
    others = '{consumergroup="(others)",topic="(others)",partition=""}'
    found = told()
    assert found[f"partitionmetrics_inflightmessagecount{place}"] == 6
    assert found[f"partitionmetrics_inflightmessagecount{others}"] == 3
    assert found[f"partitionmetrics_inflightbatchcount{others}"] == 1
    assert found["partitionmetrics_acquisitionlocktimeout_total"] >= 2
    assert found["sessioncache_sharesessionscount"] >= 2
    assert found["sessioncache_sharepartitionscount"] == found["sessioncache_sharesessionscount"]
    assert found["kstore_share_partitions"] == 2
    assert found[f"partitionmetrics_acquisitionlocktimeout_total{place}"] >= 2
    assert found[f"partitionmetrics_inflightbatchmessagecount_count{place}"] == 1
    assert found[f"partitionmetrics_inflightbatchmessagecount_sum{place}"] == 10
    quantile = place.replace("}", ',quantile="0.99"}')
    assert 8 <= found[f"partitionmetrics_inflightbatchmessagecount{quantile}"] <= 10
    assert found[f"partitionmetrics_fetchlocktimems_count{place}"] >= 3
    assert found[f"partitionmetrics_fetchlockratio_sum{place}"] >= 0
    acknowledged = "groupmetrics_recordacknowledgements_total"
    assert found[f'{acknowledged}{{ackType="Accept"}}'] == 4
    assert found[f'{acknowledged}{{ackType="Release"}}'] == 1
    assert found[f'{acknowledged}{{ackType="Renew"}}'] == 0
    assert found["groupmetrics_partitionloadtimems_count"] == 2
    of_group = f'{{consumergroup="{group.id}"}}'
    assert found[f"groupmetrics_topicpartitionsacquiretimems_count{of_group}"] == 3
    assert found[f"groupmetrics_requesttopicpartitionsfetchratio_sum{of_group}"] >= 300
    topics = "kafka_server_brokertopicmetrics_total"
    of_topic = f'{{topic="{group.topic}"}}'
    assert found[f"{topics}sharefetchrequests_total{of_topic}"] >= 3
    assert found[f"{topics}sharefetchrequests_total"] >= 4
    assert found[f"{topics}shareacknowledgementrequests_total{of_topic}"] == 1
    assert found["_coordinator_metrics_write_total"] >= 4
    assert found["_coordinator_metrics_write_latency_max"] > 0
    assert found['_coordinator_metrics_num_partitions{state="active"}'] > 0
    assert found["kafka_server_delayedsharefetchmetrics_expires_total"] >= 0
    assert found['kstore_metrics_summed_up{of="share_partitions"}'] == 1


def test_what_a_lost_connection_had_is_the_next_ones(running: KstoreBroker) -> None:
    group = Group(running)
    group.produce(5)
    lost = group.member()
    assert acquired((0, 4, 1))(lost.fetch())
    lost.line.close()
    assert acquired((0, 4, 2))(group_fetch(group, LONG_MS))


def test_a_record_is_delivered_no_more_often_than_the_limit(running: KstoreBroker) -> None:
    group = Group(running, share_delivery_count_limit=2)
    group.produce(3)
    member = group.first
    assert acquired((0, 2, 1))(member.fetch())
    assert acquired((0, 2, 2))(member.fetch((0, 2, RELEASE), wait_ms=LONG_MS))
    assert acquired()(member.fetch((0, 2, RELEASE)))
    group.produce(1)
    assert acquired((3, 3, 1))(member.fetch(wait_ms=LONG_MS))


def test_no_more_than_the_limit_is_in_flight(running: KstoreBroker) -> None:
    group = Group(running, share_partition_max_record_locks=100)
    group.produce(*[50] * 4)
    assert acquired((0, 99, 1))(group.first.fetch())
    assert acquired()(group.first.fetch())
    assert acquired((100, 149, 1))(group.first.fetch((0, 9, ACCEPT), wait_ms=LONG_MS))


def test_a_new_group_begins_at_the_end_and_keeps_that(running: KstoreBroker) -> None:
    group = Group(running, share_auto_offset_reset="latest")
    group.produce(5)
    assert acquired()(group.first.fetch())
    group.produce(2)
    assert acquired((5, 6, 1))(group.first.fetch(wait_ms=LONG_MS))


def test_a_new_group_begins_some_time_ago(running: KstoreBroker) -> None:
    group = Group(running, share_auto_offset_reset="by_duration:PT1H")
    group.produce(5)
    assert acquired((0, 4, 1))(group.first.fetch())


def test_deleted_records_are_not_in_flight(running: KstoreBroker) -> None:
    group = Group(running)
    group.produce(5, 5)
    assert acquired((0, 4, 1))(group.first.fetch(max_records=1))
    row = {"partition_index": 0, "offset": 7}
    topic = {"name": group.topic, "partitions": [row]}
    group.line.call(Ask.DeleteRecords(topics=[topic], timeout_ms=30_000))
    assert acquired((7, 9, 1))(group_fetch(group, LONG_MS))
    error, row_told = group.first.acknowledge((0, 4, ACCEPT))
    assert (error, row_told and row_told.error) == (NONE, NONE)


def test_offsets_that_are_set_anew_count_once_no_member_is_left(running: KstoreBroker) -> None:
    group = Group(running)
    group.produce(5, 5)
    assert acquired((0, 9, 1))(group.first.fetch())
    group.first.acknowledge((0, 9, ACCEPT))
    group.first.leave()
    key = {"partition": 0, "state_epoch": 9, "start_offset": 5}
    topic = {"topic_id": group.topic_id, "partitions": [key]}
    group.line.call(Ask.InitializeShareGroupState(group_id=group.id, topics=[topic]))
    assert acquired((5, 9, 1))(group_fetch(group))


def test_read_committed_leaves_out_aborted_records_and_waits_for_open_ones(
    running: KstoreBroker,
) -> None:
    group = Group(running, share_isolation_level="read_committed")
    writer = Transactional(running, f"tx-{uuid.uuid4()}", group.topic)
    writer.init()
    for committed in (False, True, False):
        writer.add(0)
        writer.write(b"value")
        writer.end(committed=committed)
    group.produce(1)
    # Aborted: 0 and 4. Markers at 1, 3 and 5 are the client's to pass over.
    assert acquired((1, 3, 1), (5, 6, 1))(group.first.fetch())
    writer.add(0)
    writer.write(b"open")
    assert acquired()(group.first.fetch())
    writer.end(committed=True)
    answer = group.first.fetch(wait_ms=LONG_MS)
    assert acquired((7, 8, 1))(answer) or acquired((7, 7, 1))(answer)


@pytest.mark.slow
def test_after_kill_9_nothing_accepted_comes_again_and_nothing_is_lost(tmp_path: Path) -> None:
    running = KstoreBroker(tmp_path, overrides=SETTINGS)
    running.start()
    try:
        group = Group(running)
        group.produce(10, 10, 10)
        assert acquired((0, 29, 1))(group.first.fetch())
        kinds = [*ACCEPT, *RELEASE] * 5
        assert group.first.acknowledge((0, 4, ACCEPT), (10, 19, kinds), (25, 29, REJECT))[0] == NONE
        running.kill()
        running.start()
        again = ShareMember(running.bootstrap, group.id, group.topic_id)
        error, row = again.fetch(wait_ms=LONG_MS)
        assert error == NONE
        assert row is not None
        counts = {
            offset: count
            for first, last, count in row.acquired
            for offset in range(first, last + 1)
        }
        released = {11, 13, 15, 17, 19}
        assert counts == {
            offset: 2 if offset in released else 1
            for offset in [*range(5, 10), *sorted(released), *range(20, 25)]
        }
    finally:
        running.stop()
