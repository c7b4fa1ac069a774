"""broker/runtime/controller/controller.py: what it writes, and which brokers it notifies."""

from __future__ import annotations

import asyncio
import json

import pytest

from kstore.broker.coordination import config_nodes
from kstore.broker.runtime.controller.channels import MOST_LEADERSHIPS
from kstore.broker.state.metadata.image import PartitionImage
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import ErrorCode
from kstore.protocol.controller.broker_requests import (
    FULL,
    LeaderAndIsrRequest,
    UpdateMetadataRequest,
)
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.reference.controller_host import Cluster, fail_once, run


def test_a_broker_is_told_everything_first_and_in_order() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settle()
        for node in cluster.nodes.values():
            first, second = node.heard[:2]
            assert isinstance(first, UpdateMetadataRequest)
            assert isinstance(second, LeaderAndIsrRequest)
            assert first.type == second.type == FULL
            assert [each.id for each in first.live_brokers] == [0, 1, 2]
            assert first.broker_epoch == second.broker_epoch == node.epoch

    run(story)


def test_a_new_topic_is_told_to_its_replicas_and_known_to_all() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", 3, 2))
        await cluster.settle()
        assert [p.partition_epoch for p in made.partitions] == [1, 2, 3]
        for index, partition in enumerate(made.partitions):
            assert partition.leader == partition.replicas[0]
            assert partition.isr == partition.replicas
            for node in cluster.nodes.values():
                assert node.metadata["t", index].leader == partition.leader
                assert (("t", index) in node.hosted) == (node.node_id in partition.replicas)
                assert node.max_partition_epoch == 3
        assert cluster.leader("t", 0).counts["t"] == 3

    run(story)


def test_a_leader_that_goes_is_replaced_from_the_isr() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()
        first = made.partitions[0].leader
        cluster.nodes[first].stop()
        await cluster.settle()
        state = cluster.controller.state.topics["t"].partitions[0]
        assert state.leader == made.partitions[0].replicas[1]
        assert state.leader_epoch == 1
        assert first not in state.isr
        assert len(state.isr) == 2
        for node in cluster.nodes.values():
            if node.node_id != first:
                assert node.hosted["t", 0].leader == state.leader
                assert node.hosted["t", 0].leader_epoch == 1
                assert node.metadata["t", 0].offline_replicas == [first]

    run(story)


def test_a_broker_that_comes_back_follows_until_it_is_in_sync_and_is_preferred_then() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", 1, 3))
        first = made.partitions[0].leader
        cluster.nodes[first].stop()
        await cluster.settle()
        cluster.nodes[first].start()
        await cluster.settle()
        assert cluster.nodes[first].hosted["t", 0].leader != first
        response = await cluster.leader("t", 0).propose("t", 0, [0, 1, 2])
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        await cluster.settle()
        assert cluster.nodes[first].metadata["t", 0].isr == [0, 1, 2]
        answers = await cluster.controller.moves.elect_leaders(0, None)
        assert list(answers.values()) == [None]
        await cluster.settle()
        assert cluster.nodes[first].hosted["t", 0].leader == first

    run(story)


def test_a_bounce_that_nobody_saw_costs_the_leadership() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", 1, 3))
        first = made.partitions[0].leader
        await cluster.settle()
        await cluster.controller.close()
        cluster.nodes[first].stop()
        cluster.nodes[first].start()
        await cluster.elect()
        await cluster.settle()
        state = cluster.controller.state.topics["t"].partitions[0]
        assert state.leader != first
        assert first not in state.isr
        assert state.leader_epoch == 1

    run(story)


def test_a_new_controller_bumps_nothing_needlessly() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 3, 3))
        before = cluster.controller.state.topics
        await cluster.controller.close()
        await cluster.elect()
        await cluster.settle()
        assert cluster.controller.state.topics == before

    run(story)


def test_the_only_replica_in_sync_is_eligible_when_it_is_gone_and_leads_again() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 1, 1, {}, {}))
        only = cluster.leader("t", 0)
        only.stop()
        await cluster.settle()
        state = cluster.controller.state.topics["t"].partitions[0]
        assert (state.leader, state.isr, state.leader_epoch) == (-1, (), 1)
        assert state.elr == state.last_known_elr == (only.node_id,)
        only.start()
        await cluster.settle()
        state = cluster.controller.state.topics["t"].partitions[0]
        assert (state.leader, state.isr, state.leader_epoch) == (only.node_id, (only.node_id,), 2)

    run(story)


