"""Probes of FindCoordinator and the classic group APIs, in order and out of order."""

from __future__ import annotations

from typing import Any

from kstore.protocol.schema import Message
from tests.conformance.probes.story import Peer, Story, case
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask
from tests.record_requests import commit_request, join_request

METADATA = b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"


@case("FindCoordinator", 10)
def _find(peer: Peer, version: int) -> Story:
    if version < 4:
        for key, kind in (("probe", 0), ("", 0), ("probe", 9)):
            yield Ask.FindCoordinator(key=key, key_type=kind if version >= 1 else 0)
        return
    for keys, kind in (
        (["probe"], 0), (["probe", "probe-2"], 0), ([""], 0), ([], 0), (["probe"], 9),
    ):  # fmt: skip
        yield Ask.FindCoordinator(coordinator_keys=keys, key_type=kind)


def join(group: str, member_id: str = "", **fields: Any) -> Message:
    return join_request(group, member_id, METADATA, **fields)


def _joined(group: str, version: int) -> Story:
    """Joins as a new member does; the last answer is that of the join."""
    answer = yield join(group)
    if version >= 4 and answer is not None:
        answer = yield join(group, answer.member_id)
    return answer  # type: ignore[return-value]


@case("JoinGroup", 11)
def _join_group(peer: Peer, version: int) -> Story:
    group = f"probe-join-{version}"
    yield join("")
    yield join(group, "no-such-member")
    for wrong in ({"session_timeout_ms": 1}, {"session_timeout_ms": 1 << 30}, {"protocols": []},
                  {"protocol_type": ""}):  # fmt: skip
        yield join(group, **wrong)
    answer: Any = yield from _joined(group, version)
    member = answer.member_id if answer is not None else ""
    generation = answer.generation_id if answer is not None else 1
    assignment = {"member_id": member, "assignment": b"mine"}
    yield Ask.SyncGroup(group_id=group, generation_id=generation + 1, member_id=member)
    yield Ask.SyncGroup(group_id=group, generation_id=generation, member_id="other")
    yield Ask.SyncGroup(
        group_id=group, generation_id=generation, member_id=member, assignments=[assignment]
    )
    yield join(group, protocol_type="connect")
    other = [{"name": "sticky", "metadata": METADATA}]
    yield join(group, protocols=other)
    yield Ask.DescribeGroups(groups=[group])
    for wrong_generation, wrong_member in ((generation + 1, member), (generation, "other")):
        yield Ask.Heartbeat(group_id=group, generation_id=wrong_generation, member_id=wrong_member)
    yield Ask.Heartbeat(group_id=group, generation_id=generation, member_id=member)
    yield Ask.DeleteGroups(groups_names=[group])
    yield join(group, member)
    yield Ask.Heartbeat(group_id=group, generation_id=generation + 1, member_id=member)


@case("SyncGroup", 14)
def _sync_group(peer: Peer, version: int) -> Story:
    yield Ask.SyncGroup(group_id="probe-no-group", generation_id=1, member_id="m")
    yield Ask.SyncGroup(group_id="", generation_id=1, member_id="m")
    group = f"probe-sync-{version}"
    answer: Any = yield from _joined(group, peer.version_for(11))
    if answer is None:
        return
    who = {"generation_id": answer.generation_id, "member_id": answer.member_id}
    yield Ask.SyncGroup(
        group_id=group, **who, protocol_type="consumer", protocol_name="range",
        assignments=[{"member_id": answer.member_id, "assignment": b"mine"}],
    )  # fmt: skip
    if version >= 5:
        yield Ask.SyncGroup(group_id=group, **who, protocol_type="connect", protocol_name="sticky")


@case("Heartbeat", 12)
def _heartbeat(peer: Peer, version: int) -> Story:
    yield Ask.Heartbeat(group_id="probe-no-group", generation_id=1, member_id="m")
    yield Ask.Heartbeat(group_id="", generation_id=1, member_id="m")


@case("LeaveGroup", 13)
def _leave_group(peer: Peer, version: int) -> Story:
    group = f"probe-leave-{version}"

    def leave(*members: str) -> Message:
        if version < 3:
            return Ask.LeaveGroup(group_id=group, member_id=members[0])
        rows = [{"member_id": member} for member in members]
        return Ask.LeaveGroup(group_id=group, members=rows)

    yield leave("nobody")
    answer: Any = yield from _joined(group, peer.version_for(11))
    if answer is None:
        return
    if version >= 3:
        yield leave("nobody", answer.member_id)
    else:
        yield leave("nobody")
        yield leave(answer.member_id)
    yield leave(answer.member_id)
    yield Ask.DescribeGroups(groups=[group])
    yield Ask.DeleteGroups(groups_names=[group])
    yield Ask.DeleteGroups(groups_names=[group])


