"""Consumer reads records of partitions that the user or the consumer's group assigns.

Requests run on a loop in the consumer's own thread (io/consumer_shell.py). The caller's thread
takes records that were fetched in advance. poll_loop.py implements poll(). AIOConsumer, in
aio_consumer.py, is the same for asyncio.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kstore._fast.clients.fetched import ConsumerRecord
from kstore.clients.consumer_calls import (
    CommitCallback,
    Interceptors,
    Topics,
    WakeupError,
    consumer_settings,
    log_truncation,
    topics_of,
)
from kstore.clients.core.consumer.inbox import CorruptRecordError, OnTruncation
from kstore.clients.core.consumer.lost_records import LostRecords
from kstore.clients.core.consumer.positions import LogTruncationError
from kstore.clients.core.metadata import PartitionView
from kstore.clients.io.consumer_shell import FORGOTTEN_MS, ConsumerShell
from kstore.clients.io.handover import ListenerCall, RebalanceListener
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.io.unclosed import Unclosed
from kstore.clients.poll_loop import PollEvent, PollLoop
from kstore.items import Items, partitions_of
from kstore.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow

    from kstore.record import RecordSet

__all__ = [
    "Consumer",
    "ConsumerRecord",
    "CorruptRecordError",
    "LogTruncationError",
    "LostRecords",
    "OnTruncation",
    "RebalanceListener",
    "WakeupError",
]

T = TypeVar("T")
CLOSE_MS = 30_000


class _ThreadPollLoop(PollLoop[threading.Event]):
    """Polls in the user's thread; an await blocks the thread."""

    BUSY = "poll() is already running: only one thread may use a consumer"

    def __init__(
        self,
        thread: LoopThread,
        shell: ConsumerShell,
        poll_event: PollEvent[threading.Event],
        settings: Mapping[str, Any],
        interceptors: Interceptors,
    ) -> None:
        super().__init__(shell, poll_event, settings, interceptors)
        self._thread = thread
        self._has_begun = False

    def _time_s(self) -> float:
        return time.monotonic()

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._thread.run(_called(self.shell.begin))

    async def _await_event(self, deadline_s: float | None) -> bool:
        event = self.poll_event.event
        if deadline_s is None:
            event.wait()
        else:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            event.wait(left_s)
        event.clear()
        return True

    async def _call(self, call: ListenerCall) -> None:
        call.method(call.partitions)

    def _raised(self) -> None:
        if not self._thread.is_closed:
            self._thread.call(self.shell.raised)


