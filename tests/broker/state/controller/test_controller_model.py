"""broker/state/controller/events.py and the files next to it: the rules for every partition after
every step of random histories of brokers, proposals, elections and reassignments.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kstore.broker.state.controller import election, eligible, events
from kstore.broker.state.controller import reassignment_steps as steps
from kstore.broker.state.controller.eligible import Rules
from kstore.broker.state.controller.state import ControllerState, PartitionChange
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, PartitionImage, TopicImage
from kstore.errors import ErrorCode

NODES = range(5)
SAFE, UNSAFE = "safe", "unsafe"
INDEXES = range(3)

nodes = st.sampled_from(NODES)
places = st.tuples(st.sampled_from([SAFE, UNSAFE]), st.sampled_from(INDEXES))
replica_sets = st.lists(nodes, min_size=1, max_size=3, unique=True)


class Controller(RuleBasedStateMachine):
    """The state, and for each partition the brokers that have all its committed records."""

    keeps_elr = False

    def __init__(self) -> None:
        super().__init__()
        self.state = ControllerState(elr_level=int(self.keeps_elr))
        self.min_isr = {SAFE: 1, UNSAFE: 1}
        """What leaders go by; the controller may not have heard of it yet."""
        self.writes = {SAFE: 1, UNSAFE: 1}
        """How often it was written."""
        self.registered: dict[int, BrokerImage] = {}
        self.epoch = 0
        self.complete: dict[tuple[str, int], set[int]] = {}
        for node in NODES:
            self._register(node)
        self.state = self.state.with_brokers(self.registered)
        for number, name in enumerate((SAFE, UNSAFE)):
            partitions = []
            for index in INDEXES:
                replicas = tuple((index + place) % len(NODES) for place in range(3))
                partitions.append(PartitionImage(replicas[0], 0, replicas, replicas))
                self.complete[name, index] = set(replicas)
            configs = {"unclean.leader.election.enable": str(name == UNSAFE).lower()}
            topic = TopicImage(name, UUID(int=number + 1), tuple(partitions), configs)
            self.state = self.state.with_topics(topic)
        self._hear()

    def _register(self, node: int) -> None:
        self.epoch += 1
        end = Endpoint("PLAINTEXT", "localhost", 9000 + node)
        self.registered[node] = BrokerImage(node, (end,), None, self.epoch, self.keeps_elr)

    # ---- what happens ----

    def _brokers_changed(self, unclean: frozenset[int] = frozenset()) -> None:
        difference = self.state.compare(self.registered)
        touched = difference.left | difference.joined
        self.state = self.state.with_brokers(self.registered).without_offline(touched)
        self._hear()
        for name in self.state.topics:
            self._take(
                events.after_brokers_changed(
                    self.state, name, INDEXES, difference.left, unclean=unclean
                )
            )
        for name, index, partition in self.state.partitions():
            if partition.leader != -1:
                for node in difference.left & difference.joined:
                    assert node not in partition.isr or partition.isr == (node,), (name, index)

    @rule(node=nodes)
    def join(self, node: int) -> None:
        """Or another life of one that is there."""
        self._register(node)
        self._brokers_changed()

    def _hear(self) -> set[str]:
        """The controller reads min.insync.replicas; returns the topics where it has changed."""
        changed = set()
        for name, least in self.min_isr.items():
            topic = self.state.topics[name]
            configs = {**topic.configs, "min.insync.replicas": str(least)}
            if self.writes[name] != self.state.setting_writes.get(name):
                changed.add(name)
                self.state = self.state.with_topics(topic._replace(configs=configs))
                self.state = self.state.with_writes({name: self.writes[name]})
        return changed

    @rule(place=places)
    def write(self, place: tuple[str, int]) -> None:
        """Records are committed: all in sync have them, no other need have them."""
        partition = self._partition(place)
        least = min(self.min_isr[place[0]], len(partition.replicas))
        if partition.leader != -1 and len(partition.isr) >= least:
            self.complete[place] = set(partition.isr)

    @rule(gone=st.sets(nodes, max_size=3), joined=st.sets(nodes, max_size=2))
    def several_at_once(self, gone: set[int], joined: set[int]) -> None:
        for node in gone:
            self.registered.pop(node, None)
        for node in joined:
            self._register(node)
        self._brokers_changed()

    @rule(node=nodes)
    def leave(self, node: int) -> None:
        self.registered.pop(node, None)
        self._brokers_changed()

    @rule(node=nodes)
    def shut_down(self, node: int) -> None:
        if node in self.registered:
            self._hear()
            self.state = self.state.with_leaving(node, self.registered[node].epoch)
            for name in self.state.topics:
                self._take(events.after_brokers_changed(self.state, name, INDEXES))
            able = self.registered.keys() - self.state.leaving.keys()
            for name, index in events.led_by(self.state, node):
                isr = self.state.topics[name].partitions[index].isr
                assert able.isdisjoint(isr), "another in sync could have taken over"

    @rule(node=nodes, place=places)
    def fail_replica(self, node: int, place: tuple[str, int]) -> None:
        if node in self.registered:
            changed = self._hear()
            self.state = self.state.with_offline(node, {place})
            for name in changed | {place[0]}:
                self._take(events.after_brokers_changed(self.state, name, INDEXES))

    @rule(place=places, isr=st.sets(nodes, max_size=4), behind=st.integers(-1, 1), epochs=nodes)
    def propose(self, place: tuple[str, int], isr: set[int], behind: int, epochs: int) -> None:
        partition = self._partition(place)
        leader = partition.leader
        if leader == -1:
            return
        isr = (isr & {*partition.replicas}) | {leader}
        known = {
            node: self.registered[node].epoch if node in self.registered else 0 for node in isr
        }
        if behind == 1:
            known[epochs] = 0
        version = partition.state_version + min(behind, 0)
        answer = events.alter_partition(
            self.state, leader, *place,
            events.Proposal(partition.leader_epoch, version, tuple(sorted(isr)), known),
        )  # fmt: skip
        if answer.change is not None:
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
            assert behind >= 0
            assert all(known[each] == self.registered[each].epoch for each in isr)
            self.complete[place] |= isr
            self._take([answer.change])

    @rule(place=places, isr=st.sets(nodes, max_size=4))
    def resign(self, place: tuple[str, int], isr: set[int]) -> None:
        """A leader that cannot write proposes an ISR without itself: only in-sync replicas."""
        before = self._partition(place)
        others = tuple(sorted((isr & {*before.replicas}) - {before.leader}))
        if before.leader == -1:
            return
        answer = events.alter_partition(
            self.state, before.leader, *place,
            events.Proposal(before.leader_epoch, before.state_version, others),
        )  # fmt: skip
        if answer.change is None:
            assert answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INELIGIBLE_REPLICA)
            return
        assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
        self._take([answer.change])
        after = self._partition(place)
        assert after.leader in others
        assert set(after.isr) <= set(others) <= set(before.isr)
        assert after.leader_epoch == before.leader_epoch + 1

    @rule(place=places, node=nodes, epoch=st.integers(-1, 1))
    def propose_without_right(self, place: tuple[str, int], node: int, epoch: int) -> None:
        partition = self._partition(place)
        if (node, epoch) != (partition.leader, 0):
            proposal = events.Proposal(
                partition.leader_epoch + epoch, partition.state_version, (node,)
            )
            assert events.alter_partition(self.state, node, *place, proposal).change is None

    @rule(places=st.lists(places, max_size=4, unique=True), unclean=st.booleans())
    def elect(self, places: list[tuple[str, int]], unclean: bool) -> None:
        self._take(events.elect(self.state, places, unclean=unclean), unclean=unclean)

    @rule(place=places, replicas=replica_sets)
    def reassign(self, place: tuple[str, int], replicas: list[int]) -> None:
        if set(replicas) <= self.registered.keys():
            self._move(place, replicas)

    @precondition(lambda self: any(steps.in_progress(p) for _, _, p in self.state.partitions()))
    @rule(place=places)
    def cancel(self, place: tuple[str, int]) -> None:
        if steps.in_progress(self._partition(place)):
            self._move(place, None)

    def _move(self, place: tuple[str, int], target: list[int] | None) -> None:
        partition = self._partition(place)
        alive, leaving = self.state.alive(*place), self.state.leaving.keys()
        if target is None:
            new = steps.cancel(partition, alive, leaving)
        else:
            new = steps.begin(partition, target, alive, leaving)
        if new is None:
            return
        dropped = tuple(each for each in partition.replicas if each not in new.replicas)
        self._take([PartitionChange(*place, new, dropped=dropped)])
        now = self._partition(place)
        if target is None:
            assert not steps.in_progress(now)
        else:
            stays = [each for each in now.replicas if each not in now.removing]
            assert stays == target

    # ---- what has to hold ----

    def _partition(self, place: tuple[str, int]) -> PartitionImage:
        found = self.state.partition(*place)
        assert found is not None
        return found

    def _take(self, changes: list[PartitionChange], *, unclean: bool = False) -> None:
        for change in changes:
            place = change.topic, change.partition
            self._check(place, self._partition(place), change, unclean=unclean)
        before = {(c.topic, c.partition): self._partition((c.topic, c.partition)) for c in changes}
        self.state = self.state.with_changes(changes)
        for place, old in before.items():
            assert self._partition(place).state_version == old.state_version + 1

    def _check(
        self, place: tuple[str, int], old: PartitionImage, change: PartitionChange, **how: bool
    ) -> None:
        new = change.image
        assert new != old
        assert new.state_version == old.state_version
        assert new.leader_epoch in (old.leader_epoch, old.leader_epoch + 1)
        if (new.leader, new.replicas) != (old.leader, old.replicas):
            assert new.leader_epoch == old.leader_epoch + 1, "replicas have to hear of it"
        assert set(change.dropped) == set(old.replicas) - set(new.replicas)
        complete = self.complete[place]
        if new.leader != -1 and new.leader not in complete:
            self._may_lose(place, new, **how)
            self.complete[place] = {new.leader}
        if new.leader != -1 and new.leader_epoch > old.leader_epoch:
            alive = self.state.alive(*place)
            assert new.leader in alive
            assert new.leader == old.leader or new.leader not in self.state.leaving
        self.complete[place] &= set(new.replicas)

    def _may_lose(self, place: tuple[str, int], new: PartitionImage, *, unclean: bool) -> None:
        assert new.recovering, "who follows has to know"
        assert place[0] == UNSAFE or unclean, "records are lost without permission"

    def _is_sure(self, name: str, partition: PartitionImage) -> bool:
        """Whether the controller, once it has read the settings, may elect the ELR."""
        unread = self.writes[name] - partition.elr_writes
        return unread <= 1 and self.min_isr[name] >= partition.elr_min_isr

    def _eligible_are_sound(self, place: tuple[str, int], partition: PartitionImage) -> None:
        assert partition.isr, place
        assert not partition.elr
        assert not partition.last_known_elr

    @invariant()
    def partitions_are_sound(self) -> None:
        for name, index, partition in self.state.partitions():
            replicas, isr = set(partition.replicas), set(partition.isr)
            self._eligible_are_sound((name, index), partition)
            assert isr <= replicas
            assert isr <= self.complete[name, index]
            assert len(isr) == len(partition.isr)
            assert len(replicas) == len(partition.replicas)
            assert set(partition.adding) | set(partition.removing) <= replicas
            assert not set(partition.adding) & set(partition.removing)
            alive = self.state.alive(name, index)
            if partition.leader == -1:
                assert not isr & alive - self.state.leaving.keys()
                if name == UNSAFE:
                    able = replicas - set(partition.adding)
                    assert not able & alive - self.state.leaving.keys()
            else:
                assert partition.leader in isr
                assert isr <= alive
                assert steps.complete(partition, alive, self.state.leaving.keys()) is None or (
                    partition.leader in partition.removing
                ), "a reassignment that could be complete is"


class EligibleController(Controller):
    """Eligible leader replicas are tracked; brokers come back from unclean shutdowns, in which they
    lost records, and leaders read min.insync.replicas before the controller does.
    """

    keeps_elr = True

    @rule(name=st.sampled_from([SAFE, UNSAFE]), least=st.integers(1, 3))
    def set_min_isr(self, name: str, least: int) -> None:
        self.min_isr[name] = least
        self.writes[name] += 1

    @rule(name=st.sampled_from([SAFE, UNSAFE]), least=st.integers(1, 2))
    def lower_for_a_moment(self, name: str, least: int) -> None:
        """Leaders commit under the lower value, and the controller reads only the last one."""
        known = self.min_isr[name]
        self.set_min_isr(name, min(least, known))
        for index in INDEXES:
            self.write((name, index))
        self.set_min_isr(name, known)

    @rule()
    def hear(self) -> None:
        self._hear()
        for name in self.state.topics:
            self._take(events.after_brokers_changed(self.state, name, INDEXES))

    @rule(node=nodes)
    def come_back_uncleanly(self, node: int) -> None:
        for complete in self.complete.values():
            complete.discard(node)
        self._register(node)
        self._brokers_changed(frozenset({node}))

    def _may_lose(self, place: tuple[str, int], new: PartitionImage, *, unclean: bool) -> None:
        assert new.recovering
        if place[0] == SAFE and not unclean:
            before = self._partition(place)
            last = before.leader if before.leader != -1 else before.last_known_elr[0]
            assert new.leader == last, "only who led last leads where nobody is eligible"
            fit = {*before.isr, *(before.elr if self._is_sure(place[0], before) else ())}
            assert not self.complete[place] & fit

    def _eligible_are_sound(self, place: tuple[str, int], partition: PartitionImage) -> None:
        isr, elr = set(partition.isr), set(partition.elr)
        assert bool(isr) == (partition.leader != -1), place
        assert elr <= set(partition.replicas) - isr
        known = int(self.state.topics[place[0]].configs["min.insync.replicas"])
        if len(isr) >= min(known, len(partition.replicas)):
            assert not elr
        if not isr:
            able = self.state.alive(*place) - self.state.leaving.keys()
            assert not elr & able
            assert elr or not {*partition.last_known_elr} & able
        if self._is_sure(place[0], partition):
            assert elr <= self.complete[place], "who is eligible has all that is committed"


TestController = Controller.TestCase
TestEligibleController = EligibleController.TestCase
TestController.settings = TestEligibleController.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def _any_replica(
    partition: PartitionImage, alive: Collection[int], leaving: Collection[int] = (), **_: Any
) -> PartitionImage | None:
    """Every partition with a living replica has a leader."""
    if partition.leader in alive and partition.leader not in leaving:
        return None
    able = [each for each in partition.replicas if each in alive]
    if not able:
        return None
    epoch = partition.leader_epoch + 1
    return partition._replace(leader=able[0], isr=(able[0],), leader_epoch=epoch)


def _same_epoch(
    state: ControllerState, topic: str, index: int, before: PartitionImage, new: PartitionImage,
    *_: Any,
) -> PartitionChange:  # fmt: skip
    """Another leader in the epoch of the one before."""
    return PartitionChange(topic, index, new._replace(leader_epoch=before.leader_epoch))


def _empty_isr(partition: PartitionImage, alive: Collection[int], *_: Any, **__: Any) -> Any:
    isr = tuple(each for each in partition.isr if each in alive)
    if isr == partition.isr:
        return None
    leader = next(iter(isr), -1)
    return partition._replace(leader=leader, isr=isr, leader_epoch=partition.leader_epoch + 1)


def _too_early(partition: PartitionImage, *_: Any) -> PartitionImage | None:
    """Completes what has only begun."""
    if not steps.in_progress(partition):
        return None
    kept = tuple(each for each in partition.replicas if each not in partition.removing)
    epoch = partition.leader_epoch + 1
    return partition._replace(
        replicas=kept, adding=(), removing=(), leader=kept[0], isr=(kept[0],), leader_epoch=epoch
    )


def _grants_all(*_: Any) -> int:
    return ErrorCode.NONE


def _unclean_stays(before: PartitionImage, isr: Collection[int], rules: Rules) -> Any:
    """A broker that comes back from an unclean shutdown is as eligible as before."""
    return ELIGIBLE(before, isr, rules._replace(unclean=()))


def _no_end(before: PartitionImage, isr: Collection[int], rules: Rules) -> Any:
    """A replica that was eligible stays eligible, however many are in sync."""
    return tuple(sorted({*before.isr, *before.elr} - {*isr, *rules.unclean}))


def _one_write(before: PartitionImage, isr: Collection[int], rules: Rules) -> Any:
    """What the settings were between several writes does not matter."""
    return ELIGIBLE(before, isr, rules._replace(writes=before.elr_writes))


def _any_last(before: PartitionImage) -> tuple[int, ...]:
    """Any replica counts as the last leader."""
    return before.replicas


ELIGIBLE = eligible.eligible
PLANTED_ELIGIBLE: list[tuple[str, Any]] = [
    ("eligible", _unclean_stays),
    ("eligible", _no_end),
    ("eligible", _one_write),
    ("last_leaders", _any_last),
]


PLANTED: list[tuple[Any, str, Any]] = [
    (election, "after_change", _any_replica),
    (election, "after_change", _empty_isr),
    (events, "_change", _same_epoch),
    (events, "_refuse_proposal", _grants_all),
    (steps, "complete", _too_early),
]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(("module", "name", "planted"), PLANTED)
def test_a_planted_bug_is_noticed(
    module: Any, name: str, planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, planted)
    _is_noticed(Controller)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "planted"), PLANTED_ELIGIBLE)
def test_a_planted_bug_in_who_is_eligible_is_noticed(
    name: str, planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (eligible, election):
        monkeypatch.setattr(module, name, planted)
    _is_noticed(EligibleController)


def _is_noticed(machine: type[Controller]) -> None:
    with pytest.raises((AssertionError, KeyError, BaseExceptionGroup)):
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=3000,  # it ends with the first that fails
                stateful_step_count=20,
                deadline=None,
                database=None,
                phases=[Phase.generate],
            ),
        )
