"""Controller and state doubts.py: logs with later leader epochs than the coordination store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kstore.broker.runtime.controller.doubts import ControllerDoubts
from kstore.broker.state.controller.doubts import (
    FIRST_BY_CLOCK,
    LARGEST_EPOCH,
    MOST_BY_CLOCK,
    START_MS,
    UNKNOWN_PARTITIONS,
    epochs_by_clock,
)
from kstore.broker.state.controller.state import ControllerState
from kstore.broker.state.metadata.image import PartitionImage
from kstore.broker.state.metadata.topic_rules import NewTopic
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.reference.controller_host import Cluster, run

T0 = "t", 0
Ends = dict[int, tuple[int, int]]


@pytest.fixture(autouse=True, params=[False], ids=[""])
def keeps_elr(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With eligible replicas, a partition waits for these first."""
    keeps = property(lambda _: request.param)
    monkeypatch.setattr(ControllerState, "keeps_elr", keeps)


async def restarted(cluster: Cluster, ends: Ends, *, away: tuple[int, ...] = ()) -> None:
    """A partition on three brokers that have restarted, with these log ends (epoch, offset)."""
    await cluster.controller.create_topic(NewTopic("t", -1, -1, {0: (0, 1, 2)}))
    await cluster.settle()
    await cluster.controller.close()
    for node in cluster.nodes.values():
        node.stop()
    for node_id, end in ends.items():
        cluster.nodes[node_id].log_ends[T0] = end
    for node in cluster.nodes.values():
        if node.node_id not in away:
            node.start()
    await cluster.elect()
    await cluster.settle()


def now(cluster: Cluster) -> PartitionImage:
    return cluster.controller.state.topics["t"].partitions[0]


@pytest.mark.parametrize("keeps_elr", [False, True], ids=["no elr", "elr"], indirect=True)
@pytest.mark.parametrize(
    ("ends", "leader", "isr"),
    [
        ({0: (8, 50), 1: (8, 50), 2: (8, 50)}, 0, (0, 1, 2)),
        ({0: (5, 50), 1: (8, 60), 2: (8, 61)}, 2, (2,)),
        ({0: (5, 90), 1: (8, 60), 2: (8, 60)}, 1, (1, 2)),
        ({0: (-1, 0), 1: (-1, 0), 2: (1 << 20, 1)}, 2, (2,)),
    ],
)
def test_the_furthest_log_leads_above_all_epochs(
    ends: Ends, leader: int, isr: tuple[int, ...]
) -> None:
    async def story(cluster: Cluster) -> None:
        await restarted(cluster, ends)
        await reached(lambda: now(cluster).leader >= 0 and now(cluster).leader_epoch > 500)
        await cluster.settle()
        state = now(cluster)
        assert (state.leader, state.isr, state.elr, state.recovering) == (leader, isr, (), False)
        assert state.leader_epoch > max(latest for latest, _ in ends.values())
        for node in cluster.nodes.values():
            assert node.hosted[T0].leader == leader
            assert node.hosted[T0].leader_epoch == state.leader_epoch

    run(story)


def test_after_a_second_restore_epochs_are_above_those_after_the_first() -> None:
    """No log at hand has one of them: the leader that had them appended nothing."""

    async def story(cluster: Cluster) -> None:
        ends = {0: (8, 50), 1: (8, 50), 2: (8, 50)}
        given = []
        for since_start in (FIRST_BY_CLOCK + 10_000, FIRST_BY_CLOCK + 17_000):
            cluster.now_ms = START_MS + since_start * 1000
            await restarted(cluster, ends)
            await reached(lambda: now(cluster).leader >= 0 and now(cluster).leader_epoch > 500)
            given.append(now(cluster).leader_epoch)
            await cluster.controller.delete_topic("t")
        assert FIRST_BY_CLOCK + 10_000 < given[0] < FIRST_BY_CLOCK + 17_000 < given[1]

    run(story)


def test_a_topic_that_is_made_after_a_restore_has_a_partition_epoch_that_none_had_before() -> None:
    """Topics that were made after the copy had the epochs that follow in the restored store."""

    async def story(cluster: Cluster) -> None:
        ends = {0: (8, 50), 1: (8, 50), 2: (8, 50)}
        given = []
        for since_start in (FIRST_BY_CLOCK + 10_000, FIRST_BY_CLOCK + 17_000):
            cluster.now_ms = START_MS + since_start * 1000
            await restarted(cluster, ends)
            await reached(lambda: now(cluster).leader >= 0 and now(cluster).leader_epoch > 500)
            made = await cluster.controller.create_topic(NewTopic("made", -1, -1, {0: (0, 1, 2)}))
            given.append(made.partitions[0].partition_epoch)
            await cluster.settle()
            for node in cluster.nodes.values():
                assert node.max_partition_epoch == given[-1], "clients learn it"
            await cluster.elect()  # without a doubt
            assert cluster.controller.state.partition_epoch == given[-1]
            await cluster.controller.delete_topic("t")
            await cluster.controller.delete_topic("made")
        left_out = UNKNOWN_PARTITIONS + 1
        assert given[0] == FIRST_BY_CLOCK + 10_000 + left_out
        assert given[1] > given[0] + UNKNOWN_PARTITIONS

    run(story)


@pytest.mark.parametrize("since_start", [-1, FIRST_BY_CLOCK - 1, MOST_BY_CLOCK + 1, 1 << 31])
def test_a_clock_that_is_certainly_wrong_gives_no_epoch(since_start: int) -> None:
    """A log with an epoch above the largest would refuse every later role."""

    async def story(cluster: Cluster) -> None:
        cluster.now_ms = START_MS + since_start * 1000
        await restarted(cluster, {0: (8, 50), 1: (8, 50), 2: (8, 50)})
        await reached(lambda: now(cluster).leader >= 0 and now(cluster).leader_epoch > 500)
        assert now(cluster).leader_epoch < 1000

    run(story)


