"""Reads offset ranges from brokers, in executors. The next Fetch is sent while the previous
response is decoded. A partition's first Fetch in a process checks all that can have changed since
the plan. The others, if they can, use a blocking socket to the same leader with the same topic id
(kstore.clients.replicator.blocking_fetches).

If records were deleted, truncated or replaced by another topic meanwhile, that is an error with
topic, partition and offset. With failOnDataLoss=false they are skipped, with a message on stderr.
Clients are kept for the next task of the same process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from kstore._fast.clients.fetched import FetchedRecords
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.list_offsets import list_offsets
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.replicator.blocking_fetches import BlockingFetcher, Leader, leader_of
from kstore.clients.replicator.wire import fetch
from kstore.config.client.configs import client_settings
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.pipeline.errors import PipelineError, remedy_for
from kstore.pipeline.ranges import Decoding, OffsetRange
from kstore.pipeline.read_options import EARLIEST, LATEST, ReadOptions
from kstore.pipeline.topic_client import ISOLATION, Life
from kstore.protocol.logs.fetch import PartitionData
from kstore.record import InvalidBatchError
from kstore.types import TopicPartition

__all__ = ["RECREATED", "FetchClient", "read_range"]

PARTITION_BYTES = 4 << 20
"""The default of max.partition.fetch.bytes in a request: fewer, larger responses."""
UNKNOWN_TRIES = 6
"""How many times a leader or the metadata may report a missing topic before it is believed."""
RECREATED = "the topic was deleted and created again since these offsets were planned"
REREAD = "Start the query again"
LOST = (
    "Set failOnDataLoss to false to continue with the records that exist, raise the topic's"
    " retention, or read from later offsets"
)
_clients: dict[tuple[tuple[str, str], ...], FetchClient] = {}


class FetchClient:
    """One cluster's connections, on their own loop; ``blocking``: and on blocking sockets, which is
    only faster in a process that keeps its memory (worker_process.keep_memory).
    """

    def __init__(self, settings: Mapping[str, Any], *, blocking: bool = False) -> None:
        self.settings = client_settings("consumer", settings)
        self.is_blocking = blocking and self.settings["security.protocol"] == "PLAINTEXT"
        self.thread = LoopThread()
        self.cluster = ClusterClient(self.settings)
        self.isolation = ISOLATION[self.settings["isolation.level"]]
        given = "max.partition.fetch.bytes" in settings
        self.partition_bytes = (
            self.settings["max.partition.fetch.bytes"] if given else PARTITION_BYTES
        )
        self.leaders: dict[tuple[TopicPartition, Life], Leader] = {}
        """The leaders that have answered, for the next ranges of the same partitions."""
        self._idle: dict[tuple[str, int], list[BlockingFetcher]] = {}

    def take(self, address: tuple[str, int]) -> BlockingFetcher:
        """An idle connection to this address, or a new one. Raises OSError."""
        try:
            return self._idle[address].pop()
        except (KeyError, IndexError):
            return BlockingFetcher(address, self.settings)

    def give_back(self, fetcher: BlockingFetcher) -> None:
        """Keep a connection for the next range, unless a response is still to come."""
        if fetcher.is_waiting or fetcher.is_throttled:
            fetcher.close()
        else:
            self._idle.setdefault(fetcher.address, []).append(fetcher)

    def close(self) -> None:
        """Close the connections and stop the loop."""
        for each in self._idle.values():
            while each:
                each.pop().close()
        self.thread.run(self.cluster.close())
        self.thread.close()


def _client(settings: Mapping[str, Any]) -> FetchClient:
    """The process's client with these settings."""
    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    found = _clients.get(key)
    if found is None:
        found = _clients[key] = FetchClient(settings, blocking=True)
    return found


def read_range(
    wanted: OffsetRange,
    options: ReadOptions,
    decoding: Decoding,
    client: FetchClient | None = None,
) -> Iterator[Any]:
    """The records of a range in the form of ``decoding``, in order. Without a client, it uses the
    one of this process. Raises PipelineError.
    """
    return _RangeReader(wanted, options, decoding, client or _client(options.client)).batches()


