"""A synchronous Kafka consumer of assigned partitions, or of all partitions of topics. No groups.

It fetches in the caller's thread: `poll` for a list of records, iteration for one after the other,
`fetch` for whole record sets.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from kstore.clients.core.fetch import (
    EARLIEST,
    ISOLATION_LEVELS,
    LATEST,
    FetchLimits,
    FetchResult,
    OffsetResult,
    fetch_request,
    fetch_results,
)
from kstore.clients.network import BrokerConnection, Cluster
from kstore.clients.offsets import list_offsets
from kstore.errors import (
    KafkaError,
    NetworkError,
    OffsetOutOfRangeError,
    ProtocolError,
    raise_for,
)
from kstore.protocol.fetch import FetchResponse
from kstore.record import InvalidBatchError, Record, RecordSet
from kstore.types import Header, TopicPartition

__all__ = ["Consumer", "ConsumerRecord"]

FETCH_KEY = 1
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class ConsumerRecord(NamedTuple):
    """One record with where it came from; the timestamp is in ms since 1970, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int


class Consumer:
    """Reads records. Arguments are Kafka's consumer configs; times in ms, sizes in bytes.

    `topics` is the same as calling `subscribe`. consumer_timeout_ms ends iteration after so long
    without a record; the default is never. Not for use from several threads at once.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        client_id: str = "kstore-consumer",
        auto_offset_reset: str = "latest",
        isolation_level: str = "read_uncommitted",
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        max_partition_fetch_bytes: int = 1_048_576,
        allow_auto_create_topics: bool = True,
        metadata_max_age_ms: int = 300_000,
        consumer_timeout_ms: int | None = None,
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
    ) -> None:
        if auto_offset_reset not in RESETS:
            raise ValueError(
                f"auto_offset_reset {auto_offset_reset!r} is not one of {list(RESETS)}"
            )
        if isolation_level not in ISOLATION_LEVELS:
            names = list(ISOLATION_LEVELS)
            raise ValueError(f"isolation_level {isolation_level!r} is not one of {names}")
        self._reset = RESETS[auto_offset_reset]
        self._limits = FetchLimits(
            fetch_max_wait_ms,
            fetch_min_bytes,
            fetch_max_bytes,
            max_partition_fetch_bytes,
            ISOLATION_LEVELS[isolation_level],
        )
        self._create = allow_auto_create_topics
        self._max_age_s = metadata_max_age_ms / 1000
        self._consumer_timeout_ms = consumer_timeout_ms
        self._timeout_ms = default_api_timeout_ms
        self._backoff_s = retry_backoff_ms / 1000
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        self._subscribed: tuple[str, ...] = ()
        self._refreshed = 0.0
        self._positions: dict[TopicPartition, int] = {}
        self._unplaced: set[TopicPartition] = set()
        self._waiting: list[tuple[TopicPartition, Iterator[Record], RecordSet]] = []
        if topics:
            self.subscribe(topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; positions of those read before are kept."""
        self._subscribed = ()
        self._assign([TopicPartition(*tp) for tp in partitions])

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of topics, also those that are added later (metadata_max_age_ms).

        Raises UnknownTopicOrPartitionError for a topic that does not come to be in time.
        """
        if isinstance(topics, str):
            raise TypeError(f"topics is one string, {topics!r}: give a list of names")
        self._subscribed = tuple(topics)
        self._assign_subscribed()

    def _assign_subscribed(self) -> None:
        def ask() -> list[TopicPartition]:
            self._cluster.refresh(self._subscribed, create=self._create)
            found = []
            for name in self._subscribed:
                rows = self._cluster.view.topic(name).partitions
                found += [TopicPartition(name, row.partition) for row in rows]
            return found

        self._assign(self._cluster.retrying(ask, self._timeout_ms / 1000))
        self._refreshed = time.monotonic()

    def _assign(self, partitions: list[TopicPartition]) -> None:
        self._positions = {tp: self._positions.get(tp, -1) for tp in partitions}
        self._unplaced = {tp for tp, offset in self._positions.items() if offset < 0}
        self._waiting = [row for row in self._waiting if row[0] in self._positions]

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return list(self._positions)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on from an offset."""
        if tp not in self._positions:
            raise ValueError(f"{tp} is not assigned to this consumer")
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        self._positions[tp] = offset
        self._unplaced.discard(tp)
        self._waiting = [row for row in self._waiting if row[0] != tp]

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on from the log start offset of these partitions (none named: of all)."""
        for tp, offset in self.beginning_offsets(partitions or self.assignment()).items():
            self.seek(tp, offset)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on from the end of these partitions (none named: of all)."""
        for tp, offset in self.end_offsets(partitions or self.assignment()).items():
            self.seek(tp, offset)

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record that will be returned."""
        if tp not in self._positions:
            raise ValueError(f"{tp} is not assigned to this consumer")
        self._place()
        return self._positions[tp]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offsets."""
        return self._offsets({TopicPartition(*tp): EARLIEST for tp in partitions})

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets after the last record: high watermark, or last stable offset if
        read_committed.
        """
        return self._offsets({TopicPartition(*tp): LATEST for tp in partitions})

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetResult | None]:
        """For each partition the first record at or after a moment in ms, None: there is none."""
        found = self._list_offsets(timestamps)
        return {tp: row if row.offset >= 0 else None for tp, row in found.items()}

    def _offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {tp: row.offset for tp, row in self._list_offsets(timestamps).items()}

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetResult]:
        return list_offsets(
            self._cluster,
            timestamps,
            isolation_level=self._limits.isolation_level,
            timeout_ms=self._timeout_ms,
        )

    def _place(self) -> None:
        """Give partitions without a position the one that auto_offset_reset asks for."""
        if not self._unplaced:
            return
        if self._reset is None:
            names = ", ".join(sorted(map(str, self._unplaced)))
            raise OffsetOutOfRangeError(f"no position for {names}, and auto_offset_reset is none")
        offsets = self._offsets(dict.fromkeys(self._unplaced, self._reset))
        self._positions.update(offsets)
        self._unplaced.clear()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records one after the other, for ever or until consumer_timeout_ms without one."""
        while True:
            wait = self._consumer_timeout_ms
            records = self.poll(wait if wait is not None else 3_600_000, max_records=1)
            if records:
                yield records[0]
            elif wait is not None:
                return

    def poll(self, timeout_ms: int = 0, max_records: int = 500) -> list[ConsumerRecord]:
        """Up to max_records records, as soon as there are any; empty when timeout_ms is over."""
        deadline = time.monotonic() + timeout_ms / 1000
        records = self._drain(max_records)
        while not records:
            left_ms = int((deadline - time.monotonic()) * 1000)
            for tp, found in self._fetch(max(left_ms, 0)).items():
                self._waiting.append((tp, iter(found), found))
            records = self._drain(max_records)
            if time.monotonic() >= deadline:
                break
        return records

    def fetch(self, timeout_ms: int = 500) -> dict[TopicPartition, RecordSet]:
        """One round of fetches, as whole record sets, which count as read when returned.

        Not to be mixed with `poll` and iteration without `seek` between them.
        """
        found = self._fetch(timeout_ms)
        for tp, records in found.items():
            self._positions[tp] = records.next_offset or self._positions[tp]
        return found

    def _drain(self, max_records: int) -> list[ConsumerRecord]:
        out: list[ConsumerRecord] = []
        while self._waiting and len(out) < max_records:
            tp, records, whole = self._waiting[0]
            try:
                taken = list(itertools.islice(records, max_records - len(out)))
            except InvalidBatchError:
                # Fetched again from the position, the records before the bad batch come first.
                self._waiting.pop(0)
                raise
            out += [_consumer_record(tp, record) for record in taken]
            if taken:
                self._positions[tp] = taken[-1].offset + 1
            if len(out) < max_records:
                self._waiting.pop(0)
                self._positions[tp] = whole.next_offset or self._positions[tp]
        return out

    def _fetch(self, timeout_ms: int) -> dict[TopicPartition, RecordSet]:
        if self._subscribed and time.monotonic() - self._refreshed > self._max_age_s:
            self._assign_subscribed()
        self._place()
        failed = False
        under_way = []
        for leader, positions in self._by_leader().items():
            try:
                under_way.append((self._send(leader, positions, timeout_ms), positions))
            except NetworkError:
                failed = True
        found: dict[TopicPartition, RecordSet] = {}
        for connection, positions in under_way:
            results = self._receive(connection, positions)
            failed |= results is None or not self._take(results, found)
        if failed or not under_way:
            time.sleep(min(self._backoff_s, timeout_ms / 1000))
            self._refresh()
        return found

    def _by_leader(self) -> dict[int, dict[TopicPartition, int]]:
        rows: dict[int, dict[TopicPartition, int]] = {}
        unknown = {tp.topic for tp in self._positions} - set(self._cluster.view.topics)
        if unknown:
            self._cluster.refresh(sorted(unknown), create=self._create)
        for tp, offset in self._positions.items():
            try:
                rows.setdefault(self._cluster.view.leader(tp), {})[tp] = offset
            except KafkaError as error:
                if not error.retriable:
                    raise
        return rows

    def _send(
        self, leader: int, positions: dict[TopicPartition, int], timeout_ms: int
    ) -> BrokerConnection:
        connection = self._cluster.broker(leader)
        version = connection.versions.choose(FETCH_KEY)
        limits = self._limits
        wait_ms = min(limits.max_wait_ms, timeout_ms)
        limits = FetchLimits(
            wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            limits.max_partition_bytes,
            limits.isolation_level,
        )
        request = fetch_request(positions, self._cluster.view, limits, by_id=version >= 13)
        try:
            connection.send(request, version)
        except NetworkError:
            self._cluster.drop(connection)
            raise
        return connection

    def _receive(
        self, connection: BrokerConnection, positions: dict[TopicPartition, int]
    ) -> dict[TopicPartition, FetchResult] | None:
        wait_s = self._cluster.request_timeout_s + self._limits.max_wait_ms / 1000
        try:
            response = connection.receive(FetchResponse, time.monotonic() + wait_s)
        except (KafkaError, ProtocolError) as error:
            self._cluster.drop(connection)
            if isinstance(error, KafkaError) and error.retriable:
                return None
            raise
        raise_for(response.error_code)
        committed = self._limits.isolation_level == ISOLATION_LEVELS["read_committed"]
        return fetch_results(response, positions, self._cluster.view, read_committed=committed)

    def _take(
        self, results: dict[TopicPartition, FetchResult], found: dict[TopicPartition, RecordSet]
    ) -> bool:
        """Keep the records that came; True unless metadata should be fetched anew."""
        fine = True
        for tp, result in results.items():
            if result.error is None:
                if result.records.next_offset is not None:
                    found[tp] = result.records
            elif isinstance(result.error, OffsetOutOfRangeError):
                if self._reset is None:
                    raise OffsetOutOfRangeError(
                        f"partition {tp}: offset {self._positions[tp]} is outside the log, which "
                        f"begins at {result.log_start_offset}, and auto_offset_reset is none"
                    )
                self._unplaced.add(tp)
            elif result.error.retriable:
                fine = False
            else:
                raise result.error
        return fine

    def _refresh(self) -> None:
        try:
            self._cluster.refresh(sorted({tp.topic for tp in self._positions}))
        except KafkaError as error:
            if not error.retriable:
                raise


def _consumer_record(tp: TopicPartition, record: Record) -> ConsumerRecord:
    return ConsumerRecord(
        tp.topic,
        tp.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )
