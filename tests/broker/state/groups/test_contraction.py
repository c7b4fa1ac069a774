"""A topic that shrinks, and its groups: retired partitions first, and who keeps it."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from kstore.broker.state.groups.classic import held_back
from kstore.broker.state.groups.classic.group import ClassicGroup
from kstore.broker.state.groups.coordinator.contraction import groups_behind
from kstore.broker.state.metadata.gates import UNKNOWN, TopicGates
from kstore.broker.state.metadata.image import PartitionImage, TopicImage
from kstore.broker.state.metadata.retirement import Retirement
from kstore.broker.state.work import whole
from kstore.errors import ErrorCode
from kstore.protocol.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from kstore.protocol.groups.offsets import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.broker.state.groups.consumer.test_ordered_expansion import (
    ON,
    TOPIC,
    OrderedDriver,
    as_member,
)
from tests.plain_messages import Ask
from tests.reference.consumer_driver import assignment, owned_of, subscription
from tests.reference.group_driver import Parked

FIVE, TWO = 5, 2
ENDS = {2: 4, 3: 0, 4: 6}
"""Of the partitions that retire; one is empty."""


class Driver(OrderedDriver):
    """Groups that read one topic `t` of five partitions, of which two are to remain."""

    def shrink(self, *, holds: bool, ends: dict[int, int] | None = None, epoch: int = 3) -> None:
        """The contraction of that epoch is prepared, or decided."""
        retirement = Retirement(TWO, epoch, 12, holds)
        rows = tuple((ENDS if ends is None else ends).items())
        self.be(retirement, TopicGates(TOPIC, FIVE, {}, retirement, rows))

    def be(self, retirement: Retirement | None, gates: TopicGates) -> None:
        """So are the topic, and what is known of it."""
        parts = tuple(PartitionImage(1, 0, (1,), (1,)) for _ in range(FIVE))
        topic = TopicImage("t", TOPIC, parts, ON, retirement)
        self.image = self.image.with_gates({"t": gates}).with_topics(topic)

    def be_of_epochs(self, *epochs: int) -> None:
        """The partitions have these partition epochs."""
        parts = tuple(PartitionImage(1, 0, (1,), (1,), epoch) for epoch in epochs)
        self.image = self.image.with_topics(TopicImage("t", TOPIC, parts, ON))

    def whole_topic(self) -> None:
        """It does not shrink."""
        self.be(None, TopicGates(TOPIC, FIVE, {}))

    def behind(self) -> list[str]:
        """The groups that keep it from shrinking."""
        return whole(groups_behind(self.shard, self.image, self.image.topics["t"]))


@pytest.fixture
def driver() -> Driver:
    made = Driver(initial_rebalance_delay_ms=0)
    made.whole_topic()
    return made


# ---- the consumer protocol ----


def test_who_comes_later_is_given_what_retires_first(driver: Driver) -> None:
    driver.shrink(holds=True)
    joined = driver.enter("a", "t")
    assert owned_of(joined) == {TOPIC: [2, 3, 4]}
    driver.reach({2: 4, 4: 5}, **as_member("a", joined.member_epoch))
    assert driver.beat("a", joined.member_epoch).assignment is None
    driver.reach({4: 6}, **as_member("a", joined.member_epoch))
    assert owned_of(driver.beat("a", joined.member_epoch)) == {TOPIC: [0, 1, 2, 3, 4]}


def test_all_members_share_what_retires(driver: Driver) -> None:
    driver.shrink(holds=True)
    driver.enter("a", "t")
    driver.enter("b", "t")
    driver.beat("a", 2)
    driver.beat("a", 2, {TOPIC: sorted(driver.group.target["a"][TOPIC])})
    targets = [sorted(target[TOPIC]) for target in driver.group.target.values()]
    assert sorted(index for target in targets for index in target) == [2, 3, 4]


@pytest.mark.parametrize("end", [UNKNOWN, 4])
def test_what_is_not_known_holds_back(driver: Driver, end: int) -> None:
    driver.shrink(holds=True, ends=ENDS | {2: end})
    driver.reach({2: 3, 4: 6})
    assert owned_of(driver.enter("a", "t")) == {TOPIC: [2, 3, 4]}


def test_what_is_known_of_another_contraction_opens_nothing(driver: Driver) -> None:
    """One was rolled back, and another is prepared: the old ends are not valid for it."""
    driver.reach({2: 4, 4: 6})
    driver.shrink(holds=False, epoch=3)
    gates = driver.image.gates["t"]
    driver.be(Retirement(TWO, 4, 12), gates)
    assert owned_of(driver.enter("a", "t")) == {TOPIC: [2, 3, 4]}


def test_what_is_prepared_takes_nothing_away_and_what_is_decided_does(driver: Driver) -> None:
    joined = driver.enter("a", "t")
    assert owned_of(joined) == {TOPIC: [0, 1, 2, 3, 4]}
    driver.shrink(holds=False)
    assert driver.beat("a", joined.member_epoch).assignment is None
    assert driver.behind() == ["g"]
    driver.shrink(holds=True)
    assert owned_of(driver.beat("a", joined.member_epoch)) == {TOPIC: [2, 3, 4]}


def test_a_coordinator_that_does_not_know_the_ends_takes_nothing_away(driver: Driver) -> None:
    joined = driver.enter("a", "t")
    driver.shrink(holds=False)
    driver.reach({2: 4, 4: 6}, **as_member("a", joined.member_epoch))
    driver.restart()
    driver.shrink(holds=True, ends=ENDS | {2: UNKNOWN})
    assert driver.beat("a", joined.member_epoch, {TOPIC: [0, 1, 2, 3, 4]}).assignment is None
    driver.be(driver.image.topics["t"].retirement, TopicGates(UUID(int=8), 0, {}))
    assert driver.beat("a", joined.member_epoch, {TOPIC: [0, 1, 2, 3, 4]}).assignment is None
    driver.enter("b", "t")
    targets = [sorted(target[TOPIC]) for target in driver.group.target.values()]
    shared = sorted(index for target in targets for index in target)
    assert shared == [0, 1, 2, 3, 4], "the group has read what retires, whoever reads now"


def test_a_coordinator_that_does_not_know_the_ends_gives_nothing(driver: Driver) -> None:
    driver.shrink(holds=True)
    joined = driver.enter("a", "t")
    driver.restart()
    driver.shrink(holds=True, ends=dict.fromkeys(ENDS, UNKNOWN))
    assert driver.beat("a", joined.member_epoch, {TOPIC: [2, 3, 4]}).assignment is None
    driver.be(driver.image.topics["t"].retirement, TopicGates(UUID(int=8), 0, {}))
    assert driver.beat("a", joined.member_epoch, {TOPIC: [2, 3, 4]}).assignment is None


def test_a_contraction_that_was_rolled_back_takes_nothing_away(driver: Driver) -> None:
    """Even if the store cannot be reached, and the current topic is not known."""
    driver.shrink(holds=False)
    joined = driver.enter("a", "t")
    driver.be(None, driver.image.gates["t"])
    assert driver.beat("a", joined.member_epoch, {TOPIC: [2, 3, 4]}).assignment is None
    driver.whole_topic()
    assert owned_of(driver.beat("a", joined.member_epoch)) == {TOPIC: [0, 1, 2, 3, 4]}


def test_a_group_is_behind_until_it_has_committed_what_retires(driver: Driver) -> None:
    joined = driver.enter("a", "t")
    driver.shrink(holds=False)
    driver.reach({2: 4, 4: 5}, **as_member("a", joined.member_epoch))
    assert driver.behind() == ["g"]
    driver.reach({4: 6}, **as_member("a", joined.member_epoch))
    assert driver.behind() == []


def test_groups_that_read_nothing_that_remains_keep_nobody_waiting(driver: Driver) -> None:
    driver.reach({0: 3})  # a group without members
    row = [{"partition_index": 0, "committed_offset": 1}]
    alone = {"name": "t", "topic_id": TOPIC, "partitions": row}
    driver.send(Ask.OffsetCommit(group_id="alone", topics=[alone]), version=9)
    driver.shrink(holds=False)
    assert owned_of(driver.enter("a", "t")) == {TOPIC: [2, 3, 4]}
    assert driver.behind() == []


# ---- deleted partitions, and new ones with their numbers ----


def test_an_offset_of_a_partition_that_is_gone_is_not_one_of_the_next(driver: Driver) -> None:
    """Even if the coordinator was down when it was deleted, and the client knows no epochs."""
    asked = OffsetFetchRequestTopics(name="t", topic_id=TOPIC, partition_indexes=[0, 2])
    request = OffsetFetchRequestGroup(group_id="g", topics=[asked])

    def fetched() -> list[int]:
        fetch = driver.shard.fetch_offsets(request, require_stable=False, image=driver.image)
        [topic] = whole(fetch).topics
        return [row.committed_offset for row in topic.partitions]

    driver.be_of_epochs(1, 1, 2, 2, 2)
    driver.reach({0: 7, 2: 9})
    assert fetched() == [7, 9]
    driver.restart()
    driver.be_of_epochs(1, 1, 5, 5, 5)
    assert fetched() == [7, -1]
    driver.reach({2: 3})
    assert fetched() == [7, 3]


def test_offsets_of_other_topics_are_of_no_certain_partition(driver: Driver) -> None:
    driver.topic("other", 1)
    row = [{"partition_index": 0, "committed_offset": 1}]
    topic = {"name": "other", "partitions": row}
    driver.send(Ask.OffsetCommit(group_id="g", topics=[topic]), version=9)
    stored = driver.shard.offsets.get("g", "other", 0)
    assert stored is not None
    assert stored.partition_epoch == -1


# ---- the classic protocol ----


def join_and_sync(driver: Driver, given: bytes, member: str = "") -> tuple[str, int, list[int]]:
    """One member's join, and the partitions that it is given of what it gives itself."""
    joined = driver.join(member_id=member, version=3, protocols=subscription())
    if isinstance(joined, Parked):
        driver.advance(0)
        joined = joined.response
    synced = driver.sync(joined.member_id, joined.generation_id, {joined.member_id: given})
    return joined.member_id, joined.generation_id, decoded(synced.assignment)


