"""Consumer with confluent-kafka's API: one message at a time, errors as messages, rebalance
callbacks that may choose the offsets, and offsets that are stored first and committed later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstore.clients.compat.confluent.client import Client, made
from kstore.clients.compat.confluent.error import KafkaError, KafkaException, error_of, raised_as
from kstore.clients.compat.confluent.metadata import (
    timeout_ms,
)
from kstore.clients.compat.confluent.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Message,
    TopicPartition,
    pairs_of,
)
from kstore.clients.compat.confluent.rebalance import Callbacks
from kstore.clients.compat.confluent.settings import settings_of
from kstore.clients.compat.confluent.stored import StoredOffsets
from kstore.clients.consumer import Consumer as KstoreConsumer
from kstore.clients.consumer import CorruptRecordError, LogTruncationError
from kstore.errors import KafkaError as ProtocolKafkaError
from kstore.errors import OffsetOutOfRangeError
from kstore.types import ConsumerGroupMetadata
from kstore.types import TopicPartition as Pair

if TYPE_CHECKING:
    from kstore._fast.clients.fetched import ConsumerRecord

__all__ = ["Consumer"]

Rebalance = Callable[[Any, list[TopicPartition]], object] | None
FAILURES = (ProtocolKafkaError, ValueError, RuntimeError, CorruptRecordError, LogTruncationError)
SLICE_S, EOF_SLICE_S = 0.5, 0.05
MOST = 1_000_000


class Consumer(Client):
    """Takes librdkafka's settings in a dict, or as keywords. Use it from one thread."""

    _CLOSED = "Consumer closed"

    def __init__(self, *config: Any, **keywords: Any) -> None:
        settings = settings_of("consumer", config, keywords)
        if not settings.get("group.id"):
            raise ValueError("Failed to create consumer: group.id must be set")
        self._own = settings.own
        self._consumer = made(KstoreConsumer, settings)
        self._stores: bool = self._own["enable.auto.offset.store"]
        self._positions: dict[Pair, TopicPartition] = {}
        self._ends: dict[Pair, int] = {}
        """The offset at which the end of a partition was last reported."""
        self._unknown: set[str] = set()
        """Subscribed topics that may not exist."""
        cluster = self._consumer._shell.cluster
        self._attach("consumer", self._own, self._consumer._thread, cluster)
        self._stored = StoredOffsets(self._consumer, self._own, self._events)
        self._callbacks = Callbacks(self, self._consumer, self._stored, self._forget)

    def _leave(self) -> None:
        self.close()

    # ---- subscription ----

    def subscribe(
        self,
        topics: list[str],
        on_assign: Rebalance = None,
        on_revoke: Rebalance = None,
        on_lost: Rebalance = None,
    ) -> None:
        """Subscribe to topics by name; a name that begins with ^ is a regular expression. The
        callbacks get this consumer and a list of partitions; poll() calls them.
        """
        self._check()
        if not isinstance(topics, list) or not all(isinstance(name, str) for name in topics):
            raise TypeError("expected list of topic unicode strings")
        for callback in (on_assign, on_revoke, on_lost):
            if callback is not None and not callable(callback):
                raise TypeError("on_assign, on_revoke and on_lost expect a callable")
        self._callbacks.set(on_assign, on_revoke, on_lost)
        wanted: Any = topics
        if any(name.startswith("^") for name in topics):
            parts = [name[1:] if name[0] == "^" else re.escape(name) for name in topics]
            wanted = re.compile("|".join(f"(?:{part})" for part in parts))
        self._unknown = set() if wanted is not topics else set(topics)
        self._call(lambda: self._consumer.subscribe(wanted, self._callbacks))

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._check()
        self._call(self._consumer.unsubscribe)
        self._unknown = set()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, from their offsets (none: from the committed offsets). Inside
        on_assign it sets the offsets of the assigned partitions.
        """
        self._check()
        given = pairs_of(partitions)
        if self._callbacks.assigned_by_user(given):
            return
        self._call(lambda: self._consumer.assign([row.pair for row in given]))
        self._forget(set(self._positions) - {row.pair for row in given})
        self._seek_all(given)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As assign, in addition to the assigned partitions."""
        self._check()
        given = pairs_of(partitions)
        if self._callbacks.assigned_by_user(given):
            return
        now = self._consumer.assignment()
        self._call(lambda: self._consumer.assign([*now, *(row.pair for row in given)]))
        self._seek_all(given)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these partitions."""
        self._check()
        gone = {row.pair for row in pairs_of(partitions)}
        if self._callbacks.is_running:
            return
        left = [tp for tp in self._consumer.assignment() if tp not in gone]
        self._call(lambda: self._consumer.assign(left))
        self._forget(gone)

    def unassign(self) -> None:
        """Read nothing."""
        self._check()
        if not self._callbacks.is_running:
            self._call(lambda: self._consumer.assign([]))
            self._forget(set(self._positions))

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        self._check()
        return [TopicPartition(tp.topic, tp.partition) for tp in self._consumer.assignment()]

    def _seek_all(self, given: Iterable[TopicPartition]) -> None:
        for row in given:
            if row.offset >= 0 or row.offset in (OFFSET_BEGINNING, OFFSET_END):
                self._seek(row)

    def _forget(self, gone: Iterable[Pair]) -> None:
        for tp in gone:
            self._positions.pop(tp, None)
            self._ends.pop(tp, None)
            self._stored.drop(tp)

    # ---- messages ----

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, or None after timeout seconds. A message with an error() has no record.
        Callbacks run inside this call.
        """
        self._check()
        found = self._take(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """At most num_messages messages; fewer after timeout seconds."""
        self._check()
        if not 0 <= num_messages <= MOST:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        found: list[Message] = []
        while len(found) < num_messages:
            left = -1 if deadline is None else max(deadline - time.monotonic(), 0)
            taken = self._take(num_messages - len(found), left)
            found += taken
            if not taken:
                break
        return found

    def _take(self, most: int, timeout: float | None) -> list[Message]:
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        slice_s = EOF_SLICE_S if self._own["enable.partition.eof"] else SLICE_S
        while True:
            self._events.serve(0)
            self._stored.commit_if_due()
            left = slice_s if deadline is None else deadline - time.monotonic()
            try:
                records = self._consumer.poll(max(min(left, slice_s), 0) * 1000, most)
            except FAILURES as error:
                return [self._failure(error)]
            if records:
                return [self._received(record) for record in records]
            if (notification := self._notification()) is not None:
                return [notification]
            if deadline is not None and time.monotonic() >= deadline:
                self._events.serve(0)
                return []

    def _received(self, record: ConsumerRecord) -> Message:
        topic, index = record.topic, record.partition
        pair = Pair(topic, index)
        row = TopicPartition(topic, index, record.offset + 1, None, record.leader_epoch)
        self._positions[pair] = row
        self._events.counts["rxmsgs"] += 1
        if self._stores:
            self._stored.rows[pair] = row
        return Message.of(record)

    def _failure(self, error: Exception) -> Message:
        """The error as a message: the consumer continues."""
        if self._callbacks.raised is error:
            self._callbacks.raised = None
            raise error
        found = error_of(error)
        if isinstance(error, OffsetOutOfRangeError):
            found = KafkaError(KafkaError._AUTO_OFFSET_RESET, found.str())
        if found.fatal():
            raise KafkaException(found) from None
        return Message(error=found, value=found.str().encode(), timestamp=(0, -1))

    def _notification(self) -> Message | None:
        """A message about a missing topic or the end of a partition, if there is no record."""
        view = self._consumer._shell.cluster.view
        for topic in sorted(self._unknown & (set(view.topics) | set(view.topic_errors))):
            self._unknown.discard(topic)
            if topic not in view.topics:
                error = KafkaError(
                    view.topic_errors[topic], f"Subscribed topic not available: {topic}"
                )
                return Message(topic, 0, None, None, error.str().encode(), error=error)
        if not self._own["enable.partition.eof"]:
            return None
        for tp in self._consumer.assignment():
            if self._consumer.current_lag(tp) == 0:
                end = self._consumer.position(tp)
                if self._ends.get(tp) != end:
                    self._ends[tp] = end
                    text = f"Reached end of partition at offset {end}"
                    error = KafkaError(KafkaError._PARTITION_EOF, text)
                    return Message(
                        tp.topic, tp.partition, end, None, text.encode(), None, error, (0, -1)
                    )
        return None

    # ---- positions ----

    def seek(self, partition: TopicPartition) -> None:
        """Continue at an offset of an assigned partition."""
        self._check()
        if not isinstance(partition, TopicPartition):
            raise TypeError("expected TopicPartition")
        if partition.pair not in self._consumer.assignment():
            text = f"Failed to seek to offset {partition.offset}: Local: Erroneous state"
            raise KafkaException(KafkaError(KafkaError._STATE, text))
        self._seek(partition)

    def _seek(self, row: TopicPartition) -> None:
        self._ends.pop(row.pair, None)
        if row.offset == OFFSET_BEGINNING:
            self._call(lambda: self._consumer.seek_to_beginning(row.pair))
        elif row.offset == OFFSET_END:
            self._call(lambda: self._consumer.seek_to_end(row.pair))
        else:
            self._call(lambda: self._consumer.seek(row.pair, row.offset))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last message that was returned, by partition; OFFSET_INVALID for
        none.
        """
        self._check()
        found = []
        for row in pairs_of(partitions):
            at = self._positions.get(row.pair)
            offset, epoch = (OFFSET_INVALID, None) if at is None else (at.offset, at.leader_epoch)
            found.append(TopicPartition(row.topic, row.partition, offset, None, epoch))
        return found

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no messages of these partitions."""
        self._check()
        assigned = set(self._consumer.assignment())
        self._consumer.pause(*[r.pair for r in pairs_of(partitions) if r.pair in assigned])

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return messages of these partitions again."""
        self._check()
        assigned = set(self._consumer.assignment())
        self._consumer.resume(*[r.pair for r in pairs_of(partitions) if r.pair in assigned])

    # ---- offsets ----

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store the offset after a message, or these offsets, for the next commit. Needs
        enable.auto.offset.store=false.
        """
        self._check()
        if self._stores:
            text = "StoreOffsets failed: enable.auto.offset.store must be set to false"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
        for row in _offsets(message, offsets) or []:
            if row.pair not in self._consumer.assignment():
                text = f"StoreOffsets failed: {row.pair} is not assigned"
                raise KafkaException(KafkaError(KafkaError._STATE, text))
            self._stored.store(row)

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset after a message, these offsets, or the stored ones. If not
        asynchronous: returns the list of committed offsets, or raises KafkaException.
        """
        self._check()
        if message is not None and message.error() is not None:
            raise KafkaException(message.error())
        given = _offsets(message, offsets)
        rows = self._stored.pending() if given is None else given
        if asynchronous:
            self._stored.commit_soon(rows)
            return None
        if not rows:
            text = "Commit failed: Local: No offset stored"
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET, text))
        self._call(lambda: self._stored.commit_now(rows))
        return rows

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The group's committed offsets; OFFSET_INVALID for none."""
        self._check()
        wanted = [row.pair for row in pairs_of(partitions)]
        found = self._call(lambda: self._consumer.committed(wanted, timeout_ms(timeout)))
        return [TopicPartition.at(tp, found.get(tp)) for tp in wanted]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The log start offset and the high watermark."""
        self._check()
        tp = partition.pair
        self._check_exists(tp, timeout)
        wait_ms = timeout_ms(timeout)
        low = self._call(lambda: self._consumer.beginning_offsets([tp], wait_ms))
        high = self._call(lambda: self._consumer.end_offsets([tp], wait_ms))
        return low[tp], high[tp]

    def _check_exists(self, tp: Pair, timeout: float) -> None:
        topic = self.list_topics(tp.topic, timeout).topics[tp.topic]
        if tp.partition not in topic.partitions:
            text = f"Failed to get watermark offsets: {tp} does not exist"
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, text))

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The first offset at or after the time (ms) in each partition's offset; -1, the end, if
        there is none.
        """
        self._check()
        wanted = {row.pair: row.offset for row in pairs_of(partitions)}
        found = self._call(lambda: self._consumer.offsets_for_times(wanted, timeout_ms(timeout)))
        rows = []
        for tp in wanted:
            at = found[tp]
            offset, epoch = (OFFSET_END, None) if at is None else (at.offset, at.leader_epoch)
            rows.append(TopicPartition(tp.topic, tp.partition, offset, None, epoch))
        return rows

    # ---- the group, the cluster, close ----

    def memberid(self) -> str:
        """This member's id in the group."""
        self._check()
        return self._consumer.group_metadata().member_id

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """For Producer.send_offsets_to_transaction."""
        self._check()
        return self._consumer.group_metadata()

    def close(self) -> None:
        """Commit the stored offsets (enable.auto.commit), and leave the group. Calling it again has
        no effect.
        """
        if self._is_closed:
            return
        self._stored.commit_at_end()
        self._events.serve(0)
        self._consumer.close()
        self._events.serve(0)
        self._is_closed = True
        self._events.close()

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except FAILURES as error:
            raise raised_as(error) from None


def _offsets(
    message: Message | None, offsets: list[TopicPartition] | None
) -> list[TopicPartition] | None:
    if message is None:
        return None if offsets is None else [row for row in pairs_of(offsets) if row.offset >= 0]
    topic, index, offset = message.topic(), message.partition(), message.offset()
    if topic is None or index is None or offset is None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "the message has no offset"))
    return [TopicPartition(topic, index, offset + 1, None, message.leader_epoch())]
