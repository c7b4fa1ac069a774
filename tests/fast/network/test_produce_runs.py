"""Small Produce requests that arrived together: one write has their batches, and each gets the same
response as alone, in every mix with others, and when the write fails.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kstore._fast.record.builder import build_batch
from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.broker.state.security.authorizer import Authorizer
from kstore.env import SystemEnv
from kstore.errors import ErrorCode
from tests.broker.harness.plane_harness import TOPIC_ID, Client, Plane
from tests.fast.broker.test_replicated_produce import FAR, NEAR, Cluster
from tests.record_requests import produce_request
from tests.reference.acl_rules import load
from tests.reference.fault_fs import FaultyFileSystem

PRODUCE, VERSION = 0, 9
MOST = 16  # requests of one write
READ_BYTES = 256 * 1024


def batch(value: bytes = b"x", **more: Any) -> bytes:
    return build_batch([value, value], timestamp=1, **more)


def frames(
    client: Client, *batches: bytes, version: int = VERSION, index: int = 0, **more: Any
) -> bytes:
    topic = TOPIC_ID if version >= 13 else "t"
    requests = [produce_request(topic, each, first=index, **more) for each in batches]
    return b"".join(client.frame(version, each) for each in requests)


def outcomes(client: Client) -> list[tuple[int, int]]:
    return [row for rows in client.produced() for row in rows]


@pytest.mark.parametrize("version", range(3, 14))
def test_those_that_came_together_have_one_write_and_their_own_answers(
    plane: Plane, version: int
) -> None:
    client = plane.client()
    client.feed(frames(client, *[batch()] * 5, version=version))
    assert outcomes(client) == [(0, offset) for offset in range(0, 10, 2)]
    assert plane.plane.runs.runs == 1
    assert plane.plane.request_counts() == {PRODUCE: 5}
    assert [record.offset for record in plane.partition().log.read(0)] == list(range(10))


def test_one_that_comes_alone_is_no_run(plane: Plane) -> None:
    client = plane.client()
    for _ in range(3):
        client.feed(frames(client, batch()))
    assert outcomes(client) == [(0, 0), (0, 2), (0, 4)]
    assert plane.plane.runs.runs == 0


def test_a_write_has_so_many_at_most(plane: Plane) -> None:
    client = plane.client()
    client.feed(frames(client, *[batch()] * (2 * MOST + 3)))
    assert [offset for _, offset in outcomes(client)] == list(range(0, 2 * (2 * MOST + 3), 2))
    assert plane.plane.runs.runs == 3


def test_a_refused_one_does_not_touch_its_neighbours(plane: Plane) -> None:
    client = plane.client()
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    client.feed(frames(client, batch(), bytes(damaged), batch(), batch()))
    corrupt = (ErrorCode.CORRUPT_MESSAGE, -1)
    assert outcomes(client) == [(0, 0), corrupt, (0, 2), (0, 4)]
    assert plane.plane.runs.runs == 1


def test_sequences_are_judged_in_their_order(plane: Plane) -> None:
    client = plane.client()

    def of(sequence: int) -> bytes:
        return batch(producer_id=7, producer_epoch=0, base_sequence=sequence)

    client.feed(frames(client, of(0), of(2), of(2), of(6), of(4)))
    gap = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert outcomes(client) == [(0, 0), (0, 2), (0, 2), gap, (0, 4)]
    assert plane.plane.runs.runs == 1
    assert plane.partition().log_end_offset == 6


def test_a_write_that_fails_fails_all_of_it_and_leaves_nothing(tmp_path: Path) -> None:
    disk = FaultyFileSystem(str(tmp_path))
    plane = Plane(tmp_path, dir={"env": SystemEnv(fs=disk)})
    client = plane.client()
    client.feed(frames(client, batch()))
    appends = disk.calls["append"]
    client.feed(frames(client, *[batch()] * 4))
    assert disk.calls["append"] == appends + 1
    assert outcomes(client) == [(0, offset) for offset in range(0, 10, 2)]

    disk.fail("append", errno.ENOSPC, written_bytes=100)
    client.feed(frames(client, *[batch()] * 4))

    assert outcomes(client) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 4
    assert plane.partition().log_end_offset == 10
    assert len(plane.server.reports) == 1
    assert [record.offset for record in plane.partition().log.read(0)] == list(range(10))
    plane.close()


def test_a_full_segment_is_left_to_a_single_append(tmp_path: Path) -> None:
    plane = Plane(tmp_path, dir={"segment_bytes": 1000})
    client = plane.client()
    client.feed(frames(client, *[batch(b"v" * 100)] * 8))
    assert [offset for _, offset in outcomes(client)] == list(range(0, 16, 2))
    assert len(list((tmp_path / "t-0").glob("*.log"))) > 1
    plane.close()


def test_who_may_not_write_is_refused_in_each(plane: Plane) -> None:
    write = Acl(AclResourceType.TOPIC, "t", "User:ANONYMOUS", AclOperation.WRITE)
    plane.plane.authorizer = authorizer = Authorizer()
    load(authorizer, [])
    client = plane.client()
    client.feed(frames(client, *[batch()] * 3))
    assert outcomes(client) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)] * 3
    assert plane.plane.runs.runs == 0
    load(authorizer, [write])
    client.feed(frames(client, *[batch()] * 3))
    assert outcomes(client) == [(0, 0), (0, 2), (0, 4)]
    assert plane.plane.runs.runs == 1


def test_answers_that_wait_for_followers_come_one_by_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    client = cluster.client()
    client.feed(frames(client, *[batch()] * 4, acks=-1))
    assert cluster.plane.runs.runs == 1
    assert outcomes(client) == []
    cluster.advance_to(5)
    assert outcomes(client) == [(0, 0), (0, 2)]
    client.feed(frames(client, *[batch()] * 3, acks=-1))
    assert cluster.plane.runs.runs == 2
    cluster.fetched(NEAR, 14)
    assert outcomes(client) == [], "one of the followers has only five"
    cluster.fetched(FAR, 14)
    cluster.loop.turn()
    assert outcomes(client) == [(0, offset) for offset in range(4, 14, 2)]
    assert cluster.produce.waiting.parked == 0
    cluster.close()


def test_those_that_wait_are_told_when_another_broker_leads(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    client = cluster.client()
    client.feed(frames(client, *[batch()] * 3, acks=-1, version=10))
    cluster.advance_to(2)
    cluster.partition(0).follow(NEAR, 4)
    cluster.loop.turn()
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [code for code, _ in outcomes(client)] == [0, not_leader, not_leader]
    cluster.close()


def test_each_wait_ends_with_the_time_of_its_request(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    client = cluster.client()
    client.feed(frames(client, *[batch()] * 3, acks=-1))
    cluster.now_ms += 1000
    cluster.loop.fire_timers()
    cluster.loop.turn()
    assert [code for code, _ in outcomes(client)] == [ErrorCode.REQUEST_TIMED_OUT] * 3
    cluster.close()


def test_too_few_in_sync_refuse_each(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.partition(0).configure(stored_codec=-1, stored_level=-1, min_insync_replicas=4)
    client = cluster.client()
    client.feed(frames(client, *[batch()] * 3, acks=-1))
    assert outcomes(client) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)] * 3
    assert (cluster.plane.runs.runs, cluster.partition(0).log_end_offset) == (0, 0)
    cluster.close()


def test_what_threads_have_appended_is_not_appended_again(tmp_path: Path) -> None:
    plane = Plane(tmp_path)
    waiting: list[Any] = []
    appends = plane.dir.appends
    appends.serve(plane.loop.call_soon, waiting.append)
    appends.calm.over_budget = True
    client = plane.client()
    client.feed(frames(client, *[batch()] * 4))
    appends.calm.over_budget = False
    while waiting:
        waiting.pop(0)()
        plane.loop.turn()
    assert outcomes(client) == [(0, 0), (0, 2), (0, 4), (0, 6)]
    assert [record.offset for record in plane.partition().log.read(0)] == list(range(8))
    plane.close()


def some_request() -> st.SearchStrategy[tuple[Any, ...]]:
    kinds = st.sampled_from(["plain", "large", "damaged", "packed", "empty", "producer"])
    return st.tuples(
        kinds, st.integers(0, 3), st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from([1, 1, -1, 0]),
        st.sampled_from([3, 9, 9, 9, 9, 13]),
    )  # fmt: skip


def made(kind: str, number: int) -> bytes:
    if kind == "damaged":
        data = bytearray(batch())
        data[-1] ^= 1
        return bytes(data)
    if kind == "producer":
        return batch(producer_id=5, producer_epoch=0, base_sequence=2 * number)
    if kind == "packed":
        return batch(b"packed" * 20, compression=4)
    return {"plain": batch(b"v" * number), "large": batch(b"l" * 20_000), "empty": b""}[kind]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(some_request(), min_size=2, max_size=24), st.integers(1, 4), st.booleans())
def test_together_or_one_after_the_other_is_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    asked: list[tuple[Any, ...]],
    pieces: int,
    replicated: bool,
) -> None:
    seen = []
    for together in (True, False):
        folder = tmp_path_factory.mktemp("run")
        plane = Cluster(folder) if replicated else Plane(folder)
        client = plane.client()
        data = [
            frames(client, made(kind, number), index=index, acks=acks, version=version)
            for kind, number, index, acks, version in asked
        ]
        if together:
            whole = b"".join(data)
            step = min(len(whole) // pieces + 1, READ_BYTES)
            data = [whole[at : at + step] for at in range(0, len(whole), step)]
        for piece in data:
            if not client.transport.closed:
                client.feed(piece)
        answers = [client.raw_answers()]
        if isinstance(plane, Cluster):
            end = plane.partition(0).log_end_offset
            for offset in (end // 2, end):
                plane.advance_to(offset)
                answers.append(client.raw_answers())
        seen.append(
            (
                answers,
                client.transport.closed,
                [list(plane.partition(index).log.read(0)) for index in range(2)],
                plane.plane.request_counts(),
            )
        )
        plane.close()
    assert seen[0] == seen[1]
