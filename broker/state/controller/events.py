"""The controller's decisions when brokers start, stop or send proposals: new states of partitions.

This file changes nothing: the runtime writes the changes to the store,
`ControllerState.with_changes` applies them, and then brokers are notified.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kstore.broker.state.controller import election, reassignment_steps
from kstore.broker.state.controller.eligible import Rules, settled, without
from kstore.broker.state.controller.state import ControllerState, PartitionChange
from kstore.broker.state.metadata.image import PartitionImage
from kstore.errors import ErrorCode

__all__ = [
    "IsrAnswer",
    "Proposal",
    "after_brokers_changed",
    "alter_partition",
    "elect",
    "led_by",
    "move",
    "new_partition",
    "raise_epochs",
    "taken_from",
]

NOT_READ: Mapping[tuple[str, int], int] = MappingProxyType({})


def after_brokers_changed(
    state: ControllerState,
    topic: str,
    indexes: Iterable[int],
    reborn: Collection[int] = (),
    written: Mapping[tuple[str, int], int] = NOT_READ,
    unclean: frozenset[int] = frozenset(),
) -> list[PartitionChange]:
    """The changes that these partitions need, given the live brokers.

    ``reborn`` brokers have restarted. ``written`` has the store's transaction that wrote the state
    of a partition that was just read. If a live broker has registered after that, the state is
    about the broker's earlier run, whose last records may be lost. Such a broker leaves the ISR; if
    the ISR has no other replica, one of these brokers leads alone. An ``unclean`` broker may have
    restarted without all of its records, and is no longer eligible. It also leaves the ISR of a
    state that was just read and was written after the restart, since the controller that wrote it
    may not have known of the restart.
    """
    leaving = state.leaving.keys()
    allowed = state.unclean_allowed(topic)
    rules = state.eligible_rules(topic)
    partitions = state.topics[topic].partitions
    changes = []
    for index in indexes:
        partition = partitions[index]
        alive = state.alive(topic, index)
        since = written.get((topic, index))
        lost = {
            each
            for each in partition.isr
            if each in alive
            and (
                each in reborn
                or (since is not None and (each in unclean or state.brokers[each].epoch > since))
            )
        }
        of_this = None
        if rules is not None:
            of_this = rules._replace(reborn=lost, unclean=unclean)
            new = election.after_change(
                partition, alive, leaving, allow_unclean=allowed, rules=of_this
            ) or settled(partition, partition, of_this)
        else:
            # A broker of an older version does not report how its last run ended.
            unsure = unclean | {n for n, b in state.brokers.items() if not b.keeps_elr}
            new = _after_change(partition, alive, leaving, lost, unsure, allow_unclean=allowed)
        if new.leader_epoch != partition.leader_epoch:
            changes.append(_change(state, topic, index, partition, new, of_this))
        elif new != partition:
            changes.append(PartitionChange(topic, index, new))  # only the eligible replicas change
    return changes


def _after_change(
    partition: PartitionImage,
    alive: frozenset[int],
    leaving: Collection[int],
    lost: Collection[int],
    unclean: frozenset[int],
    *,
    allow_unclean: bool,
) -> PartitionImage:
    """The next state if there are no eligible replicas."""
    new = partition
    if not unclean.isdisjoint(partition.elr):
        new = partition._replace(elr=tuple(e for e in partition.elr if e not in unclean))
    if lost:
        new = election.after_change(new, alive.difference(lost), leaving) or new
    new = election.after_change(new, alive, leaving, allow_unclean=allow_unclean) or new
    return without(new._replace(isr=(new.leader,)) if new.leader in lost else new)


def _change(
    state: ControllerState,
    topic: str,
    index: int,
    before: PartitionImage,
    new: PartitionImage,
    rules: Rules | None = None,
) -> PartitionChange:
    """The change from one state to another, in the next leader epoch. Completes a reassignment if
    possible.
    """
    rules = rules or state.eligible_rules(topic)
    new = settled(before, new, rules)
    alive = state.alive(topic, index)
    completed = reassignment_steps.complete(new, alive, state.leaving.keys())
    if completed is not None:
        new = settled(new, completed, rules)
    new = new._replace(leader_epoch=before.leader_epoch + 1)
    return PartitionChange(topic, index, new, dropped=_dropped(before, new))


def elect(
    state: ControllerState, partitions: Iterable[tuple[str, int]], *, unclean: bool
) -> list[PartitionChange]:
    """Elect preferred leaders where possible, or any leader for partitions without one."""
    changes = []
    for name, index in partitions:
        partition = state.partition(name, index)
        if partition is None:
            continue
        alive = state.alive(name, index)
        new = None
        if not unclean:
            new = election.prefer(partition, alive, state.leaving.keys())
        elif partition.leader == election.NO_LEADER:
            new = election.unclean(partition, alive, state.leaving.keys())
        if new is not None:
            changes.append(_change(state, name, index, partition, new))
    return changes


def raise_epochs(
    state: ControllerState, least: Mapping[tuple[str, int], int]
) -> list[PartitionChange]:
    """Raise leader epochs to at least these values, with the same leaders. Exact copies of another
    cluster's logs have that cluster's epochs, and new epochs must be above them.
    """
    changes = []
    for (name, index), epoch in least.items():
        known = state.partition(name, index)
        if known is not None and known.leader_epoch < epoch:
            changes.append(PartitionChange(name, index, known._replace(leader_epoch=epoch)))
    return changes


def move(state: ControllerState, topic: str, index: int, new: PartitionImage) -> PartitionChange:
    """The change to the state ``new`` of a reassignment step."""
    before = state.topics[topic].partitions[index]
    new = settled(before, new, state.eligible_rules(topic))
    return PartitionChange(topic, index, new, dropped=_dropped(before, new))


def led_by(state: ControllerState, node: int) -> list[tuple[str, int]]:
    """The partitions with more than one replica that a broker leads."""
    return [
        (name, index)
        for name, index, partition in state.partitions()
        if partition.leader == node and len(partition.replicas) > 1
    ]


def new_partition(
    state: ControllerState, replicas: tuple[int, ...], silent: Collection[int] = ()
) -> PartitionImage:
    """The state of a new partition. All live replicas are in sync, since there is nothing to copy
    yet. Replicas on brokers that do not answer are not, if there are others.
    """
    alive = tuple(each for each in replicas if each in state.brokers)
    alive = tuple(each for each in alive if each not in silent) or alive
    staying = [each for each in alive if each not in state.leaving]
    leader = next(iter(staying or alive), election.NO_LEADER)
    return PartitionImage(leader, 0, replicas, alive or replicas)


def taken_from(
    state: ControllerState, topic: str, silent: Collection[int]
) -> list[PartitionChange]:
    """Move leadership away from brokers that are alive but do not answer, to other in-sync
    replicas. Partitions without another candidate do not change. The new leader epoch fences the
    former leaders: no replica follows them any more.
    """
    changes = []
    for index, partition in enumerate(state.topics[topic].partitions):
        if partition.leader not in silent:
            continue
        able = state.alive(topic, index) - set(silent)
        rules = state.eligible_rules(topic)
        new = election.after_change(partition, able, state.leaving.keys(), rules=rules)
        if new is not None and new.leader != election.NO_LEADER:
            changes.append(_change(state, topic, index, partition, new))
    return changes


class Proposal(NamedTuple):
    """A leader's proposal for one partition's ISR. Broker epoch -1 matches any."""

    leader_epoch: int
    state_version: int
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int] = {}
    recovering: bool = False


class IsrAnswer(NamedTuple):
    """The result of a proposal: an error code or NONE, and the change to write, if any."""

    error_code: int
    change: PartitionChange | None = None


def alter_partition(
    state: ControllerState, node: int, topic: str, index: int, proposal: Proposal
) -> IsrAnswer:
    """Check a proposal of the broker `node` (KIP-497, KIP-841, KIP-903).

    A proposal that equals the current state is accepted with any version, since it may be a retry
    whose first response was lost. A change that completes a reassignment drops the removed replicas
    and starts a new leader epoch. Then the result is NEW_LEADER_ELECTED, although the ISR was
    accepted. The same applies to a leader that is not in the ISR that it proposes: it cannot write,
    and resigns.
    """
    partition = state.partition(topic, index)
    if partition is None:
        return IsrAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = _refuse_proposal(state, node, topic, index, partition, proposal)
    same = set(proposal.isr) == set(partition.isr) and proposal.recovering == partition.recovering
    if error != ErrorCode.NONE or same:
        return IsrAnswer(error)
    rules = state.eligible_rules(topic)
    new = partition._replace(isr=proposal.isr, recovering=proposal.recovering)
    if node not in proposal.isr:
        able = state.alive(topic, index) - {node}
        led = election.after_change(new, able, state.leaving.keys(), rules=rules)
        if led is None or led.leader == election.NO_LEADER:
            return IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        return IsrAnswer(ErrorCode.NEW_LEADER_ELECTED, _change(state, topic, index, partition, led))
    new = settled(partition, new, rules)
    completed = reassignment_steps.complete(new, state.alive(topic, index), state.leaving.keys())
    if completed is None:
        return IsrAnswer(ErrorCode.NONE, PartitionChange(topic, index, new, notify_replicas=False))
    completed = settled(new, completed, rules)
    change = PartitionChange(topic, index, completed, dropped=_dropped(partition, completed))
    return IsrAnswer(ErrorCode.NEW_LEADER_ELECTED, change)


def _refuse_proposal(
    state: ControllerState,
    node: int,
    topic: str,
    index: int,
    partition: PartitionImage,
    proposal: Proposal,
) -> int:
    if proposal.leader_epoch > partition.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the sender does not know the new one yet
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != node:
        return ErrorCode.INVALID_REQUEST
    isr = set(proposal.isr)
    if proposal.recovering and (len(isr) > 1 or not partition.recovering):
        return ErrorCode.INVALID_REQUEST
    if isr == set(partition.isr) and proposal.recovering == partition.recovering:
        return ErrorCode.NONE
    if proposal.state_version > partition.state_version:
        return ErrorCode.NOT_CONTROLLER
    if proposal.state_version < partition.state_version:
        return ErrorCode.INVALID_UPDATE_VERSION
    able = partition.replicas if node in isr else partition.isr
    if not isr or len(isr) != len(proposal.isr) or not isr <= set(able):
        return ErrorCode.INVALID_REQUEST
    alive = state.alive(topic, index)
    for each in isr:
        known = proposal.broker_epochs.get(each, -1)
        fenced = each in state.leaving and each != node and each not in partition.isr
        if each not in alive or fenced or known not in (-1, state.brokers[each].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _dropped(before: PartitionImage, after: PartitionImage) -> tuple[int, ...]:
    return tuple(each for each in before.replicas if each not in after.replicas)
