"""Expansions end in bounded time, whatever leaders do: they are committed or rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kstore.broker.state.metadata.contraction_rules import TIMEOUT
from kstore.broker.state.metadata.image import TopicImage
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import ErrorCode
from tests.beside.waiting import reached
from tests.reference.controller_host import Cluster, Node, run

SHORT, LONG = "200", "600000"


def grown(story: Callable[[Cluster], Awaitable[None]], timeout_ms: str, nodes: int = 3) -> None:
    run(story, nodes, **{TIMEOUT: timeout_ms})


async def refused(cluster: Cluster, new: NewPartitions) -> TopicError:
    with pytest.raises(TopicError) as caught:
        await cluster.controller.add_partitions(new)
    return caught.value


async def silent_leader(cluster: Cluster, replicas: int = 1) -> Node:
    """A topic of three partitions exists, and the leader of partition 1 does not answer."""
    await cluster.controller.create_topic(NewTopic("t", 3, replicas))
    await cluster.settle()
    silent = cluster.leader("t", 1)
    silent.mute = True
    return silent


def test_who_leads_and_does_not_answer_is_fenced_by_another_leader() -> None:
    async def story(cluster: Cluster) -> None:
        silent = await silent_leader(cluster, replicas=3)
        await cluster.controller.add_partitions(NewPartitions("t", 5))
        topic = cluster.controller.state.topics["t"]
        assert len(topic.partitions) == 5
        assert cluster.leader("t", 1) is not silent
        assert silent.node_id not in topic.partitions[1].isr
        # It began no epoch with the old count: the new count is valid from the next epoch.
        assert topic.partitions[1].leader_epoch == 2
        assert dict(topic.partitions[4].prior_leader_epochs) == {0: 0, 1: 0, 2: 0}
        assert cluster.leader("t", 1).counts["t"] == 5
        silent.mute = False
        await cluster.settle()
        assert silent.counts["t"] == 5
        assert cluster.controller.growth.rolled_back == 0

    grown(story, SHORT)


def test_a_partition_that_nobody_else_can_lead_makes_the_topic_keep_what_it_has() -> None:
    async def story(cluster: Cluster) -> None:
        silent = await silent_leader(cluster)
        other = cluster.leader("t", 2)
        problem = await refused(cluster, NewPartitions("t", 5))
        assert problem.code == ErrorCode.REQUEST_TIMED_OUT
        assert str(problem) == (
            f"'t' keeps its 3 partitions: broker {silent.node_id}, with all in-sync replicas of "
            f"partition 1,"
            " did not answer the controller within kstore.expansion.timeout.ms=200."
            " Try again when it does."
        )
        await reached(lambda: other.counts["t"] == 3, "the others take the old count again")
        assert cluster.store.children("/admin/expansions") == []
        assert cluster.store.children("/brokers/topics/t/partitions") == ["0", "1", "2"]
        assert cluster.store.get("/brokers/topics/t")[0].count(b"[") == 3
        assert cluster.controller.growth.rolled_back == 1
        silent.mute = False
        await cluster.controller.add_partitions(NewPartitions("t", 5))
        await cluster.settle()
        partitions = cluster.controller.state.topics["t"].partitions
        assert dict(partitions[4].prior_leader_epochs) == {0: 1, 1: 1, 2: 1}, "as in between"
        assert {node.counts["t"] for node in cluster.nodes.values()} == {5}

    grown(story, SHORT)


def test_a_lease_that_ends_is_waited_for_no_longer() -> None:
    """Its registration has ended, and it knows that: it no longer leads anything."""

    async def story(cluster: Cluster) -> None:
        silent = await silent_leader(cluster)
        growing = asyncio.ensure_future(cluster.controller.add_partitions(NewPartitions("t", 4)))
        await reached(lambda: "t" in cluster.controller.state.expansions)
        silent.stop()
        await growing
        assert len(cluster.controller.state.topics["t"].partitions) == 4
        silent.mute = False
        silent.start()
        await cluster.settle()
        assert silent.counts["t"] == 4

    grown(story, LONG)


@pytest.mark.parametrize("passed_ms", [0, 10**9, -(10**9)])
def test_the_next_controller_has_a_part_of_the_time_at_least(passed_ms: int) -> None:
    async def story(cluster: Cluster) -> None:
        await silent_leader(cluster)
        growing = asyncio.ensure_future(cluster.controller.add_partitions(NewPartitions("t", 4)))
        await reached(lambda: "t" in cluster.controller.state.expansions)
        await cluster.controller.close()
        with pytest.raises(TopicError) as caught:
            await growing
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        cluster.now_ms += passed_ms
        await cluster.elect()
        await reached(lambda: not cluster.controller.state.expansions)
        assert cluster.controller.growth.rolled_back == 1
        assert len(cluster.controller.state.topics["t"].partitions) == 3

    grown(story, SHORT)


def test_who_asks_again_is_answered_with_what_becomes_of_it() -> None:
    async def story(cluster: Cluster) -> None:
        await silent_leader(cluster)
        first = asyncio.ensure_future(refused(cluster, NewPartitions("t", 4)))
        await reached(lambda: "t" in cluster.controller.state.expansions)
        again = asyncio.ensure_future(refused(cluster, NewPartitions("t", 4)))
        other = await refused(cluster, NewPartitions("t", 5))
        assert other.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert str(await first) == str(await again)

    grown(story, SHORT)


def test_who_waits_hears_of_the_rollback_though_another_expansion_begins_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        await silent_leader(cluster)
        loop, store = asyncio.get_running_loop(), cluster.controller.store
        cancel = store.cancel_expansion
        others: list[asyncio.Task[TopicError]] = []

        def ask() -> None:
            others.append(loop.create_task(refused(cluster, NewPartitions("t", 4))))

        def cancel_while_another_asks(topic: TopicImage) -> None:
            if not others:
                loop.call_soon_threadsafe(ask)
            cancel(topic)

        monkeypatch.setattr(store, "cancel_expansion", cancel_while_another_asks)
        first = await refused(cluster, NewPartitions("t", 4))
        assert first.code == ErrorCode.REQUEST_TIMED_OUT
        assert "3 partitions" in str(first)
        assert (await others[0]).code == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.controller.growth.rolled_back == 2

    grown(story, SHORT)


def test_what_is_decided_is_not_rolled_back() -> None:
    """The controller ended after the first new partitions were created: the next one creates the
    rest.
    """

    async def story(cluster: Cluster) -> None:
        await silent_leader(cluster)
        growing = asyncio.ensure_future(cluster.controller.add_partitions(NewPartitions("t", 5)))
        await reached(lambda: "t" in cluster.controller.state.expansions)
        await cluster.controller.close()
        with pytest.raises(TopicError):
            await growing
        cluster.store.create("/brokers/topics/t/partitions/3", b'{"version":1,"partition_epoch":4}')
        cluster.store.create(
            "/brokers/topics/t/partitions/3/state",
            b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}',
        )
        await cluster.elect()
        await reached(lambda: not cluster.controller.state.expansions)
        assert len(cluster.controller.state.topics["t"].partitions) == 5
        assert cluster.controller.growth.rolled_back == 0

    grown(story, SHORT)
