"""Fetches by followers and from followers: how far they read, when they are woken, where logs
diverge, and which clients are sent to another broker.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.fetch import (
    EpochEndOffset,
    FetchRequest,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tests.broker.harness.plane_harness import NODE_ID, TOPIC_ID, Client, Plane
from tests.fast.broker.test_fetch_path import append
from tests.record_requests import fetch_part, fetch_request, only, produce_request

FETCH = 1
NEAR, FAR = 6, 7
REPLICAS = (NODE_ID, NEAR, FAR)
VERSIONS = range(4, 19)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def plane(plane: Plane) -> Plane:
    plane.partition().lead(3, 1, REPLICAS, REPLICAS)
    return plane


def request(version: int, offset: int, *, node: int = -1, **more: Any) -> FetchRequest:
    """A fetch of partition 0; fields of its part and of itself."""
    in_part = {
        key: more.pop(key) for key in ("last_fetched_epoch", "current_leader_epoch") if key in more
    }
    part, topic = fetch_part(offset, **in_part), TOPIC_ID if version >= 13 else "t"
    if version >= 15:
        return fetch_request(topic, part, node=node, **more)
    return fetch_request(topic, part, replica_id=node, **more)


def call(client: Client, version: int, offset: int, **more: Any) -> PartitionData:
    return only(client.call(version, request(version, offset, **more)))


def committed(plane: Plane, offset: int) -> None:
    """Both followers have fetched up to here."""
    for node in (NEAR, FAR):
        call(plane.client(), 16, offset, node=node)
    assert plane.partition().high_watermark == offset


# ---- how far they read ----


@pytest.mark.parametrize("version", VERSIONS)
def test_followers_read_to_the_end_and_consumers_to_the_high_watermark(
    plane: Plane, version: int
) -> None:
    first = append(plane, 2)
    committed(plane, 2)
    second = append(plane, 3)
    follower = call(plane.client(), version, 0, node=NEAR)
    assert (bytes(follower.records), follower.high_watermark) == (first + second, 2)
    consumer = call(plane.client(), version, 0)
    assert (bytes(consumer.records), consumer.high_watermark) == (first, 2)


def test_an_append_wakes_followers_and_the_high_watermark_consumers(plane: Plane) -> None:
    clients = [plane.client() for _ in range(3)]
    waiting = dict(zip((NEAR, FAR, -1), clients, strict=True))
    for node, client in waiting.items():
        client.send(16, request(16, 0, node=node, max_wait_ms=500, min_bytes=1))
    data = append(plane)
    plane.loop.turn()
    for node in (NEAR, FAR):
        [(_, response)] = waiting[node].answers()
        assert bytes(only(response).records) == data
    assert waiting[-1].answers() == []
    committed(plane, 1)
    plane.loop.turn()
    [(_, response)] = waiting[-1].answers()
    assert (bytes(only(response).records), only(response).high_watermark) == (data, 1)
    assert plane.fetch.parked == 0


def test_a_new_leader_fences_who_waits_with_the_old_epoch(plane: Plane) -> None:
    client = plane.client()
    asked = request(16, 0, node=NEAR, max_wait_ms=500, min_bytes=1, current_leader_epoch=3)
    client.send(16, asked)
    plane.partition().follow(FAR, 4)
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert only(response).error_code == NOT_LEADER
    assert only(response).current_leader == LeaderIdAndEpoch(leader_id=FAR, leader_epoch=4)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(3, 0), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_followers_leader_epoch_is_checked_before_it_counts(
    plane: Plane, epoch: int, error: int
) -> None:
    append(plane)
    answer = call(plane.client(), 16, 1, node=NEAR, current_leader_epoch=epoch)
    assert answer.error_code == error
    follower = plane.partition().replication.follower(NEAR)  # type: ignore[union-attr]
    assert follower is not None
    assert follower.log_end_offset == (-1 if error else 1)


def wait_in_session(client: Client, offset: int) -> None:
    """Open a follower's session at an offset, and let its next fetch wait."""
    opened = request(16, offset, node=NEAR, session_id=0, session_epoch=0)
    session_id = client.call(16, opened).session_id
    waiting = fetch_request(
        TOPIC_ID, node=NEAR, max_wait_ms=500, session_id=session_id, session_epoch=1
    )
    client.send(16, waiting)


