"""Partition epochs and ordered expansion (KIP-232, KIP-253) on three brokers: all brokers return
the same, producers with the old count are refused, and an expansion survives the end of its
controller.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.broker.coordination.lmdb_store import LmdbStore
from kstore.broker.coordination.store import Create, Set
from kstore.errors import ErrorCode
from kstore.protocol.schema import Message
from tests.beside.waiting import answer_of, until
from tests.broker.harness.topic_client import TopicClient, held
from tests.conformance.kstore_cluster import KstoreCluster
from tests.plain_messages import Ask

pytestmark = pytest.mark.slow

SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # A paused member stays in the group, so the waiting partitions can be seen.
    "kstore.coordination.session.timeout.ms": "60000",
}
ALL = (1, 2, 3)


def client_of(cluster: KstoreCluster, node_id: int) -> TopicClient:
    return TopicClient(cluster.brokers[node_id])


def leader_client(cluster: KstoreCluster, name: str, index: int = 0) -> TopicClient:
    """A client at the leader, once that one knows that it is."""
    return answer_of(
        lambda: client_of(cluster, cluster.wait_for_leader(name, index)),
        lambda client: client.list_offsets(name, index).error_code == 0,
        f"{name}-{index} is led",
    )


def shown(cluster: KstoreCluster, name: str, count: int) -> list[int]:
    """The partition epochs, when all brokers return the same for this number of partitions with a
    leader.
    """
    clients = [client_of(cluster, node) for node in ALL if cluster.runs(node)]
    found: list[tuple[list[int], int]] = []

    def same() -> bool:
        found[:] = []
        for client in clients:
            answer = client.metadata(name)
            [topic] = answer.topics
            if len(topic.partitions) != count or any(p.leader_id < 0 for p in topic.partitions):
                return False
            found.append((client.epochs(name), answer.max_partition_epoch))
        return all(each == found[0] for each in found)

    until(same, f"all brokers tell the same of {name}: {found}")
    return found[0][0]


def test_all_brokers_tell_the_same_epochs(cluster: KstoreCluster) -> None:
    client_of(cluster, 1).create("epochs", 3, 3)
    first = shown(cluster, "epochs", 3)
    assert first == list(range(first[0], first[0] + 3))
    client_of(cluster, 2).grow("epochs", 4)
    grown = shown(cluster, "epochs", 4)
    assert grown[:3] == first
    assert grown[3] > first[2]
    leader = leader_client(cluster, "epochs", 3)
    assert leader.list_offsets("epochs", 3).partition_epoch == grown[3]
    assert leader.fetch("epochs", 3).responses[0].partitions[0].partition_epoch == grown[3]


def test_a_successor_is_newer_everywhere(cluster: KstoreCluster) -> None:
    client_of(cluster, 1).create("again", 1, 3)
    [old] = shown(cluster, "again", 1)
    leader = leader_client(cluster, "again")
    assert leader.produce("again", records=5).error_code == 0
    client_of(cluster, 2).delete("again")
    client_of(cluster, 3).create("again", 1, 3)
    [new] = shown(cluster, "again", 1)
    assert new > old + 1, "the deletion took a number, too"
    until(
        lambda: leader_client(cluster, "again").list_offsets("again").offset == 0,
        "the successor is empty",
    )


def test_a_broker_that_missed_it_keeps_nothing_of_the_predecessor(cluster: KstoreCluster) -> None:
    client_of(cluster, 1).create("missed", 1, 3)
    shown(cluster, "missed", 1)
    assert leader_client(cluster, "missed").produce("missed", records=5).error_code == 0
    away = next(node for node in ALL if node != cluster.leader("missed"))
    cluster.kill(away)
    here = next(node for node in ALL if cluster.runs(node))
    until(lambda: cluster.broker_ids(here) == set(ALL) - {away}, "it is known to be gone")
    client_of(cluster, here).delete("missed")
    others = {0: [node for node in ALL if node != away]}
    cluster.create_topic("missed", replicas={0: [*others[0]]})
    assert leader_client(cluster, "missed").produce("missed", records=2).error_code == 0
    cluster.start(away)
    cluster.wait_for_controller()
    shown(cluster, "missed", 1)
    answer = client_of(cluster, away).fetch("missed").responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader_client(cluster, "missed").list_offsets("missed").offset == 2


def test_who_knows_the_old_number_is_refused_by_every_leader(cluster: KstoreCluster) -> None:
    client_of(cluster, 1).create("count", 3, 3)
    shown(cluster, "count", 3)
    for index in range(3):
        answer = leader_client(cluster, "count", index).produce("count", index, count=3)
        assert answer.error_code == 0
    client_of(cluster, 1).grow("count", 5)
    for index in range(3):
        leader = leader_client(cluster, "count", index)
        answer = leader.produce("count", index, count=3)
        assert answer.error_code == ErrorCode.INVALID_PARTITION_COUNT
        assert leader.produce("count", index, count=5).error_code == 0
    for node in ALL:
        rows = client_of(cluster, node).priors("count", 4).prior_leader_epochs
        assert {row.partition_index for row in rows} == {0, 1, 2}
    epochs = {row.partition_index: row.leader_epoch for row in rows}
    for index, epoch in epochs.items():
        end = leader_client(cluster, "count", index).epoch_end("count", index, epoch)
        assert end.end_offset == 1, "what was written before"


def test_the_old_number_is_refused_before_there_are_new_partitions(cluster: KstoreCluster) -> None:
    """The controller waits for a broker that is stopped; the others already know."""
    controller = cluster.wait_for_controller()
    client_of(cluster, controller).create("before", 3, 3)
    shown(cluster, "before", 3)
    paused = next(node for node in ALL if node != controller)
    led = [i for i in range(3) if cluster.leader("before", i, controller) != paused]
    leaders = {index: leader_client(cluster, "before", index) for index in led}
    asking = client_of(cluster, controller)
    cluster.pause(paused)
    try:
        ask_to_grow(asking, "before", 5)
        for index, leader in leaders.items():
            until(
                lambda index=index, leader=leader: (  # type: ignore[misc]
                    leader.produce("before", index, count=3, acks=1).error_code
                    == ErrorCode.INVALID_PARTITION_COUNT
                ),
                "the old number is refused",
            )
            assert leader.produce("before", index, count=5, acks=1).error_code == 0
            assert len(leader.metadata("before").topics[0].partitions) == 3
    finally:
        cluster.resume(paused)
    asking.answer()
    shown(cluster, "before", 5)


def test_an_expansion_ends_in_time_though_a_leader_stands_still(cluster: KstoreCluster) -> None:
    """Of one topic another replica leads then, and it grows; the other keeps what it has."""
    controller = cluster.wait_for_controller()
    client = client_of(cluster, controller)
    [other, still] = [node for node in ALL if node != controller]
    cluster.create_topic(
        "fenced", replicas={0: (still, other, controller), 1: (other, controller, still)}
    )
    cluster.create_topic("kept", replicas={0: (still,), 1: (controller,)})
    for name in ("fenced", "kept"):
        shown(cluster, name, 2)
    with cluster.admin() as admin:
        admin.alter_configs("", {"kstore.expansion.timeout.ms": "1000"}, resource="broker")
    cluster.pause(still)
    try:
        client.grow("fenced", 3)
        answer = try_to_grow(client, "kept", 3)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert answer.error_message.startswith(
            f"'kept' keeps its 2 partitions: broker {still}, with all in-sync replicas of "
            f"partition 0, did not"
        )
        new = client_of(cluster, other)
        until(lambda: new.produce("fenced", count=3, acks=1).error_code == 0, "another one leads")
        refused = new.produce("fenced", count=2, acks=1)
        assert refused.error_code == ErrorCode.INVALID_PARTITION_COUNT
        until(
            lambda: client.produce("kept", 1, count=2, acks=1).error_code == 0, "it is rolled back"
        )
    finally:
        cluster.resume(still)
    old = client_of(cluster, still)
    until(
        lambda: (
            old.produce("fenced", count=2, acks=1).error_code
            in (ErrorCode.INVALID_PARTITION_COUNT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ),
        "it accepts the old count no more",
    )
    until(lambda: try_to_grow(client, "kept", 3).error_code == 0, "it grows now")
    with cluster.admin() as admin:
        admin.alter_configs("", {"kstore.expansion.timeout.ms": None}, resource="broker")
    shown(cluster, "kept", 3)
    shown(cluster, "fenced", 3)


def test_a_new_partition_waits_for_leaders_on_other_brokers(cluster: KstoreCluster) -> None:
    client_of(cluster, 1).create("ordered", 3, 3, kstore_ordered_expansion="true")
    shown(cluster, "ordered", 3)
    for index in range(3):
        leader = leader_client(cluster, "ordered", index)
        assert leader.produce("ordered", index, records=4).error_code == 0
    coordinator = coordinator_of(cluster, "g")
    joined = coordinator.beat("a", 0, subscribed_topic_names=["ordered"])
    assert held(joined) == [0, 1, 2]
    client_of(cluster, 1).grow("ordered", 4)
    shown(cluster, "ordered", 4)
    member = {"member_id": "a", "generation_id_or_member_epoch": joined.member_epoch}
    assert held(coordinator.beat("a", joined.member_epoch)) is None
    assert coordinator.commit("ordered", {0: 4, 1: 4, 2: 3}, **member) == [0, 0, 0]
    assert held(coordinator.beat("a", joined.member_epoch)) is None
    assert coordinator.commit("ordered", {2: 4}, **member) == [0]
    answers = []

    def moved() -> bool:
        answers.append(coordinator.beat("a", joined.member_epoch))
        return answers[-1].member_epoch > joined.member_epoch

    until(moved, "the group is given the new partition")
    assert held(answers[-1]) == [0, 1, 2, 3]


def coordinator_of(cluster: KstoreCluster, group: str) -> TopicClient:
    """A client at the group's coordinator."""
    request = Ask.FindCoordinator(key_type=0, coordinator_keys=[group])

    def coordinator() -> TopicClient:
        found = client_of(cluster, 1).call(request, 6).coordinators[0]
        return client_of(cluster, found.node_id if found.error_code == 0 else 1)

    has_loaded = f"{group} has a coordinator that has loaded it"
    return answer_of(
        coordinator, lambda client: client.commit("ordered", {0: 0}) == [0], has_loaded
    )


