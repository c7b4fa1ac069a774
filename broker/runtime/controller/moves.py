"""Requested elections and reassignments, and periodic balancing of leaders. The rules are in
election.py and reassignment_steps.py in state/controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.state.controller import events
from kstore.broker.state.controller import reassignment_steps as steps
from kstore.broker.state.controller.reassignment import (
    UNCLEAN,
    Refusal,
    refuse_election,
    refuse_reassignment,
)
from kstore.broker.state.controller.state import PartitionChange
from kstore.broker.state.metadata.image import PartitionImage
from kstore.errors import ErrorCode, KafkaError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.controller.decisions import Decisions

__all__ = ["ControllerMoves", "Ongoing"]

MAX_ELECTIONS = 1000
"""The limit of elections in one round of balancing, as in Kafka."""


class Ongoing(NamedTuple):
    """An unfinished reassignment."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ControllerMoves:
    """The part of one controller that moves leaderships and replicas."""

    def __init__(self, controller: Decisions) -> None:
        self._controller = controller

    # ---- elections ----

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, Refusal | None]:
        """Elect preferred leaders, or any leader for partitions without one. None means all
        partitions; those that need no election are then left out. Returns for each partition None,
        or why no leader was elected. Raises KafkaError.
        """
        controller = self._controller
        return await controller.exclusively(self._elect, election_type, partitions)

    async def raise_leader_epochs(self, least: Mapping[TopicPartition, int]) -> None:
        """Raise leader epochs to at least these values. The leaders stay the same. Raises
        KafkaError.
        """
        await self._controller.exclusively(self._raise, least)

    async def _raise(self, least: Mapping[TopicPartition, int]) -> None:
        wanted = {(place.topic, place.partition): epoch for place, epoch in least.items()}
        await self._controller.commit(events.raise_epochs(self._controller.state, wanted))

    async def _elect(
        self, election_type: int, requested: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, Refusal | None]:
        controller = self._controller
        state = controller.state
        unclean = election_type == UNCLEAN
        places = requested
        if places is None:
            places = [TopicPartition(name, index) for name, index, _ in state.partitions()]
        changes = events.elect(state, places, unclean=unclean)
        elected = {TopicPartition(change.topic, change.partition) for change in changes}
        answers: dict[TopicPartition, Refusal | None] = {}
        for place in places:
            if place in elected:
                answers[place] = None
                continue
            refusal = refuse_election(state.image, place.topic, place.partition, election_type)
            if requested is not None or refusal.code != ErrorCode.ELECTION_NOT_NEEDED:
                answers[place] = refusal
        await controller.commit(changes)
        return answers

    async def balance_leaders(self) -> None:
        """Periodically move leadership back to preferred leaders."""
        config = self._controller.config
        while self._controller.active:
            await asyncio.sleep(config["leader.imbalance.check.interval.seconds"])
            if config["auto.leader.rebalance.enable"]:
                with suppress(KafkaError):  # the next round tries again
                    await self._controller.exclusively(self._balance)

    async def _balance(self) -> None:
        state = self._controller.state
        places = [(name, index) for name, index, _ in state.partitions()]
        changes = events.elect(state, places, unclean=False)
        await self._controller.commit(changes[:MAX_ELECTIONS])

    # ---- reassignments ----

    async def alter_reassignments(
        self,
        requested: Sequence[tuple[TopicPartition, Sequence[int] | None]],
        *,
        allow_factor_change: bool = True,
    ) -> dict[TopicPartition, Refusal | None]:
        """Begin reassignments, or cancel unfinished ones (None). Returns for each partition None,
        or why it was refused. Raises KafkaError.
        """
        return await self._controller.exclusively(self._alter, requested, allow_factor_change)

    async def _alter(
        self,
        requested: Sequence[tuple[TopicPartition, Sequence[int] | None]],
        allow_factor_change: bool,
    ) -> dict[TopicPartition, Refusal | None]:
        answers: dict[TopicPartition, Refusal | None] = {}
        changes: list[PartitionChange] = []
        for place, target in requested:
            decided = self._move(place, target, allow_factor_change)
            if isinstance(decided, PartitionChange):
                changes.append(decided)
            answers[place] = decided if isinstance(decided, Refusal) else None
        await self._controller.commit(changes)
        return answers

    def _move(
        self, place: TopicPartition, target: Sequence[int] | None, allow_factor_change: bool
    ) -> PartitionChange | Refusal | None:
        """The requested change, or the reason if it is refused, or None if nothing changes."""
        state = self._controller.state
        name, index = place
        partition = state.partition(name, index)
        moving = partition is not None and steps.in_progress(partition)
        if partition is None or target is not None or not moving:
            refusal = refuse_reassignment(
                state.image, name, index, target, allow_factor_change=allow_factor_change
            )
            if refusal is not None:
                return refusal
        assert partition is not None
        alive, leaving = state.alive(name, index), state.leaving.keys()
        if target is None:
            new = steps.cancel(partition, alive, leaving)
        elif tuple(target) == partition.replicas and not moving:
            return None
        else:
            new = steps.begin(partition, target, alive, leaving)
        if new is None:
            words = f"No in-sync replica of {place} that stays can lead it: start one."
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, words)
        return events.move(state, name, index, new)

    async def list_reassignments(
        self, requested: Sequence[TopicPartition] | None = None
    ) -> list[Ongoing]:
        """Unfinished reassignments, of these partitions or of all. Raises KafkaError."""
        return await self._controller.exclusively(self._list, requested)

    async def _list(self, requested: Sequence[TopicPartition] | None) -> list[Ongoing]:
        state = self._controller.state
        wanted = None if requested is None else set(requested)

        def seen(place: TopicPartition, partition: PartitionImage) -> bool:
            return steps.in_progress(partition) and (wanted is None or place in wanted)

        return [
            Ongoing(place, partition.replicas, partition.adding, partition.removing)
            for name, index, partition in state.partitions()
            if seen(place := TopicPartition(name, index), partition)
        ]