def decoded(data: bytes) -> list[int]:
    rows = ConsumerProtocolAssignment.decode(data, 0, offset=2).assigned_partitions
    return sorted(index for row in rows for index in row.partitions)


def test_a_classic_leader_gives_its_members_no_more_than_they_may_have(driver: Driver) -> None:
    driver.shrink(holds=True)
    member, generation, have = join_and_sync(driver, assignment(0, 1, 2, 3, 4))
    assert have == [2, 3, 4]
    assert driver.behind() == []
    assert driver.heartbeat(member, generation) == ErrorCode.NONE
    driver.reach({2: 4, 4: 6}, **as_member(member, generation))
    assert driver.heartbeat(member, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    _, _, have = join_and_sync(driver, assignment(0, 1, 2, 3, 4), member)
    assert have == [0, 1, 2, 3, 4]


def test_the_next_coordinator_knows_what_a_classic_group_lacks(driver: Driver) -> None:
    driver.shrink(holds=True)
    member, generation, _ = join_and_sync(driver, assignment(0, 1, 2, 3, 4))
    driver.reach({2: 4, 4: 6}, **as_member(member, generation))
    driver.restart()
    assert driver.heartbeat(member, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_next_coordinator_knows_what_a_classic_group_lacks_after_a_rollback(
    driver: Driver,
) -> None:
    driver.shrink(holds=False)
    member, generation, have = join_and_sync(driver, assignment(0, 1, 2, 3, 4))
    assert have == [2, 3, 4]
    driver.whole_topic()
    driver.restart()
    assert driver.heartbeat(member, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    member, generation, have = join_and_sync(driver, assignment(0, 1, 2, 3, 4), member)
    assert have == [0, 1, 2, 3, 4]
    driver.restart()
    assert driver.heartbeat(member, generation) == ErrorCode.NONE


def test_each_assignment_is_read_once_however_many_topics_are_ordered(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.shrink(holds=True)
    join_and_sync(driver, assignment(0, 1, 2, 3, 4))
    for number in range(10):
        row = TopicImage(f"u{number}", UUID(int=100 + number), (), ON)
        driver.image = driver.image.with_topics(row)
    read: list[bytes] = []
    decoded = held_back._decoded

    def counted(assignment: bytes) -> Any:
        read.append(assignment)
        return decoded(assignment)

    monkeypatch.setattr(held_back, "_decoded", counted)
    [group] = driver.shard.groups.values()
    assert isinstance(group, ClassicGroup)
    monkeypatch.setattr(ClassicGroup, "is_subscribed_to", lambda group, topic: True)
    assert held_back.lacks_remaining(group, driver.image) == {"t"}
    assert len(read) == 1


@pytest.mark.parametrize(("ends", "kept"), [(UNKNOWN, [0, 1, 2, 3, 4]), (5, [2, 3, 4])])
def test_a_classic_group_keeps_what_it_has_until_it_is_known_to_be_behind(
    driver: Driver, ends: int, kept: list[int]
) -> None:
    member, generation, _ = join_and_sync(driver, assignment(0, 1, 2, 3, 4))
    driver.shrink(holds=False)
    driver.reach({2: 4, 4: 6}, **as_member(member, generation))
    driver.restart()
    driver.shrink(holds=True, ends=ENDS | {2: ends})
    assert join_and_sync(driver, assignment(0, 1, 2, 3, 4), member)[2] == kept


def test_a_classic_group_that_reads_what_remains_is_behind(driver: Driver) -> None:
    member, generation, have = join_and_sync(driver, assignment(0, 1, 2, 3, 4))
    assert have == [0, 1, 2, 3, 4]
    driver.shrink(holds=False)
    assert driver.behind() == ["g"]
    assert driver.heartbeat(member, generation) == ErrorCode.NONE, "it is left in peace"
    driver.reach({2: 4, 4: 6}, **as_member(member, generation))
    assert driver.behind() == []


def test_assignments_that_are_no_consumers_are_left_alone(driver: Driver) -> None:
    driver.shrink(holds=True)
    joined = driver.join(version=3, protocol_type="connect", protocols=(("p", b"\0"),))
    driver.advance(0)
    answer = joined.response
    given = {answer.member_id: b"\0"}
    assert driver.sync(answer.member_id, answer.generation_id, given).assignment == b"\0"


def test_assignments_of_kafka_streams_are_whole(driver: Driver) -> None:
    """An instance whose partitions are not those of its tasks ends with an exception; it keeps a
    topic from shrinking as others do.
    """
    driver.shrink(holds=False)
    row = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=[0, 1, 2, 3, 4])
    given = b"\0\1" + ConsumerProtocolAssignment(
        assigned_partitions=[row], user_data=streams_tasks(5)
    ).encode(1)
    _, subscribed = subscription()[0]
    joined = driver.join(version=3, protocols=(("stream", subscribed),))
    driver.advance(0)
    answer = joined.response
    synced = driver.sync(answer.member_id, answer.generation_id, {answer.member_id: given})
    assert synced.assignment == given
    assert driver.behind() == ["g"]
    driver.restart()
    assert driver.heartbeat(answer.member_id, answer.generation_id) == ErrorCode.NONE
    driver.reach({2: 4, 4: 6}, **as_member(answer.member_id, answer.generation_id))
    assert driver.behind() == []


def streams_tasks(count: int) -> bytes:
    """Kafka Streams' user data of version 11: active tasks of subtopology 0, and no more."""
    tasks = b"".join(struct.pack(">iih", 0, index, -1) for index in range(count))
    return struct.pack(">iii", 11, 11, count) + tasks + struct.pack(">iiii", 0, 0, 0, 0)


def test_other_topics_of_an_assignment_stay(driver: Driver) -> None:
    driver.shrink(holds=True)
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic="other", partitions=[0, 1]),
        ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=[0, 4]),
    ]
    given = b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=rows, user_data=b"u").encode(1)
    joined = driver.join(version=3, protocols=subscription())
    driver.advance(0)
    answer = joined.response
    synced = driver.sync(answer.member_id, answer.generation_id, {answer.member_id: given})
    found = ConsumerProtocolAssignment.decode(synced.assignment, 1, offset=2)
    assert [(row.topic, row.partitions) for row in found.assigned_partitions] == [
        ("other", [0, 1]),
        ("t", [4]),
    ]
    assert (synced.assignment[:2], found.user_data) == (b"\0\1", b"u")