# ---- a controller that ends in the middle ----


def test_an_expansion_is_gone_on_from_wherever_its_controller_ended(tmp_path: Path) -> None:
    """Each topic is left in the store as one of the steps leaves it; all brokers are restarted."""
    with KstoreCluster(tmp_path, overrides=SETTINGS) as cluster:
        cluster.wait_for_controller()
        for name in ("assigned", "half", "bumped"):
            client_of(cluster, 1).create(name, 2, 3)
            shown(cluster, name, 2)
            leader = leader_client(cluster, name, 1)
            assert leader.produce(name, 1, records=6).error_code == 0
        cluster.stop()
        store = LmdbStore(tmp_path / "coordination", shared=True)
        for name, bumps in (("assigned", []), ("half", [1]), ("bumped", [0, 1])):
            leave_half_way(store, name, bumps)
        store.close()
        cluster.start()
        cluster.wait_for_controller()
        for name in ("assigned", "half", "bumped"):
            shown(cluster, name, 4)
            leader = leader_client(cluster, name, 1)
            epochs = {
                row.partition_index: row.leader_epoch
                for row in leader.priors(name, 3).prior_leader_epochs
            }
            assert set(epochs) == {0, 1}
            assert leader.epoch_end(name, 1, epochs[1]).end_offset == 6
            answer = leader.produce(name, 1, count=2)
            assert answer.error_code == ErrorCode.INVALID_PARTITION_COUNT
            until(
                lambda leader=leader, name=name: leader.produce(name, 1, count=4).error_code == 0,  # type: ignore[misc]
                "the new count is taken",
            )
            assert leader.epoch_end(name, 1, epochs[1]).end_offset == 6


