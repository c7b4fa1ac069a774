"""Streams groups through a socket: internal topics, configs, and what kill -9 leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.protocol.schema import Message
from tests.beside.waiting import answer_of
from tests.broker.harness.wire import Wire
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import commit_request
from tests.reference.streams_members import StreamsClient, subtopology, topic_info, topology

MISSING_INTERNAL_TOPICS = 3
TOPIC_RESOURCE = 2
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "kstore.check.invariants": "true",
}


class Line(Wire):
    """A connection that a StreamsClient can send on."""

    def send(self, request: Message) -> Any:
        return self.call(request)


def counted(replication_factor: int = 0) -> Any:
    """Reads lines, repartitions words, stores counts."""
    return topology(
        subtopology("0", "lines", repartition_sink_topics=["words"]),
        subtopology(
            "1",
            repartition_source_topics=[
                topic_info("words", 0, replication_factor, retention_ms="-1")
            ],
            state_changelog_topics=[topic_info("store", cleanup_policy="compact")],
        ),
    )


def work(*members: StreamsClient) -> None:
    """Beat until no member learns anything new."""
    for _ in range(6):
        for member in members:
            assert member.beat().error_code == 0


def commit(line: Line, member: str, epoch: int, topic: str, partition: int) -> int:
    who = {"member_id": member, "generation_id_or_member_epoch": epoch}
    request = commit_request(topic, {partition: 1}, **who)
    return line.call(request, 9).topics[0].partitions[0].error_code


def described(line: Line) -> Any:
    return line.call(Ask.StreamsGroupDescribe(group_ids=["g"])).groups[0]


def crash(broker: KstoreBroker) -> Line:
    """kill -9, and a new connection once the groups are loaded."""
    broker.kill()
    broker.start()
    line = Line(broker)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    answer_of(lambda: described(line), lambda group: group.error_code != loading)
    return line


def started(line: Line, *names: str) -> list[StreamsClient]:
    """Members that have their tasks, of an application whose topics are there."""
    line.make_topic("lines", 3)
    members = [StreamsClient(line, name, counted()) for name in names]
    for member in members:
        answer_of(member.join, lambda answer: answer.error_code == 0 and not answer.status)
    work(*members)
    return members


def test_missing_internal_topics_are_made_as_the_application_wants_them(
    broker: KstoreBroker,
) -> None:
    line = Line(broker)
    line.make_topic("lines", 3)
    member = StreamsClient(line, "m", counted())
    first = member.join()
    assert [status.status_code for status in first.status] == [MISSING_INTERNAL_TOPICS]
    assert first.active_tasks == []
    answer_of(member.beat, lambda answer: not answer.status)
    assert member.active == {(s, p) for s in "01" for p in range(3)}
    names = [{"name": name} for name in ("words", "store")]
    made = line.call(Ask.Metadata(topics=names)).topics
    assert [len(topic.partitions) for topic in made] == [3, 3]
    resource = {
        "resource_type": TOPIC_RESOURCE,
        "resource_name": "store",
        "configuration_keys": ["cleanup.policy"],
    }
    answer = line.call(Ask.DescribeConfigs(resources=[resource]))
    assert answer.results[0].configs[0].value == "compact"


def test_why_an_internal_topic_can_t_be_made_is_told(broker: KstoreBroker) -> None:
    line = Line(broker)
    line.make_topic("lines", 1)
    member = StreamsClient(line, "m", counted(replication_factor=3))
    member.join()
    answer_of(member.beat, lambda answer: "not create words (" in answer.status[0].status_detail)
    assert member.beat().status[0].status_detail.count("words (") == 1
    assert described(line).group_state == "NotReady"


def test_a_group_is_what_it_was_after_kill_9(broker: KstoreBroker) -> None:
    line = Line(broker)
    one, two = started(line, "one", "two")
    before = described(line)
    assert before.group_state == "Stable"
    line = crash(broker)
    one.driver = two.driver = line  # type: ignore[assignment]
    assert described(line).members == before.members
    epoch, active = one.epoch, one.active
    work(one, two)
    assert (one.epoch, one.active) == (epoch, active)
    assert described(line) == before


@pytest.mark.slow
def test_assignment_epochs_outlive_the_coordinator(broker: KstoreBroker) -> None:
    """KAFKA-19779: what a member has kept it may commit in an old epoch, and nothing else. In its
    present one it may commit anything.
    """
    line = Line(broker)
    (one,) = started(line, "one")
    old_epoch, old_tasks = one.epoch, set(one.active)
    two = StreamsClient(line, "two", counted())
    two.join()
    work(one, two)
    assert one.epoch > old_epoch
    line = crash(broker)
    for subtopology_id, partition in sorted(old_tasks):
        topic = {"0": "lines", "1": "words"}[subtopology_id]
        kept = (subtopology_id, partition) in one.active
        wanted = ErrorCode.NONE if kept else ErrorCode.STALE_MEMBER_EPOCH
        assert commit(line, "one", old_epoch, topic, partition) == wanted
        assert commit(line, "two", two.epoch, topic, partition) == ErrorCode.NONE
        early = commit(line, "two", two.epoch - 1, topic, partition)
        assert early == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(line, "one", one.epoch + 1, "lines", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(line, "three", one.epoch, "lines", 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_standby_copies_are_a_setting_of_the_group(broker: KstoreBroker) -> None:
    line = Line(broker)
    one, two = started(line, "one", "two")
    assert not one.standby
    assert not two.standby
    assert line.set_group("g", streams_num_standby_replicas=1) == 0
    work(one, two)
    stateful = {("1", partition) for partition in range(3)}
    assert one.standby == stateful - one.active
    assert two.standby == stateful - two.active


def test_a_group_is_listed_by_its_type_and_deleted_when_it_is_empty(broker: KstoreBroker) -> None:
    line = Line(broker)
    (member,) = started(line, "m")

    def listed(*types: str) -> list[tuple[str, str, str]]:
        rows = line.call(Ask.ListGroups(types_filter=list(types))).groups
        return [(row.group_id, row.group_type, row.group_state) for row in rows]

    assert listed("streams") == listed() == [("g", "streams", "Stable")]
    assert listed("classic") == []
    delete = Ask.DeleteGroups(groups_names=["g"])
    assert line.call(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert listed() == [("g", "streams", "Empty")]
    assert line.call(delete).results[0].error_code == ErrorCode.NONE
    assert listed() == []
    line = crash(broker)
    assert listed() == []
    assert described(line).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_protocol_can_be_switched_off(start_broker: Callable[..., KstoreBroker]) -> None:
    line = Line(start_broker({"group.coordinator.rebalance.protocols": "classic"}, name="old"))
    answer = line.call(Ask.StreamsGroupHeartbeat(group_id="g", member_id="m"))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert described(line).error_code == ErrorCode.UNSUPPORTED_VERSION