class _RangeReader:
    """A range that is being read."""

    def __init__(
        self, wanted: OffsetRange, options: ReadOptions, decoding: Decoding, client: FetchClient
    ) -> None:
        self._client = client
        self._options = options
        self._range = wanted
        self._planned = Life(wanted.partition_epoch, -1, wanted.topic_id)
        self._tp = TopicPartition(wanted.topic, wanted.partition)
        self._decoder = decoding(wanted, client.settings["check.crcs"])
        self._leader: Leader | None = None
        self._blocking: BlockingFetcher | None = None

    def batches(self) -> Iterator[Any]:
        """See read_range."""
        offset, end = self._range.start, self._range.end
        self._use_known_leader()
        pending = self._ask(offset)
        last_progress = time.monotonic()
        try:
            while offset < end:
                is_first = pending is not None and offset == self._range.start
                data = self._answer(pending, offset)
                next_offset = self._next(data, offset, last_progress)
                if is_first and next_offset > offset and self._client.is_blocking:
                    self._use_blocking()
                if next_offset < end:
                    pending = self._ask(next_offset)
                if data.error_code == ErrorCode.NONE and next_offset > offset:
                    yield from self._decoded(data, offset)
                del data  # the next response gets its memory, which is in the CPU's cache
                if next_offset > offset:
                    offset = next_offset
                    last_progress = time.monotonic()
        finally:
            if pending is not None:
                pending.cancel()  # the reader has stopped, or there was an error
            if self._blocking is not None:
                self._client.give_back(self._blocking)

    # ---- requests ----

    def _ask(self, offset: int) -> Future[PartitionData] | None:
        """Send a Fetch; its response arrives during other work. None: over the blocking socket."""
        client = self._client
        if self._blocking is not None and self._leader is not None:
            try:
                self._blocking.ask(
                    self._leader, self._tp, offset,
                    isolation=client.isolation, partition_bytes=client.partition_bytes,
                )  # fmt: skip
            except OSError:
                self._use_client()
            else:
                return None
        return self._from_client(offset)

    def _answer(self, pending: Future[PartitionData] | None, offset: int) -> PartitionData:
        if pending is None and self._blocking is not None:
            try:
                data = self._blocking.answer()
            except (OSError, KafkaError):  # the client finds the cause
                self._use_client()
            else:
                if self._blocking.is_throttled:
                    self._use_client()
                return data
        try:
            return (pending or self._from_client(offset)).result()
        except KafkaError as error:
            raise self._unanswered(error, offset) from error

    def _from_client(self, offset: int) -> Future[PartitionData]:
        """Send a Fetch by the client, which finds leaders and handles errors."""
        return asyncio.run_coroutine_threadsafe(self._fetch(offset), self._client.thread.loop)

    def _use_known_leader(self) -> None:
        """Use a blocking socket for the whole range, if the leader has answered an earlier one."""
        self._leader = self._client.leaders.get((self._tp, self._planned))
        if self._leader is not None:
            try:
                self._blocking = self._client.take(self._leader.address)
            except OSError:
                self._use_client()

    def _use_blocking(self) -> None:
        """Use a blocking socket for the rest of the range and for the next ranges, if the leader
        has one for it, and the metadata does not have another topic by now.
        """
        client = self._client
        if self._life().is_another(self._planned):
            return
        try:
            leader = client.thread.run(leader_of(client.cluster, self._tp))
            if leader is None:
                return
            self._blocking = client.take(leader.address)
        except (OSError, KafkaError):  # the client finds the cause
            return
        self._leader = leader
        if self._planned.topic_id == str(leader.topic_id):
            client.leaders[self._tp, self._planned] = leader

    def _use_client(self) -> None:
        """Use the client for the rest of the range, and for the first Fetch of the next one."""
        self._client.leaders.pop((self._tp, self._planned), None)
        if self._blocking is not None:
            self._blocking.close()
            self._blocking = None

    async def _fetch(self, offset: int) -> PartitionData:
        """The partition's response: records, or OFFSET_OUT_OF_RANGE."""
        client, tp = self._client, self._tp
        unknown = 0

        async def once() -> PartitionData:
            nonlocal unknown
            view = client.cluster.view
            if tp.topic not in view.topics:
                await client.cluster.refresh([tp.topic])
            try:
                await self._check_life(offset)
                rows = await fetch(
                    client.cluster,
                    view.leader(tp),
                    [(tp, offset, view.leader_epoch(tp))],
                    isolation=client.isolation,
                    wait_ms=client.settings["fetch.max.wait.ms"],
                    max_bytes=client.settings["fetch.max.bytes"],
                    partition_bytes=client.partition_bytes,
                )
                data = rows[tp]
                if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                    raise error_for(data.error_code, f"partition {tp}, offset {offset}")
            except KafkaError as error:
                unknown += error.code in _UNKNOWN
                if unknown >= UNKNOWN_TRIES:
                    raise self._problem(
                        "the topic does not exist any more",
                        offset,
                        "Create it again, or remove it from the query",
                    ) from error
                raise
            if -1 < self._range.partition_epoch != data.partition_epoch > -1:
                raise self._problem(RECREATED, offset, REREAD)
            return data

        return await client.cluster.retrying(once, self._options.poll_timeout_ms, [tp.topic])

    async def _check_life(self, offset: int) -> None:
        """Check that the metadata does not have another topic of the same name; what this process
        learned in an earlier task may be outdated.
        """
        if self._life().is_another(self._planned):
            await self._client.cluster.refresh([self._tp.topic])
        there = self._life()
        if not there.is_another(self._planned):
            return
        if there.is_older_than(self._planned):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, "metadata is older than the plan")
        raise self._problem(RECREATED, offset, REREAD)

    def _life(self) -> Life:
        """The partition's identity in the metadata."""
        view = self._client.cluster.view
        topic_id = view.topic_id(self._tp.topic)
        there = view.partition(self._tp)
        return Life(there.partition_epoch, -1, str(topic_id) if topic_id.int else "")

    # ---- responses ----

    def _next(self, data: PartitionData, offset: int, since: float) -> int:
        """The offset to continue at after a response: the same if it had no records, but not for
        longer than kafkaConsumer.pollTimeoutMs.
        """
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            next_offset = self._after_loss(offset)
        else:
            # Only the ends of its batches; nothing is decoded here.
            found = FetchedRecords(self._tp, data.records or b"", start_offset=offset, verify=False)
            next_offset = found.end_offset
            if found.is_cut_off and found.size_bytes and next_offset == offset:
                raise self._problem(
                    f"the broker sends {found.size_bytes} bytes, which is less than a batch",
                    offset,
                    "Raise kafka.max.partition.fetch.bytes and kafka.fetch.max.bytes",
                )
        waited_ms = (time.monotonic() - since) * 1000
        if next_offset > offset or waited_ms < self._options.poll_timeout_ms:
            return next_offset
        # A leader that has just changed may not know its high watermark yet; this is another case.
        ends = data.last_stable_offset if self._client.isolation else data.high_watermark
        return self._lost(
            f"no record arrived within {self._options.poll_timeout_ms} ms, but the query reads up"
            f" to offset {self._range.end}; the partition ends at {ends}",
            offset,
            self._range.end,
        )

    def _decoded(self, data: PartitionData, offset: int) -> Iterator[Any]:
        """The records of the response within the range."""
        aborted = None
        if self._client.isolation:
            aborted = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
        try:
            yield from self._decoder.batches(data.records or b"", offset, self._range.end, aborted)
        except (InvalidBatchError, OverflowError) as error:
            raise self._problem(
                f"a batch at or after this offset can't be read: {error}",
                offset,
                "Inspect it with `kstore log dump`, and start after it with startingOffsets",
            ) from error

    def _after_loss(self, offset: int) -> int:
        """The offset to continue at if the leader does not have this one: the same if it should
        have it.
        """
        first, last = self._edge(EARLIEST, offset), self._edge(LATEST, offset)
        if first <= offset <= last:
            return offset
        there = f"has offsets {first} to {last - 1}" if last > first else "is empty"
        return self._lost(
            f"records of the query do not exist any more; the partition {there}",
            offset,
            min(first, self._range.end) if offset < first else self._range.end,
        )

    def _edge(self, which: int, offset: int) -> int:
        """The start or end offset of the partition."""
        client = self._client
        ask = list_offsets(
            client.cluster,
            {self._tp: which},
            isolation_level=client.isolation,
            timeout_ms=self._options.poll_timeout_ms,
        )
        try:
            return client.thread.run(ask)[self._tp].offset
        except KafkaError as error:
            raise self._unanswered(error, offset) from error

    def _lost(self, what: str, offset: int, next_offset: int) -> int:
        """The offset to continue at after lost records. Raises an error unless data may be lost."""
        problem = self._problem(what, offset, LOST)
        if self._options.fail_on_data_loss:
            raise problem
        print(f"kstore: {problem} Continuing at offset {next_offset}.", file=sys.stderr)
        return next_offset

    def _unanswered(self, error: KafkaError, offset: int) -> PipelineError:
        otherwise = (
            "Check that brokers run, that executors reach their advertised.listeners, and"
            " kafkaConsumer.pollTimeoutMs"
        )
        return self._problem(
            f"the brokers at {self._options.servers} did not return the records: {error}",
            offset,
            remedy_for(error, otherwise),
        )

    def _problem(self, problem: str, offset: int, remedy: str) -> PipelineError:
        wanted = self._range
        return PipelineError(
            problem, topic=wanted.topic, partition=wanted.partition, offset=offset, remedy=remedy
        )


_UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
