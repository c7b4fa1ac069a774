"""Contractions are prepared, then committed or rolled back, whichever process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kstore.broker.runtime.controller.store import DeposedError
from kstore.broker.state.controller.state import ControllerState
from kstore.broker.state.metadata.contraction_rules import TIMEOUT
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import ErrorCode
from kstore.protocol.groups.groups_behind import GroupsBehindResponse
from tests.beside.waiting import reached
from tests.broker.runtime.controller.test_growth import refused
from tests.reference.controller_host import Cluster, run

SHORT, LONG = "300", "600000"
ORDERED = {"kstore.partition.count.required": "true", "kstore.ordered.expansion": "true"}
NODE = "/admin/contractions/t"


def shrunk(story: Callable[[Cluster], Awaitable[None]], timeout_ms: str = LONG) -> None:
    run(story, 3, **{TIMEOUT: timeout_ms, "log.retention.check.interval.ms": "5"})


def narrower(count: int, **fields: Any) -> NewPartitions:
    return NewPartitions("t", count, **({"may_shrink": True} | fields))


async def made(cluster: Cluster, partitions: int = 5, replicas: int = 3) -> None:
    """A topic with records in its partitions, and a topic for groups."""
    await cluster.controller.create_topic(NewTopic("t", partitions, replicas, configs=ORDERED))
    await cluster.controller.create_topic(NewTopic("__consumer_offsets", 4, 3))
    cluster.logs |= {("t", index): (0, 10) for index in range(partitions)}
    await cluster.settle()


def told(cluster: Cluster) -> set[tuple[int, int]]:
    """The count in force and the first retired partition, as the brokers know them."""
    return {(node.counts["t"], node.retired["t"]) for node in cluster.nodes.values()}


def test_a_topic_shrinks_and_its_last_partitions_stay_until_they_are_empty() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        controller = cluster.controller
        topic_id = controller.state.topics["t"].topic_id
        await controller.add_partitions(narrower(2))
        await cluster.settle()
        topic = controller.state.topics["t"]
        assert (len(topic.partitions), controller.state.count("t")) == (5, 2)
        assert {each.leader_epoch for each in topic.partitions} == {1}
        assert told(cluster) == {(2, 2)}
        cluster.logs |= {("t", index): (10, 10) for index in (2, 3)}
        await controller.add_partitions(narrower(2))  # the same contraction is requested again
        assert len(controller.state.topics["t"].partitions) == 5, "one has records"
        cluster.logs["t", 4] = (10, 10)
        await reached(lambda: len(controller.state.topics["t"].partitions) == 2)
        await cluster.settle()
        assert cluster.store.children("/brokers/topics/t/partitions") == ["0", "1"]
        assert not cluster.store.exists(NODE)
        for node in cluster.nodes.values():
            assert {i for name, i in node.metadata if name == "t"} == {0, 1}
            assert {i for name, i in node.hosted if name == "t"} == {0, 1}
            assert {i for each, i in node.deleted if each == topic_id} == {2, 3, 4}
        assert told(cluster) == {(2, -1)}
        await reached(lambda: not controller.state.deletions)
        await controller.add_partitions(NewPartitions("t", 4))
        grown = controller.state.topics["t"].partitions
        assert dict(grown[3].prior_leader_epochs) == {0: 1, 1: 1}
        assert grown[2].partition_epoch > topic.partitions[4].partition_epoch
        assert grown[2].leader_epoch > topic.partitions[2].leader_epoch, "clients take no smaller"

    shrunk(story)


@pytest.mark.parametrize(
    ("configs", "new", "code", "words"),
    [
        (ORDERED, narrower(0), ErrorCode.INVALID_PARTITIONS, "the minimum is 1"),
        (ORDERED, narrower(-1), ErrorCode.INVALID_PARTITIONS, "the minimum is 1"),
        (ORDERED, NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (ORDERED, narrower(5), ErrorCode.INVALID_PARTITIONS, "Ask for more than 5"),
        (
            ORDERED, narrower(2, assignments=[[0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "no new ones",
        ),
        (
            ORDERED | {"cleanup.policy": "compact,delete"}, narrower(2),
            ErrorCode.POLICY_VIOLATION, "needs cleanup.policy=delete",
        ),
        (
            {"kstore.ordered.expansion": "true"}, narrower(2), ErrorCode.POLICY_VIOLATION,
            "needs kstore.partition.count.required=true",
        ),
        (
            {"kstore.partition.count.required": "true"}, narrower(2), ErrorCode.POLICY_VIOLATION,
            "needs kstore.ordered.expansion=true",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(
    configs: dict[str, str], new: NewPartitions, code: int, words: str
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 5, 3, configs=configs))
        problem = await refused(cluster, new)
        assert (problem.code, words in str(problem)) == (code, True), str(problem)
        assert not cluster.store.exists(NODE)

    shrunk(story)


def test_one_change_at_a_time() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        cluster.behind = ["slow"]
        first = asyncio.ensure_future(cluster.controller.add_partitions(narrower(3)))
        await reached(lambda: cluster.store.exists(NODE))
        for new in (NewPartitions("t", 7), narrower(2)):
            assert (await refused(cluster, new)).code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        again = asyncio.ensure_future(cluster.controller.add_partitions(narrower(3)))
        cluster.behind = []
        await first
        await again
        problem = await refused(cluster, NewPartitions("t", 7))
        assert problem.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert "when the others, 3 to 4, are empty" in str(problem)

    shrunk(story)


def test_a_growing_topic_does_not_shrink() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster, replicas=1)
        cluster.leader("t", 1).mute = True
        growing = asyncio.ensure_future(cluster.controller.add_partitions(NewPartitions("t", 7)))
        await reached(lambda: "t" in cluster.controller.state.expansions)
        problem = await refused(cluster, narrower(2))
        assert (problem.code, "is growing" in str(problem)) == (
            ErrorCode.REASSIGNMENT_IN_PROGRESS, True,
        )  # fmt: skip
        growing.cancel()

    shrunk(story)


def test_it_is_prepared_until_no_group_is_behind() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        cluster.behind = ["slow"]
        asking = asyncio.ensure_future(cluster.controller.add_partitions(narrower(2)))
        await reached(lambda: told(cluster) == {(5, 2)}, "retired ones take none; the count is old")
        assert not asking.done()
        cluster.behind = []
        await asking
        await cluster.settle()
        assert told(cluster) == {(2, 2)}

    shrunk(story)


def test_a_group_that_stays_behind_makes_the_topic_keep_what_it_has() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        cluster.behind = ["slow", "slower"]
        problem = await refused(cluster, narrower(2))
        assert problem.code == ErrorCode.REQUEST_TIMED_OUT
        assert str(problem) == (
            "'t' keeps its 5 partitions: groups have not committed all records of the retiring "
            "partitions (slow, slower) within kstore.expansion.timeout.ms=300. Try again when that"
            " is so."
        )
        await cluster.settle()
        assert told(cluster) == {(5, -1)}
        assert not cluster.store.exists(NODE)
        assert cluster.controller.shrinking.rolled_back == 1
        cluster.behind = []
        await cluster.controller.add_partitions(narrower(2))
        epochs = {each.leader_epoch for each in cluster.controller.state.topics["t"].partitions}
        assert epochs == {2}, "as a contraction of its own"

    shrunk(story, SHORT)


def test_a_coordinator_that_does_not_answer_makes_the_topic_keep_what_it_has() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster, replicas=1)
        leaders = {cluster.leader("t", index).node_id for index in range(5)}
        state = cluster.controller.state.topics["__consumer_offsets"]
        silent = cluster.nodes[state.partitions[0].leader]
        assert silent.node_id in leaders
        silent._behind = lambda request: GroupsBehindResponse(  # type: ignore[method-assign]
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        problem = await refused(cluster, narrower(2))
        assert "group coordinators could not say which groups are behind" in str(problem)
        assert "(__consumer_offsets" in str(problem)

    shrunk(story, SHORT)


def test_a_leader_that_nobody_can_replace_makes_the_topic_keep_what_it_has() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster, replicas=1)
        silent = cluster.leader("t", 1)
        silent.mute = True
        problem = await refused(cluster, narrower(2))
        assert problem.code == ErrorCode.REQUEST_TIMED_OUT
        assert f"broker {silent.node_id}, with all in-sync replicas of partition" in str(problem)
        silent.mute = False
        await cluster.settle()
        assert told(cluster) == {(5, -1)}

    shrunk(story, SHORT)


def test_the_next_controller_goes_on_with_what_is_prepared() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        cluster.behind = ["slow"]
        asking = asyncio.ensure_future(cluster.controller.add_partitions(narrower(2)))
        await reached(lambda: told(cluster) == {(5, 2)})
        await cluster.controller.close()
        with pytest.raises(TopicError) as caught:
            await asking
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        await cluster.elect()
        await cluster.settle()
        assert told(cluster) == {(5, 2)}
        cluster.behind = []
        await reached(lambda: cluster.controller.state.count("t") == 2)
        await cluster.settle()
        assert told(cluster) == {(2, 2)}
        epochs = {each.leader_epoch for each in cluster.controller.state.topics["t"].partitions}
        assert epochs == {1}, "one epoch was begun"

    shrunk(story)


def test_the_next_controller_knows_what_is_decided_and_ends_it() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        await cluster.controller.add_partitions(narrower(2))
        await cluster.controller.close()
        await cluster.elect()
        await cluster.settle()
        assert told(cluster) == {(2, 2)}
        assert cluster.controller.state.count("t") == 2
        cluster.logs |= {("t", index): (10, 10) for index in (2, 3, 4)}
        await reached(lambda: len(cluster.controller.state.topics["t"].partitions) == 2)

    shrunk(story)


def test_a_crash_while_partitions_are_taken_away_leaves_no_node_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        await cluster.controller.add_partitions(narrower(2))
        ended: list[int] = []

        def crash(name: str, first: int) -> None:
            ended.append(first)
            raise DeposedError("the end")

        monkeypatch.setattr(cluster.controller.store.contractions, "remove_retired", crash)
        cluster.logs |= {("t", index): (10, 10) for index in (2, 3, 4)}
        await reached(lambda: bool(ended))
        await cluster.controller.close()
        assert cluster.store.exists("/brokers/topics/t/partitions/3")
        await cluster.elect()
        await cluster.settle()
        assert cluster.store.children("/brokers/topics/t/partitions") == ["0", "1"]
        assert not cluster.store.exists(NODE)
        assert len(cluster.controller.state.topics["t"].partitions) == 2
        for node in cluster.nodes.values():
            assert {i for name, i in node.hosted if name == "t"} == {0, 1}

    shrunk(story)


def test_new_partitions_wait_for_the_logs_of_those_before_them() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        away = cluster.nodes[2]
        await cluster.controller.add_partitions(narrower(2))
        away.hangs = True
        cluster.logs |= {("t", index): (10, 10) for index in (2, 3, 4)}
        await reached(lambda: len(cluster.controller.state.topics["t"].partitions) == 2)
        await cluster.settle()
        problem = await refused(cluster, NewPartitions("t", 4))
        assert problem.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert "brokers [2] have not deleted the logs" in str(problem)

    shrunk(story)


def test_partitions_with_records_before_them_do_not_retire() -> None:
    """They would have to be read after the remaining partitions, which in turn would have to be
    read after them.
    """

    async def story(cluster: Cluster) -> None:
        await made(cluster, partitions=2)
        await cluster.controller.add_partitions(NewPartitions("t", 4))
        problem = await refused(cluster, narrower(2))
        assert problem.code == ErrorCode.POLICY_VIOLATION
        assert "partitions [0, 1] still have records from before" in str(problem)
        cluster.logs |= {("t", index): (10, 10) for index in (0, 1)}
        await cluster.controller.add_partitions(narrower(2))
        assert cluster.controller.state.count("t") == 2

    shrunk(story)


def test_a_controller_that_has_read_nothing_yet_knows_that_a_topic_is_to_shrink() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        controller = cluster.controller
        controller.state = ControllerState()
        controller.read_anew()
        await controller.add_partitions(narrower(2))
        assert controller.state.count("t") == 2

    shrunk(story)


def test_a_deleted_topic_shrinks_no_more() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        await cluster.controller.add_partitions(narrower(2))
        await cluster.controller.delete_topic("t")
        assert not cluster.store.exists(NODE)
        assert not cluster.controller.state.contractions
        await cluster.controller.create_topic(NewTopic("t", 3, 3, configs=ORDERED))
        await cluster.settle()
        assert told(cluster) == {(3, -1)}

    shrunk(story)
