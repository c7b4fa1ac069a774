"""broker/state/controller/eligible.py and election.py: the eligible replicas outside an ISR
(KIP-966), and the leader. The states are those of a Kafka 4.3.1 whose brokers were stopped and
killed in the same order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest

from kstore.broker.state.controller import election, events, reassignment_steps
from kstore.broker.state.controller.eligible import Rules, settled
from kstore.broker.state.controller.state import ControllerState
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, PartitionImage, TopicImage

RULES = Rules(2)
REPLICAS = (2, 3, 4)


def partition(leader: int, isr: tuple[int, ...], *elr: int, **more: Any) -> PartitionImage:
    least = 2 if elr else 0
    return PartitionImage(leader, 5, REPLICAS, isr, elr=elr, elr_min_isr=least)._replace(**more)


def after(
    known: PartitionImage, alive: Collection[int], rules: Rules = RULES, **how: Any
) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR, ELR and last known ELR once these brokers are alive."""
    new = election.after_change(known, alive, rules=rules, **how) or known
    new = settled(known, new, rules)
    return new.leader, new.isr, new.elr, new.last_known_elr


def test_with_enough_in_sync_nobody_else_is_eligible() -> None:
    assert after(partition(2, REPLICAS), {2, 3}) == (2, (2, 3), (), ())


def test_who_leaves_an_isr_below_min_isr_is_eligible() -> None:
    assert after(partition(2, (2, 3)), {2}) == (2, (2,), (3,), ())


def test_the_last_leaves_an_empty_isr_and_is_known_as_the_last_leader() -> None:
    assert after(partition(2, (2,), 3), set()) == (-1, (), (2, 3), (2,))


def test_who_is_alive_and_neither_in_sync_nor_eligible_does_not_lead() -> None:
    leaderless = partition(-1, (), 2, 3, last_known_elr=(2,))
    assert after(leaderless, {4}) == (-1, (), (2, 3), (2,))


def test_who_is_eligible_and_comes_back_leads_and_the_others_stay_eligible() -> None:
    leaderless = partition(-1, (), 2, 3, last_known_elr=(2,))
    assert after(leaderless, {3, 4}) == (3, (3,), (2,), ())


def test_after_an_unclean_shutdown_nobody_is_eligible() -> None:
    leaderless = partition(-1, (), 2, 3, last_known_elr=(2,))
    rules = RULES._replace(unclean={3})
    assert after(leaderless, {3, 4}, rules) == (-1, (), (2,), (2,))


def test_who_led_last_leads_when_nobody_is_eligible_any_more() -> None:
    leaderless = partition(-1, (), 2, last_known_elr=(2,))
    rules = RULES._replace(unclean={2})
    new = election.after_change(leaderless, {2, 3}, rules=rules)
    assert new is not None
    new = settled(leaderless, new, rules)
    assert (new.leader, new.isr, new.elr, new.last_known_elr) == (2, (2,), (), ())
    assert new.recovering


def test_who_led_last_waits_for_those_that_are_eligible() -> None:
    leaderless = partition(-1, (), 2, 3, last_known_elr=(2,))
    rules = RULES._replace(unclean={2})
    assert after(leaderless, {2}, rules) == (-1, (), (3,), (2,))


def test_an_unclean_election_ends_who_is_eligible() -> None:
    leaderless = partition(-1, (), 2, 3, last_known_elr=(2,))
    new = election.after_change(leaderless, {4}, rules=RULES, allow_unclean=True)
    assert new is not None
    new = settled(leaderless, new, RULES)
    assert (new.leader, new.isr, new.elr, new.last_known_elr) == (4, (4,), (), ())
    assert new.recovering


def test_a_leader_in_another_clean_life_leads_again_cleanly() -> None:
    rules = RULES._replace(reborn={2})
    known = partition(2, (2,), 3)
    new = election.after_change(known, {2}, rules=rules)
    assert new is not None
    assert new.leader_epoch == known.leader_epoch + 1
    new = settled(known, new, rules)
    assert (new.leader, new.isr, new.elr, new.recovering) == (2, (2,), (3,), False)


@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_a_partition_needs_no_more_in_sync_than_it_has_replicas(min_isr: int) -> None:
    alone = PartitionImage(2, 0, (2,), (2,))
    assert after(alone, set(), Rules(min_isr)) == (-1, (), (2,), (2,))
    assert after(alone, {2}, Rules(min_isr)) == (2, (2,), (), ())


