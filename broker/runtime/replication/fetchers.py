"""Follows other brokers: which partitions are copied from which leader, the connections, and the
handling of errors.

_fast/replication/replica_fetcher.pyx copies; state/replication/follower.py decides where to
truncate a log that has diverged from its leader's. A partition with an error waits here, while the
others of its leader continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kstore._fast.replication.replica_fetcher import ReplicaFetcher
from kstore._fast.replication.replica_session import Followed
from kstore.broker.runtime.replication.leader_link import LeaderLink
from kstore.broker.state.replication.follower import (
    BackOff,
    Cut,
    cut_at_divergence,
    cut_out_of_range,
)
from kstore.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError, error_for
from kstore.log.errors import LogError
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.fsync_batch import FsyncBatcher
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.runtime.replication.replica_throttles import ReplicaThrottles
    from kstore.types import TopicPartition

__all__ = ["Fetchers"]

log = logging.getLogger("kstore.broker")

FIRST_PAUSE_S = 0.002
DISK_PAUSE_S = 1.0
LONGEST_DISK_PAUSE_S = 30.0
LATEST, EARLIEST = -1, -2
NO_EPOCH = -1
ASK_TIMEOUT_S = 10.0


class _Progress:
    """The state of a copied partition."""

    __slots__ = ("disk", "failed_s", "link", "pauses", "reported", "start_is_moving")

    def __init__(self, link: LeaderLink, longest_s: float) -> None:
        self.link = link
        self.pauses = BackOff(FIRST_PAUSE_S, longest_s)
        self.disk = BackOff(DISK_PAUSE_S, LONGEST_DISK_PAUSE_S)
        self.failed_s = float("-inf")
        """The time of the last failed write to its log."""
        self.start_is_moving = False
        self.reported = False
        """Whether the current error was reported to the operator."""


class Fetchers:
    """The partitions that this broker follows. All methods run on the broker's loop."""

    def __init__(
        self,
        node: Node,
        membership: Membership,
        peers: Lazy[Peers],
        commits: FsyncBatcher,
        throttles: ReplicaThrottles,
    ) -> None:
        self._node = node
        self._membership = membership
        self._peers = peers
        self._commits = commits
        self._links: dict[int, LeaderLink] = {}
        self._followed: dict[TopicPartition, Followed] = {}
        self._repairs: dict[TopicPartition, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._throttles = throttles
        self._longest_s: float = max(node.config["replica.fetch.backoff.ms"] / 1000, 0.01)
        throttles.start(self.copies)

    # ---- requests of the controller ----

    def follow(
        self, tp: TopicPartition, partition: Partition, leader_id: int, leader_epoch: int
    ) -> None:
        """Copy a partition from this leader in this leader epoch, instead of any former leader."""
        broker_epoch = self._membership.broker_epoch
        known = self._followed.get(tp)
        if known is not None:
            link = known.state.link
            link.fetcher.broker_epoch = broker_epoch
            same = (known.partition, link.leader_id, known.leader_epoch)
            if same == (partition, leader_id, leader_epoch):
                return
            link.fetcher.remove(known)
        link = self._links.get(leader_id)
        if link is None:
            link = self._links[leader_id] = self._link(leader_id)
        link.fetcher.broker_epoch = broker_epoch
        followed = Followed(partition, tp, leader_epoch)
        followed.state = _Progress(link, self._longest_s)
        followed.throttled = self._throttles.applies(followed)
        self._followed[tp] = followed
        link.fetcher.add(followed)
        link.connect()
        if known is not None:
            self._close_unused_soon(known.state.link)

    def stop(self, tp: TopicPartition) -> None:
        """Stop copying a partition, if it is copied."""
        known = self._followed.pop(tp, None)
        if known is not None:
            known.state.link.fetcher.remove(known)
            self._close_unused_soon(known.state.link)

    def stop_all(self) -> None:
        """Stop copying all partitions."""
        self._followed.clear()
        for link in self._links.values():
            link.close()
        self._links.clear()

    def close(self) -> None:
        """Called when the broker stops."""
        self.stop_all()
        self._throttles.close()
        for task in self._asking:
            task.cancel()

    def copies(self) -> list[Followed]:
        """The copied partitions."""
        return list(self._followed.values())

    def _link(self, leader_id: int) -> LeaderLink:
        return LeaderLink(self._node, self._membership, self._peers(), self, leader_id)

    def _close_unused_soon(self, link: LeaderLink) -> None:
        # Not now: the controller's next request may add partitions again.
        self._node.loop.call_soon(self._close_unused, link)

    def _close_unused(self, link: LeaderLink) -> None:
        if not link.fetcher.all() and self._links.get(link.leader_id) is link:
            del self._links[link.leader_id]
            link.close()

    # ---- events of connections ----

    def refused(self, fetcher: ReplicaFetcher, followed: Followed, error_code: int) -> None:
        """Called when the leader has answered with an error. Usually it, or this broker, does not
        know the controller's latest decision yet.
        """
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            task = self._node.loop.create_task(self._find_place(fetcher, followed))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
            return
        if error_code == ErrorCode.CORRUPT_MESSAGE:
            self._report_once(
                followed,
                f"{followed.key}: leader {fetcher.leader_id} has damage at offset "
                f"{followed.partition.log_end_offset}, so nothing is copied until it is repaired "
                "or no replica can supply it",
            )
        self._try_again(fetcher, followed, f"its leader answers with error {error_code}")

    def refused_append(self, fetcher: ReplicaFetcher, followed: Followed, error_code: int) -> None:
        """Called when the leader's batches cannot be appended to this log."""
        self._report_once(
            followed,
            f"{followed.key}: the batches that leader {fetcher.leader_id} sent from offset "
            f"{followed.partition.log_end_offset} on can't be appended (error {error_code})",
        )
        self._try_again(fetcher, followed, f"append error {error_code}")

    def sent_later_epoch(self, fetcher: ReplicaFetcher, followed: Followed) -> None:
        """Called when the next batch has a later leader epoch than the one in which this broker
        follows. It is copied once the broker follows in that epoch: before that, it might not
        belong to the log that the broker has compared with its own.
        """
        why = f"its leader sends batches of leader epochs above {followed.leader_epoch}"
        self._try_again(fetcher, followed, why)

    def failed(self, fetcher: ReplicaFetcher, followed: Followed, problem: Exception) -> None:
        """Called when the log cannot be written. The partition is not copied until it can."""
        if followed.partition.log is not None:
            followed.partition.log.log_dir.note_error(problem)
        progress = followed.state
        loop = self._node.loop
        last_s, progress.failed_s = progress.failed_s, loop.time()
        if progress.failed_s - last_s > 2 * LONGEST_DISK_PAUSE_S:
            self._node.report(
                f"{followed.key} can't be written, so it is not copied until it can: {problem}"
            )
        loop.call_later(progress.disk.pause_s(loop.time()), fetcher.release, followed)

    def diverged(
        self, fetcher: ReplicaFetcher, followed: Followed, epoch: int, end_offset: int
    ) -> None:
        """Called when the log has diverged from its leader's: truncates it."""

        if epoch >= followed.leader_epoch:
            # The current leader epoch cannot end before records that this log has in it.
            self._report_once(
                followed,
                f"{followed.key} is not copied: this log has records of leader epoch {epoch} "
                f"after offset {end_offset}, where its leader {fetcher.leader_id} has none. "
                "Was the coordination store restored from an older copy? Elect another leader",
            )
            self._try_again(fetcher, followed, f"epoch {epoch} ends at {end_offset} there")
            return

        async def repair() -> None:
            kept = followed.partition.log
            own = kept.end_offset_for_epoch(epoch)
            cut = cut_at_divergence(
                own, (epoch, end_offset), kept.log_start_offset, kept.log_end_offset
            )
            await self._cut(fetcher, followed, cut, f"epoch {epoch} ends at {end_offset} there")

        self._repair(followed, repair)

    def start_moved(self, fetcher: ReplicaFetcher, followed: Followed, offset: int) -> None:
        """Called when the leader's log start offset has increased: increases this log's, too."""
        if followed.state.start_is_moving:
            return
        followed.state.start_is_moving = True

        async def repair() -> None:
            followed.state.start_is_moving = False
            kept = followed.partition.log
            upto = min(offset, kept.high_watermark)
            call = partial(kept.delete_before, upto, durable=False)
            try:
                await self._on_disk(followed, "moving the log start of", call)
            except (LogError, OSError) as problem:
                fetcher.hold(followed)
                self.failed(fetcher, followed, problem)
            else:
                if self._is_followed(followed):
                    fetcher.tell(followed)

        self._repair(followed, repair)

    def count_throttled(self, fetcher: ReplicaFetcher, size_bytes: int) -> None:
        """Count received bytes of throttled partitions."""
        self._throttles.received(fetcher, size_bytes)

    def wait_for_disk(self, fetcher: ReplicaFetcher, behind: list[tuple[Any, int]]) -> None:
        """Report copied records to the leader when they are on the disk."""

        def done(on_disk: bool) -> None:
            if not on_disk:
                lost = {id(kept) for kept, _ in behind}
                for followed in fetcher.all():
                    if id(followed.partition.log) in lost:
                        fetcher.hold(followed)
                        self.failed(fetcher, followed, OSError("it can't be forced to disk"))
            fetcher.on_disk()

        self._commits.wait(behind, done)

    def lost(self, fetcher: ReplicaFetcher, problem: Exception | None) -> None:
        """Called when a connection was closed."""
        link = self._links.get(fetcher.leader_id)
        if link is not None and link.fetcher is fetcher:
            link.lost()

    def report(self, sentence: str) -> None:
        """Report to the operator."""
        self._node.report(sentence)

    # ---- errors ----

    def _report_once(self, followed: Followed, what: str) -> None:
        """Report why a partition is not copied, once for each leader that it follows."""
        if not followed.state.reported:
            followed.state.reported = True
            self._node.report(what)

    def _try_again(self, fetcher: ReplicaFetcher, followed: Followed, why: str) -> None:
        loop = self._node.loop
        pause_s = followed.state.pauses.pause_s(loop.time())
        log.debug("%s is fetched again in %g s: %s", followed.key, pause_s, why)
        loop.call_later(pause_s, fetcher.release, followed)

    def _repair(self, followed: Followed, repair: Callable[[], Awaitable[None]]) -> None:
        """Repair a log, once earlier work on it has ended."""
        before = self._repairs.get(followed.key)
        task = self._node.loop.create_task(self._repair_next(followed, repair, before))
        self._repairs[followed.key] = task

    async def _repair_next(
        self,
        followed: Followed,
        repair: Callable[[], Awaitable[None]],
        before: asyncio.Task[None] | None,
    ) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            if self._is_followed(followed):
                await repair()
        finally:
            if self._repairs.get(followed.key) is asyncio.current_task():
                del self._repairs[followed.key]

    def is_settled(self, tp: TopicPartition) -> bool:
        """Whether a partition's log is not being repaired."""
        return tp not in self._repairs

    async def settle(self, tp: TopicPartition) -> None:
        """Wait until a partition's log is not being repaired."""
        while (task := self._repairs.get(tp)) is not None:
            await asyncio.wait([task])

    async def _on_disk(self, followed: Followed, what: str, call: Callable[[], object]) -> None:
        """Run a call for a log in the thread of its log dir."""
        path = followed.partition.log.log_dir.path
        await self._node.dirs.run(path, f"{what} {followed.key}", call)

    def _is_followed(self, followed: Followed) -> bool:
        return self._followed.get(followed.key) is followed and followed.partition.log is not None

    async def _find_place(self, fetcher: ReplicaFetcher, followed: Followed) -> None:
        """Called when the leader does not have the offset at which this log ends: asks which
        offsets it has.
        """
        try:
            end = await self._ask_offset(fetcher, followed, LATEST)
            start = await self._ask_offset(fetcher, followed, EARLIEST)
        except KafkaError as problem:
            self._try_again(fetcher, followed, str(problem))
            return

        async def repair() -> None:
            cut = cut_out_of_range(followed.partition.log_end_offset, (start, end))
            await self._cut(fetcher, followed, cut, f"the leader has {start} to {end}")

        self._repair(followed, repair)

    async def _ask_offset(self, fetcher: ReplicaFetcher, followed: Followed, timestamp: int) -> int:
        """The first or the last offset of the leader's log. Raises KafkaError."""
        requested = ListOffsetsPartition(
            partition_index=followed.key.partition,
            current_leader_epoch=followed.leader_epoch,
            timestamp=timestamp,
        )
        topic = ListOffsetsTopic(name=followed.key.topic, partitions=[requested])
        request = ListOffsetsRequest(replica_id=self._node.node_id, topics=[topic])
        response = await self._peers().ask(fetcher.leader_id, request, ASK_TIMEOUT_S)
        [answer] = response.topics[0].partitions
        if answer.error_code != ErrorCode.NONE:
            raise error_for(answer.error_code)
        epochs = {followed.partition.partition_epoch, answer.partition_epoch} - {NO_EPOCH}
        if len(epochs) > 1:
            raise UnknownTopicOrPartitionError("the leader's topic is another of the same name")
        offset: int = answer.offset
        return offset

    async def _cut(self, fetcher: ReplicaFetcher, followed: Followed, cut: Cut, why: str) -> None:
        kept = followed.partition.log
        end, high_watermark = kept.log_end_offset, kept.high_watermark
        try:
            if cut.restart:
                await self._on_disk(followed, "emptying", partial(kept.restart, cut.offset))
            elif cut.offset < end:
                await self._on_disk(followed, "cutting", partial(kept.truncate, cut.offset))
        except (LogError, OSError) as problem:
            self.failed(fetcher, followed, problem)
            return
        if not self._is_followed(followed):
            return
        # An epoch without records says nothing.
        kept.forget_empty_epochs()
        if cut.restart or cut.offset < end:
            level = logging.WARNING if cut.offset < high_watermark else logging.INFO
            log.log(
                level, "%s ended at %d, of which %d were committed; now it is [%d, %d): %s",
                followed.key, end, high_watermark, kept.log_start_offset, kept.log_end_offset, why,
            )  # fmt: skip
            fetcher.release(followed)
        else:
            self._try_again(fetcher, followed, why)