class Consumer:
    """Reads records. Use it in one thread at a time; only `wakeup` may be called from other
    threads.

    Settings are Kafka's consumer configs: a mapping with dotted names, or keywords with
    underscores, which take precedence. A str or a list instead of the mapping is bootstrap.servers.
    The other positional arguments are topics to subscribe to. With the keyword bootstrap_servers,
    all positional arguments are topics. Times are in ms, sizes in bytes. Raises ConfigError, a
    ValueError. Example: ``Consumer("localhost:9092", "orders", group_id="mailer")``.

    With group.id, the group's coordinator assigns partitions. Without it, `subscribe` reads all
    partitions of the topics. A consumer that is not closed leaves its group, without a commit, when
    it is garbage collected or Python exits.

    After an unclean leader election, `on_truncation` is called with the LostRecords of each
    partition whose log lost records below the consumer's position. It is called in poll() and
    close(). By default the lost records are logged as a warning.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Items[str] | None = None,
        /,
        *topics: str,
        on_truncation: OnTruncation | None = None,
        **keywords: Any,
    ) -> None:
        settings, names = consumer_settings(config, topics, keywords)
        self._interceptors = Interceptors(settings["interceptor.classes"])
        self._poll_event = PollEvent(threading.Event())
        self._commits: set[concurrent.futures.Future[None]] = set()
        self._thread = LoopThread()
        try:
            self._shell = self._do(
                ConsumerShell, settings, self._poll_event.wake, on_truncation or log_truncation
            )
            self._polls = _ThreadPollLoop(
                self._thread, self._shell, self._poll_event, settings, self._interceptors
            )
            self._unclosed = Unclosed(
                self, self._thread, self._shell.forget, what="consumers to leave their groups",
                patience_s=FORGOTTEN_MS / 1000,
            )  # fmt: skip
            if names:
                self.subscribe(names)
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- the thread ----

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the loop."""
        self._poll_event.attention = True
        return self._thread.run(coroutine)

    def _do(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function on the loop."""
        return self._run(_called(function, *arguments, **options))

    def _run_attending(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Like `_run`, for an operation that may have to call the listener in this thread."""
        self._poll_event.attention = True
        future = asyncio.run_coroutine_threadsafe(coroutine, self._thread.loop)
        return _finished(self._polls.attending(future))

    def _polled(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of the poll loop, in this thread."""
        if self._thread.is_closed:
            coroutine.close()
            raise RuntimeError("the client is closed")
        return _finished(coroutine)

    # ---- subscription ----

    def subscribe(self, topics: Topics, listener: RebalanceListener | Any = None) -> None:
        """Read these topics instead of the previous ones. `topics` are names, a compiled regular
        expression that matches whole names, or a SubscriptionPattern. The listener is called when
        partitions are assigned and revoked.

        Raises ValueError after `assign`. Without a group, raises UnknownTopicOrPartitionError if a
        topic does not exist within default.api.timeout.ms.
        """
        wanted = topics_of(topics)
        if not wanted:
            self.unsubscribe()
            return
        self._do(self._polls.subscribe, wanted, listener)
        self._run(self._shell.settle_subscription())

    def assign(self, partitions: Items[TopicPartition]) -> None:
        """Read exactly these partitions. Partitions that were already read keep their positions.
        Raises ValueError after `subscribe`.
        """
        self._do(self._shell.subscription.assign, partitions_of("partitions", partitions))

    def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        self._run_attending(self._shell.unsubscribe())

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return self._shell.subscription.assigned()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to. With a regular expression: the topics that match now."""
        return self._shell.subscription.topics

    # ---- records ----

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return up to `max_records` records (default: max.poll.records) as soon as there are any.
        Returns an empty list after `timeout_ms`, or when partitions were assigned or revoked.

        Raises WakeupError after `wakeup`, CorruptRecordError at a damaged record,
        OffsetOutOfRangeError or LogTruncationError if the position is no longer valid and there is
        no reset policy, InvalidPartitionEpochError (KIP-232), errors of the group and of the
        listener, and errors of brokers that a retry cannot solve.
        """
        return self._polled(self._polls.poll(timeout_ms, max_records))

    def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None, *, headers: bool = False
    ) -> pyarrow.RecordBatch:
        """Return fetched records as an Arrow record batch: at most `max_records` rows (default:
        65,536) and about 1 MiB of values. It has no rows if none arrive within `timeout_ms`.
        Interceptors do not see these records. Errors are as for `poll`. Needs pyarrow.

        Columns: topic (`dictionary<int32, string>`), partition (int32), offset (int64), timestamp
        (int64: ms since 1970, -1 if there is none), key and value (binary) and, with
        `headers=True`, headers (`list<struct<key, value>>`).
        """
        return self._polled(self._polls.poll_arrow(timeout_ms, max_records, headers=headers))

    def fetch(self, timeout_ms: float = 500) -> dict[TopicPartition, RecordSet]:
        """Return fetched records as one RecordSet for each partition. They count as read. The dict
        is empty if none arrive within `timeout_ms`. Interceptors do not see these records. Errors
        are as for `poll`.
        """
        return self._polled(self._polls.fetch(timeout_ms))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over records until consumer.timeout.ms passes without one; by default forever."""
        while (records := self._polled(self._polls.next_records())) is not None:
            yield from records

    def wakeup(self) -> None:
        """Make the running poll(), or the next one, raise WakeupError. Any thread may call this."""
        self._poll_event.is_woken = True
        self._poll_event.wake()

    # ---- positions ----

    def seek(
        self,
        tp: TopicPartition,
        offset: int | OffsetAndMetadata,
        offset_epoch: bytes | None = None,
    ) -> None:
        """Continue reading at `offset`. Pass the offset epoch that `position_and_offset_epoch` or a
        commit returned, and the consumer detects whether the log was truncated or the topic created
        again in the meantime (KIP-232, KIP-320).

        Raises ValueError if the partition is not assigned, the offset is negative, or the offset
        epoch is invalid.
        """
        self._do(self._shell.seek, TopicPartition(*tp), offset, offset_epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset of these partitions (default: all assigned ones)."""
        self._do(self._shell.seek_by_timestamp, partitions, to_end=False)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of these partitions (default: all assigned ones)."""
        self._do(self._shell.seek_by_timestamp, partitions, to_end=True)

    def position(self, tp: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that is returned. If it is not known yet, it is looked up
        within `timeout_ms` (default: default.api.timeout.ms).
        """
        return self._run(self._shell.position(TopicPartition(*tp), timeout_ms)).offset

    def position_and_offset_epoch(
        self, tp: TopicPartition, timeout_ms: float | None = None
    ) -> OffsetAndMetadata:
        """Like `position`, with the offset epoch. Store both together and pass both to `seek`
        (KIP-232). The offset epoch is None if the broker has no partition epochs.
        """
        position = self._run(self._shell.position(TopicPartition(*tp), timeout_ms))
        return self._shell.offset_and_epoch(position)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`."""
        self._do(self._shell.pause, partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._do(self._shell.pause, partitions, paused=False)

    def paused(self) -> list[TopicPartition]:
        """The paused partitions."""
        rows = list(self._shell.subscription.partitions.values())
        return [row.tp for row in rows if row.paused]

    def current_lag(self, tp: TopicPartition) -> int | None:
        """The number of offsets from the position to the end of the partition, as of the last
        fetch. None if unknown.
        """
        return self._shell.current_lag(TopicPartition(*tp))

    # ---- offsets and topics ----

    def beginning_offsets(
        self, partitions: Items[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return self._run(self._shell.edge_offsets(partitions, timeout_ms, at_end=False))

    def end_offsets(
        self, partitions: Items[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The end of each partition: the high watermark or, with isolation.level=read_committed,
        the last stable offset.
        """
        return self._run(self._shell.edge_offsets(partitions, timeout_ms, at_end=True))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition, the first record with this timestamp (ms since 1970) or a later one;
        None if there is none.
        """
        return self._run(self._shell.offsets_for_times(timestamps, timeout_ms))

    def partitions_for(
        self, topic: str, timeout_ms: float | None = None
    ) -> tuple[PartitionView, ...]:
        """The partitions of a topic, with their leaders, replicas and epochs."""
        return self._run(self._shell.partitions_for(topic, timeout_ms))

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """The names of all topics, without internal ones."""
        return self._run(self._shell.topics(timeout_ms))

    # ---- commits ----

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets for the group (default: the current positions). An offset is that of the
        next record to read.

        Raises InvalidGroupIdError without group.id, CommitFailedError if the partitions may already
        belong to another member, and errors that lasted for `timeout_ms` (default:
        default.api.timeout.ms).
        """
        self._interceptors.on_commit(self._run(self._shell.commit(offsets, timeout_ms)))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting and without retries. A later poll(), commit() or close() calls
        `callback` with the offsets, and with the error or None.
        """
        self._shell.own_group()
        found = self._shell.offsets_to_commit(offsets)
        future = asyncio.run_coroutine_threadsafe(
            self._polls.commit_once(found, callback), self._thread.loop
        )
        self._commits.add(future)
        future.add_done_callback(self._commits.discard)

    def committed(
        self, partitions: Items[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offset in each partition; None if there is none."""
        return self._run(self._shell.committed(partitions, timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member's identity, for Producer.send_offsets_to_transaction."""
        return self._do(self._shell.group_metadata)

    # ---- close ----

    def _end_commits(self) -> None:
        """Wait for the asynchronous commits, and call their callbacks."""
        concurrent.futures.wait(list(self._commits), CLOSE_MS / 1000)
        self._polls.run_callbacks()

    def close(self, timeout_ms: float = CLOSE_MS) -> None:
        """Commit the positions (with enable.auto.commit), leave the group and close the
        connections, within `timeout_ms`. The listener is called for the revoked partitions. Closing
        a closed consumer has no effect.
        """
        if self._thread.is_closed:
            return
        self._unclosed.closed()
        try:
            concurrent.futures.wait(list(self._commits), timeout_ms / 1000)
            self._run_attending(self._shell.close(timeout_ms))
            self._polls.run_callbacks()
            self._shell.inbox.report_losses()
        finally:
            self._thread.close()
            self._interceptors.close()


async def _called(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    return function(*arguments, **options)


def _finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose awaits block: it runs in this thread, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine in Consumer's poll() must block, but it yielded")