def test_a_waiting_follower_hears_at_once_where_the_log_begins_now(plane: Plane) -> None:
    append(plane, 2)
    committed(plane, 2)
    client = plane.client()
    wait_in_session(client, 2)
    plane.partition().log.delete_before(2)
    plane.partition().notify()
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert only(response).log_start_offset == 2


# ---- where histories part ----


def test_a_follower_with_records_that_this_leader_never_had_is_told(plane: Plane) -> None:
    append(plane, 2)
    plane.partition().lead(5, 2, REPLICAS, REPLICAS)  # epoch 4 had another leader
    answer = call(plane.client(), 16, 4, node=NEAR, last_fetched_epoch=4)
    assert answer.error_code == 0
    assert answer.diverging_epoch == EpochEndOffset(epoch=3, end_offset=2)
    follower = plane.partition().replication.follower(NEAR)  # type: ignore[union-attr]
    assert follower is not None
    assert follower.log_end_offset == -1


def test_a_follower_ahead_of_an_empty_leader_is_told(plane: Plane) -> None:
    plane.partition().lead(5, 2, REPLICAS, REPLICAS)
    answer = call(plane.client(), 16, 4, node=NEAR, last_fetched_epoch=4)
    assert answer.diverging_epoch == EpochEndOffset(epoch=4, end_offset=0)


def test_one_that_is_ahead_in_the_same_epoch_is_told(plane: Plane) -> None:
    append(plane, 2)
    answer = call(plane.client(), 16, 3, node=NEAR, last_fetched_epoch=3)
    assert answer.diverging_epoch == EpochEndOffset(epoch=3, end_offset=2)


def test_without_an_epoch_what_is_ahead_is_out_of_range(plane: Plane) -> None:
    append(plane, 2)
    assert call(plane.client(), 16, 3, node=NEAR).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_part_of_the_same_history_is_read_on(plane: Plane) -> None:
    append(plane, 2)
    plane.partition().lead(5, 2, REPLICAS, REPLICAS)
    data = append(plane, 1)
    answer = call(plane.client(), 16, 2, node=NEAR, last_fetched_epoch=3)
    assert (answer.diverging_epoch.epoch, bytes(answer.records)) == (-1, data)


# ---- from followers ----


@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_read_from_a_follower_below_its_high_watermark(
    plane: Plane, version: int
) -> None:
    first = append(plane, 2)
    append(plane, 1)
    plane.partition().follow(NEAR, 4)
    plane.partition().take_high_watermark(2)
    answer = call(plane.client(), version, 0)
    if version < 11:  # such a consumer may read from the leader alone
        assert answer.error_code == NOT_LEADER
    else:
        assert (answer.error_code, bytes(answer.records)) == (0, first)
    assert call(plane.client(), version, 0, node=FAR).error_code == NOT_LEADER


def test_what_the_leader_says_wakes_a_consumer_at_a_follower(plane: Plane) -> None:
    data = append(plane)
    plane.partition().follow(NEAR, 4)
    client = plane.client()
    client.send(16, request(16, 0, max_wait_ms=500, min_bytes=1))
    plane.partition().take_high_watermark(7)  # its log ends before
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert (bytes(only(response).records), only(response).high_watermark) == (data, 1)
    plane.partition().take_high_watermark(0)
    assert plane.partition().high_watermark == 1


def test_a_follower_takes_no_records(plane: Plane) -> None:
    plane.partition().follow(NEAR, 4)
    asked = produce_request("t", build_batch([b"v"], timestamp=1), acks=-1)
    response = plane.client().call(12, asked)
    assert only(response).error_code == NOT_LEADER