def leave_half_way(store: LmdbStore, name: str, bumps: list[int]) -> None:
    """The controller has begun the expansion to four partitions, and bumped these leader epochs."""
    path = f"/brokers/topics/{name}"
    topic = json.loads(store.get(path)[0])
    states = [json.loads(store.get(f"{path}/partitions/{i}/state")[0]) for i in range(2)]
    for index in (2, 3):
        topic["partitions"][str(index)] = topic["partitions"]["0"]
    expansion = {
        "version": 1,
        "topic_id": topic["topic_id"],
        "prior_leader_epochs": {str(i): state["leader_epoch"] for i, state in enumerate(states)},
    }
    store.multi(
        [
            Set(path, json.dumps(topic).encode()),
            Create(f"/admin/expansions/{name}", json.dumps(expansion).encode()),
        ]
    )
    for index in bumps:
        states[index]["leader_epoch"] += 1
        store.set(f"{path}/partitions/{index}/state", json.dumps(states[index]).encode())


def test_an_expansion_survives_kill_9_of_its_controller(tmp_path: Path) -> None:
    with KstoreCluster(tmp_path, overrides=SETTINGS) as cluster:
        cluster.wait_for_controller()
        store = LmdbStore(tmp_path / "coordination", shared=True)
        moments: list[tuple[str, Callable[[str], object]]] = [
            ("asked", lambda name: True),
            ("begun", lambda name: store.exists(f"/admin/expansions/{name}") or made(store, name)),
            ("bumped", lambda name: state_of(store, name, 2)["leader_epoch"] > 0),
            ("made", lambda name: made(store, name)),
        ]
        try:
            for name, has_come in moments:
                kill_while_it_grows(cluster, name, has_come)
        finally:
            store.close()