def test_a_proposal_is_refused_for_what_is_wrong_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()
        leader = cluster.leader("t", 0)
        follower = next(n for n in cluster.nodes.values() if n is not leader)

        async def error_of(isr: list[int], **changes: int) -> int:
            known = leader.hosted["t", 0]
            before = {name: getattr(known, name) for name in changes}
            for name, value in changes.items():
                setattr(known, name, value)
            response = await leader.propose("t", 0, isr)
            for name, value in before.items():
                setattr(known, name, value)
            return int(response.topics[0].partitions[0].error_code)

        everybody = [0, 1, 2]
        fewer = [each for each in everybody if each != follower.node_id]
        assert await error_of(fewer, leader_epoch=-1) == ErrorCode.FENCED_LEADER_EPOCH
        assert await error_of(fewer, leader_epoch=5) == ErrorCode.NOT_CONTROLLER
        assert await error_of(fewer, state_version=-1) == ErrorCode.INVALID_UPDATE_VERSION
        await cluster.settle()
        assert await error_of([]) == ErrorCode.INVALID_REQUEST
        assert await error_of([leader.node_id] * 2) == ErrorCode.INVALID_REQUEST
        response = await follower.propose("t", 0, everybody[:2])
        assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
        epoch, leader.epoch = leader.epoch, 0
        assert (await leader.propose("t", 0, fewer)).error_code == ErrorCode.STALE_BROKER_EPOCH
        leader.epoch = epoch
        response = await leader.propose("t", 0, fewer)
        assert response.topics[0].partitions[0].partition_epoch == 1
        epoch, follower.epoch = follower.epoch, 1
        assert await error_of(everybody) == ErrorCode.INELIGIBLE_REPLICA
        follower.epoch = epoch
        assert await error_of(everybody) == ErrorCode.NONE

    run(story)


def test_after_an_unclean_election_a_partition_recovers_until_its_leader_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        configs = {"unclean.leader.election.enable": "true"}
        await cluster.controller.create_topic(NewTopic("t", 1, 3, {}, configs))
        await cluster.settle()
        leader = cluster.leader("t", 0)
        others = [node for node in cluster.nodes.values() if node is not leader]
        await leader.propose("t", 0, [leader.node_id])
        leader.stop()
        await cluster.settle()
        new = cluster.leader("t", 0)
        assert new in others
        assert new.hosted["t", 0].leader_recovery_state == 1

        async def answered(isr: list[int], *, recovering: bool) -> tuple[int, int]:
            response = await new.propose("t", 0, isr, recovering=recovering)
            row = response.topics[0].partitions[0]
            return row.error_code, row.leader_recovery_state

        alive = [node.node_id for node in others]
        assert await answered(alive, recovering=True) == (ErrorCode.INVALID_REQUEST, 1)
        assert await answered([new.node_id], recovering=True) == (ErrorCode.NONE, 1)
        data, _ = cluster.store.get("/brokers/topics/t/partitions/0/state")
        assert json.loads(data)["leader_recovery_state"] == 1
        await cluster.elect()  # the next controller knows it
        await cluster.settle()
        assert cluster.controller.state.topics["t"].partitions[0].recovering
        assert await answered(alive, recovering=False) == (ErrorCode.NONE, 0)
        assert await answered(alive, recovering=True) == (ErrorCode.INVALID_REQUEST, 0)
        data, _ = cluster.store.get("/brokers/topics/t/partitions/0/state")
        assert "leader_recovery_state" not in json.loads(data)

    run(story)


def test_the_feature_and_min_insync_replicas_change_who_is_eligible() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 1, 1))
        only = cluster.leader("t", 0)

        def partition() -> PartitionImage:
            return cluster.controller.state.topics["t"].partitions[0]

        assert cluster.controller.state.keeps_elr
        assert config_nodes.read_configs(cluster.store, "brokers")["<default>"] == {
            "min.insync.replicas": "1"
        }
        only.stop()
        await cluster.settle()
        assert (partition().isr, partition().elr) == ((), (only.node_id,))
        cluster.store.create("/feature", b'{"features":{"eligible.leader.replicas.version":0}}')
        await reached(lambda: not cluster.controller.state.keeps_elr)
        only.start()
        await cluster.settle()
        only.stop()
        await cluster.settle()
        assert (partition().isr, partition().elr) == ((only.node_id,), ())
        cluster.store.set("/feature", b'{"features":{"eligible.leader.replicas.version":1}}')
        await reached(lambda: (partition().isr, partition().elr) == ((), (only.node_id,)))

    run(story)