# ---- clients that are sent elsewhere ----


def endpoint(node_id: int, listener: str) -> bytes | None:
    """Broker 7 alone has the listener: its host is h, its port 1, its rack r."""
    if node_id != FAR or listener != "PLAINTEXT":
        return None
    return b"\0\0\0\7" + b"\2h" + b"\0\0\0\1" + b"\2r" + b"\0"


@pytest.mark.parametrize("leader", [FAR, NEAR, -1])
def test_who_asked_the_wrong_broker_is_told_where_the_leader_is(plane: Plane, leader: int) -> None:
    plane.table.node_endpoint = endpoint
    plane.partition().follow(leader, 4)
    response = plane.client().call(16, request(16, 0, node=NEAR))
    expected = [NodeEndpoint(node_id=FAR, host="h", port=1, rack="r")] if leader == FAR else []
    assert response.node_endpoints == expected
    hint = only(response).current_leader
    assert (hint.leader_id, hint.leader_epoch) == ((leader, 4) if leader >= 0 else (-1, -1))
    asked = produce_request("t", build_batch([b"v"], timestamp=1), acks=1)
    response = plane.client().call(12, asked)
    assert [each.node_id for each in response.node_endpoints] == [each.node_id for each in expected]


def rack_aware(plane: Plane) -> None:
    plane.table.rack_aware = True
    plane.table.replication.racks = {NODE_ID: b"one", NEAR: b"two", FAR: b"two"}


@pytest.mark.parametrize(
    ("rack", "preferred"), [("", -1), ("one", -1), ("two", FAR), ("three", -1)]
)
def test_a_consumer_is_sent_to_the_replica_of_its_rack_that_has_most(
    plane: Plane, rack: str, preferred: int
) -> None:
    rack_aware(plane)
    data = append(plane, 2)
    committed(plane, 2)
    append(plane, 1)
    call(plane.client(), 16, 3, node=FAR)
    answer = call(plane.client(), 16, 0, rack_id=rack)
    assert answer.preferred_read_replica == preferred
    assert bytes(answer.records) == (b"" if preferred >= 0 else data)
    assert answer.high_watermark == 2


def test_no_consumer_is_sent_to_a_replica_that_lacks_the_offset_or_is_not_in_sync(
    plane: Plane,
) -> None:
    rack_aware(plane)
    append(plane, 2)
    call(plane.client(), 16, 2, node=NEAR)
    plane.partition().isr_applied((NODE_ID, FAR), 2, 3)
    assert call(plane.client(), 16, 1, rack_id="two").preferred_read_replica == -1
    plane.partition().isr_applied((NODE_ID, NEAR, FAR), 3, 3)
    assert call(plane.client(), 16, 1, rack_id="two").preferred_read_replica == NEAR


def test_followers_that_are_read_from_hear_of_the_high_watermark_at_once(plane: Plane) -> None:
    rack_aware(plane)
    append(plane, 1)
    client = plane.client()
    wait_in_session(client, 1)
    assert client.answers() == []
    call(plane.client(), 16, 1, node=FAR)
    plane.loop.turn()
    [(_, response)] = client.answers()
    assert only(response).high_watermark == 1


class Quotas:
    """No client may have anything."""

    def __init__(self) -> None:
        self.charged: list[int] = []

    def begin(self) -> int:
        return 0

    def spent(self, connection: Any, began: int) -> None: ...

    def fetch_bytes(self, connection: Any) -> int:
        return 0

    def charge(self, connection: Any, api_key: int, size: int) -> int:
        self.charged.append(api_key)
        return 100


def test_no_quota_of_clients_holds_a_follower_back(plane: Plane) -> None:
    append(plane, 1)
    charged = {}
    for node in (NEAR, -1):
        client = plane.client()
        quotas = client.connection.quotas = Quotas()
        call(client, 16, 0, node=node)
        client = plane.client()
        client.connection.quotas = quotas
        client.send(16, request(16, 1, node=node, max_wait_ms=500, min_bytes=1))
        charged[node] = quotas
    append(plane, 1)
    committed(plane, 2)
    plane.loop.turn()
    assert charged[NEAR].charged == []
    assert charged[-1].charged == [FETCH, FETCH]