@case("DescribeGroups", 15)
def _describe_groups(peer: Peer, version: int) -> Story:
    # Other cases may create the group "" meanwhile.
    yield Ask.DescribeGroups(groups=["probe-no-group"])
    group = f"probe-describe-{version}"
    yield from _joined(group, peer.version_for(11))
    request = Ask.DescribeGroups(groups=[group])
    yield request
    if version >= 3:
        request.include_authorized_operations = True
        yield request


@case("ListGroups", 16)
def _list_groups(peer: Peer, version: int) -> Story:
    if version >= 4:
        yield Ask.ListGroups(states_filter=["NoSuchState"])
    if version >= 5:
        yield Ask.ListGroups(types_filter=["nosuchtype"])


def _commit(
    peer: Peer, version: int, group: str, topic: str, offset: int, *, partition: int = 0,
    generation: int = -1, member: str = "", metadata: str | None = "note",
) -> Message:  # fmt: skip
    named = {"topic_id": peer.topic_id(topic)} if version >= 10 else {}
    who = {"generation_id_or_member_epoch": generation, "member_id": member}
    row = {"committed_metadata": metadata}
    return commit_request(topic, {partition: offset}, group, row=row, **named, **who)


@case("OffsetCommit", 8)
def _offset_commit(peer: Peer, version: int) -> Story:
    topic, group = f"probe-commit-{version}", f"probe-commit-{version}"
    yield create(topic, 2)
    yield _commit(peer, version, group, topic, 5)
    yield _commit(peer, version, group, topic, 3, partition=1)
    yield _commit(peer, version, group, topic, -1)
    yield _commit(peer, version, group, topic, 5, partition=9)
    yield _commit(peer, version, group, "probe-absent", 5)
    yield _commit(peer, version, group, topic, 5, metadata="x" * 5000)
    yield _commit(peer, version, group, topic, 5, metadata=None)
    yield _commit(peer, version, "", topic, 5)
    yield _commit(peer, version, f"{group}-none", topic, 5, generation=3, member="m")
    yield Ask.OffsetCommit(group_id=group, topics=[])
    answer: Any = yield from _joined(f"{group}-members", peer.version_for(11))
    if answer is None:
        return
    members = f"{group}-members"
    member, generation = answer.member_id, answer.generation_id
    yield _commit(peer, version, members, topic, 5)
    yield _commit(peer, version, members, topic, 5, generation=generation, member="other")
    yield _commit(peer, version, members, topic, 5, generation=generation + 1, member=member)
    yield _commit(peer, version, members, topic, 5, generation=generation, member=member)


@case("OffsetFetch", 9)
def _offset_fetch(peer: Peer, version: int) -> Story:
    topic, group = f"probe-committed-{version}", f"probe-committed-{version}"
    yield create(topic, 3)
    commit_version = peer.version_for(8)
    yield _commit(peer, commit_version, group, topic, 5)
    yield _commit(peer, commit_version, group, topic, 6, partition=1, metadata=None)

    def ask(group_id: str, *partitions: int, name: str = topic, all_topics: bool = False):
        indexes = list(partitions)
        if version < 8:
            rows = [{"name": name, "partition_indexes": indexes}]
            return Ask.OffsetFetch(group_id=group_id, topics=None if all_topics else rows)
        row = {"name": name, "partition_indexes": indexes}
        if version >= 10:
            row["topic_id"] = peer.topic_id(name)
        asked = {"group_id": group_id, "topics": None if all_topics else [row]}
        return Ask.OffsetFetch(groups=[asked])

    yield ask(group, 0, 1, 2, 9)
    yield ask(group, 0, name="probe-absent")
    yield ask("probe-no-group", 0)
    yield ask("", 0)
    if version >= 2:
        yield ask(group, all_topics=True)
        yield ask("probe-no-group", all_topics=True)
    if version >= 7:
        stable = ask(group, 0)
        stable.require_stable = True
        yield stable


@case("OffsetDelete", 47)
def _offset_delete(peer: Peer, version: int) -> Story:
    topic = group = "probe-offset-delete"
    yield create(topic, 2)
    yield _commit(peer, peer.version_for(8), group, topic, 5)

    def ask(group_id: str, name: str, *partitions: int) -> Message:
        rows = [{"partition_index": index} for index in partitions]
        return Ask.OffsetDelete(group_id=group_id, topics=[{"name": name, "partitions": rows}])

    yield ask("probe-no-group", topic, 0)
    yield ask(group, "probe-absent", 0)
    yield ask(group, topic, 0, 1, 9)
    yield ask(group, topic, 0)


@case("DeleteGroups", 42)
def _delete_groups(peer: Peer, version: int) -> Story:
    yield Ask.DeleteGroups(groups_names=["probe-no-group"])
    group, topic = f"probe-delete-group-{version}", f"probe-delete-group-{version}"
    yield create(topic)
    yield _commit(peer, peer.version_for(8), group, topic, 1)
    yield Ask.DeleteGroups(groups_names=[group])
    yield Ask.DeleteGroups(groups_names=[group])
