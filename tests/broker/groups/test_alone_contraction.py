"""A topic shrinks on a single broker (KIP-253), although the broker is killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from kstore.broker.coordination import own_contractions, znodes
from kstore.broker.coordination.contraction_nodes import CONTRACTIONS
from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.errors import ErrorCode
from tests.beside.waiting import until
from tests.broker.harness.topic_client import TopicClient, held
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask

Start = Callable[..., KstoreBroker]
SETTINGS = {
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "log.retention.check.interval.ms": "20",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "2",
}
SHORT = {"kstore.expansion.timeout.ms": "200"}
ORDERED = {"kstore_partition_count_required": "true", "kstore_ordered_expansion": "true"}


def shrink(client: TopicClient, count: int) -> tuple[int, str]:
    """The error code and message."""
    topic = {"name": "t", "count": count, "assignments": None, "may_shrink": True}
    answer = client.call(Ask.CreatePartitions(topics=[topic], timeout_ms=30_000)).results[0]
    return answer.error_code, answer.error_message or ""


def counts(client: TopicClient) -> tuple[int, int]:
    """Of the topic's partitions, and for producers (-1: all)."""
    [topic] = client.metadata("t").topics
    return len(topic.partitions), topic.partition_count


def empty(client: TopicClient, *indexes: int) -> None:
    """Delete all records of these partitions."""
    rows = [{"partition_index": index, "offset": -1} for index in indexes]
    request = Ask.DeleteRecords(topics=[{"name": "t", "partitions": rows}], timeout_ms=30_000)
    for row in client.call(request).topics[0].partitions:
        # They go as soon as they are empty.
        assert row.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER), row


def slow_reader(client: TopicClient) -> int:
    """A member of the group g that has all partitions and has committed nothing; its epoch."""
    answer = client.beat("m", 0, subscribed_topic_names=["t"])
    assert held(answer) == [0, 1, 2]
    return answer.member_epoch


def made(client: TopicClient) -> None:
    """A topic with two records in each of three partitions."""
    client.create("t", 3, **ORDERED)
    for index in range(3):
        assert client.produce("t", index, records=2, count=3).error_code == 0


def store_of(broker: KstoreBroker) -> LmdbStore:
    return LmdbStore(broker.log_dir / ".coordination")


def test_a_topic_shrinks_its_last_partitions_go_when_empty_and_it_grows_again(
    start_broker: Start,
) -> None:
    client = TopicClient(start_broker(SETTINGS))
    made(client)
    assert shrink(client, 1) == (0, "")
    assert counts(client) == (3, 1)
    assert client.produce("t", 0, count=1).base_offset == 2
    for index, count in ((0, 3), (2, 3), (2, 1)):
        refused = client.produce("t", index, count=count).error_code
        assert refused == ErrorCode.INVALID_PARTITION_COUNT, (index, count)
    assert shrink(client, 1) == (0, ""), "asked for again"
    code, why = shrink(client, 2)
    assert (code, "is already shrinking to 1 partitions" in why) == (60, True)
    topic = {"name": "t", "count": 4, "assignments": None}
    growing = Ask.CreatePartitions(topics=[topic], timeout_ms=30_000)
    refusal = client.call(growing).results[0]
    assert refusal.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "when the others, 1 to 2, are empty" in refusal.error_message
    before = client.metadata("t").topics[0].partitions
    empty(client, 1, 2)
    until(lambda: counts(client) == (1, -1), "the others are deleted")
    until(lambda: client.call(growing).results[0].error_code == 0, "it grows again")
    after = client.metadata("t").topics[0].partitions
    assert min(row.partition_epoch for row in after[1:]) > before[2].partition_epoch
    assert min(row.leader_epoch for row in after) > before[2].leader_epoch
    assert client.produce("t", 2, count=4).base_offset == 0


def test_a_group_that_does_not_read_keeps_the_topic_as_it_is(start_broker: Start) -> None:
    client = TopicClient(start_broker(SETTINGS | SHORT))
    made(client)
    epoch = slow_reader(client)
    assert shrink(client, 1) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "'t' keeps its 3 partitions: groups have not committed all records of the retiring "
        "partitions"
        " (g) within kstore.expansion.timeout.ms=200. Try again when that is so.",
    )
    assert counts(client) == (3, -1)
    assert client.produce("t", 2, count=3).error_code == 0
    who = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    assert client.commit("t", {1: 2, 2: 3}, **who) == [0, 0]
    assert shrink(client, 1) == (0, "")


def test_who_comes_later_reads_what_has_retired_first(start_broker: Start) -> None:
    client = TopicClient(start_broker(SETTINGS))
    made(client)
    assert shrink(client, 1) == (0, "")
    answer = client.beat("m", 0, subscribed_topic_names=["t"])
    given = [held(answer)]  # nothing, before it is known what has retired

    def gets(wanted: list[int]) -> bool:
        nonlocal answer
        if given[-1] != wanted:
            answer = client.beat("m", answer.member_epoch)
            given.extend([held(answer)] if answer.assignment is not None else [])
        return given[-1] == wanted

    until(lambda: gets([1, 2]), "it has what has retired")
    who = {"member_id": "m", "generation_id_or_member_epoch": answer.member_epoch}
    assert client.commit("t", {1: 2, 2: 2}, **who) == [0, 0]
    until(lambda: gets([0, 1, 2]), "it has all")
    assert [has for has in given if has] == [[1, 2], [0, 1, 2]]