def test_epochs_that_a_clock_may_have_given() -> None:
    def are_possible(*epochs: int, since_start: int) -> list[bool]:
        found = epochs_by_clock(START_MS + since_start * 1000)
        return [epoch in found for epoch in epochs]

    now, day = FIRST_BY_CLOCK + 1_000_000, 86_400
    asked = FIRST_BY_CLOCK - 1, FIRST_BY_CLOCK, now + day, now + day + 1
    assert are_possible(*asked, since_start=now) == [False, True, True, False]
    assert are_possible(*asked, since_start=-1) == [False] * 4
    assert are_possible(LARGEST_EPOCH, LARGEST_EPOCH + 1, since_start=1 << 31) == [True, False]


def test_the_partition_waits_for_all_of_its_replicas() -> None:
    """Also with the next controller; the replica that is away may have more."""

    async def story(cluster: Cluster) -> None:
        await restarted(cluster, {0: (8, 50), 1: (8, 50), 2: (9, 60)}, away=(2,))
        await reached(lambda: now(cluster).leader_epoch > 500)
        for _ in range(2):
            await cluster.settle()
            state = now(cluster)
            assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), ())
            await cluster.controller.close()
            await cluster.elect()
        cluster.nodes[2].start()
        await reached(lambda: now(cluster).leader >= 0)
        assert (now(cluster).leader, now(cluster).isr) == (2, (2,))
        assert now(cluster).leader_epoch == state.leader_epoch + 1

    run(story)


def test_an_answer_from_before_a_brokers_restart_does_not_count() -> None:
    async def story(cluster: Cluster) -> None:
        await restarted(cluster, {0: (8, 50), 1: (8, 50), 2: (9, 60)}, away=(2,))
        await reached(lambda: now(cluster).leader_epoch > 500)
        await cluster.settle()
        cluster.nodes[0].stop()
        await cluster.settle()
        cluster.nodes[2].start()
        await cluster.settle()
        assert now(cluster).leader == -1
        cluster.nodes[0].start()
        await reached(lambda: now(cluster).leader >= 0)
        assert now(cluster).leader == 2

    run(story)


def test_an_unclean_election_decides_earlier() -> None:
    """A replica that comes later follows, although its log had more."""

    async def story(cluster: Cluster) -> None:
        await restarted(cluster, {0: (8, 50), 1: (8, 50), 2: (400, 60)}, away=(2,))
        await reached(lambda: now(cluster).leader_epoch > 500)
        await cluster.settle()
        await cluster.controller.moves.elect_leaders(1, [TopicPartition("t", 0)])
        await cluster.settle()
        assert now(cluster).leader == 0
        cluster.nodes[2].start()
        await cluster.settle()
        assert now(cluster).leader == 0
        assert cluster.nodes[2].hosted[T0].leader == 0

    run(story)


def test_one_shorter_log_with_a_later_epoch_does_not_decide(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may be one turned bit, in a replica that was not in sync."""

    async def story(cluster: Cluster) -> None:
        await restarted(cluster, {0: (5, 90), 1: (5, 90), 2: (8, 60)})
        await reached(lambda: "Choose with `kstore elect --unclean`" in caplog.text)
        await cluster.settle()
        assert now(cluster).leader == -1
        await cluster.controller.moves.elect_leaders(1, [TopicPartition("t", 0)])
        await cluster.settle()
        assert now(cluster).leader >= 0

    run(story)


def test_an_impossible_epoch_changes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        await restarted(cluster, {1: (LARGEST_EPOCH + 1, 50)})
        await cluster.settle()
        assert now(cluster).leader >= 0
        assert now(cluster).leader_epoch < 500

    run(story)


@pytest.mark.parametrize("how", ["is deleted", "is elected uncleanly"])
def test_the_ends_of_a_partition_that_waits_no_more_are_forgotten(how: str) -> None:
    async def story(cluster: Cluster) -> None:
        await restarted(cluster, {0: (8, 50), 1: (8, 50)}, away=(2,))
        await reached(lambda: now(cluster).leader_epoch > 500)
        known = cluster.controller.doubts._ends
        await reached(lambda: known.get(T0, {}).keys() == {0, 1})
        if how == "is deleted":
            await cluster.controller.delete_topic("t")
        else:
            await cluster.controller.elect_leaders(1, [TopicPartition("t", 0)])
        await reached(lambda: not known)

    run(story)


def test_an_answer_about_many_partitions_lets_others_run_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kstore.broker.runtime.slices.SLICE_S", 0)  # each piece takes a whole slice
    turn = 0
    decided: list[int] = []
    decide = ControllerDoubts._decide

    def counted(*arguments: Any) -> Any:
        decided.append(turn)
        return decide(*arguments)

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def story(cluster: Cluster) -> None:
        places = [("t", index) for index in range(20)]
        assignments = {index: (0, 1, 2) for _, index in places}
        await cluster.controller.create_topic(NewTopic("t", -1, -1, assignments))
        await cluster.settle()
        await cluster.controller.close()
        for node in cluster.nodes.values():
            node.stop()
            node.log_ends |= dict.fromkeys(places, (8, 50))
            node.start()
        monkeypatch.setattr(ControllerDoubts, "_decide", counted)
        others = asyncio.get_running_loop().create_task(take_turns())
        await cluster.elect()

        def all_doubted() -> bool:
            partitions = cluster.controller.state.topics["t"].partitions
            return all(each.leader_epoch > 500 for each in partitions)

        await reached(all_doubted)
        others.cancel()
        assert len(decided) >= 20
        assert len(set(decided)) == len(decided)

    run(story)
