"""Probes of streams groups (KIP-1071): refused requests, topologies that do not fit the topics, the
life of a group whose tasks move between members, and who may commit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kstore.protocol.schema import Message
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask
from tests.record_requests import commit_request, join_request, offsets_request, producer_fields

MISSING_INTERNAL, SHUTDOWN, DELAYED = 3, 4, 5
METADATA = struct.pack(">hii", 0, 0, -1)


def info(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": partitions,
        "topic_configs": [
            {"key": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }


def sub(subtopology_id: str = "0", *sources: str, **fields: Any) -> dict[str, Any]:
    return {"subtopology_id": subtopology_id, "source_topics": list(sources), **fields}


def topology(*subs: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(subs)}


def join(group: str, told: dict[str, Any] | None, member: str = "m2", **fields: Any) -> Message:
    said = {
        "group_id": group, "member_id": member, "member_epoch": 0,
        "endpoint_information_epoch": -1, "rebalance_timeout_ms": 60_000, "topology": told,
        "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
        "process_id": f"process-{member}", "client_tags": [],
    }  # fmt: skip
    return Ask.StreamsGroupHeartbeat(**(said | fields))


def beat(group: str, epoch: int, member: str = "m2", **fields: Any) -> Message:
    return Ask.StreamsGroupHeartbeat(group_id=group, member_id=member, member_epoch=epoch, **fields)


def owned(**tasks: list[int]) -> list[dict[str, Any]]:
    return [
        {"subtopology_id": name.lstrip("s"), "partitions": partitions}
        for name, partitions in tasks.items()
    ]


def having(**tasks: list[int]) -> dict[str, Any]:
    """The tasks that a member reports, as fields of a heartbeat."""
    return {"active_tasks": owned(**tasks), "standby_tasks": [], "warmup_tasks": []}


def codes(answer: Any) -> set[int]:
    return {status.status_code for status in answer.status or ()}


def without(*unwanted: int) -> Callable[[Any], bool]:
    """Repeat until the answer has none of these statuses."""
    return lambda answer: answer.error_code != 0 or not codes(answer) & set(unwanted)


def settled(message: Message) -> Step:
    """Repeat until the group waits for neither topics nor a delay."""
    return Step(message, until=without(MISSING_INTERNAL, DELAYED))


def exist(*topics: str) -> Step:
    """Wait for the topics, so that the coordinators of both brokers see them all at once."""
    request = Ask.Metadata(
        topics=[{"name": name} for name in topics], allow_auto_topic_creation=False
    )
    return Step(
        request,
        version=12,
        compare=False,
        until=lambda answer: not any(row.error_code for row in answer.topics),
    )


@case("StreamsGroupHeartbeat refused", 88)
def _refused(peer: Peer, version: int) -> Story:
    group, simple = "probe-streams-refused", topology(sub("0", "probe-streams-absent"))
    yield beat("probe-streams-no-group", 1)
    yield beat("probe-streams-no-group", -1)
    for fields in (
        {"group_id": ""}, {"member_id": ""}, {"rack_id": ""}, {"instance_id": "i"},
        {"instance_id": ""}, {"rebalance_timeout_ms": -1}, {"topology": None},
        {"active_tasks": owned(s0=[0])}, {"standby_tasks": owned(s0=[0])},
        {"warmup_tasks": owned(s0=[0])}, {"active_tasks": None}, {"member_epoch": -2},
        {"member_epoch": -3}, {"member_epoch": 1}, {"task_offsets": []}, {"task_offsets": [{}]},
        {"task_end_offsets": []}, {"process_id": None, "client_tags": None},
    ):  # fmt: skip
        yield join(group, fields.pop("topology", simple), **fields)  # type: ignore[arg-type]
    yield Ask.StreamsGroupDescribe(group_ids=[group, "", "probe-streams-no-group"])


@case("StreamsGroupHeartbeat bad topologies", 88)
def _bad_topologies(peer: Peer, version: int) -> Story:
    one = "probe-streams-a"
    wrong = (
        topology(),
        topology(sub()),
        topology(sub("0", "__consumer_offsets")),
        topology(sub("0", "not a topic")),
        topology(sub("0", one, source_topic_regex=["x.*"])),
        topology(sub("0", one), sub("0", one)),
        topology(sub("0", one), epoch=-1),
        topology(sub("0", one, state_changelog_topics=[info("c", 3)])),
        topology(sub("0", one), sub("1", repartition_source_topics=[info("r")])),
        topology(sub("0", repartition_source_topics=[info("r")], repartition_sink_topics=["r"])),
        topology(sub("0", one, copartition_groups=[{"source_topics": [7]}])),
    )
    for number, told in enumerate(wrong):
        yield create(one, 2)
        group = f"probe-streams-bad-{number}"
        yield join(group, told)
        yield Ask.StreamsGroupDescribe(group_ids=[group])
        yield beat(group, -1)


@case("StreamsGroupHeartbeat topics that do not fit", 88)
def _topics_that_do_not_fit(peer: Peer, version: int) -> Story:
    left, right = f"probe-streams-left-{version}", f"probe-streams-right-{version}"
    both = [{"source_topics": [0, 1]}]
    group = "probe-streams-unfit"
    told = topology(sub("0", left, right, copartition_groups=both))
    yield join(f"{group}-missing", told)
    yield create(left, 2)
    yield create(right, 3)
    yield exist(left, right)
    # Kafka's coordinator may see the topics a moment later than its data plane.
    yield Step(join(group, told), until=lambda answer: 2 in codes(answer))
    yield Ask.StreamsGroupDescribe(group_ids=[f"{group}-missing"])
    fixed = sub(
        "0",
        left,
        repartition_source_topics=[info("probe-streams-fixed", 5)],
        copartition_groups=[{"source_topics": [0], "repartition_source_topics": [0]}],
    )
    yield join("probe-streams-fixed", topology(fixed))
    yield create("probe-streams-changelog", 5)
    store = sub("0", left, state_changelog_topics=[info("probe-streams-changelog")])
    changelog = join("probe-streams-changelog", topology(store))
    yield Step(changelog, until=lambda answer: 2 in codes(answer))
    for name in (f"{group}-missing", group, "probe-streams-fixed", "probe-streams-changelog"):
        yield beat(name, -1)


def _stateful(prefix: str, source: str) -> dict[str, Any]:
    return topology(
        sub("0", source, repartition_sink_topics=[f"{prefix}-repartition"]),
        sub(
            "1",
            repartition_source_topics=[info(f"{prefix}-repartition", cleanup_policy="delete")],
            state_changelog_topics=[info(f"{prefix}-changelog", cleanup_policy="compact")],
        ),
    )


@case("StreamsGroupHeartbeat life of a group", 88)
def _life(peer: Peer, version: int) -> Story:
    source, group = "probe-streams-source", "probe-streams-life"
    told = _stateful(group, source)
    yield create(source, 2)
    yield join(group, told)
    yield Ask.StreamsGroupDescribe(group_ids=[group], include_authorized_operations=True)
    yield exist(f"{group}-repartition", f"{group}-changelog")
    answer = yield settled(join(group, told))
    epoch = answer.member_epoch
    yield Ask.StreamsGroupDescribe(group_ids=[group])
    tasks = having(s0=[0, 1], s1=[0, 1])
    yield beat(group, epoch, **tasks)
    yield beat(group, epoch)
    yield beat(group, epoch, **having(s0=[0, 5]))
    yield beat(group, epoch, **having(s7=[0]))
    yield beat(group, epoch + 1)
    yield beat(group, epoch - 1)
    yield beat(group, epoch - 1, **tasks)
    yield beat(group, epoch, "nobody")
    yield join(group, topology(sub("0", source)))
    yield join(group, topology(sub("0", source), epoch=1))
    yield from _commits(group, source, epoch)
    yield from _second_member(group, source, told, epoch)


def _commits(group: str, source: str, epoch: int) -> Story:
    for member, told in (("m2", epoch), ("m2", epoch - 1), ("m2", epoch + 1), ("nobody", epoch)):
        yield _commit(group, source, member, told)
    yield _commit(group, source, "m2", epoch, version=8)
    yield _commit(group, source, "", -1)
    for member_id, told in (("m2", epoch), ("m2", epoch - 1), ("nobody", 1), (None, -1)):
        who = {"member_id": member_id, "member_epoch": told}
        yield Step(offsets_request(source, 0, 1, group=group, **who), version=9)


def _commit(
    group: str, topic: str, member: str, epoch: int, partition: int = 0, version: int = 9
) -> Step:
    who = {"generation_id_or_member_epoch": epoch, "member_id": member}
    return Step(commit_request(topic, {partition: 7}, group, **who), version=version)


def _second_member(group: str, source: str, told: dict[str, Any], epoch: int) -> Story:
    yield Step(join(group, told, "m1"), until=without(DELAYED))
    yield Step(
        beat(group, epoch), until=lambda answer: bool(answer.active_tasks) or answer.error_code
    )
    yield Ask.StreamsGroupDescribe(group_ids=[group])
    yield beat(group, epoch, **having(s0=[0, 1], s1=[0, 1]))
    answer = yield beat(group, epoch, **having(s0=[0], s1=[0]))
    newer = answer.member_epoch
    yield beat(group, newer, "m1", **having())
    yield settled(join(group, told, "m1"))
    yield Ask.StreamsGroupDescribe(group_ids=[group])
    # KAFKA-19779: m2 may commit kept tasks with its old epoch, but not revoked ones.
    for partition in (0, 1):
        yield _commit(group, source, "m2", epoch, partition)
        yield _commit(group, f"{group}-repartition", "m2", epoch, partition)
        yield _commit(group, source, "m1", epoch, partition)
        yield _commit(group, source, "m1", newer, partition)
    yield _commit(group, f"{group}-changelog", "m2", epoch)
    yield from _transactional_commits(group, source, epoch, newer)
    yield from _end(group, source, newer)


def _transactional_commits(group: str, source: str, older: int, newer: int) -> Story:
    init = Ask.InitProducerId(transactional_id=group, transaction_timeout_ms=60_000)
    producer = yield Step(init, version=5, until=lambda answer: answer.error_code == 0)
    for member, epoch, partition in (
        ("m2", newer, 0), ("m2", older, 0), ("m2", older, 1), ("m2", newer + 1, 0),
        ("nobody", newer, 0), ("", -1, 0),
    ):  # fmt: skip
        rows = [{"partition_index": partition, "committed_offset": 9}]
        message = Ask.TxnOffsetCommit(
            **producer_fields(group, producer), group_id=group, generation_id=epoch,
            member_id=member, topics=[{"name": source, "partitions": rows}],
        )  # fmt: skip
        yield Step(message, version=5)
    yield Step(Ask.EndTxn(**producer_fields(group, producer), committed=False), version=5)


def _end(group: str, source: str, epoch: int) -> Story:
    yield Ask.DescribeGroups(groups=[group])
    yield Ask.Heartbeat(group_id=group, generation_id=1, member_id="m2")
    yield join_request(group, metadata=METADATA)
    yield Ask.DeleteGroups(groups_names=[group])
    for topic in (source, "probe-streams-elsewhere"):
        rows = [{"partition_index": 0}]
        yield Ask.OffsetDelete(group_id=group, topics=[{"name": topic, "partitions": rows}])
    yield beat(group, epoch, "m1", shutdown_application=True)
    yield beat(group, epoch)
    yield beat(group, -1, "nobody")
    yield beat(group, -1, "m1")
    yield Step(beat(group, epoch), until=lambda answer: DELAYED not in codes(answer))
    yield beat(group, -1, shutdown_application=True)
    yield beat(group, -1)
    yield Ask.StreamsGroupDescribe(group_ids=[group])
    yield _commit(group, source, "m2", epoch)
    yield _commit(group, source, "", -1)
    yield Ask.DeleteGroups(groups_names=[group])
    yield Ask.StreamsGroupDescribe(group_ids=[group])


@case("StreamsGroupHeartbeat endpoints", 88)
def _endpoints(peer: Peer, version: int) -> Story:
    source, group = "probe-streams-endpoint", "probe-streams-endpoint"
    told = _stateful(group, source)
    where = {"host": "app", "port": 8080}
    yield create(source, 2)
    yield join(group, told, user_endpoint=where)
    yield exist(f"{group}-repartition", f"{group}-changelog")
    answer = yield settled(beat(group, 1))
    epoch = answer.member_epoch
    yield beat(group, epoch, endpoint_information_epoch=answer.endpoint_information_epoch)
    yield beat(group, epoch, endpoint_information_epoch=-1)
    yield Ask.StreamsGroupDescribe(group_ids=[group])
    yield beat(group, -1)


@case("StreamsGroupHeartbeat and other kinds of groups", 88)
def _conversions(peer: Peer, version: int) -> Story:
    """A group id of another type: an empty classic group is replaced, and the reverse."""
    topic, group = "probe-streams-convert", "probe-streams-convert"
    told = topology(sub("0", topic))
    yield create(topic, 1)
    yield _commit(group, topic, "", -1)
    yield Ask.StreamsGroupDescribe(group_ids=[group])
    yield Step(join(group, told), until=without(DELAYED))
    yield Step(offsets_request(topic, 0, group=group, member_epoch=-1), version=9)
    yield beat(group, -1)
    classic = join_request(group, metadata=METADATA)
    answer = yield Step(classic, version=9)
    classic.member_id = answer.member_id
    yield Step(classic, version=9)
    yield join(group, told)
    yield Ask.StreamsGroupDescribe(group_ids=[group])