def kill_while_it_grows(
    cluster: KstoreCluster, name: str, has_come: Callable[[str], object]
) -> None:
    """Kill the controller at that moment or a little later; another one continues."""
    controller = cluster.wait_for_controller()
    client_of(cluster, controller).create(name, 3, 3)
    shown(cluster, name, 3)
    for index in range(3):
        leader = leader_client(cluster, name, index)
        assert leader.produce(name, index, records=index + 1).error_code == 0
    ask_to_grow(client_of(cluster, controller), name, 30)
    until(lambda: has_come(name), "the moment has come", pause_s=0)
    cluster.kill(controller)
    cluster.wait_for_controller(not_=controller)
    cluster.start(controller)
    cluster.wait_for_controller()
    until(lambda: grows(cluster, controller, name), "it grows")
    shown(cluster, name, 30)
    for index in range(3):
        leader = leader_client(cluster, name, index)
        [epoch] = [
            row.leader_epoch
            for row in leader.priors(name, 29).prior_leader_epochs
            if row.partition_index == index
        ]
        assert leader.epoch_end(name, index, epoch).end_offset == index + 1
        refused = leader.produce(name, index, count=3)
        assert refused.error_code == ErrorCode.INVALID_PARTITION_COUNT


def made(store: LmdbStore, name: str) -> bool:
    return store.exists(f"/brokers/topics/{name}/partitions/29")


def state_of(store: LmdbStore, name: str, index: int) -> dict[str, int]:
    state: dict[str, int] = json.loads(
        store.get(f"/brokers/topics/{name}/partitions/{index}/state")[0]
    )
    return state


def growth(name: str, count: int) -> Message:
    topic = {"name": name, "count": count, "assignments": None}
    return Ask.CreatePartitions(topics=[topic], timeout_ms=30_000)


def ask_to_grow(client: TopicClient, name: str, count: int) -> None:
    """Send the request and read no answer."""
    client.put(growth(name, count), 3)


def try_to_grow(client: TopicClient, name: str, count: int) -> Any:
    """The answer, good or bad."""
    return client.call(growth(name, count)).results[0]


def grows(cluster: KstoreCluster, node_id: int, name: str) -> bool:
    """Whether it has grown, or grows once it is asked again."""
    client = client_of(cluster, node_id)
    if len(client.metadata(name).topics[0].partitions) > 3:
        return True
    ask_to_grow(client, name, 30)
    client.answer()
    return False
