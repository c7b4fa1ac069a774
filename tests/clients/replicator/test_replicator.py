"""The replicator between two brokers: what it copies, what it follows, what it refuses."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from kstore.clients.replicator import Event, ReplicationError
from tests.beside.waiting import until
from tests.clients.replicator.sides import TIME, Running, Side, copy, replicator
from tests.clients.replicator.sides import brokers as brokers  # fixtures
from tests.clients.replicator.sides import source as source
from tests.clients.replicator.sides import target as target


def test_records_keep_offset_timestamp_key_value_headers(source: Side, target: Side) -> None:
    source.create("plain", 2)
    source.write("plain", [(b"v", b"k", TIME + 5, [("h", b"1"), ("h", None)]), (None, b"k")])
    source.write("plain", [b"x"] * 100, compression=4)
    source.write("plain", [b"y"], index=1)
    found = copy(source, target, "plain").progress()
    for index in (0, 1):
        assert target.read("plain", index) == source.read("plain", index)
    assert (found.partitions, found.records, found.lag, found.failed) == (2, 103, 0, 0)


def test_gaps_stay_gaps(source: Side, target: Side) -> None:
    source.create("gaps")
    for at, count in ((7, 3), (10, 2), (50, 1), (51, 1), (1 << 33, 4)):
        source.write("gaps", [b"%d" % n for n in range(count)], at=at)
    copy(source, target, "gaps")
    assert target.read("gaps") == source.read("gaps")
    assert target.list_offsets("gaps").offset == (1 << 33) + 4


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_markers_and_aborted_records_become_gaps(
    source: Side, target: Side, isolation: str
) -> None:
    from confluent_kafka import Producer

    topic = f"txn-{isolation}"
    source.create(topic)
    settings = {"bootstrap.servers": source.bootstrap, "transactional.id": topic, "linger.ms": 0}
    made = Producer(settings)
    made.init_transactions(60)
    for number in range(4):
        made.begin_transaction()
        for part in range(3):
            made.produce(topic, f"{number}-{part}", key=f"{part}")
        if number % 2:
            made.flush(60)
            made.abort_transaction(60)
        else:
            made.commit_transaction(60)
    copy(source, target, topic, isolation_level=isolation)
    copied = target.read(topic)
    assert [row for row in copied if row[3] and row[3][:1] in b"02"] == source.read(topic)
    assert [row[0] for row in copied] == (
        [0, 1, 2, 8, 9, 10] if isolation == "read_committed" else [0, 1, 2, 4, 5, 6, 8, 9, 10, 12,
                                                                   13, 14]
    )  # fmt: skip


def test_the_next_run_copies_what_is_new(source: Side, target: Side) -> None:
    source.create("twice")
    source.write("twice", [b"a", b"b"])
    assert copy(source, target, "twice").progress().records == 2
    source.write("twice", [b"c"])
    assert copy(source, target, "twice").progress().records == 1
    assert copy(source, target, "twice").progress().records == 0
    assert target.read("twice") == source.read("twice")


def test_a_position_within_a_batch_cuts_it(source: Side, target: Side) -> None:
    rows = [b"%d" % n for n in range(10)]
    source.create("within")
    source.write("within", rows)
    target.create("within")
    target.write("within", rows[:4])
    assert copy(source, target, "within").progress().records == 6
    assert target.read("within") == source.read("within")


def test_two_at_once_copy_each_record_once(source: Side, target: Side) -> None:
    source.create("pair", 3)
    for number in range(200):
        source.write("pair", [b"%d" % number] * 5, index=number % 3)

    async def both() -> None:
        made = [replicator(source, target, "pair", fetch_bytes=2000) for _ in range(2)]
        await asyncio.gather(*(each.run(until_caught_up=True) for each in made))

    asyncio.run(both())
    for index in range(3):
        assert target.read("pair", index) == source.read("pair", index)


def test_topics_partitions_and_configs_are_followed(source: Side, target: Side) -> None:
    source.create("follow-1", retention_ms="1234567", cleanup_policy="compact")
    with Running(lambda: replicator(source, target, "follow-.*", sync_interval_ms=50)):
        until(lambda: _has(target, "follow-1", 1), "the topic is copied")
        assert target.configs("follow-1") == source.configs("follow-1")
        source.set_topic("follow-1", retention_ms=None, segment_bytes="1048576")
        source.grow("follow-1", 3)
        source.create("follow-2")
        source.write("follow-2", [b"x"])
        until(
            lambda: (
                target.configs("follow-1") == source.configs("follow-1")
                and _has(target, "follow-1", 3)
                and _has(target, "follow-2", 1)
            ),
            "changes are followed",
        )
        source.write("follow-1", [(b"late", b"k")], index=2)
        until(
            lambda: (
                target.read("follow-1", 2) == source.read("follow-1", 2)
                and target.read("follow-2") == source.read("follow-2")
            ),
            "records of what is new are copied",
        )


def _has(side: Side, name: str, partitions: int) -> bool:
    [topic] = side.metadata(name).topics
    return topic.error_code == 0 and len(topic.partitions) == partitions


def test_a_copy_without_an_end_outlives_what_somebody_has_to_mend(
    source: Side, target: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the target that is raised later, say: the partition is tried again."""
    monkeypatch.setattr("kstore.clients.replicator.copying.LONG_PAUSE_MS", 1)
    source.create("mended")
    target.create("mended")
    target.set_topic("mended", max_message_bytes="100")
    source.write("mended", [b"x" * 500])
    events: list[Event] = []
    following = replicator(source, target, "mended", events, copy_configs=False)
    with Running(lambda: following):
        until(lambda: any("trying again in" in each.text for each in events), "it is told")
        target.set_topic("mended", max_message_bytes="1000")
        until(lambda: len(target.read("mended")) == 1, "the record is copied")
    assert not following.progress().failed
    assert not [event for event in events if event.kind == "failed"]