def test_a_leader_that_wants_out_of_the_isr_is_replaced_from_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()
        leader = cluster.leader("t", 0)
        others = [node for node in cluster.nodes if node != leader.node_id]
        response = await leader.propose("t", 0, others)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NEW_LEADER_ELECTED
        await cluster.settle()
        state = cluster.controller.state.topics["t"].partitions[0]
        assert state.leader in others
        assert set(state.isr) == set(others)
        assert leader.hosted["t", 0].leader == state.leader

    run(story)


def test_a_deposed_controller_writes_nothing_and_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        old = cluster.controller
        await cluster.elect()
        with pytest.raises(TopicError) as caught:
            await old.create_topic(NewTopic("t", 1, 1))
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert not old.active
        assert not cluster.store.exists("/brokers/topics/t")
        await old.close()

    run(story)


def test_a_controlled_shutdown_moves_what_can_be_moved() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 3, 3))
        await cluster.controller.create_topic(NewTopic("single", 3, 1))
        node = cluster.nodes[1]
        left = await cluster.controller.controlled_shutdown(1, node.epoch)
        assert left == []
        await cluster.settle()
        for partition in cluster.controller.state.topics["t"].partitions:
            assert partition.leader != 1
            assert 1 not in partition.isr
        assert any(p.leader == 1 for p in cluster.controller.state.topics["single"].partitions)
        response = await cluster.leader("t", 0).propose("t", 0, [0, 1, 2])
        assert response.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA

    run(story)


def test_a_write_with_unknown_outcome_makes_everything_be_read_and_told_anew() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()
        heard = len(cluster.nodes[1].heard)
        cluster.controller.state = cluster.controller.state.without_topic("t")
        await fail_once(cluster)
        await reached(lambda: "t" in cluster.controller.state.topics)
        await cluster.settle()
        assert [request.type for request in cluster.nodes[1].heard[heard:]] == [FULL, FULL]

    run(story)


def test_while_the_store_is_away_changes_are_refused_at_once_and_nothing_is_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()
        generation = controller.generation
        kind = type(controller.coordination)
        with monkeypatch.context() as patch:
            patch.setattr(kind, "away", True)
            patch.setattr(kind, "multi", lambda self, ops: pytest.fail("it was written to"))
            patch.setattr(kind, "get", lambda self, path: pytest.fail("it was read"))
            with pytest.raises(TopicError, match="nothing was changed") as refused:
                await controller.create_topic(NewTopic("u", 1, 3))
            assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
            response = await cluster.nodes[0].propose("t", 0, [0, 1])
            assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
            node = controller.state.brokers[1]
            controller.replicas_failed(node, {("t", 0)})
            await asyncio.sleep(0)
        await reached(lambda: ("t", 0) in controller.state.offline.get(1, ()))
        assert controller.generation == generation
        await controller.create_topic(NewTopic("u", 1, 3))

    run(story)


def test_a_reassignment_completes_when_what_comes_is_in_sync_and_what_goes_is_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", assignments={0: [0, 1]}))
        await cluster.settle()
        place = TopicPartition("t", 0)
        answers = await cluster.controller.alter_reassignments([(place, [2, 3])])
        assert answers == {place: None}
        [ongoing] = await cluster.controller.list_reassignments()
        assert ongoing == (place, (2, 3, 0, 1), (2, 3), (0, 1))
        await cluster.settle()
        assert cluster.nodes[3].hosted["t", 0].is_new
        await cluster.controller.close()
        await cluster.elect()
        await cluster.settle()
        assert await cluster.controller.list_reassignments() == [ongoing]
        response = await cluster.nodes[0].propose("t", 0, [0, 1, 2, 3])
        code = response.topics[0].partitions[0].error_code
        assert code == ErrorCode.NEW_LEADER_ELECTED
        await cluster.settle()
        partition = cluster.controller.state.topics["t"].partitions[0]
        assert (partition.leader, partition.replicas, partition.isr) == (2, (2, 3), (2, 3))
        assert partition.adding == partition.removing == ()
        for node in (0, 1):
            assert cluster.nodes[node].deleted == [(made.topic_id, 0)]
        await reached(lambda: not cluster.controller.state.deletions)
        assert await cluster.controller.list_reassignments() == []

    run(story, nodes=4)


