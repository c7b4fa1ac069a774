"""Topics are created, grown and deleted while brokers stop; the next controller finishes it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from kstore.broker.coordination import znodes
from kstore.broker.coordination.store import StoreClosedError
from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from tests.beside.waiting import reached
from tests.reference.controller_host import Cluster, fail_once, run


def test_a_log_dir_that_hangs_holds_back_nothing_but_its_own_deletions() -> None:
    async def story(cluster: Cluster) -> None:
        old = await cluster.controller.create_topic(NewTopic("old", 1, 3))
        await cluster.settle()
        hanging = cluster.nodes[1]
        hanging.hangs = True
        await cluster.controller.delete_topic("old")
        await cluster.controller.create_topic(NewTopic("new", 1, 3))
        await cluster.settle()
        assert ("new", 0) in hanging.hosted
        assert hanging.deleted == []
        hanging.hangs = False
        await reached(lambda: not cluster.controller.state.deletions)
        assert hanging.deleted == [(old.topic_id, 0)]

    run(story)


def test_a_deleted_topic_is_gone_from_all_live_brokers_and_its_name_is_free() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", 2, 3))
        await cluster.controller.delete_topic("t")
        for node in cluster.nodes.values():
            assert sorted(node.deleted) == [(made.topic_id, 0), (made.topic_id, 1)]
            assert not node.hosted
        await cluster.settle()
        assert cluster.nodes[0].max_partition_epoch == 3
        assert cluster.controller.state.deletions == {}
        assert cluster.store.children("/admin/replica_deletions") == []
        assert cluster.store.children("/admin/delete_topics") == []
        again = await cluster.controller.create_topic(NewTopic("t", 1, 3))
        assert again.partitions[0].partition_epoch == 4

    run(story)


def test_a_broker_that_was_away_deletes_what_was_deleted_meanwhile() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("t", 1, 3))
        cluster.nodes[2].stop()
        await cluster.settle()
        await cluster.controller.delete_topic("t")
        await cluster.controller.create_topic(NewTopic("t", 1, 2))
        await cluster.controller.close()
        await cluster.elect()
        cluster.nodes[2].start()
        await cluster.settle()
        await reached(lambda: cluster.nodes[2].deleted == [(made.topic_id, 0)])
        await reached(lambda: not cluster.controller.state.deletions)

    run(story)


def test_an_expansion_waits_for_the_leaders() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 2, 3))
        await cluster.settle()
        silent = cluster.leader("t", 1)
        silent.mute = True
        other = next(node for node in cluster.nodes.values() if node is not silent)
        growing = asyncio.ensure_future(cluster.controller.add_partitions(NewPartitions("t", 4)))
        await reached(lambda: other.counts["t"] == 4)
        assert other.hosted["t", 0].leader_epoch == 1
        assert len(cluster.controller.state.topics["t"].partitions) == 2
        assert not cluster.store.exists("/brokers/topics/t/partitions/2")
        silent.mute = False
        await growing
        await cluster.settle()
        partitions = cluster.controller.state.topics["t"].partitions
        assert [p.prior_leader_epochs for p in partitions[2:]] == [((0, 0), (1, 0))] * 2
        assert [p.partition_epoch for p in partitions] == [1, 2, 3, 4]
        assert ("t", 3) in silent.metadata
        assert cluster.store.children("/admin/expansions") == []

    run(story)


@pytest.mark.parametrize("step", range(1, 6))
def test_an_expansion_is_finished_by_the_next_controller_wherever_it_stopped(step: int) -> None:
    """The step-th write of the old controller fails, as if its process had ended."""

    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topic(NewTopic("t", 2, 3))
        await cluster.settle()
        writes = 0
        real = controller.store._multi

        def counted(ops: list[Any]) -> None:
            nonlocal writes
            writes += 1
            if writes == step:
                raise StoreClosedError("crashed")
            real(ops)

        controller.store._multi = counted  # type: ignore[method-assign]
        with suppress(TopicError):
            await controller.add_partitions(NewPartitions("t", 4))
        begun = cluster.store.get("/brokers/topics/t")[0].count(b"],") > 3
        await controller.close()
        old = cluster.nodes[1]
        old.stop()
        old.start()
        await cluster.elect()
        controller = cluster.controller
        if writes > 1 or begun:
            await reached(lambda: len(controller.state.topics["t"].partitions) == 4)
        await cluster.settle()
        partitions = controller.state.topics["t"].partitions
        if len(partitions) == 2:
            assert writes == step == 1
            return
        for partition in partitions[2:]:
            assert partition.prior_leader_epochs == ((0, 0), (1, 0))
        for index in (0, 1):
            assert partitions[index].leader_epoch >= 1
        assert cluster.store.children("/admin/expansions") == []
        assert not controller.state.expansions
        for node in cluster.nodes.values():
            assert node.counts["t"] == 4
        assert [p.partition_epoch for p in partitions] == [1, 2, 3, 4]

    run(story)


def test_new_partitions_come_after_all_know_the_new_count_though_the_store_failed_between() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()
        silent = cluster.leader("t", 0)
        silent.mute = True
        other = next(node for node in cluster.nodes.values() if node is not silent)
        growing = asyncio.ensure_future(cluster.controller.add_partitions(NewPartitions("t", 2)))
        await reached(lambda: other.counts["t"] == 2)
        await fail_once(cluster)
        await reached(lambda: cluster.controller.generation == 2)
        assert len(cluster.controller.state.topics["t"].partitions) == 1
        assert not growing.done()
        silent.mute = False
        await growing
        assert len(cluster.controller.state.topics["t"].partitions) == 2

    run(story)


def test_a_half_made_topic_and_a_half_deleted_one_are_finished() -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.controller.create_topic(NewTopic("gone", 2, 3))
        await cluster.controller.create_topic(NewTopic("half", 2, 3))
        await cluster.controller.close()
        cluster.store.delete("/brokers/topics/half/partitions/1/state")
        cluster.store.delete("/brokers/topics/half/partitions/1")
        mark = {"version": 1, "topic_id": znodes.encode_id(made.topic_id)}
        cluster.store.create("/admin/delete_topics/gone", json.dumps(mark).encode())
        cluster.store.delete("/brokers/topics/gone/partitions/0/state")
        await cluster.elect()
        await reached(lambda: len(cluster.controller.state.topics["half"].partitions) == 2)
        assert not cluster.store.exists("/brokers/topics/gone")
        assert not cluster.store.exists("/admin/delete_topics/gone")
        assert cluster.controller.state.topics["half"].partitions[1].partition_epoch == 5
        assert cluster.controller.state.topics["half"].partitions[1].prior_leader_epochs == ()

    run(story)


def test_a_large_topic_takes_several_writes_and_few_messages() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.create_topic(NewTopic("t", 600, 3))
        await cluster.settle()
        assert [p.partition_epoch for p in cluster.controller.state.topics["t"].partitions] == [
            *range(1, 601)
        ]
        cluster.nodes[0].stop()
        await cluster.settle()
        heard = len(cluster.nodes[1].heard)
        assert heard <= 2 + 2 * 2 * 3
        assert all(p.leader > 0 for p in cluster.controller.state.topics["t"].partitions)
        await cluster.controller.delete_topic("t")
        assert len(cluster.nodes[1].deleted) == 600

    run(story)