# ---- sessions ----


class Session:
    """A follower's fetch session over all partitions, and what it must receive."""

    def __init__(self, plane: Plane, partitions: int) -> None:
        self.plane, self.client = plane, plane.client()
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.told = dict.fromkeys(range(partitions), -1)
        self.session_id = self.epoch = 0
        self.named = set(self.offsets)

    def fetch(self) -> set[int]:
        """Fetch once; returns the partitions in the answer."""
        parts = [fetch_part(self.offsets[index], index) for index in sorted(self.named)]
        asked = fetch_request(
            TOPIC_ID, *parts, node=NEAR, session_id=self.session_id, session_epoch=self.epoch
        )
        response = self.client.call(16, asked)
        assert response.error_code == 0
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        answered = {p.partition_index: p for topic in response.responses for p in topic.partitions}
        self.named = set()
        for index, part in answered.items():
            self.told[index] = part.high_watermark if part.error_code == 0 else -1
            if part.records:
                self.offsets[index] = self.plane.partition(index).log_end_offset
                self.named.add(index)
        return set(answered)

    def expected(self) -> set[int]:
        """The partitions with news for the follower."""
        news = set()
        for index, offset in self.offsets.items():
            partition = self.plane.partition(index)
            if (
                not partition.online
                or offset != partition.log_end_offset
                or self.told[index] != partition.high_watermark
            ):
                news.add(index)
        return news


@pytest.mark.parametrize("seed", range(6))
def test_a_followers_session_tells_all_that_changes_and_nothing_else(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    plane = Plane(tmp_path, partitions=5)
    epochs = dict.fromkeys(range(5), 3)
    for index in range(5):
        plane.partition(index).lead(3, 1, REPLICAS, (NODE_ID, FAR))
    session = Session(plane, 5)
    session.fetch()
    for _ in range(200):
        index = rng.randrange(5)
        partition = plane.partition(index)
        match rng.choice(["append", "append", "other", "join", "epoch", "away", "fetch", "fetch"]):
            case "append" if partition.online:
                partition.append_batches(bytearray(build_batch([b"v"], timestamp=1)))
            case "other" if partition.online:
                part = fetch_part(partition.log_end_offset, index)
                plane.client().call(16, fetch_request(TOPIC_ID, part, node=FAR))
            case "join":
                isr = rng.choice([(NODE_ID,), (NODE_ID, NEAR), (NODE_ID, FAR), REPLICAS])
                partition.isr_applied(isr, partition.isr_version + 1, epochs[index])
            case "epoch":
                epochs[index] += 1
                partition.lead(epochs[index], partition.isr_version + 1, REPLICAS, REPLICAS)
            case "away":
                partition.follow(FAR, epochs[index])
            case "fetch":
                # The response reports what the fetch itself commits.
                before, answered = session.expected(), session.fetch()
                assert before <= answered
                high = {i for i in answered - before if session.told[i] > 0}
                assert answered - before <= high
                assert session.expected() - session.named <= {
                    i for i in range(5) if not plane.partition(i).online
                }
    plane.close()


def test_a_leader_that_was_fenced_for_a_moment_hears_again_how_far_followers_are(
    plane: Plane,
) -> None:
    """Its session is lost, and it leads on in the same epoch: it must start again."""
    session = Session(plane, 1)
    append(plane, 1)
    for _ in range(3):
        session.fetch()
    plane.partition().follow(-1, 3)
    plane.partition().lead(3, 1, REPLICAS, REPLICAS)
    follower = plane.partition().replication.follower(NEAR)  # type: ignore[union-attr]
    assert follower is not None
    assert follower.log_end_offset == -1
    session.fetch()
    assert follower.log_end_offset == 1