def test_append_times_of_the_source_are_kept(source: Side, target: Side) -> None:
    source.create("times", message_timestamp_type="LogAppendTime")
    source.write("times", [b"a", b"b"])
    copy(source, target, "times")
    assert target.read("times") == source.read("times")
    assert source.read("times")[0][1] != TIME
    assert target.configs("times") == {"message.timestamp.type": "CreateTime"}


def test_committed_offsets_go_along_and_never_back(source: Side, target: Side) -> None:
    source.create("moved", 2)
    source.write("moved", [b"%d" % n for n in range(10)])
    source.write("moved", [b"x"], at=20, index=1)
    source.commit("moved", {0: 4, 1: 30}, group_id="g-moved")
    source.commit("moved", {0: 4}, group_id="other")
    copy(source, target, "moved", groups=re.compile("g-.*"))
    # Above the target's log end a consumer would be out of range.
    assert target.committed("g-moved") == {("moved", 0): 4, ("moved", 1): 21}
    assert target.committed("other") == {}
    target.commit("moved", {0: 9}, group_id="g-moved")
    source.commit("moved", {0: 7}, group_id="g-moved")
    copy(source, target, "moved", groups=re.compile("g-.*"))
    assert target.committed("g-moved")["moved", 0] == 9


def test_a_moved_group_goes_on_at_the_next_record(source: Side, target: Side) -> None:
    from confluent_kafka import Consumer

    source.create("goes-on")
    for at in (3, 4, 10, 11):
        source.write("goes-on", [b"%d" % at], at=at)
    source.commit("goes-on", {0: 5}, group_id="mover")
    copy(source, target, "goes-on", groups=re.compile("mover"))
    reader = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "mover"})
    reader.subscribe(["goes-on"])
    got: list[Any] = []
    try:

        def read() -> bool:
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                got.append((message.offset(), message.value()))
            return len(got) == 2

        until(read, "the rest is read")
    finally:
        reader.close()
    assert got == [(10, b"10"), (11, b"11")]


def test_a_source_that_deleted_what_is_missing_is_told(source: Side, target: Side) -> None:
    source.create("lost")
    source.write("lost", [b"a", b"b"])
    copy(source, target, "lost")
    for _ in range(8):
        source.write("lost", [b"c"])
    source.delete_before("lost", 6)
    with pytest.raises(ReplicationError, match=r"lost-0: .* offsets 2 to 5, which"):
        copy(source, target, "lost")
    assert len(target.read("lost")) == 2
    events: list[Event] = []
    copy(source, target, "lost", events=events, on_loss="skip")
    assert [(e.kind, e.tp and e.tp.partition, e.offset) for e in events] == [("loss", 0, 2)]
    assert [row[0] for row in target.read("lost")] == [0, 1, 6, 7, 8, 9]


def test_a_target_that_is_no_copy_is_refused(source: Side, target: Side) -> None:
    for side, value in ((source, b"a"), (target, b"b")):
        side.create("foreign")
        side.write("foreign", [value])
    source.write("foreign", [b"c"])
    with pytest.raises(ReplicationError, match="foreign-0: offset 0 has another record"):
        copy(source, target, "foreign")
    assert len(target.read("foreign")) == 1


def test_a_target_that_is_ahead_is_refused(
    source: Side, target: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kstore.clients.replicator.copying.AHEAD_TRIES", 2)
    source.create("ahead")
    target.create("ahead")
    target.write("ahead", [b"a", b"b"])
    with pytest.raises(ReplicationError, match="up to 2, the source ends at 0"):
        copy(source, target, "ahead")


def test_who_cannot_be_a_target_is_told_why(source: Side, target: Side) -> None:
    with pytest.raises(ReplicationError, match="the same cluster"):
        copy(source, source, "any")
    source.create("wide", 1)
    target.create("wide", 2)
    with pytest.raises(ReplicationError, match="2 partitions in the target and 1 in the source"):
        copy(source, target, "wide")


def test_what_is_too_large_for_the_target_is_split(source: Side, target: Side) -> None:
    source.create("large")
    source.write("large", [b"x" * 400] * 20)
    target.create("large", max_message_bytes="3000")
    copy(source, target, "large", copy_configs=False)
    assert target.read("large") == source.read("large")


def test_the_rate_is_limited(source: Side, target: Side) -> None:
    source.create("slow")
    for _ in range(6):
        source.write("slow", [b"x" * 20_000])
    made = copy(source, target, "slow", rate_limit=1e6)
    assert made.progress().bytes > 120_000
    assert target.read("slow") == source.read("slow")
