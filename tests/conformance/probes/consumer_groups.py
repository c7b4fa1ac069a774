"""Probes of the consumer group protocol (KIP-848): life cycles of groups, fencing, commits by
epoch, static members, regular expressions, and groups that change their protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from kstore.protocol.schema import Message
from tests.conformance.probes.configs import GROUP, SET, alter, describe, shows
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask
from tests.record_requests import commit_request, join_request, offsets_request
from tests.reference.consumer_driver import assignment, subscription

TIMEOUT_MS = 30_000


def beat(group: str, member: str, epoch: int, **fields: Any) -> Message:
    """A heartbeat with the member id and epoch only."""
    return Ask.ConsumerGroupHeartbeat(
        group_id=group, member_id=member, member_epoch=epoch, **fields
    )


def join(group: str, member: str, *topics: str, **fields: Any) -> Message:
    """The first heartbeat of a member."""
    said = {
        "rebalance_timeout_ms": TIMEOUT_MS,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
    }
    return beat(group, member, 0, **(said | fields))


def owns(topic_id: UUID, *partitions: int) -> dict[str, Any]:
    """The partitions that a heartbeat reports as owned."""
    row = {"topic_id": topic_id, "partitions": list(partitions)}
    return {"topic_partitions": [row]}


def known(*topics: str) -> Step:
    """Wait until the coordinator sees new topics, which is after the response that created them."""
    return Step(
        join(f"{topics[-1]}-known", "first", *topics),
        until=lambda answer: len(answer.assignment.topic_partitions) == len(topics),
        compare=False,
    )


def rare_assignments(group: str) -> Story:
    """The group's next assignment is computed 5 s after the last one instead of 1 s: the members
    that join meanwhile get their epochs from one assignment, however slow the machine is.
    """
    key, value = "consumer.assignment.interval.ms", "5000"
    yield Step(alter(GROUP, group, (key, SET, value)), compare=False)
    there = shows(consumer_assignment_interval_ms=value)
    yield Step(describe(GROUP, group, key), until=there, compare=False)


def _epoch(epoch: int) -> Callable[[Any], bool]:
    return lambda answer: answer.member_epoch >= epoch or answer.error_code != 0


@case("ConsumerGroupHeartbeat refused", 68)
def _refused(peer: Peer, version: int) -> Story:
    topic = group = f"probe-cg-refused-{version}"
    yield create(topic, 2)
    yield join("", "m", topic)
    yield join(group, "", topic) if version else beat(group, "", 1)
    yield join(group, "m", topic, rebalance_timeout_ms=-1)
    yield join(group, "m", topic, topic_partitions=None)
    yield join(group, "m", topic, **owns(peer.topic_id(topic), 0))
    yield join(group, "m", subscribed_topic_names=None)
    yield join(group, "m", topic, instance_id="")
    yield join(group, "m", topic, rack_id="")
    yield join(group, "m", topic, server_assignor="no-such")
    yield beat(group, "m", -2)
    yield beat(group, "m", -3)
    yield beat(group, "m", 1)
    yield beat(group, "m", -1)
    yield beat(group, "m", -2, instance_id="i")
    yield Ask.ConsumerGroupDescribe(group_ids=[group, ""])


@case("ConsumerGroupHeartbeat life of a group", 68)
def _life(peer: Peer, version: int) -> Story:
    topic = group = f"probe-cg-life-{version}"
    yield create(topic, 4)
    yield known(topic)
    yield from rare_assignments(group)
    topic_id = peer.topic_id(topic)
    yield join(group, "a", topic, rack_id="r1")
    yield beat(group, "a", 2, **owns(topic_id, 0, 1, 2, 3))
    yield beat(group, "a", 1)
    yield beat(group, "a", 3)
    yield beat(group, "b", 2)
    yield Ask.ConsumerGroupDescribe(group_ids=[group], include_authorized_operations=True)
    yield Ask.DescribeGroups(groups=[group])
    yield Ask.DeleteGroups(groups_names=[group])
    yield join(group, "b", topic, server_assignor="uniform")
    yield Step(beat(group, "b", 2), until=_epoch(3), compare=False)
    yield beat(group, "b", 3)
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield beat(group, "a", 2)  # it must give up two
    yield beat(group, "a", 2, **owns(topic_id, 0, 1, 2, 3))
    yield beat(group, "b", 3)
    yield beat(group, "a", 2, **owns(topic_id, 0, 1))
    yield beat(group, "a", 2, **owns(topic_id, 0, 1))  # the answer was lost
    yield beat(group, "a", 2, **owns(topic_id, 0, 1, 2))
    yield beat(group, "b", 3)
    yield beat(group, "b", 3, **owns(topic_id, 2, 3))
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    row = {"name": topic, "count": 6, "assignments": None}
    yield Ask.CreatePartitions(topics=[row], timeout_ms=5000)
    yield Step(beat(group, "a", 3), until=_epoch(4), compare=False)
    yield Step(beat(group, "b", 3), until=_epoch(4), compare=False)
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield beat(group, "b", 4, subscribed_topic_names=[])
    yield beat(group, "b", -1)
    yield beat(group, "b", -1)
    yield beat(group, "a", -1)
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield join(group, "c", "probe-absent")
    yield beat(group, "c", -1)
    yield Ask.DeleteGroups(groups_names=[group])
    yield Ask.ConsumerGroupDescribe(group_ids=[group])


@case("ConsumerGroupHeartbeat range", 68, every_version=False)
def _range(peer: Peer, version: int) -> Story:
    one, two = f"probe-cg-range-{version}", f"probe-cg-rangetwo-{version}"
    yield create(one, 5)
    yield create(two, 5)
    group = one
    yield known(one, two)
    yield from rare_assignments(group)
    yield join(group, "a", one, two, server_assignor="range", instance_id="z")
    yield join(group, "b", one, two, server_assignor="range")
    yield join(group, "c", one, server_assignor="range", instance_id="y")
    for member in "abc":
        yield Step(beat(group, member, 2), until=lambda answer: answer.error_code == 0)
    # "a" stays where it is until it has revoked the partitions that go to the others.
    for member in "cb":
        yield Step(beat(group, member, 2), until=_epoch(4), compare=False)
    described: Any = yield Step(Ask.ConsumerGroupDescribe(group_ids=[group]), compare=False)
    assert len(described.groups[0].members) == 3


@case("ConsumerGroupHeartbeat static members", 68)
def _static(peer: Peer, version: int) -> Story:
    topic = group = f"probe-cg-static-{version}"
    yield create(topic, 2)
    yield known(topic)
    topic_id = peer.topic_id(topic)
    yield join(group, "a", topic, instance_id="i")
    yield beat(group, "a", 2, instance_id="i", **owns(topic_id, 0, 1))
    yield join(group, "b", topic, instance_id="i")
    yield beat(group, "b", 2, instance_id="i")
    yield beat(group, "a", 2, instance_id="other")
    yield beat(group, "b", -2, instance_id="i")
    yield beat(group, "a", -2, instance_id="i")
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield beat(group, "a", 2, instance_id="i")
    yield join(group, "b", topic, instance_id="i")
    yield beat(group, "a", 2, instance_id="i")
    yield beat(group, "b", 2, instance_id="i", **owns(topic_id, 0, 1))
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield Ask.LeaveGroup(group_id=group, members=[{"group_instance_id": "i"}])
    yield Ask.LeaveGroup(group_id=group, members=[{"member_id": "b"}])
    yield Ask.ConsumerGroupDescribe(group_ids=[group])


@case("ConsumerGroupHeartbeat regular expressions", 68, 1)
def _regex(peer: Peer, version: int) -> Story:
    group = f"probe-cg-regex-{version}"
    yield create(f"{group}-one", 2)
    yield known(f"{group}-one")
    regex = f"probe-cg-regex-{version}-(one|two)"
    for wrong in ("(", "a**", "[a", "(?=a)", "\\1", "a{1001}", "*", "a)"):
        yield join(group, "w", subscribed_topic_names=None, subscribed_topic_regex=wrong)
    yield join(group, "a", subscribed_topic_names=None, subscribed_topic_regex=regex)
    yield Step(beat(group, "a", 1), until=_epoch(2))
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield join(group, "b", subscribed_topic_names=None, subscribed_topic_regex=regex)
    yield Step(beat(group, "b", 2), until=_epoch(3), compare=False)
    yield beat(group, "b", 3, subscribed_topic_regex="")
    yield beat(group, "b", -1)
    yield beat(group, "a", 2, subscribed_topic_regex="", subscribed_topic_names=[f"{group}-one"])
    yield Ask.ConsumerGroupDescribe(group_ids=[group])


def _commit(
    peer: Peer, version: int, group: str, topic: str, member: str, epoch: int, *partitions: int
) -> Message:
    named = {"topic_id": peer.topic_id(topic)} if version >= 10 else {}
    who = {"generation_id_or_member_epoch": epoch, "member_id": member}
    return commit_request(topic, dict.fromkeys(partitions, 7), group, **named, **who)


@case("OffsetCommit by member epoch", 8, 9)
def _commits(peer: Peer, version: int) -> Story:
    topic = group = f"probe-cg-commits-{version}"
    yield create(topic, 4)
    yield known(topic)
    topic_id = peer.topic_id(topic)
    yield join(group, "a", topic)
    for member, epoch in (("a", 2), ("a", 1), ("a", 3), ("a", -1), ("b", 2), ("", -1)):
        yield _commit(peer, version, group, topic, member, epoch, 0)
    yield join(group, "b", topic)
    yield Step(beat(group, "b", 2), until=_epoch(3), compare=False)
    yield beat(group, "a", 2)
    yield _commit(peer, version, group, topic, "a", 2, 0, 3)  # 3 is not revoked yet
    yield beat(group, "a", 2, **owns(topic_id, 0, 1))
    yield _commit(peer, version, group, topic, "a", 2, 0)  # kept since epoch 2
    yield _commit(peer, version, group, topic, "a", 2, 3)  # given up
    yield _commit(peer, version, group, topic, "a", 2, 0, 3)
    yield beat(group, "b", 3)
    yield _commit(peer, version, group, topic, "b", 2, 3)  # before it was given
    yield _commit(peer, version, group, topic, "b", 3, 3)
    # It never owned the partition: the first form of KAFKA-19779.
    yield _commit(peer, version, group, topic, "b", 3, 1)


@case("OffsetFetch by member epoch", 9, 9)
def _fetches(peer: Peer, version: int) -> Story:
    topic = group = f"probe-cg-fetches-{version}"
    yield create(topic, 1)
    yield known(topic)
    yield join(group, "a", topic)
    yield _commit(peer, peer.version_for(8), group, topic, "a", 2, 0)

    def ask(member: str | None, epoch: int) -> Message:
        named = {"topic_id": peer.topic_id(topic)} if version >= 10 else {}
        who = {"member_id": member, "member_epoch": epoch}
        return offsets_request(topic, 0, group=group, **named, **who)

    for member, epoch in ((None, -1), ("a", 2), ("a", 1), ("a", 3), ("b", 2), ("", -1), (None, 2)):
        yield ask(member, epoch)
    rows = [{"partition_index": 0}]
    yield Ask.OffsetDelete(group_id=group, topics=[{"name": topic, "partitions": rows}])
    yield beat(group, "a", -1)
    yield ask("a", 2)
    yield ask(None, -1)
    yield Ask.DeleteGroups(groups_names=[group])


def _classic_join(group: str, topic: str, member: str, *owned: int) -> Message:
    ((_, metadata),) = subscription(*owned, topic=topic)
    return join_request(group, member, metadata)


@case("ConsumerGroupHeartbeat migration", 68)
def _migration(peer: Peer, version: int) -> Story:
    topic = group = f"probe-cg-migration-{version}"
    yield create(topic, 2)
    yield known(topic)
    topic_id = peer.topic_id(topic)
    first: Any = yield Step(_classic_join(group, topic, ""), compare=False)
    member = first.member_id
    joined: Any = yield _classic_join(group, topic, member)
    given = {"member_id": member, "assignment": assignment(0, 1, topic=topic)}

    def sync(generation: int, *assignments: dict[str, Any]) -> Message:
        return Ask.SyncGroup(
            group_id=group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=list(assignments),
        )

    def alive(generation: int) -> Message:
        return Ask.Heartbeat(group_id=group, generation_id=generation, member_id=member)

    generation = joined.generation_id
    yield sync(generation, given)
    yield beat(group, "new", 1)
    yield join(group, "new", topic)
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield alive(generation)
    yield alive(generation + 1)
    yield sync(generation)
    rejoined: Any = yield _classic_join(group, topic, member, 0, 1)
    yield sync(rejoined.generation_id)
    yield alive(rejoined.generation_id)
    rejoined = yield _classic_join(group, topic, member, 0)
    yield sync(rejoined.generation_id)
    yield alive(rejoined.generation_id)
    yield beat(group, "new", 2)
    yield beat(group, "new", 2, **owns(topic_id, 1))
    yield Ask.ConsumerGroupDescribe(group_ids=[group])
    yield _commit(peer, 9, group, topic, member, rejoined.generation_id, 0)
    yield _commit(peer, 9, group, topic, member, rejoined.generation_id + 1, 0)
    yield beat(group, "new", -1)  # a classic group again
    yield Ask.DescribeGroups(groups=[group])
    yield alive(rejoined.generation_id)
    yield alive(rejoined.generation_id + 1)
    last: Any = yield _classic_join(group, topic, member, 0)
    yield sync(last.generation_id, given)
    yield Ask.LeaveGroup(group_id=group, members=[{"member_id": member}])
    yield join(group, "new", topic)  # an empty classic group is replaced
    yield beat(group, "new", -1)
    yield _classic_join(group, topic, "nobody")
    yield Step(_classic_join(group, topic, ""), compare=False)
