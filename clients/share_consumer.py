"""ShareConsumer reads records together with the other members of a share group (KIP-932). io/share/
has the part that runs on its loop. AIOShareConsumer, in aio_share_consumer.py, is the same for
asyncio.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from kstore.clients.consumer_calls import NAMES, WakeupError
from kstore.clients.core.share.acknowledgements import AcknowledgeType, acknowledge_type
from kstore.clients.core.share.holdings import Held
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.io.share.shell import InterruptedPollError, ShareShell
from kstore.clients.io.unclosed import Unclosed
from kstore.clients.serializers import Deserializers
from kstore.clients.share_record import (
    AcknowledgementCallback,
    OnError,
    ShareRecord,
    result_of,
)
from kstore.config.client.configs import ClientSettings, client_settings
from kstore.errors import KafkaError
from kstore.items import Items, items_of
from kstore.types import TopicPartition

__all__ = [
    "CLOSE_MS", "FORGOTTEN_MS", "ShareConsumer", "names_of", "place_of", "share_settings", "shown",
    "verdict",
]  # fmt: skip

T = TypeVar("T")
CLOSE_MS, FORGOTTEN_MS = 30_000, 5_000
_log = logging.getLogger("kstore.clients.consumer")
Handler = Callable[[ShareRecord], object]


class ShareConsumer:
    """Reads records with the other members of a share group (KIP-932). One member at a time has a
    record. The record is done when that member accepts it. Use a ShareConsumer in one thread at a
    time; only `wakeup` may be called from other threads.

    Settings are Kafka's: a mapping with dotted names, or keywords with underscores, which take
    precedence. A str or a list instead of the mapping is bootstrap.servers. The other positional
    arguments are topics to subscribe to. Times are in ms. Raises ConfigError, a ValueError.

    close() releases records that were not acknowledged. If the consumer is not closed, the broker
    releases them when their acquisition lock expires (group.share.record.lock.duration.ms).
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Items[str] | None = None,
        /,
        *topics: str,
        **keywords: Any,
    ) -> None:
        settings, names = share_settings(config, topics, keywords)
        self._deserializers = Deserializers(settings)
        self._settings = settings
        self._callback: AcknowledgementCallback | None = None
        self._thread = LoopThread()
        try:
            self._shell = self._do(ShareShell, settings)
            self._unclosed = Unclosed(
                self, self._thread, _forgetting(self._shell),
                what="share consumers to leave their groups", patience_s=FORGOTTEN_MS / 1000,
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

    def _do(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function on the loop."""
        return self._thread.run(_called(function, *arguments))

    # ---- subscription ----

    def subscribe(self, topics: Items[str]) -> None:
        """Read these topics instead of the previous ones. An empty list is like `unsubscribe`."""
        names = names_of(topics)
        if names:
            self._do(self._shell.subscribe, names)
        else:
            self.unsubscribe()

    def unsubscribe(self) -> None:
        """Release the held records, leave the group, and stop reading."""
        self._thread.run(self._shell.unsubscribe())
        self._report_results()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._shell.topics

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads. Other members may read them too."""
        return self._do(self._shell.assignment)

    # ---- records ----

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ShareRecord]:
        """Return up to `max_records` records (default: max.poll.records) as soon as there are any.
        Returns an empty list after `timeout_ms`.

        This accepts the records of the previous poll. With share.acknowledgement.mode=explicit it
        does not; it raises RuntimeError if some of them were not acknowledged. Also raises
        WakeupError, CorruptMessageError, and errors of brokers that a retry cannot solve.
        """
        limit = self._settings["max.poll.records"] if max_records is None else max_records
        return self._polled(timeout_ms, limit)

    def _polled(self, timeout_ms: float | None, limit: int) -> list[ShareRecord]:
        try:
            rows = self._thread.run(self._shell.poll(timeout_ms, limit))
        except InterruptedPollError as woken:
            raise WakeupError(str(woken)) from None
        finally:
            self._report_results()
        return shown(rows, self._deserializers)

    def __iter__(self) -> Iterator[ShareRecord]:
        """Iterate over records until consumer.timeout.ms passes without one; by default forever. In
        implicit mode a record is accepted when the loop asks for the next one. If the loop ends
        early, the current record and all later ones are released.
        """
        timeout_ms = self._settings["consumer.timeout.ms"]
        try:
            while records := self._polled(None if timeout_ms < 0 else timeout_ms, self._limit):
                for record in records:
                    yield record
                    if not self._shell.is_explicit:
                        self.acknowledge(record)
        finally:
            self._release_rest()

    @property
    def _limit(self) -> int:
        limit: int = self._settings["max.poll.records"]
        return limit

    def run(
        self, handler: Handler, *, on_error: OnError = AcknowledgeType.RELEASE,
        idle_ms: float | None = None,
    ) -> None:  # fmt: skip
        """Call `handler` with each record, and accept the record when it returns. If it raises an
        Exception, the exception is logged and the record is released. With on_error="reject" the
        record is rejected and not delivered again. `on_error` can also be a function of the record
        and the exception that returns an acknowledgement type.

        Returns after wakeup(), or after `idle_ms` without a record (None: never). Any other
        exception of the handler, such as KeyboardInterrupt, is raised; the current record and all
        later ones are released.
        """
        try:
            while records := self._polled(idle_ms, self._limit):
                for record in records:
                    if self._shell.holdings.has(*place_of(record)):
                        self.acknowledge(record, self._handled(handler, record, on_error))
        except WakeupError:
            return
        finally:
            self._release_rest()

    def _handled(self, handler: Handler, record: ShareRecord, on_error: OnError) -> AcknowledgeType:
        try:
            handler(record)
        except Exception as error:  # noqa: BLE001  the user chooses how to handle it
            return verdict(on_error, record, error)
        return AcknowledgeType.ACCEPT

    def _release_rest(self) -> None:
        if not self._thread.is_closed:
            self._do(self._shell.holdings.acknowledge_all, AcknowledgeType.RELEASE)
            self._do(self._shell.flush)

    def wakeup(self) -> None:
        """Make the running poll(), or the next one, raise WakeupError, and make run() return. Any
        thread may call this.
        """
        self._shell.wakeup()

    # ---- acknowledgements ----

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType | str = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record with "accept", "release", "reject" or "renew". The next poll() or
        commit() sends it. A later poll() returns a renewed record again.

        Raises ValueError if this consumer does not hold the record (any more).
        """
        tp, offset = place_of(record)
        self._acknowledge(tp, offset, acknowledge_type(kind))

    def _acknowledge(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        holdings = self._shell.holdings
        if holdings.has(tp, offset):
            holdings.acknowledge(tp, offset, kind)  # the usual case, which needs no other thread
        else:
            self._do(holdings.acknowledge, tp, offset, kind)

    def acknowledge_range(
        self, partition: TopicPartition, first_offset: int, last_offset: int,
        kind: AcknowledgeType | str = AcknowledgeType.ACCEPT,
    ) -> int:  # fmt: skip
        """Acknowledge the held records of a partition from `first_offset` to `last_offset`
        (inclusive). Returns their number. Raises ValueError if there are none.
        """
        tp = TopicPartition(*partition)
        holdings = self._shell.holdings
        return holdings.acknowledge_range(tp, first_offset, last_offset, acknowledge_type(kind))

    def commit(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send the acknowledgements and wait for the responses. Returns None or the error for each
        partition. InvalidRecordStateError means that an acquisition lock had expired. In implicit
        mode this first accepts the records of the previous poll.

        Raises TimeoutError if a response does not arrive within `timeout_ms` (default:
        default.api.timeout.ms).
        """
        try:
            return self._thread.run(self._shell.commit(timeout_ms))
        finally:
            self._report_results()

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting. The acknowledgement callback gets the
        results.
        """
        if not self._shell.is_explicit:
            self._do(self._shell.holdings.acknowledge_all, AcknowledgeType.ACCEPT)
        self._do(self._shell.flush)

    def set_acknowledgement_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Set a function that gets an AcknowledgementResult for each partition whose
        acknowledgements were answered. poll(), commit() and close() call it.
        """
        self._callback = callback

    def _report_results(self) -> None:
        completed = self._shell.completed
        while completed:
            result = result_of(completed.popleft())
            if self._callback is not None:
                self._callback(result)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long a consumer may hold a record, in ms. None until a broker has answered."""
        return self._shell.lock_timeout_ms

    # ---- close ----

    def close(self, timeout_ms: float = CLOSE_MS) -> None:
        """Send the acknowledgements, release all other records, leave the group and close the
        connections, within `timeout_ms`. Closing a closed consumer has no effect.
        """
        if self._thread.is_closed:
            return
        self._unclosed.closed()
        try:
            self._thread.run(self._shell.close(timeout_ms))
            self._report_results()
        finally:
            self._thread.close()


# ---- shared with AIOShareConsumer ----


def share_settings(
    config: Mapping[str, Any] | str | Items[str] | None,
    topics: tuple[str, ...],
    keywords: Mapping[str, Any],
) -> tuple[ClientSettings, list[str]]:
    """The settings, and the topics to subscribe to, as for Consumer."""
    if config is not None and not isinstance(config, Mapping) and "bootstrap_servers" in keywords:
        named = [config] if isinstance(config, str) else items_of("topics", config, str, "names")
        topics = (*named, *topics)
        config = None
    settings = client_settings("share", config, keywords)
    return settings, items_of("topics", topics, str, NAMES)


def names_of(topics: Items[str]) -> list[str]:
    """Topic names. Raises TypeError for a single string, and for a regular expression, which share
    groups do not support.
    """
    return items_of("topics", topics, str, "topic names (share groups have no patterns)")


def shown(rows: list[Held], deserializers: Deserializers) -> list[ShareRecord]:
    """The records as the user gets them."""
    records: list[Any] = [row.record for row in rows]
    if deserializers:
        records = deserializers.on_consume(records)
    return [
        ShareRecord(record, row.delivery_count) for record, row in zip(records, rows, strict=True)
    ]


def verdict(on_error: OnError, record: ShareRecord, error: Exception) -> AcknowledgeType:
    """The acknowledgement of a record whose handler raised."""
    kind = acknowledge_type(on_error(record, error) if callable(on_error) else on_error)
    _log.error("%r: its handler raised; %s", record, kind.name.lower(), exc_info=error)
    return kind


def place_of(record: ShareRecord) -> tuple[TopicPartition, int]:
    """Partition and offset."""
    return TopicPartition(record.topic, record.partition), record.offset


def _forgetting(shell: ShareShell) -> Callable[[], Coroutine[Any, Any, None]]:
    """The function that closes a forgotten consumer. It has no reference to the consumer."""
    return lambda: shell.close(FORGOTTEN_MS)


async def _called(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)