def test_under_a_lower_min_isr_who_was_eligible_may_lack_what_was_committed_since() -> None:
    known = partition(2, (2, 3), 4, elr_min_isr=3)
    # The leader could commit with two replicas before the controller knew that two are enough.
    shrunk = settled(known, known._replace(isr=(2,)), RULES)
    assert shrunk.elr == (3,)


def test_under_a_lower_min_isr_nothing_was_committed_where_nobody_leads() -> None:
    leaderless = partition(-1, (), 2, 3, last_known_elr=(2,))
    assert after(leaderless, {3}, Rules(1)) == (3, (3,), (), ())


def test_under_a_lower_min_isr_who_was_eligible_is_elected_uncleanly() -> None:
    """It may lack what the leader committed alone, so its log counts as recovering."""
    known = partition(2, (2,), 3, 4, elr_min_isr=3)
    new = election.after_change(known, {3}, rules=Rules(1), allow_unclean=True)
    assert new is not None
    new = settled(known, new, Rules(1))
    assert (new.leader, new.isr, new.elr, new.recovering) == (3, (3,), (), True)


def test_a_higher_min_isr_keeps_who_was_eligible() -> None:
    raised = settled(partition(2, (2,), 3), partition(2, (2,), 3), Rules(3))
    assert (raised.elr, raised.elr_min_isr) == ((3,), 3)


def test_where_none_are_kept_any_more_they_are_the_isr() -> None:
    leaderless = partition(-1, (), 2, 3, last_known_elr=(2,))
    new = election.after_change(leaderless, {3})
    assert new is not None
    new = settled(leaderless, new, None)
    assert (new.leader, new.isr, new.elr, new.last_known_elr) == (3, (3,), (), ())
    assert not new.recovering


def test_who_was_in_sync_when_they_begin_to_be_kept_may_lead() -> None:
    old = PartitionImage(-1, 5, REPLICAS, (2, 3))
    assert after(old, set()) == (-1, (), (2, 3), (2, 3))
    unclean = RULES._replace(unclean={2, 3})
    assert after(old, {3}, unclean) == (3, (3,), (), ())


def unkept(known: PartitionImage, *brokers: int, older: Collection[int] = ()) -> PartitionImage:
    """The result for a partition without eligible replicas, with these brokers alive."""
    end = Endpoint("PLAINTEXT", "localhost", 9000)
    alive = {node: BrokerImage(node, (end,), None, node, node not in older) for node in brokers}
    state = ControllerState(elr_level=int(bool(older))).with_brokers(alive)
    state = state.with_topics(TopicImage("t", UUID(int=1), (known,), {}))
    changes = events.after_brokers_changed(state, "t", range(1))
    return changes[0].image if changes else known


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(("leader", "then"), [(2, (2, (2, 4))), (3, (2, (2, 4)))])
def test_a_controller_that_loads_does_not_trust_who_came_back_uncleanly(
    level: int, leader: int, then: tuple[int, tuple[int, ...]]
) -> None:
    """The controller wrote the state before it knew that the broker had restarted, and ended before
    it learned that.
    """
    end = Endpoint("PLAINTEXT", "localhost", 9000)
    alive = {node: BrokerImage(node, (end,), None, 10 + node) for node in REPLICAS}
    known = partition(leader, REPLICAS)
    state = ControllerState(elr_level=level).with_brokers(alive)
    state = state.with_topics(TopicImage("t", UUID(int=1), (known,), {}))
    written = {("t", 0): 20}
    assert not events.after_brokers_changed(state, "t", range(1), (), written)
    changes = events.after_brokers_changed(
        state, "t", range(1), (), written, unclean=frozenset({3})
    )
    assert (changes[0].image.leader, changes[0].image.isr) == then


def test_nobody_stays_eligible_under_a_live_leader_where_none_are_kept() -> None:
    new = unkept(partition(2, (2,), 3), 2, 3)
    assert (new.leader, new.isr, new.elr) == (2, (2,), ())


def test_an_older_version_that_comes_back_is_not_eligible() -> None:
    """It does not say whether its last life ended cleanly."""
    leaderless = partition(-1, (), 3, last_known_elr=(2,))
    new = unkept(leaderless, 3, older={3})
    assert (new.leader, new.isr, new.elr) == (-1, (2,), ())


def test_who_is_no_replica_any_more_is_not_eligible() -> None:
    new = reassignment_steps.begin(partition(2, (2, 3), 4), (2,), {2, 3, 4})
    assert new is not None
    assert (new.replicas, new.isr, new.elr) == ((2,), (2,), ())
