"""kstore's share consumers with kstore's broker and with Apache Kafka itself, and in one group with
Java's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstore.clients import (
    AcknowledgementResult,
    AdminClient,
    AIOShareConsumer,
    NewTopic,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    WakeupError,
)
from kstore.clients.admin import ConfigResource
from kstore.errors import (
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidRecordStateError,
    NonEmptyGroupError,
)
from tests.cli.shell import Shell
from tests.conformance.kafka_broker import run_tool
from tests.conformance.live_kafka import LIVE_KAFKA

LONG_MS = 60_000
SETTINGS = {
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
}
Fill = Callable[..., None]


@pytest.fixture(params=["files_kstore", pytest.param("files_kafka", marks=LIVE_KAFKA)])
def servers(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param).bootstrap


@pytest.fixture
def group(servers: str) -> str:
    """A share group that reads from the beginning."""
    name = f"s-{uuid.uuid4().hex[:12]}"
    with AdminClient(servers) as admin:
        admin.alter_resource_configs(
            {ConfigResource("group", name): {"share.auto.offset.reset": "earliest"}}
        )
    return name


@pytest.fixture
def fill(servers: str, topic: str) -> Fill:
    """Puts values 0 to count - 1 into each partition of the topic, which it makes."""

    def put(count: int = 10, partitions: int = 1, first: int = 0) -> None:
        with AdminClient(servers) as admin, Producer(servers) as producer:
            if not first:
                admin.create_topics([NewTopic(topic, partitions)])
            for partition in range(partitions):
                for n in range(first, first + count):
                    producer.send(topic, b"%d" % n, b"k", partition=partition)

    return put


@pytest.fixture
def join(servers: str, topic: str, group: str) -> Iterator[Callable[..., ShareConsumer]]:
    """Makes members of the group that read the topic, and closes them."""
    members: list[ShareConsumer] = []

    def make(**settings: Any) -> ShareConsumer:
        members.append(ShareConsumer(servers, topic, group_id=group, **settings))
        return members[-1]

    yield make
    for member in members:
        member.close()


def read(consumer: ShareConsumer, count: int, kind: str | None = None) -> list[ShareRecord]:
    """So many records, by as many polls as that takes, each acknowledged if `kind` says how."""
    found: list[ShareRecord] = []
    while len(found) < count:
        records = consumer.poll(LONG_MS)
        assert records, f"{len(found)} of {count} records"
        found += records
        for record in records if kind else ():
            consumer.acknowledge(record, kind or "")
    return found


def nothing_is_left(consumer: ShareConsumer) -> bool:
    """Whether a member that has its partitions gets no record."""
    while not consumer.assignment():
        if consumer.poll(100):
            return False
    return consumer.poll(2_000) == []


def values(records: list[ShareRecord]) -> list[int]:
    return [int(record.value) for record in records]


def test_the_next_poll_accepts_what_the_last_returned(
    fill: Fill, join: Callable[..., ShareConsumer], topic: str
) -> None:
    fill(20, partitions=2)
    tps = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    told: list[AcknowledgementResult] = []
    consumer = join()
    consumer.set_acknowledgement_callback(told.append)
    records = read(consumer, 40)
    assert consumer.assignment() == tps
    assert sorted(values(records)) == sorted([*range(20), *range(20)])
    assert {record.delivery_count for record in records} == {1}
    assert {record.key for record in records} == {b"k"}
    consumer.commit()
    assert {(each.partition, each.error) for each in told} == {(tp, None) for tp in tps}
    offsets = [
        (each.partition, n)
        for each in told
        for first, last in each.ranges
        for n in range(first, last + 1)
    ]
    assert sorted(offsets) == sorted((tp, n) for tp in tps for n in range(20)), "each once"
    assert consumer.acquisition_lock_timeout_ms() == 30_000
    consumer.close()
    assert nothing_is_left(join())


def test_each_record_is_accepted_released_or_rejected(
    fill: Fill, join: Callable[..., ShareConsumer], topic: str
) -> None:
    fill(6)
    tp = TopicPartition(topic, 0)
    consumer = join(share_acknowledgement_mode="explicit")
    records = read(consumer, 6)
    with pytest.raises(RuntimeError, match=r"6 records of the last poll.* are not"):
        consumer.poll(0)
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[1], "reject")
    assert consumer.acknowledge_range(tp, 2, 4, "release") == 3
    consumer.acknowledge(records[5], "release")
    assert consumer.commit() == {tp: None}
    with pytest.raises(ValueError, match="offset 0 is not held by this consumer"):
        consumer.acknowledge(records[0])
    again = read(consumer, 4, "accept")
    assert [(record.offset, record.delivery_count) for record in again] == [
        (2, 2), (3, 2), (4, 2), (5, 2),
    ]  # fmt: skip
    assert consumer.commit() == {tp: None}
    assert consumer.commit() == {}
    consumer.close()
    assert nothing_is_left(join())


def test_close_releases_what_was_not_acknowledged(
    fill: Fill, join: Callable[..., ShareConsumer]
) -> None:
    fill(4)
    first = join(share_acknowledgement_mode="explicit")
    records = read(first, 4)
    first.acknowledge(records[1])
    first.close()
    found = read(join(), 3)
    assert [(record.offset, record.delivery_count) for record in found] == [
        (0, 2), (2, 2), (3, 2),
    ]  # fmt: skip


def test_a_renewed_record_stays_with_its_consumer(
    fill: Fill, join: Callable[..., ShareConsumer], topic: str
) -> None:
    fill(3)
    tp = TopicPartition(topic, 0)
    consumer = join(share_acknowledgement_mode="explicit")
    records = read(consumer, 3)
    for record, kind in zip(records, ["accept", "renew", "renew"], strict=True):
        consumer.acknowledge(record, kind)
    assert consumer.commit() == {tp: None}
    consumer.acknowledge(records[2])
    (again,) = consumer.poll(LONG_MS)
    assert (again.offset, again.delivery_count) == (1, 1)
    consumer.acknowledge(again)
    assert consumer.commit() == {tp: None}


def test_an_acknowledgement_after_the_lock_has_run_out_is_told_as_an_error(
    servers: str, fill: Fill, join: Callable[..., ShareConsumer], group: str, topic: str
) -> None:
    with AdminClient(servers) as admin:
        lock = {"share.record.lock.duration.ms": "3000"}
        admin.alter_resource_configs({ConfigResource("group", group): lock})
    fill(1)
    tp = TopicPartition(topic, 0)
    slow = join(share_acknowledgement_mode="explicit")
    (record,) = read(slow, 1)
    (again,) = read(join(), 1)  # once the lock is over
    assert (again.offset, again.delivery_count) == (record.offset, 2)
    slow.acknowledge(record)
    (error,) = slow.commit().values()
    assert isinstance(error, InvalidRecordStateError)
    assert str(tp) in str(error)


def test_max_poll_records_bounds_a_poll_in_both_acquire_modes(
    fill: Fill, join: Callable[..., ShareConsumer]
) -> None:
    fill(30)
    batches = join(max_poll_records=4)
    first = batches.poll(LONG_MS)
    assert len(first) == 4
    batches.close()
    limited = join(share_acquire_mode="record_limit", max_poll_records=4)
    second = join(share_acquire_mode="record_limit", max_poll_records=4)
    one, other = limited.poll(LONG_MS), second.poll(LONG_MS)
    assert (len(one), len(other)) == (4, 4)
    assert not {r.offset for r in one} & {r.offset for r in other}


def test_a_handler_that_raises_has_its_record_released_or_rejected(
    fill: Fill, join: Callable[..., ShareConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kstore.clients.consumer")
    fill(6)
    seen: list[tuple[int, int]] = []

    def handler(record: ShareRecord) -> None:
        seen.append((record.offset, record.delivery_count))
        if record.offset == 1 or (record.offset == 3 and record.delivery_count == 1):
            raise OSError("not now")
        if len(seen) == 7:
            consumer.wakeup()

    def choose(record: ShareRecord, error: Exception) -> str:
        assert isinstance(error, OSError)
        return "reject" if record.offset == 1 else "release"

    consumer = join()
    consumer.run(handler, on_error=choose)
    assert sorted(seen) == [(0, 1), (1, 1), (2, 1), (3, 1), (3, 2), (4, 1), (5, 1)]
    consumer.close()
    assert nothing_is_left(join())


def test_what_ends_the_handler_loop_releases_the_rest(
    fill: Fill, join: Callable[..., ShareConsumer]
) -> None:
    fill(5)

    def handler(record: ShareRecord) -> None:
        if record.offset == 2:
            raise KeyboardInterrupt

    consumer = join()
    with pytest.raises(KeyboardInterrupt):
        consumer.run(handler)
    found = read(join(), 3)
    assert [record.offset for record in found] == [2, 3, 4]


def test_iteration_accepts_a_record_when_the_next_is_asked_for(
    fill: Fill, join: Callable[..., ShareConsumer]
) -> None:
    fill(5)
    consumer = join(consumer_timeout_ms=LONG_MS)
    for record in consumer:
        if record.offset == 2:
            break
    found = read(join(), 3)
    assert [(record.offset, record.delivery_count) for record in found] == [
        (2, 2), (3, 2), (4, 2),
    ]  # fmt: skip


def test_wakeup_ends_a_poll_and_the_handler_loop(
    fill: Fill, join: Callable[..., ShareConsumer]
) -> None:
    fill(1)
    consumer = join()
    read(consumer, 1)
    timer = threading.Timer(0.5, consumer.wakeup)
    timer.start()
    with pytest.raises(WakeupError):
        consumer.poll(LONG_MS)
    consumer.wakeup()
    consumer.run(lambda record: None)
    timer.join()


def test_many_members_share_one_partition_and_each_record_is_done_once(
    fill: Fill, join: Callable[..., ShareConsumer]
) -> None:
    fill(200)
    members = [join(max_poll_records=7, share_acquire_mode="record_limit") for _ in range(4)]
    found: list[ShareRecord] = []
    while len(found) < 200:
        for member in members:
            found += member.poll(500)
    for member in members:
        assert all(error is None for error in member.commit().values())
    assert sorted(values(found)) == list(range(200))


def test_the_asyncio_consumer_does_the_same(
    servers: str, fill: Fill, topic: str, group: str
) -> None:
    fill(12)

    async def go() -> tuple[list[int], list[int], list[AcknowledgementResult]]:
        seen: list[int] = []
        told: list[AcknowledgementResult] = []

        async def handler(record: ShareRecord) -> None:
            await asyncio.sleep(0)
            seen.append(record.offset)
            if record.offset == 4:
                consumer.wakeup()

        async with AIOShareConsumer(servers, topic, group_id=group, max_poll_records=5) as consumer:
            consumer.set_acknowledgement_callback(told.append)
            await consumer.run(handler)
            later = []
            while len(later) < 7:
                later += [record.offset for record in await consumer.poll(LONG_MS)]
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
        return seen, later, told

    seen, later, told = asyncio.run(go())
    assert (seen, later) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11])
    offsets = [n for each in told for first, last in each.ranges for n in range(first, last + 1)]
    assert sorted(offsets) == list(range(12))


def test_a_share_consumer_needs_a_group(servers: str) -> None:
    with pytest.raises(InvalidGroupIdError, match=r"needs group\.id"):
        ShareConsumer(servers)


def test_an_administrator_sees_and_moves_a_share_group(
    servers: str, fill: Fill, join: Callable[..., ShareConsumer], topic: str, group: str
) -> None:
    fill(10)
    tp = TopicPartition(topic, 0)
    consumer = join(client_id="me", share_acknowledgement_mode="explicit")
    records = read(consumer, 10)
    consumer.acknowledge_range(tp, 0, 3)
    consumer.commit()
    with AdminClient(servers) as admin:
        assert group in [row.group_id for row in admin.list_groups(types=["share"])]
        found = admin.describe_share_groups([group])[group]
        assert (found.group_type, found.state, len(found.members)) == ("share", "Stable", 1)
        assert admin.describe_groups([group])[group] == found
        (member,) = found.members
        assert (member.client_id, member.topics, member.assignment) == ("me", (topic,), (tp,))
        offset = admin.list_share_group_offsets(group, [tp])[tp]
        assert (offset.start_offset <= 4, offset.lag) == (True, 6)
        with pytest.raises(NonEmptyGroupError):
            admin.alter_share_group_offsets(group, {tp: 8})
        consumer.close()
        assert records[4].delivery_count == 1
        assert admin.alter_share_group_offsets(group, {tp: 8}) == {tp: None}
        assert admin.list_share_group_offsets(group)[tp].start_offset == 8
        assert [record.offset for record in read(join(), 2)] == [8, 9]
        for other in admin.describe_share_groups([group])[group].members:
            assert other.member_id != member.member_id


def test_an_administrator_deletes_a_share_group(
    servers: str, fill: Fill, join: Callable[..., ShareConsumer], topic: str, group: str
) -> None:
    fill(2)
    consumer = join()
    read(consumer, 2)
    consumer.commit()
    consumer.close()
    with AdminClient(servers) as admin:
        assert admin.delete_share_group_offsets(group, [topic]) == {topic: None}
        assert admin.list_share_group_offsets(group) == {}
        assert admin.delete_groups([group]) == {group: None}
        with pytest.raises(GroupIdNotFoundError):
            admin.describe_share_groups([group])
        assert admin.describe_share_groups([group], raise_errors=False) == {}


@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_kstore_and_java_share_a_group(
    servers: str, fill: Fill, join: Callable[..., ShareConsumer], topic: str, group: str
) -> None:
    fill(40)
    mine = join(
        share_acknowledgement_mode="explicit", share_acquire_mode="record_limit", max_poll_records=5
    )
    held = read(mine, 5)
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        ["--bootstrap-server", servers, "--topic", topic, "--group", group,
         "--max-messages", "20"],
    )  # fmt: skip
    javas = [int(line) for line in done.stdout.split()]
    assert len(javas) == 20
    for record in held:
        mine.acknowledge(record)
    rest = read(mine, 15, "accept")
    assert all(error is None for error in mine.commit().values())
    assert sorted(values(held) + javas + values(rest)) == list(range(40))
    mine.close()
    assert nothing_is_left(join())


@pytest.mark.slow
def test_the_commands_for_share_groups(servers: str, fill: Fill, topic: str, group: str) -> None:
    fill(6)
    kstore = Shell(servers)
    found = kstore("share", "consume", topic, "-G", group, "--count", "2", "--json")
    rows = [json.loads(line) for line in found.splitlines()]
    assert [(row["offset"], row["value"], row["delivery_count"]) for row in rows] == [
        (0, "0", 1), (1, "1", 1),
    ]  # fmt: skip
    form = ["--value-format", "hex", "-f", r"{offset} {value}\n"]
    assert (
        kstore("share", "consume", topic, "-G", group, "-c", "2", "--ack", "release", *form)
        == b"2 32\n3 33\n"
    )
    listed = json.loads(kstore("group", "list", "--type", "share", "--json").splitlines()[0])
    assert listed["type"] == "share"
    described = json.loads(kstore("group", "describe", group, "--json"))
    assert (described["type"], described["state"]) == ("share", "Empty")
    (row,) = described["offsets"]
    assert (row["start_offset"], row["lag"], row["members"]) == (2, 4, 0)
    reset = ["group", "reset-offsets", group, "--topic", topic, "--to-offset", "5", "--json"]
    assert json.loads(kstore(*reset)) == {
        "group": group, "topic": topic, "partition": 0, "old_offset": 2, "new_offset": 5,
        "done": False,
    }  # fmt: skip
    assert json.loads(kstore(*reset, "--execute"))["done"]
    assert kstore("share", "consume", topic, "-G", group, "-c", "1", "--ack", "reject") == b"5\n"
    assert b"--ack is 'renew'" in kstore(
        "share", "consume", topic, "-G", group, "--ack", "renew", code=2
    )
    assert b"there is no topic 'nowhere'" in kstore(
        "share", "consume", "nowhere", "-G", group, code=1
    )
    partition = ["group", "delete-offsets", group, "--topic", f"{topic}:0"]
    assert b"without partitions" in kstore(*partition, code=2)
    gone = f"deleted the offsets of {group} in {topic}\n".encode()
    assert kstore("group", "delete-offsets", group, "--topic", topic) == gone
    assert kstore("group", "delete", group) == f"deleted {group}\n".encode()
