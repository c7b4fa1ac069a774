"""Brokers without contractions get no partitions of such topics, nor become the controller."""

from __future__ import annotations

import asyncio

import pytest

from kstore.broker.coordination.store import StoreUnavailableError
from kstore.broker.coordination.znodes import CONTRACTIONS_FEATURE
from kstore.broker.state.metadata.topic_rules import TopicError
from kstore.errors import ErrorCode
from tests.beside.waiting import reached
from tests.broker.runtime.controller.test_shrinking import (
    LONG,
    NODE,
    SHORT,
    made,
    narrower,
    refused,
    shrunk,
    told,
)
from tests.reference.controller_host import Cluster, Node


def test_brokers_of_an_older_version_keep_topics_from_shrinking() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        older = cluster.nodes[2]
        older.stop()
        older.start(lacks=CONTRACTIONS_FEATURE)
        await cluster.settle()
        problem = await refused(cluster, narrower(2))
        assert problem.code == ErrorCode.UNSUPPORTED_VERSION
        assert str(problem) == (
            "'t' can't shrink: upgrade broker 2, whose version knows no contractions."
        )
        older.stop()
        older.start()
        await cluster.settle()
        await cluster.controller.add_partitions(narrower(2))

    shrunk(story)


def restarted(cluster: Cluster, node: int, *, lacks: str = "") -> Node:
    """A broker comes back with a version that lacks a feature."""
    found = cluster.nodes[node]
    found.stop()
    found.start(lacks=lacks)
    found.heard.clear()
    return found


def takes_part(cluster: Cluster, node: int) -> bool:
    """Whether the controller sends requests to a broker or has it in an ISR."""
    partitions = cluster.controller.state.topics["t"].partitions
    in_sync = any(node in each.isr for each in partitions)
    return in_sync or node in cluster.controller.state.brokers or bool(cluster.nodes[node].heard)


def epoch_node(cluster: Cluster) -> str:
    return cluster.store.get("/controller_epoch")[0].decode()


@pytest.mark.parametrize("decided", [False, True])
def test_a_broker_of_an_older_version_takes_no_part_while_a_topic_shrinks(
    caplog: pytest.LogCaptureFixture, decided: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        cluster.behind = ["slow"]
        asking = asyncio.ensure_future(cluster.controller.add_partitions(narrower(2)))
        await reached(lambda: told(cluster) == {(5, 2)})
        if decided:
            cluster.behind = []
            await asking
        older = restarted(cluster, 2, lacks=CONTRACTIONS_FEATURE)
        await reached(lambda: "brokers [2] cannot take part" in caplog.text)
        await reached(lambda: not takes_part(cluster, 2))
        cluster.behind = []
        await asking
        await cluster.elect()
        assert not takes_part(cluster, 2), "nor does the next controller let it"
        cluster.logs |= {("t", index): (10, 10) for index in (2, 3, 4)}
        await reached(lambda: len(cluster.controller.state.topics["t"].partitions) == 2)
        await reached(lambda: takes_part(cluster, 2))
        await cluster.settle()
        topic_id = cluster.controller.state.topics["t"].topic_id
        assert {index for each, index in older.deleted if each == topic_id} == {2, 3, 4}

    shrunk(story)


def test_a_broker_that_is_upgraded_takes_part_again() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        await cluster.controller.add_partitions(narrower(2))
        restarted(cluster, 2, lacks=CONTRACTIONS_FEATURE)
        await reached(lambda: not takes_part(cluster, 2))
        restarted(cluster, 2)
        await cluster.settle()
        assert takes_part(cluster, 2)
        assert cluster.controller.kept_away == frozenset()

    shrunk(story)


@pytest.mark.parametrize("ends", ["empty", "rolled back", "deleted"])
def test_what_an_older_version_reads_of_the_controller_is_no_number_while_a_topic_shrinks(
    ends: str,
) -> None:
    """It cannot become the controller, and logs what it has read."""

    async def story(cluster: Cluster) -> None:
        await made(cluster)
        assert epoch_node(cluster) == "1"
        if ends == "rolled back":
            cluster.behind = ["slow"]
            asking = asyncio.ensure_future(refused(cluster, narrower(2)))
            await reached(lambda: told(cluster) == {(5, 2)})
        else:
            await cluster.controller.add_partitions(narrower(2))
        assert epoch_node(cluster) == "1 needs kstore.contractions: upgrade this broker"
        await cluster.elect()
        assert epoch_node(cluster) == "2 needs kstore.contractions: upgrade this broker"
        if ends == "rolled back":
            await asking
        elif ends == "deleted":
            await cluster.controller.delete_topic("t")
        cluster.logs |= {("t", index): (10, 10) for index in (2, 3, 4)}
        await reached(lambda: epoch_node(cluster) == "2")

    shrunk(story, SHORT if ends == "rolled back" else LONG)


def test_a_broker_of_an_older_version_that_came_just_now_is_found() -> None:
    """The controller does not know about it yet."""

    async def story(cluster: Cluster) -> None:
        await made(cluster)
        controller = cluster.controller

        async def step() -> None:  # while it runs, the controller does not take over brokers
            restarted(cluster, 2, lacks=CONTRACTIONS_FEATURE)
            with pytest.raises(TopicError, match="upgrade broker 2") as caught:
                await controller.shrinking._prepare(narrower(2), False)
            assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION

        await controller.exclusively(step)
        assert not cluster.store.exists(NODE)
        await reached(lambda: epoch_node(cluster) == "1")
        await cluster.settle()
        assert takes_part(cluster, 2)

    shrunk(story)


def test_a_controller_does_not_know_whether_its_mark_was_written() -> None:
    async def story(cluster: Cluster) -> None:
        await made(cluster)
        controller = cluster.controller
        require = controller.store.require

        def unanswered(*features: str) -> None:
            require(*features)
            raise StoreUnavailableError("no answer")

        controller.store.require = unanswered  # type: ignore[method-assign]
        with pytest.raises(TopicError, match="no answer"):
            await controller.add_partitions(narrower(2))
        await controller.add_partitions(narrower(2))
        assert controller.active
        assert controller.state.count("t") == 2

    shrunk(story)
