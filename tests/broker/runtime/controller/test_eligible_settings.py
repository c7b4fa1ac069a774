"""Eligible replicas by settings of which the controller has not heard yet."""

from __future__ import annotations

import json

import pytest

from kstore.broker.state.metadata.image import PartitionImage
from kstore.broker.state.metadata.topic_rules import NewTopic
from tests.beside.waiting import reached
from tests.reference.controller_host import Cluster, run


@pytest.mark.parametrize("how", ["shuts down", "loses its log dir", "does not answer"])
@pytest.mark.parametrize("least", [1, 2])
def test_who_is_eligible_follows_from_the_settings_that_hold_when_a_leader_ends(
    how: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With min.insync.replicas=1 the leader alone has committed more than who left the ISR has."""

    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topic(NewTopic("t", 1, 2, {}, {"min.insync.replicas": "2"}))
        await cluster.settle()
        leader = cluster.leader("t", 0)
        await leader.propose("t", 0, [leader.node_id])

        def partition() -> PartitionImage:
            return controller.state.topics["t"].partitions[0]

        [left] = partition().elr
        # The controller has not heard of it yet.
        config = {"version": 1, "config": {"min.insync.replicas": str(least)}}
        cluster.store.set("/config/topics/t", json.dumps(config).encode())
        if how == "shuts down":
            await controller.controlled_shutdown(leader.node_id, leader.epoch)
        elif how == "loses its log dir":
            controller.replicas_failed(controller.state.brokers[leader.node_id], {("t", 0)})
            await reached(lambda: partition().leader != leader.node_id)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(type(controller.growth), "under_way", {"t": None})
                await controller.exclusively(controller.growth._fence, "t", {leader.node_id})
        assert (partition().leader == left) == (least == 2)

    run(story)
