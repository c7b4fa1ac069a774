"""Eligible replicas when the controller has not read the newest settings yet."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kstore.broker.runtime.controller.controller import Controller
from kstore.broker.state.controller.state import ControllerState
from kstore.broker.state.metadata.image import PartitionImage
from kstore.broker.state.metadata.topic_rules import NewTopic
from kstore.errors import KafkaError
from tests.beside.waiting import reached
from tests.reference.controller_host import Cluster, run


def least_in_sync(controller: Controller) -> int:
    """min.insync.replicas of the topic t, as the controller knows it."""
    rules = controller.state.eligible_rules("t")
    assert rules is not None
    return rules.min_isr


@pytest.mark.parametrize("how", ["shuts down", "loses its log dir", "does not answer"])
@pytest.mark.parametrize("least", [1, 2])
def test_who_is_eligible_follows_from_the_settings_that_hold_when_a_leader_ends(
    how: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With min.insync.replicas=1, the leader alone may have committed records that a replica
    outside the ISR lacks.
    """

    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topic(NewTopic("t", 1, 2, {}, {"min.insync.replicas": "2"}))
        await cluster.settle()
        leader = cluster.leader("t", 0)
        await leader.propose("t", 0, [leader.node_id])

        def partition() -> PartitionImage:
            return controller.state.topics["t"].partitions[0]

        [left] = partition().elr
        # The controller has not read it yet.
        config = {"version": 1, "config": {"min.insync.replicas": str(least)}}
        cluster.store.set("/config/topics/t", json.dumps(config).encode())
        if how == "shuts down":
            await controller.controlled_shutdown(leader.node_id, leader.epoch)
        elif how == "loses its log dir":
            controller.replicas_failed(controller.state.brokers[leader.node_id], {("t", 0)})
            await reached(lambda: partition().leader != leader.node_id)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(type(controller.growth), "in_progress", {"t": None})
                await controller.exclusively(controller.growth._fence, "t", {leader.node_id})
        assert (partition().leader == left) == (least == 2)

    run(story)


