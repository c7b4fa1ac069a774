"""Finds the positions of partitions, and validates existing ones: by committed offsets, by
timestamp, and against the logs of new leaders. core/consumer/positions.py decides what
is needed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Protocol

from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.consumer.inbox import Failure, Loss
from kstore.clients.core.consumer.lost_records import Divergence, lost_records
from kstore.clients.core.consumer.positions import (
    Needs,
    committed_position,
    cut_off,
    needs,
    parse_reset,
    reset_timestamp,
)
from kstore.clients.core.consumer.subscription import AssignedPartition, Position, SubscriptionState
from kstore.clients.core.metadata import ClusterView
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.list_offsets import FoundOffset, epoch_ends, list_offsets_once
from kstore.errors import KafkaError, OffsetOutOfRangeError, UnsupportedVersionError
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["CommittedOffsets", "Placement"]

LATEST = -1
NOWHERE, COMMITTED, BEHIND = -1, -2, -3
"""In place of a leader's id: partitions without a known leader, those that need a committed offset,
and those with newer positions than the metadata.
"""


class CommittedOffsets(Protocol):
    """Looks up the group's committed offsets."""

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition; None or missing: none."""


class Placement:
    """Runs one task per leader, while something is needed. All on the loop.

    `placed` is called when partitions can be fetched, `fail` with errors to raise in poll(), `lose`
    with records that no longer exist.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: Mapping[str, Any],
        subscription: SubscriptionState,
        *,
        group: CommittedOffsets | None,
        placed: Callable[[], None],
        fail: Callable[[Failure], None],
        lose: Callable[[Loss], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._group = group
        self._placed = placed
        self._fail = fail
        self._lose = lose
        self._reset = parse_reset(settings["auto.offset.reset"])
        self._isolation = int(settings["isolation.level"] == "read_committed")
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """By the leader that is asked, or COMMITTED, BEHIND or NOWHERE."""
        self._failures: dict[int, int] = {}
        """In a row, by the same key, while something is needed there."""
        self._is_closed = False
        self._changed = asyncio.Event()
        self._reported: set[tuple[AssignedPartition, int]] = set()
        """Rows, and their versions, whose errors the user has not seen yet."""
        self._lost: dict[TopicPartition, int] = {}
        """The version of a row whose losses were last reported to the user."""

    def kick(self) -> None:
        """Something may have to be placed or checked."""
        self._changed.set()
        self._begin()

    def _begin(self) -> None:
        if self._is_closed:
            return
        parts = self._by_leader(needs(self._rows(), self._cluster.view))
        for key in self._failures.keys() - parts.keys() - self._tasks.keys():
            del self._failures[key]
        for key, found in parts.items():
            if key not in self._tasks:
                task = self._tasks[key] = self._loop.create_task(self._run(key, found))
                task.add_done_callback(partial(self._ended, key, found))
        self._placed()

    def _by_leader(self, found: Needs) -> dict[int, Needs]:
        """What is asked together: one broker that does not answer delays only what it leads."""
        parts: dict[int, Needs] = {}
        if found.commits:
            parts[COMMITTED] = Needs(commits=found.commits)
        if found.metadata:
            parts[BEHIND] = Needs(metadata=found.metadata)
        for row in found.resets:
            parts.setdefault(self._leader(row), Needs()).resets.append(row)
        for row in found.validations:
            parts.setdefault(self._leader(row), Needs()).validations.append(row)
        return parts

    def _leader(self, row: AssignedPartition) -> int:
        try:
            return self._cluster.view.leader(row.tp)
        except KafkaError:
            return NOWHERE

    def _ended(self, key: int, found: Needs, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.kick()
        else:
            self._report_once(
                error if isinstance(error, Exception) else RuntimeError(str(error)), found
            )

    def _report_once(self, error: Exception, found: Needs) -> None:
        """Report an error, once: those without a position wait until the user has seen it."""
        mine = self._subscription.partitions
        rows = [row for part in _all(found) for row in part if mine.get(row.tp) is row]
        missing = [row for row in rows if row.reading and not row.has_position]
        unreported = [row for row in missing if (row, row.version) not in self._reported]
        if unreported:
            self._report(error, unreported)
            self._changed.set()
        elif not missing:
            self._fail(Failure(error))

    def _report(self, error: Exception, rows: Sequence[AssignedPartition]) -> None:
        """Report an error about rows. They wait until the user has seen it."""
        self._reported.update((row, row.version) for row in rows)
        self._fail(Failure(error, rows[0], rows[1:]))

    def raised(self) -> None:
        """The user has seen an error: report again what is still wrong."""
        self._reported.clear()
        self.kick()

    async def wait(self, tp: TopicPartition) -> None:
        """Return when a partition has a position, is not assigned any more, or the user got the
        reason why it has none.
        """
        while True:
            row = self._subscription.partitions.get(tp)
            if row is None or row.has_position or (row, row.version) in self._reported:
                return
            self._changed.clear()
            self._begin()
            await self._changed.wait()

    async def close(self) -> None:
        """Stop."""
        self._is_closed = True
        for task in self._tasks.values():
            task.cancel()

    def _rows(self) -> list[AssignedPartition]:
        return [
            row
            for row in self._subscription.partitions.values()
            if (row, row.version) not in self._reported
        ]

    async def _run(self, key: int, found: Needs) -> None:
        if not await self._round(key, found):
            self._failures.pop(key, None)
            return
        self._placed()
        self._changed.set()
        self._failures[key] = self._failures.get(key, 0) + 1
        settings = self._settings
        pause = pause_ms(
            self._failures[key],
            settings["retry.backoff.ms"],
            settings["retry.backoff.max.ms"],
            random.random(),
        )
        await asyncio.sleep(pause / 1000)
        topics = sorted({row.tp.topic for rows in _all(found) for row in rows})
        self._cluster.doubt()
        enough = partial(_is_new_enough, found.metadata)
        await self._trying(partial(self._cluster.refresh, topics, enough=enough), found)

    async def _round(self, key: int, found: Needs) -> bool:
        """One attempt for everything; returns True if something must be retried after a pause."""
        topics = {row.tp.topic for rows in _all(found) for row in rows}
        if unknown := topics - set(self._cluster.view.topics):
            create = self._settings["allow.auto.create.topics"]
            await self._trying(lambda: self._cluster.refresh(sorted(unknown), create=create), found)
        if key == NOWHERE:  # those with a leader now come again
            found = self._by_leader(found).get(NOWHERE, Needs())
        again = bool(found.metadata)
        if found.commits:
            again |= not await self._trying(lambda: self._place_committed(found.commits), found)
        if found.resets:
            again |= await self._place_resets(found.resets)
        if found.validations:
            again |= await self._validate(found.validations)
        return again

    async def _trying(self, action: Callable[[], Awaitable[None]], found: Needs) -> bool:
        """Run it; returns False after a retriable error. Other errors are reported to the user,
        once.
        """
        try:
            await action()
        except KafkaError as error:
            if not error.retriable:
                self._report_once(error, found)
            return False
        return True

    # ---- by committed offsets ----

    async def _place_committed(self, rows: Sequence[AssignedPartition]) -> None:
        versions = {row.tp: row.version for row in rows}
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if self._group is not None:
            found = await self._group.committed([row.tp for row in rows])
        lost = []
        for row in rows:
            if row.version != versions[row.tp] or row.position is not None:
                continue
            offset = found.get(row.tp)
            if offset is not None and offset.offset >= 0:
                uses = self._settings["kstore.kip232.enable"]
                position = committed_position(offset, uses_partition_epochs=uses)
                row.seek(position)
                row.committed = position
            elif self._reset is not None:
                row.seek_by_timestamp(self._reset)
            else:
                lost.append(row)
        if lost:
            self._report_lost(lost)

    def _report_lost(self, rows: Sequence[AssignedPartition]) -> None:
        names = ", ".join(sorted(str(row.tp) for row in rows))
        error = OffsetOutOfRangeError(f"no position for {names}, and auto_offset_reset is none")
        self._report(error, rows)

    # ---- by timestamp ----

    async def _place_resets(self, rows: Sequence[AssignedPartition]) -> bool:
        now_ms = int(time() * 1000)
        requested: dict[TopicPartition, int] = {}
        versions: dict[TopicPartition, int] = {}
        for row in rows:
            if row.reset is not None:
                requested[row.tp] = reset_timestamp(row.reset, now_ms)
                versions[row.tp] = row.version
        found: dict[TopicPartition, FoundOffset] = {}
        errors = await self._list(requested, found)
        none = {tp: LATEST for tp, row in found.items() if row.offset < 0}
        if none:  # no record is that new: start at the end
            errors.update(await self._list(none, found))
        for row in rows:
            position = found.get(row.tp)
            if position is None or position.offset < 0 or row.version != versions.get(row.tp):
                continue
            row.seek(Position(position.offset, position.leader_epoch, position.partition_epoch))
            row.validated = True
        return self._sort(rows, versions, errors)

    async def _list(
        self, requested: Mapping[TopicPartition, int], found: dict[TopicPartition, FoundOffset]
    ) -> dict[TopicPartition, KafkaError]:
        timeout_ms = self._settings["request.timeout.ms"]
        return await list_offsets_once(self._cluster, requested, found, self._isolation, timeout_ms)

    # ---- against a new leader's log ----

    async def _validate(self, rows: Sequence[AssignedPartition]) -> bool:
        searches = {row.tp: _Search(row, self._cluster.view) for row in rows}
        versions = {row.tp: row.version for row in rows}
        errors: dict[TopicPartition, KafkaError] = {}
        while asking := {tp: each.found.ask for tp, each in searches.items()}:
            for tp, end in (await epoch_ends(self._cluster, asking)).items():
                search = searches[tp]
                if not search.is_current(self._cluster.view):
                    del searches[tp]  # it is checked again
                elif isinstance(end, UnsupportedVersionError):
                    del searches[tp]
                    search.row.validated = True
                elif isinstance(end, KafkaError):
                    del searches[tp]
                    errors[tp] = end
                else:
                    search.found.on_epoch_end(end.leader_epoch, end.end_offset)
                    if search.found.ask < 0:
                        del searches[tp]
                        self._searched(search)
        return self._sort(rows, versions, errors)

    def _searched(self, search: _Search) -> None:
        """The position is in the leader's log, or records below it are lost."""
        row, found = search.row, search.found
        if not found.is_lost:
            row.validated = True
            return
        if self._lost.get(row.tp) != row.version:
            self._lost[row.tp] = row.version
            event = lost_records(row.tp, found, row.epochs, search.leader_epoch)
            self._lose(Loss(event, row.source))
        if error := cut_off(row, found, self._reset):
            self._report(error, [row])

    def _sort(
        self,
        rows: Sequence[AssignedPartition],
        versions: Mapping[TopicPartition, int],
        errors: Mapping[TopicPartition, KafkaError],
    ) -> bool:
        """Report errors that are not retriable; returns True if something can be retried. Errors of
        partitions that were revoked or sought since then do not matter.
        """
        again = False
        for row in rows:
            error = errors.get(row.tp)
            if error is None or row.version != versions.get(row.tp):
                continue
            if error.retriable:
                again = True
            else:
                self._report(error, [row])
        return again


class _Search:
    """Looks up a position in the log of one leader."""

    def __init__(self, row: AssignedPartition, view: ClusterView) -> None:
        self.row = row
        self.leader_epoch = view.leader_epoch(row.tp)
        self._version = row.version
        self._position = row.position or Position(0)
        self.found = Divergence(self._position, row.epochs)

    def is_current(self, view: ClusterView) -> bool:
        """Whether the consumer still has this position and the same leader."""
        row = self.row
        is_same = row.version == self._version and row.position == self._position
        return is_same and view.leader_epoch(row.tp) == self.leader_epoch


def _all(found: Needs) -> tuple[list[AssignedPartition], ...]:
    return found.commits, found.resets, found.metadata, found.validations


def _is_new_enough(rows: Sequence[AssignedPartition], view: ClusterView) -> bool:
    """Whether no position has a later state of its partition than the metadata (KIP-232)."""
    return not any(
        row.position is not None
        and view.is_behind(row.tp, row.position.partition_epoch, row.position.leader_epoch)
        for row in rows
    )
