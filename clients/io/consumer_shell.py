"""The consumer on its loop: subscription, fetching, positions, group. Consumer and AIOConsumer
share it; each of them implements its own way to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kstore.clients.core.consumer.inbox import Failure, Loss, OnTruncation
from kstore.clients.core.consumer.positions import (
    EARLIEST_RESET,
    LATEST_RESET,
    committable,
    committed_position,
)
from kstore.clients.core.consumer.subscription import (
    AssignedPartition,
    Position,
    Reset,
    SubscriptionKind,
    SubscriptionState,
)
from kstore.clients.core.metadata import PartitionView
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.fetcher import Fetcher
from kstore.clients.io.handover import ListenerCalls
from kstore.clients.io.list_offsets import FoundOffset, list_offsets
from kstore.clients.io.placement import Placement
from kstore.errors import InvalidGroupIdError, KafkaError, RequestTimedOutError
from kstore.items import by_partition, partitions_of
from kstore.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    from kstore.clients.io.coordinator import GroupCoordinatorClient

__all__ = ["ConsumerShell"]

LATEST, EARLIEST = -1, -2


FORGOTTEN_MS = 5_000


class ConsumerShell:
    """Create it on the loop. `signal` is called when poll() has something to check."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        signal: Callable[[], None],
        on_truncation: OnTruncation,
    ) -> None:
        self.settings = settings
        self.subscription = SubscriptionState()
        self.calls = ListenerCalls(signal)
        self._signal = signal
        self._loop = asyncio.get_running_loop()
        self.cluster = ClusterClient(settings, loop=self._loop)
        self.group: GroupCoordinatorClient | None = None
        if settings["group.id"]:
            from kstore.clients.io.coordinator import GroupCoordinatorClient

            self.group = GroupCoordinatorClient(
                self.cluster, settings, self.subscription, self.calls
            )
            self.group.on_attention.append(self._group_failed)
        self._fetcher = Fetcher(
            self.cluster, settings, self.subscription, arrived=signal, place=self._kick_placement,
            on_truncation=on_truncation,
        )  # fmt: skip
        self.inbox = self._fetcher.inbox
        self._placement = Placement(
            self.cluster,
            settings,
            self.subscription,
            group=self.group,
            placed=self._fetcher.kick,
            fail=self.fail,
            lose=self._lose,
        )
        self._has_begun = False
        self._is_closed = False
        self._timeout_ms: int = settings["default.api.timeout.ms"]
        self.subscription.changed.append(self._watch)
        self.subscription.reassigned.append(self._reassigned)
        self.cluster.on_update.append(self._metadata_came)

    # ---- background work ----

    def begin(self) -> None:
        """The first poll: start to place and fetch partitions."""
        if not self._has_begun:
            self._has_begun = True
            self._kick_placement()

    def fail(self, failure: Failure) -> None:
        """Queue an error for poll()."""
        self.inbox.fail(failure)
        self._signal()

    def _lose(self, loss: Loss) -> None:
        self.inbox.lose(loss)
        self._signal()

    def raised(self) -> None:
        """The user has seen an error."""
        self._placement.raised()

    def _group_failed(self) -> None:
        self._signal()

    def _kick_placement(self) -> None:
        if self._has_begun and not self._is_closed:
            self._placement.kick()

    def _reassigned(self) -> None:
        self._fetcher.plan.forget()
        self._watch()
        self._kick_placement()

    def _watch(self) -> None:
        """Keep the metadata of the topics that are read or subscribed to current."""
        if self.subscription.kind in (SubscriptionKind.PATTERN, SubscriptionKind.BROKER_PATTERN):
            self.cluster.watch_topics(None)
            self.cluster.want_refresh(doubts=False)
            return
        topics = {tp.topic for tp in self.subscription.partitions} | self.subscription.topics
        if self.group is not None:
            topics |= self.group.group_topics
        self.cluster.watch_topics(topics)
        if not topics <= set(self.cluster.view.topics):
            self.cluster.want_refresh(doubts=False)

    def _metadata_came(self) -> None:
        if self.subscription.kind is SubscriptionKind.PATTERN:
            self.subscription.match(self._visible_topics())
        if self.group is None and self.subscription.uses_group:
            self._take_all()
        self._kick_placement()

    def _visible_topics(self) -> list[str]:
        hide = self.settings["exclude.internal.topics"]
        rows = self.cluster.view.topics.values()
        return [row.name for row in rows if not (hide and row.is_internal)]

    def _take_all(self) -> None:
        """Subscribed to topics without a group: this consumer reads all partitions."""
        view = self.cluster.view
        wanted = {
            TopicPartition(topic, row.partition)
            for topic in sorted(self.subscription.topics)
            if topic in view.topics
            for row in view.topics[topic].partitions
        }
        have = set(self.subscription.partitions)
        if gone := have - wanted:
            self.subscription.take_away(gone)
        if new := sorted(wanted - have):
            self.subscription.give(new)
            self.subscription.begin_reading(new)

    # ---- subscription ----

    async def settle_subscription(self) -> None:
        """Without a group: wait until the topics are known. Raises the error of a topic, or
        UnknownTopicOrPartitionError after default.api.timeout.ms.
        """
        if self.group is not None or not self.subscription.uses_group:
            return
        names = sorted(self.subscription.topics)
        has_pattern = self.subscription.kind is not SubscriptionKind.TOPICS

        async def ask() -> None:
            await self.cluster.refresh(
                None if has_pattern else names, create=self.settings["allow.auto.create.topics"]
            )
            for name in names:
                self.cluster.view.topic(name)

        await self.cluster.retrying(ask, self._timeout_ms)

    async def unsubscribe(self) -> None:
        """Leave the group, and remove all partitions."""
        if self.group is not None and self.subscription.uses_group:
            await self.group.leave()
        self.subscription.unsubscribe()

    # ---- positions ----

    def row(self, tp: TopicPartition) -> AssignedPartition:
        """An assigned partition; raises ValueError for others."""
        found = self.subscription.partitions.get(TopicPartition(*tp))
        if found is None:
            raise ValueError(f"{TopicPartition(*tp)} is not assigned to this consumer")
        return found

    def seek(
        self,
        tp: TopicPartition,
        offset: int | OffsetAndMetadata,
        offset_epoch: bytes | None = None,
    ) -> None:
        """Continue at an offset. Raises ValueError for an invalid one, and for an offset epoch that
        `position_and_offset_epoch` did not return (KIP-232).
        """
        row = self.row(tp)
        given = offset if isinstance(offset, tuple) else OffsetAndMetadata(offset)
        if offset_epoch is not None:
            given = given._replace(offset_epoch=offset_epoch)
        if given.offset < 0:
            raise ValueError(f"offset {given.offset} is negative")
        uses = self.settings["kstore.kip232.enable"]
        row.seek(committed_position(given, uses_partition_epochs=uses))
        self._kick_placement()

    def seek_by_timestamp(self, partitions: Iterable[TopicPartition], *, to_end: bool) -> None:
        """Continue at the beginning or the end of partitions (none named: all); the next poll() or
        position() looks it up.
        """
        reset: Reset = LATEST_RESET if to_end else EARLIEST_RESET
        named = partitions_of("partitions", partitions)
        rows = [self.row(tp) for tp in named] or list(self.subscription.partitions.values())
        for row in rows:
            row.seek_by_timestamp(reset)
        self._kick_placement()

    async def position(self, tp: TopicPartition, timeout_ms: float | None = None) -> Position:
        """The position of a partition; looks it up if necessary."""
        row = self.row(tp)
        if not row.has_position:
            self.begin()
            patience_ms = self._timeout_ms if timeout_ms is None else timeout_ms
            try:
                async with asyncio.timeout(patience_ms / 1000):
                    await self._placement.wait(row.tp)
            except TimeoutError:
                raise RequestTimedOutError(
                    f"partition {row.tp} has no position after {patience_ms:g} ms"
                ) from None
            self._raise_failure_of(row)
        position = row.position
        if position is None:
            raise ValueError(f"{row.tp} is not assigned to this consumer any more")
        return position

    def _raise_failure_of(self, row: AssignedPartition) -> None:
        if not row.has_position and (error := self.inbox.failure_of(row)) is not None:
            self._placement.raised()
            raise error

    def offset_and_epoch(self, position: Position) -> OffsetAndMetadata:
        """The position in the users' form."""
        return committable(position)

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Stop or resume returning records of partitions."""
        for row in [self.row(tp) for tp in partitions_of("partitions", partitions)]:
            row.paused = paused
        self._fetcher.kick()

    def current_lag(self, tp: TopicPartition) -> int | None:
        """The number of records between the position and the end that the last fetch reported; None
        if unknown.
        """
        row = self.row(tp)
        read_committed = self.settings["isolation.level"] == "read_committed"
        end = row.last_stable_offset if read_committed else row.high_watermark
        position = row.position
        return None if end < 0 or position is None else max(end - position.offset, 0)

    # ---- offsets and topics ----

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        return await list_offsets(
            self.cluster,
            timestamps,
            isolation_level=int(self.settings["isolation.level"] == "read_committed"),
            timeout_ms=self._timeout_ms if timeout_ms is None else timeout_ms,
        )

    async def edge_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None, *, at_end: bool
    ) -> dict[TopicPartition, int]:
        """Log start offsets, or end offsets."""
        edge = LATEST if at_end else EARLIEST
        wanted = partitions_of("partitions", partitions)
        found = await self._list_offsets(dict.fromkeys(wanted, edge), timeout_ms)
        return {tp: row.offset for tp, row in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None if there is none."""
        timestamps = by_partition("timestamps", timestamps, "timestamp in ms")
        for tp, moment in timestamps.items():
            if moment < 0:
                raise ValueError(f"partition {tp}: timestamp {moment} is negative")
        found = await self._list_offsets(timestamps, timeout_ms)
        return {tp: row.public() if row.offset >= 0 else None for tp, row in found.items()}

    async def partitions_for(
        self, topic: str, timeout_ms: float | None
    ) -> tuple[PartitionView, ...]:
        """The partitions of a topic in the current metadata."""

        async def ask() -> tuple[PartitionView, ...]:
            create = self.settings["allow.auto.create.topics"]
            await self.cluster.refresh([topic], create=create)
            return self.cluster.view.topic(topic).partitions

        patience_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        return await self.cluster.retrying(ask, patience_ms)

    async def topics(self, timeout_ms: float | None) -> set[str]:
        """The names of all topics that this client may see, without internal ones."""

        async def ask() -> None:
            await self.cluster.refresh(None)

        await self.cluster.retrying(ask, self._timeout_ms if timeout_ms is None else timeout_ms)
        return {row.name for row in self.cluster.view.topics.values() if not row.is_internal}

    # ---- the group ----

    def own_group(self) -> GroupCoordinatorClient:
        """The group client. Raises InvalidGroupIdError without group.id."""
        if self.group is None:
            raise InvalidGroupIdError("this consumer has no group.id")
        return self.group

    def offsets_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commits from the users' form, or of all positions. Raises ValueError for an invalid
        offset.
        """
        if offsets is None:
            return {tp: committable(row) for tp, row in self.subscription.consumed().items()}
        found = {}
        for tp, given in by_partition("offsets", offsets, "offset", (int, tuple)).items():
            row = OffsetAndMetadata(given) if isinstance(given, int) else OffsetAndMetadata(*given)
            if row.offset < 0:
                raise ValueError(f"{tp}: offset {row.offset} is negative")
            found[tp] = row
        return found

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit with retries; returns the committed offsets."""
        group = self.own_group()
        found = self.offsets_to_commit(offsets)
        await group.commit(found, timeout_ms)
        return found

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offset; None if there is none."""
        wanted = partitions_of("partitions", partitions)
        return await self.own_group().committed(wanted, timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For Producer.send_offsets_to_transaction."""
        return self.own_group().group_metadata()

    # ---- close ----

    async def close(self, timeout_ms: float) -> None:
        """Commit a last time, leave the group, close. Errors are logged."""
        self._is_closed = True
        await self._placement.close()
        try:
            if self.group is not None:
                await self.group.close(timeout_ms)
        except KafkaError:
            pass  # the group client has logged the error
        await self._fetcher.close()
        await self.cluster.close()

    async def forget(self) -> None:
        """Close a consumer that was not closed by its user: leave the group. Nothing is committed,
        because it is unknown which records were processed.
        """
        self.calls.abandon()
        if self.group is not None:
            self.group.stop_committing()
        await self.close(FORGOTTEN_MS)
