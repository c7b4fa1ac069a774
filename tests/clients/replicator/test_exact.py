"""Exact copies between two brokers: the same bytes, what a copy refuses, and the switch."""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.record.crc32c import checksum
from kstore.clients import Producer
from kstore.clients.replicator import Event, ReplicationError
from kstore.clients.replicator.topics import TopicCopier
from kstore.protocol.controller.reassignments import ElectLeadersRequest, TopicPartitions
from kstore.record import batches, build_batch
from tests.beside.topic_records import records_of, transaction
from tests.beside.waiting import until
from tests.clients.replicator import sides
from tests.clients.replicator.sides import SETTINGS, TIME, Running, Side
from tests.clients.replicator.sides import brokers as brokers  # fixtures
from tests.clients.replicator.sides import source as source
from tests.clients.replicator.sides import target as target
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import list_request, only, produce_request

COPY = {"kstore.mirror": "true", "kstore.least.producer.id": str(1 << 40)}
"""What is set on an exact copy beside its source's configs."""


exact = partial(sides.replicator, exact=True)
copy = partial(sides.copy, exact=True)


def transactions(side: Side, topic: str, name: str, count: int = 4) -> None:
    """Every second one is aborted."""
    with Producer(side.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(count):
            with transaction(producer, commits=number % 2 == 0):
                for part in range(3):
                    producer.send(topic, b"%d-%d" % (number, part), partition=0)


def produce_to(side: Side, name: str, data: bytes, **fields: Any) -> Any:
    request = produce_request(name, data, acks=-1, timeout_ms=30_000, **fields)
    return only(side.call(request, 12))


def raise_epoch(side: Side, name: str, least: int) -> None:
    row = {"topic": name, "partitions": [0], "least_leader_epochs": [least]}
    answer = side.call(Ask.ElectLeaders(topic_partitions=[row], timeout_ms=30_000))
    assert answer.replica_election_results[0].partition_result[0].error_code == 0, answer


def epoch_of(side: Side, name: str) -> int:
    return int(side.metadata(name).topics[0].partitions[0].leader_epoch)


def test_the_copy_has_the_same_bytes(source: Side, target: Side) -> None:
    source.create("same", segment_bytes="1048576")
    source.write("same", [b"x" * 100] * 100, compression=4)
    transactions(source, "same", "t-same")
    raise_epoch(source, "same", 7)
    source.write("same", [b"%d" % n for n in range(100)])
    source.write("same", [b"a", b"b"], at=500)
    for _ in range(30):
        source.write("same", [b"y" * 100_000])
    found = copy(source, target, "same").progress()
    assert target.log_bytes("same") == source.log_bytes("same") != b""
    assert (found.lag, found.failed) == (0, 0)
    assert target.read("same") == source.read("same")
    assert {b.leader_epoch for b in batches(target.log_bytes("same"))} == {0, 7}
    assert epoch_of(target, "same") == 8  # above all of the source's
    assert target.configs("same") == source.configs("same") | COPY


def test_read_committed_sees_on_the_copy_what_it_sees_at_the_source(
    source: Side, target: Side
) -> None:
    source.create("committed")
    transactions(source, "committed", "t-committed")
    with Producer(source.bootstrap, transactional_id="t-open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("committed", b"open", partition=0)
        producer.flush()
        source.write("committed", [b"behind"])
        copy(source, target, "committed")
        assert values(target, "committed") == values(source, "committed")
        assert values(source, "committed") == [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2"]
        producer.commit_transaction()
    copy(source, target, "committed")
    assert values(target, "committed")[-2:] == [b"open", b"behind"]


def values(side: Side, topic: str) -> list[bytes | None]:
    """What a consumer of committed records gets."""
    found = records_of(side.bootstrap, topic, isolation_level="read_committed")
    return [record.value for record in found]


def test_a_copy_refuses_producers_and_other_topics_refuse_batches_of_a_copy(
    source: Side, target: Side
) -> None:
    source.create("refuses")
    source.write("refuses", [b"a"])
    copy(source, target, "refuses")
    data = source.log_bytes("refuses")
    row = produce_to(target, "refuses", data)
    assert row.error_code == 44
    assert "exact copy" in row.error_message
    assert produce_to(target, "refuses", data, use_offset=True).error_code == 44
    row = produce_to(source, "refuses", data, exact=True)
    assert row.error_code == 44
    assert "exact copy" in row.error_message
    # What is there already, and an epoch that is not below the leader's.
    row = produce_to(target, "refuses", data, exact=True)
    assert (row.error_code, row.log_end_offset) == (77, 1)
    newer = bytearray(data)
    newer[7] = 1  # offset 1
    newer[15] = 200  # leader epoch
    assert produce_to(target, "refuses", bytes(newer), exact=True).error_code == 75
    newer[15] = 0
    newer[40] ^= 1
    assert produce_to(target, "refuses", bytes(newer), exact=True).error_code == 2
    # Counts that take the log's end back, or that no record has.
    for delta, count in ((-5, 1), (-1, 0), (0, 2), (0, -1)):
        newer = bytearray(data)
        struct.pack_into(">q", newer, 0, 1)
        struct.pack_into(">i", newer, 23, delta)
        struct.pack_into(">i", newer, 57, count)
        struct.pack_into(">I", newer, 17, checksum(memoryview(newer)[21:]))
        assert produce_to(target, "refuses", bytes(newer), exact=True).error_code == 2
    assert target.log_bytes("refuses") == data


def test_deletions_of_the_source_are_followed(source: Side, target: Side) -> None:
    source.create("deleted")
    for number in range(5):
        source.write("deleted", [b"%d" % number])
    source.delete_before("deleted", 2)
    with Running(lambda: exact(source, target, "deleted")):
        until(lambda: start_of(target, "deleted") == 2, "the copy begins where it does")
        source.delete_before("deleted", 4)
        until(lambda: start_of(target, "deleted") == 4, "the copy follows")
    assert values(target, "deleted") == values(source, "deleted") == [b"4"]


def test_a_copy_goes_on_though_the_source_has_deleted_all_that_it_has(
    source: Side, target: Side
) -> None:
    source.create("expired")
    source.write("expired", [b"a", b"b"])
    copy(source, target, "expired")
    source.delete_before("expired", 2)
    again = exact(source, target, "expired")
    asyncio.run(asyncio.wait_for(again.run(until_caught_up=True), 20))
    source.write("expired", [b"c"])
    source.write("expired", [b"d"])
    source.delete_before("expired", 3)
    skipping = exact(source, target, "expired", on_loss="skip")
    asyncio.run(asyncio.wait_for(skipping.run(until_caught_up=True), 20))
    assert values(target, "expired") == values(source, "expired") == [b"d"]


def start_of(side: Side, name: str) -> int:
    if side.metadata(name).topics[0].error_code:
        return -1
    return int(side.call(list_request(name, -2)).topics[0].partitions[0].offset)


def test_a_source_that_lost_records_is_found_out(source: Side, target: Side) -> None:
    source.create("lost")
    source.write("lost", [b"a", b"b"])
    copy(source, target, "lost")
    source.delete("lost")
    source.create("lost")
    source.write("lost", [b"a"])
    raise_epoch(source, "lost", 3)
    source.write("lost", [b"c", b"d"])
    with pytest.raises(ReplicationError, match=r"(?s)lost-0.*(another one|leader epoch 0)"):
        copy(source, target, "lost")
    assert [row[3] for row in target.read("lost")] == [b"a", b"b"]


def test_a_topic_with_records_of_its_own_is_refused(source: Side, target: Side) -> None:
    source.create("own")
    target.create("own")
    with pytest.raises(ReplicationError, match="not an exact copy"):
        copy(source, target, "own")


def test_a_copy_takes_no_records_though_its_configs_are_set_one_by_one(
    source: Side, target: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.create("single", retention_ms="100000000")
    source.write("single", [b"a"])
    read, configure = TopicCopier._configs, TopicCopier._configure
    refused: list[int] = []

    async def with_unknown(self: TopicCopier, cluster: Any, names: list[str]) -> Any:
        found = await read(self, cluster, names)
        if cluster is self._source:
            found["single"]["a.config.that.the.target.lacks"] = "1"
        return found

    async def tried(self: TopicCopier, *args: Any) -> None:
        refused.append(target.produce("single").error_code)
        await configure(self, *args)

    monkeypatch.setattr(TopicCopier, "_configs", with_unknown)
    monkeypatch.setattr(TopicCopier, "_configure", tried)
    copy(source, target, "single")
    assert refused == [44]
    assert target.configs("single") == source.configs("single") | COPY
    assert values(target, "single") == [b"a"]


@pytest.mark.parametrize(("partitions", "epochs"), [(2, 1), (1, 2), (65, 65)])
def test_epochs_that_are_not_one_for_each_partition_raise_none(
    source: Side, partitions: int, epochs: int
) -> None:
    name = f"unpaired-{partitions}-{epochs}"  # 64 are what a handler is given at once
    source.create(name)
    row = TopicPartitions(
        topic=name, partitions=[0] * partitions, least_leader_epochs=[*range(5, 5 + epochs)]
    )
    answer = source.call(ElectLeadersRequest(topic_partitions=[row], timeout_ms=30_000))
    rows = [row for topic in answer.replica_election_results for row in topic.partition_result]
    assert [each.error_code for each in rows] == [42] * partitions
    assert epoch_of(source, name) == 0


def test_after_the_switch_transactional_producers_go_on(source: Side, target: Side) -> None:
    source.create("moved")
    transactions(source, "moved", "t-moved")
    source.commit("moved", {0: 4}, group_id="g-moved")
    events: list[Event] = []
    made = exact(source, target, "moved", events, groups=re.compile("g-moved"), fence_source=True)
    with Producer(source.bootstrap, transactional_id="t-late") as late:
        late.init_transactions()
        late.begin_transaction()
        late.send("moved", b"late", partition=0)
        late.flush()
        switching = threading.Thread(target=lambda: asyncio.run(made.run(switch=True)))
        switching.start()
        until(lambda: "fenced" in [event.kind for event in events], "the source is fenced")
        assert source.produce("moved").error_code == 44
        assert switching.is_alive()  # a transaction is open
        late.commit_transaction()
    switching.join(60)
    assert not switching.is_alive()
    assert "switched" in [event.kind for event in events]
    assert target.log_bytes("moved") == source.log_bytes("moved")
    assert target.committed("g-moved") == {("moved", 0): 4}
    assert target.configs("moved") == {"kstore.least.producer.id": str(1 << 40)}

    before = values(target, "moved")
    transactions(target, "moved", "t-moved", count=2)
    assert values(target, "moved") == [*before, b"0-0", b"0-1", b"0-2"]
    seen = list(batches(target.log_bytes("moved")))
    assert 1 << 40 <= seen[-1].producer_id < 1 << 41  # none of the source's
    assert seen[-1].leader_epoch == epoch_of(target, "moved") > epoch_of(source, "moved")


def test_a_switch_that_is_begun_again_passes_over_what_is_switched(
    source: Side, target: Side
) -> None:
    for name in ("twice-1", "twice-2"):
        source.create(name)
        source.write(name, [b"a"])
    copy(source, target, "twice-.*")
    target.set_topic("twice-1", kstore_mirror=None)  # and then the first run was killed
    target.write("twice-1", [b"its own"])
    with pytest.raises(ReplicationError, match="not an exact copy"):
        copy(source, target, "twice-.*")
    events: list[Event] = []
    asyncio.run(exact(source, target, "twice-.*", events).run(switch=True))
    assert values(target, "twice-1") == [b"a", b"its own"]
    assert target.produce("twice-2").error_code == 0
    told = [event.text for event in events if event.kind == "switched"]
    assert told == [
        "topic twice-1 was switched by an earlier run: the copy has all of the source",
        "topic twice-2 accepts records now",
    ]


@pytest.mark.parametrize("others", [[], [b"its own"]], ids=["shorter", "another-record"])
def test_a_source_that_was_written_to_after_a_switch_that_was_killed_is_told(
    source: Side, target: Side, others: list[bytes]
) -> None:
    name = f"late-{len(others)}"
    source.create(name)
    source.write(name, [b"a"])
    copy(source, target, name)
    target.set_topic(name, kstore_mirror=None)
    source.write(name, [b"late"])
    if others:
        target.write(name, others)
    with pytest.raises(ReplicationError, match="offset 1 of the source is not in the copy"):
        asyncio.run(exact(source, target, name).run(switch=True))


# ---- producers of both clusters that have the same id ----


def with_id(producer_id: int, **how: Any) -> bytes:
    """A batch of a producer."""
    given = {"producer_epoch": 0, "base_sequence": 0} | how
    return build_batch([b"x"], timestamp=TIME, producer_id=producer_id, **given)


def test_ids_of_the_source_and_of_the_target_are_told_apart_on_a_copy(
    source: Side, target: Side
) -> None:
    source.create("ids")
    assert produce_to(source, "ids", with_id(7)).error_code == 0
    copy(source, target, "ids")
    # A batch that claims to be the source's, with an id of the target's.
    own = with_id(1 << 40, base_offset=1, leader_epoch=0)
    assert produce_to(target, "ids", own, exact=True).error_code == 49
    target.set_topic("ids", kstore_mirror=None)
    # A producer that the target gave this id before it became the target; it is no duplicate.
    assert produce_to(target, "ids", with_id(7)).error_code == 49
    assert produce_to(target, "ids", with_id(7, base_sequence=1)).error_code == 49
    assert produce_to(target, "ids", with_id(1 << 40)).error_code == 0
    assert produce_to(target, "ids", build_batch([b"y"], timestamp=TIME)).error_code == 0
    assert values(target, "ids") == [b"x", b"x", b"y"]


def test_a_topic_that_is_no_copy_takes_every_id(target: Side) -> None:
    target.create("plain-ids")
    assert produce_to(target, "plain-ids", with_id(7)).error_code == 0


def test_an_exact_copy_without_a_least_id_takes_no_batches_of_producers(target: Side) -> None:
    target.create("bare", kstore_mirror="true")
    raise_epoch(target, "bare", 1)
    assert produce_to(target, "bare", with_id(7, leader_epoch=0), exact=True).error_code == 49
    plain = build_batch([b"y"], timestamp=TIME, leader_epoch=0)
    assert produce_to(target, "bare", plain, exact=True).error_code == 0


def test_who_had_an_id_before_the_first_copy_gets_another_one(tmp_path: Path, source: Side) -> None:
    """A transactional producer, which keeps its id else."""
    with KstoreBroker(tmp_path / "late", overrides=SETTINGS) as broker:
        late = Side(broker)
        late.create("before")
        transactions(late, "before", "t-both", count=1)
        assert {b.producer_id >> 40 for b in batches(late.log_bytes("before"))} == {0}
        source.create("both")
        transactions(source, "both", "t-any", count=2)
        asyncio.run(exact(source, late, "both").run(switch=True))
        before = values(late, "both")
        late.sock.close()
        broker.stop()
        broker.start()  # its store has what it knows of ids
        late = Side(broker)
        transactions(late, "both", "t-both", count=1)
        assert values(late, "both") == [*before, b"0-0", b"0-1", b"0-2"]
        assert list(batches(late.log_bytes("both")))[-1].producer_id >> 40 == 1
        late.sock.close()


def test_no_marker_of_the_target_gets_into_a_copy(source: Side, target: Side) -> None:
    """Its coordinator ends a transaction of a producer with the id of one whose transaction is open
    at the source; so does an administrator.
    """
    source.create("marked")
    with Producer(source.bootstrap, transactional_id="t-marked") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("marked", b"a", partition=0)
        producer.flush()
        copy(source, target, "marked")
        [batch] = batches(target.log_bytes("marked"))
        for epoch in (batch.producer_epoch, batch.producer_epoch + 1):
            assert mark(target, "marked", batch.producer_id, epoch) == 52
        assert mark(target, "marked", 1 << 40, 0) == 0  # it took nothing of it: there is no end
        assert target.log_bytes("marked") == source.log_bytes("marked")
        producer.commit_transaction()
    copy(source, target, "marked")
    assert target.log_bytes("marked") == source.log_bytes("marked")
    assert values(target, "marked") == [b"a"]


def mark(side: Side, name: str, producer_id: int, epoch: int) -> int:
    """WriteTxnMarkers: an abort; its error."""
    topic = {"name": name, "partition_indexes": [0]}
    marker = {"producer_id": producer_id, "producer_epoch": epoch, "topics": [topic]}
    answer = side.call(Ask.WriteTxnMarkers(markers=[marker | {"transaction_result": False}]))
    return int(answer.markers[0].topics[0].partitions[0].error_code)