def test_a_cancelled_reassignment_leaves_the_replicas_that_there_were() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", assignments={0: [0, 1]}))
        place = TopicPartition("t", 0)
        await cluster.controller.alter_reassignments([(place, [3, 0])])
        await cluster.settle()
        answers = await cluster.controller.alter_reassignments([(place, None)])
        assert answers == {place: None}
        await cluster.settle()
        partition = cluster.controller.state.topics["t"].partitions[0]
        assert set(partition.replicas) == {0, 1}
        assert cluster.nodes[3].deleted == [(made.topic_id, 0)]
        answers = await cluster.controller.alter_reassignments([(place, None)])
        assert answers[place] == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)

    run(story, nodes=4)


def test_a_replica_that_cannot_be_opened_does_not_lead() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.nodes[0].unable.add(("t", 0))
        await cluster.controller.create_topic(NewTopic("t", assignments={0: [0, 1]}))
        await reached(lambda: cluster.controller.state.topics["t"].partitions[0].leader == 1)
        await cluster.settle()
        assert cluster.nodes[2].metadata["t", 0].offline_replicas == [0]
        cluster.nodes[0].unable.clear()
        cluster.nodes[0].stop()
        cluster.nodes[0].start()
        await cluster.settle()
        assert cluster.nodes[2].metadata["t", 0].offline_replicas == []

    run(story)


def test_a_broker_that_does_not_answer_holds_nobody_else_up() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settle()
        cluster.nodes[1].mute = True
        for number in range(5):
            await cluster.controller.create_topic(NewTopic(f"t{number}", 1, 2))
        await reached(lambda: len(cluster.nodes[0].metadata) == 5)
        heard = len(cluster.nodes[1].heard)
        cluster.nodes[1].mute = False
        await reached(lambda: len(cluster.nodes[1].metadata) == 5)
        # The missed topics arrive in shared requests.
        assert len(cluster.nodes[1].heard) - heard <= 4

    run(story)


def test_an_election_is_told_before_partitions_that_are_still_to_be_opened() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("old", assignments={0: [0, 1]}))
        await cluster.settle()
        cluster.nodes[1].mute = True
        await cluster.controller.create_topic(NewTopic("one", 1, 3))  # it is busy with this
        large = dict.fromkeys(range(600), (1, 2))
        await cluster.controller.create_topic(NewTopic("large", assignments=large))
        cluster.nodes[0].stop()
        await reached(lambda: cluster.controller.state.topics["old"].partitions[0].leader == 1)
        heard = len(cluster.nodes[1].heard)
        cluster.nodes[1].mute = False
        await cluster.settle()
        told = [r for r in cluster.nodes[1].heard[heard:] if isinstance(r, LeaderAndIsrRequest)]
        names = [[topic.topic_name for topic in request.topic_states] for request in told]
        assert any("old" in each for each in names[:2])
        rows = [sum(len(topic.partition_states) for topic in r.topic_states) for r in told]
        assert max(rows) <= MOST_LEADERSHIPS
        assert len(cluster.nodes[1].hosted) == 602

    run(story)


def test_an_unclean_election_takes_place_once_it_is_allowed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", assignments={0: [0, 1]}))
        cluster.nodes[1].stop()
        await cluster.settle()
        cluster.nodes[0].stop()
        cluster.nodes[1].start()
        await cluster.settle()
        controller = cluster.controller
        assert controller.state.topics["t"].partitions[0].leader == -1
        config_nodes.set_configs(cluster.store, "t", {"unclean.leader.election.enable": "true"})
        await reached(lambda: controller.state.topics["t"].partitions[0].leader == 1)
        assert controller.state.topics["t"].partitions[0].isr == (1,)

    run(story)


def test_what_is_written_is_taken_over_though_nobody_waits_for_it_any_more() -> None:
    async def story(cluster: Cluster) -> None:
        asking = asyncio.ensure_future(cluster.controller.create_topic(NewTopic("t", 1, 3)))
        await asyncio.sleep(0)
        asking.cancel()
        await reached(lambda: "t" in cluster.controller.state.topics)
        await cluster.settle()
        assert ("t", 0) in cluster.nodes[0].metadata

    run(story)


def test_a_controller_that_ends_tells_who_waits_that_it_is_none() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 1, 3))
        cluster.leader("t", 0).mute = True
        growing = asyncio.ensure_future(cluster.controller.add_partitions(NewPartitions("t", 2)))
        await reached(lambda: cluster.controller.state.count("t") == 2)
        await cluster.controller.close()
        with pytest.raises(TopicError) as caught:
            await growing
        assert caught.value.code == ErrorCode.NOT_CONTROLLER

    run(story)