@pytest.mark.slow
def test_what_is_prepared_when_the_broker_is_killed_goes_on(start_broker: Start) -> None:
    broker = start_broker(SETTINGS)
    client = TopicClient(broker)
    made(client)
    epoch = slow_reader(client)

    def ask() -> None:
        with suppress(OSError, EOFError, AssertionError):
            shrink(TopicClient(broker), 1)

    asking = Thread(target=ask)
    asking.start()
    refused = ErrorCode.INVALID_PARTITION_COUNT
    until(lambda: client.produce("t", 2, count=3).error_code == refused, "it is prepared")
    end = client.list_offsets("t", 2)
    broker.kill()
    asking.join()
    broker.start()
    client = TopicClient(broker)
    assert counts(client) == (3, -1)
    assert client.produce("t", 2, count=3).error_code == refused, "it is prepared yet"
    assert client.produce("t", 0, count=3).error_code == 0
    who = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    found: list[Any] = []

    def commits() -> bool:
        found[:] = client.commit("t", {1: 2, 2: end.offset}, **who)
        return found == [0, 0]

    until(commits, "the group is loaded")
    until(lambda: counts(client) == (3, 1), "it has shrunk")


@pytest.mark.slow
def test_what_is_decided_stays_so(start_broker: Start) -> None:
    broker = start_broker(SETTINGS)
    made(TopicClient(broker))
    assert shrink(TopicClient(broker), 1) == (0, "")
    broker.kill()
    broker.start()
    client = TopicClient(broker)
    assert counts(client) == (3, 1)
    assert client.produce("t", 2, count=1).error_code == ErrorCode.INVALID_PARTITION_COUNT
    assert client.produce("t", 0, count=1).error_code == 0
    empty(client, 1, 2)
    until(lambda: counts(client) == (1, -1), "the others are deleted")
    until(lambda: len(list(broker.log_dir.glob("t-*"))) == 1, "so are their logs")


@pytest.mark.slow
def test_logs_that_a_broker_had_to_delete_when_it_ended_are_gone(start_broker: Start) -> None:
    broker = start_broker(SETTINGS)
    made(TopicClient(broker))
    assert shrink(TopicClient(broker), 1) == (0, "")
    broker.stop()
    store = store_of(broker)
    own_contractions.remove_retired(store, znodes.read_topic(store, "t"), 1)
    store.close()
    assert len(list(broker.log_dir.glob("t-*"))) == 3
    broker.start()
    client = TopicClient(broker)
    assert counts(client) == (1, -1)
    assert [each.name for each in broker.log_dir.glob("t-*")] == ["t-0"]
    client.grow("t", 2)
    assert client.produce("t", 1, count=2).base_offset == 0


@pytest.mark.parametrize("emptied", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_topic_that_shrinks_can_be_deleted(start_broker: Start, emptied: bool) -> None:
    broker = start_broker(SETTINGS)
    client = TopicClient(broker)
    made(client)
    assert shrink(client, 1) == (0, "")
    if emptied:
        empty(client, 1, 2)
    client.delete("t")
    client.create("t", 3, **ORDERED)
    assert client.produce("t", 2, count=3).base_offset == 0
    broker.stop()
    store = store_of(broker)
    assert store.children(CONTRACTIONS) == []
    store.close()


def test_records_from_before_it_grew_keep_it_from_shrinking(start_broker: Start) -> None:
    client = TopicClient(start_broker(SETTINGS))
    client.create("t", 1, **ORDERED)
    client.produce("t", 0, records=2, count=1)
    client.grow("t", 3)
    code, why = shrink(client, 1)
    assert (code, "partitions [0] still have records" in why) == (ErrorCode.POLICY_VIOLATION, True)
    empty(client, 0)
    assert shrink(client, 1) == (0, "")


def test_offsets_of_partitions_that_are_gone_are_gone(start_broker: Start) -> None:
    client = TopicClient(start_broker(SETTINGS))
    made(client)
    assert client.commit("t", {0: 1, 2: 2}) == [0, 0]
    assert shrink(client, 1) == (0, "")
    empty(client, 1, 2)
    until(lambda: counts(client) == (1, -1), "the others are deleted")
    topic = {"name": "t", "partition_indexes": [0, 2]}
    request = Ask.OffsetFetch(groups=[{"group_id": "g", "topics": [topic]}])

    def offsets() -> list[int]:
        [row] = client.call(request, 8).groups[0].topics
        return [each.committed_offset for each in row.partitions]

    until(lambda: offsets() == [1, -1], "the group has forgotten them")
