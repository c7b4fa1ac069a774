"""What Consumer and AIOConsumer share: argument checks, record batches, listener calls and
interceptors.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kstore._fast.clients.fetched import ConsumerRecord, FetchedRecords
from kstore._fast.record.batch import InvalidBatchError
from kstore.clients.core.consumer.inbox import corrupt
from kstore.clients.core.consumer.lost_records import LostRecords
from kstore.clients.core.consumer.subscription import SubscriptionPattern, SubscriptionState
from kstore.clients.io.consumer_shell import ConsumerShell
from kstore.clients.io.handover import RebalanceListener
from kstore.clients.producer_record import interceptor_of
from kstore.config.client.configs import ClientSettings, client_settings
from kstore.items import Items, items_of
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore.record import RecordSet

__all__ = [
    "ARROW_RECORDS",
    "CommitCallback",
    "ConsumerInterceptor",
    "Interceptors",
    "Topics",
    "WakeupError",
    "consumer_settings",
    "listener_of",
    "log_truncation",
    "no_arrow",
    "subscribe",
    "take_arrow",
    "take_whole",
    "topics_of",
]

Topics = Items[str] | re.Pattern[str] | SubscriptionPattern
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object]
ARROW_RECORDS = 65_536
NAMES = "names, or re.compile(...)"
_log = logging.getLogger("kstore.clients.consumer")


class WakeupError(Exception):
    """Raised by a poll() that wakeup() interrupted."""


def log_truncation(lost: LostRecords) -> None:
    """The default of on_truncation: log a warning."""
    _log.warning("%s", lost)


class ConsumerInterceptor(Protocol):
    """Receives records before the user does (interceptor.classes). Exceptions that it raises are
    logged.
    """

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records that poll() should return."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after the user committed these offsets."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class Interceptors:
    """Several interceptors, called in order."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._all: list[ConsumerInterceptor] = [
            interceptor_of(item, "on_consume") for item in given
        ]

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records that the interceptors return."""
        for item in self._all:
            try:
                records = item.on_consume(records)
            except Exception:  # noqa: BLE001  as in Kafka, no record is lost because of it
                _log.exception("interceptor %r failed in on_consume", item)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Call on_commit of all."""
        for item in self._all:
            try:
                item.on_commit(offsets)
            except Exception:  # noqa: BLE001  as in Kafka, no record is lost because of it
                _log.exception("interceptor %r failed in on_commit", item)

    def close(self) -> None:
        """Close all."""
        for item in self._all:
            try:
                item.close()
            except Exception:  # noqa: BLE001  as in Kafka, no record is lost because of it
                _log.exception("interceptor %r failed in close", item)


def consumer_settings(
    config: Mapping[str, Any] | str | Items[str] | None,
    topics: Sequence[str],
    keywords: Mapping[str, Any],
) -> tuple[ClientSettings, tuple[str, ...]]:
    """The settings, and the topics to subscribe to. A first argument that is not a mapping is
    bootstrap.servers. If bootstrap_servers is also given as a keyword, it is a topic.
    """
    if config is not None and not isinstance(config, Mapping) and "bootstrap_servers" in keywords:
        named = [config] if isinstance(config, str) else items_of("topics", config, str, NAMES)
        topics = (*named, *topics)
        config = None
    settings = client_settings("consumer", config, keywords)
    return settings, tuple(items_of("topics", topics, str, NAMES))


def topics_of(topics: Topics) -> Topics:
    """What to subscribe to: a pattern, or a list of names, which may be empty. Raises TypeError for
    a single string.
    """
    if isinstance(topics, (re.Pattern, SubscriptionPattern)):
        return topics
    return items_of("topics", topics, str, NAMES)


def subscribe(subscription: SubscriptionState, topics: Topics) -> None:
    """Apply a user's call to the subscription."""
    if isinstance(topics, (re.Pattern, SubscriptionPattern)):
        subscription.subscribe_pattern(topics)
    else:
        subscription.subscribe(topics)


def listener_of(listener: Any) -> RebalanceListener | None:
    """The listener; an object may have only some of RebalanceListener's methods."""
    if listener is None or isinstance(listener, RebalanceListener):
        return listener
    return _Partial(listener)


class _Partial(RebalanceListener):
    """Adapts a listener that is not a RebalanceListener: calls the methods that it has."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def on_partitions_revoked(self, revoked: Any) -> Any:
        method = getattr(self._given, "on_partitions_revoked", None)
        return None if method is None else method(revoked)

    def on_partitions_assigned(self, assigned: Any) -> Any:
        method = getattr(self._given, "on_partitions_assigned", None)
        return None if method is None else method(assigned)

    def on_partitions_lost(self, lost: Any) -> Any:
        method = getattr(self._given, "on_partitions_lost", None)
        return self.on_partitions_revoked(lost) if method is None else method(lost)


def take_whole(shell: ConsumerShell) -> dict[TopicPartition, RecordSet]:
    """The fetched records as whole record sets, one for each partition."""
    found: dict[TopicPartition, RecordSet] = {}
    while True:
        records = shell.inbox.head(raising=not found)
        if records is None or records.tp in found:
            return found
        try:
            found[records.tp] = records.whole()
        except InvalidBatchError as error:
            if found:
                return found
            raise corrupt(records, error) from None


def no_arrow(*, headers: bool) -> pyarrow.RecordBatch:
    """A batch without rows, with the same columns."""
    from kstore._fast.record.columns import Columns
    from kstore.clients.arrow import record_batch

    return record_batch(Columns(), [], headers=headers)


def take_arrow(
    shell: ConsumerShell, max_records: int, *, headers: bool
) -> pyarrow.RecordBatch | None:
    """The fetched records as a pyarrow.RecordBatch; None if there are none."""
    from kstore._fast.record.columns import Columns
    from kstore.clients.arrow import record_batch

    columns = Columns()
    runs: list[tuple[TopicPartition, int]] = []
    while len(columns) < max_records:
        records = shell.inbox.head(raising=not runs)
        if records is None or (runs and _is_much(columns, records)):
            break
        try:
            taken = records.take_columns(columns, max_records - len(columns))
        except InvalidBatchError as error:
            if runs:
                break
            raise corrupt(records, error) from None
        if taken:
            runs.append((records.tp, taken))
    return record_batch(columns, runs, headers=headers) if runs else None


def _is_much(columns: Any, records: FetchedRecords) -> bool:
    """Whether another response would make the batch too large for the CPU caches."""
    return len(columns.value.data) + records.size_bytes > 1_048_576