@pytest.mark.parametrize("where", ["/config/topics/t", "/config/brokers/<default>"])
@pytest.mark.parametrize("how", ["loses its log dir", "does not answer"])
def test_a_setting_that_was_read_for_another_topic_ends_who_is_eligible(
    how: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """min.insync.replicas is lowered, and the controller reads it only because a replica of another
    topic fails. The replica outside the ISR lacks what two replicas have committed since, so it
    does not become eligible again when the setting is raised.
    """

    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        for name in ("t", "other"):
            await controller.create_topic(NewTopic(name, assignments={0: [0, 1, 2]}))
        await cluster.settle()
        configs = {"min.insync.replicas": "3"}

        def set_min_isr(least: int) -> None:
            configs["min.insync.replicas"] = str(least)
            node = json.dumps({"version": 1, "config": configs}).encode()
            cluster.store.ensure(where)
            cluster.store.set(where, node)

        def partition() -> PartitionImage:
            return controller.state.topics["t"].partitions[0]

        set_min_isr(3)
        await cluster.settle()
        await reached(lambda: least_in_sync(controller) == 3)
        await cluster.nodes[0].propose("t", 0, [0, 1])
        assert partition().elr == (2,)

        heard: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(controller, "_note", heard.append)
            set_min_isr(2)
            await reached(lambda: heard)
            if how == "loses its log dir":
                node = controller.state.brokers[0]
                controller.replicas_failed(node, {("other", 0)})
                await reached(lambda: controller.state.topics["other"].partitions[0].leader != 0)
            else:
                patch.setattr(type(controller.growth), "in_progress", {"other": None})
                await controller.exclusively(controller.growth._fence, "other", {0})
        for path in heard:
            controller._note(path)
        await cluster.settle()
        assert partition().elr == ()
        set_min_isr(3)
        await reached(lambda: least_in_sync(controller) == 3)
        for node_id in (0, 1):
            cluster.nodes[node_id].stop()
        await cluster.settle()
        assert (partition().leader, partition().elr) == (-1, (0, 1))

    run(story)


@pytest.mark.parametrize("where", ["/config/topics/t", "/config/brokers/<default>"])
@pytest.mark.parametrize("reader", ["the same controller", "the next one"])
@pytest.mark.parametrize("is_lowered", [True, False])
def test_two_unread_writes_of_the_settings_end_who_is_eligible(
    is_lowered: bool, reader: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """min.insync.replicas may have been lowered by the first and raised again by the second. What
    was written at most once since it was read was never lower than both values.
    """

    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topic(NewTopic("t", assignments={0: [0, 1, 2]}))
        await cluster.settle()

        def set_min_isr(least: int, **others: str) -> None:
            config = {"version": 1, "config": {"min.insync.replicas": str(least), **others}}
            cluster.store.ensure(where)
            cluster.store.set(where, json.dumps(config).encode())

        def partition() -> PartitionImage:
            return cluster.controller.state.topics["t"].partitions[0]

        set_min_isr(3)
        await reached(lambda: least_in_sync(controller) == 3)
        await cluster.nodes[0].propose("t", 0, [0, 1])
        for retention in ("1", "2"):
            read = sum(controller.state.setting_writes.values())
            set_min_isr(3, **{"retention.ms": retention})
            await reached(lambda: sum(controller.state.setting_writes.values()) > read)  # noqa: B023
            await cluster.settle()
            assert partition().elr == (2,)

        if reader == "the next one":
            await controller.close()
        heard: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(controller, "_note", heard.append)
            if is_lowered:
                set_min_isr(2)
            set_min_isr(3)
            if reader == "the next one":
                await cluster.elect()
            else:
                await reached(lambda: len(heard) == 1 + is_lowered)
        for path in heard:
            controller._note(path)
        await cluster.settle()
        await reached(lambda: partition().elr == (() if is_lowered else (2,)))
        cluster.nodes[0].stop()
        cluster.nodes[1].stop()
        await cluster.settle()
        assert (partition().leader, partition().elr) == (-1 if is_lowered else 2, (0, 1))

    run(story)


@pytest.mark.parametrize("where", ["/config/topics/t", "/config/brokers/<default>"])
def test_a_setting_is_not_forgotten_while_the_store_is_away(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()

        def set_min_isr(least: int) -> None:
            config = {"version": 1, "config": {"min.insync.replicas": str(least)}}
            cluster.store.set(where, json.dumps(config).encode())

        heard: list[str] = []
        note = controller._note
        monkeypatch.setattr(controller, "_note", lambda path: (heard.append(path), note(path)))
        set_min_isr(2)
        await reached(lambda: where in heard)
        await reached(lambda: not (controller._changed_configs or controller._changed_cluster))
        await cluster.settle()
        heard.clear()
        monkeypatch.setattr(controller, "_note", heard.append)
        set_min_isr(3)
        await reached(lambda: heard)
        assert least_in_sync(controller) == 2
        with monkeypatch.context() as patch:
            patch.setattr(type(controller.coordination), "away", True)
            note(where)
            with pytest.raises(KafkaError, match="nothing was changed"):
                await controller._take_configs()
        controller.brokers_changed.set()
        await reached(lambda: least_in_sync(controller) == 3)

    run(story)


def test_settings_of_many_topics_are_applied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time, the settings of all topics are copied."""
    applied = []

    def count(self: ControllerState, writes: Mapping[str, int]) -> ControllerState:
        applied.append(set(writes))
        return with_writes(self, writes)

    with_writes = ControllerState.with_writes
    monkeypatch.setattr(ControllerState, "with_writes", count)

    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        names = {"a", "b", "c"}
        for name in names:
            await controller.create_topic(NewTopic(name, 1, 2, {}, {"min.insync.replicas": "2"}))
        await reached(lambda: names <= controller.state.setting_writes.keys())
        controller.state = controller.state.with_writes(dict.fromkeys(names, -1))
        applied.clear()
        assert set(await controller.read_configs_of(names)) == names
        assert applied == [names]
        assert min(controller.state.setting_writes[name] for name in names) >= 0

    run(story)
