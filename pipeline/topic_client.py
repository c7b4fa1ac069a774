"""The driver's requests to brokers: partitions and their identity, their start and end, the ends of
leader epochs, and the prior partitions of an expansion. It reads no records.

Connections are opened by the first request, so that an unused object can be sent to another
process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from kstore.clients.core.group.expansion_gate import PriorEpoch
from kstore.clients.core.metadata import ClusterView, TopicView
from kstore.clients.io.cluster import ANY, ClusterClient
from kstore.clients.io.list_offsets import (
    EpochEnd,
    FoundOffset,
    epoch_ends,
    list_offsets,
    list_offsets_once,
)
from kstore.clients.io.loop_thread import LoopThread
from kstore.config.client.configs import ClientSettings, client_settings
from kstore.errors import (
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from kstore.pipeline.errors import PipelineError, remedy_for
from kstore.pipeline.read_options import EARLIEST, LATEST, OffsetLimit, ReadOptions
from kstore.protocol.logs.leader_epoch_for_partition import (
    LeaderEpochForPartitionRequest,
    LeaderEpochForPartitionResponse,
    LeaderEpochForPartitionTopic,
)
from kstore.protocol.schema import ZERO_UUID
from kstore.types import TopicPartition

__all__ = ["ISOLATION", "Life", "TopicClient"]

T = TypeVar("T")
ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
_KIP_253 = "kstore.kip253"
_UNKNOWN = (UnknownTopicOrPartitionError, InvalidTopicError)


class Life(NamedTuple):
    """The identity of a partition, and the epoch of its leader; -1 and "" if brokers do not send
    them.
    """

    partition_epoch: int = -1
    leader_epoch: int = -1
    topic_id: str = ""

    def is_another(self, other: Life) -> bool:
        """Whether the two certainly differ: the topic was deleted and created again."""
        if self.partition_epoch >= 0 and other.partition_epoch >= 0:
            return self.partition_epoch != other.partition_epoch
        return bool(self.topic_id and other.topic_id) and self.topic_id != other.topic_id

    def is_older_than(self, other: Life) -> bool:
        """Whether this proves a later state: then the metadata is outdated."""
        if -1 in (self.partition_epoch, other.partition_epoch):
            return False
        if self.partition_epoch != other.partition_epoch:
            return self.partition_epoch < other.partition_epoch
        return -1 < self.leader_epoch < other.leader_epoch


class TopicClient:
    """Requests about the partitions that a read's options select."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._thread: LoopThread | None = None
        self._cluster: ClusterClient | None = None
        self._was_answered = False
        self._settings: ClientSettings | None = None
        self._last: dict[TopicPartition, Life] = {}
        """The last response of partitions_with_ends."""

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        thread, cluster = self._thread, self._cluster
        self._thread = self._cluster = None
        if thread is not None and cluster is not None:
            thread.run(cluster.close())
            thread.close()

    # ---- requests ----

    def partitions(self) -> dict[TopicPartition, Life]:
        """The selected partitions, from fresh metadata. Raises PipelineError for a missing
        topic.
        """
        return self._selected(self._ask(f"the partitions of {self._options.selection}", self._all))

    def partitions_with_ends(
        self,
    ) -> tuple[dict[TopicPartition, Life], dict[TopicPartition, FoundOffset]]:
        """The selected partitions as in `partitions`, and their ends, which are requested at the
        same time as the metadata. Without ends if a partition or its leader has changed since the
        last call: they could be those of a deleted topic.
        """
        last = self._last

        async def ask(
            cluster: ClusterClient,
        ) -> tuple[dict[TopicPartition, Life], dict[TopicPartition, FoundOffset]]:
            ends: dict[TopicPartition, FoundOffset] = {}
            request = asyncio.ensure_future(self._find_ends(cluster, last, ends))
            await asyncio.sleep(0)  # it needs the leaders of the view, which _all may clear
            try:
                lives = self._selected(await self._all(cluster))
                if lives != last or await request:
                    return lives, {}
                return lives, ends
            finally:
                request.cancel()

        self._last, ends = self._ask(f"the partitions of {self._options.selection}", ask)
        return self._last, ends

    async def _find_ends(
        self,
        cluster: ClusterClient,
        partitions: Collection[TopicPartition],
        found: dict[TopicPartition, FoundOffset],
    ) -> bool:
        """Find the partitions' ends, in one round. Whether there were errors."""
        errors = await list_offsets_once(
            cluster,
            dict.fromkeys(partitions, LATEST),
            found,
            ISOLATION[self.setting("isolation.level")],
            self.setting("default.api.timeout.ms"),
        )
        return bool(errors)

    async def _all(self, cluster: ClusterClient) -> dict[TopicPartition, Life]:
        """All partitions of the selected topics."""
        selection = self._options.selection
        names = selection.names()
        if names is None:
            cluster.view.topics.clear()  # otherwise deleted ones stay
        await cluster.refresh(names)
        view = cluster.view
        if names is None:
            topics = view.topics.values()
            names = [t.name for t in topics if not t.is_internal and selection.matches(t.name)]
        found = {}
        for name in names:
            for row in self._known(view, name).partitions:
                topic_id = view.topic_id(name)
                found[TopicPartition(name, row.partition)] = Life(
                    row.partition_epoch,
                    row.leader_epoch,
                    "" if topic_id == ZERO_UUID else str(topic_id),
                )
        return found

    def _selected(self, found: dict[TopicPartition, Life]) -> dict[TopicPartition, Life]:
        """These partitions, or those of option assign."""
        selection = self._options.selection
        if not selection.partitions:
            return found
        for tp in selection.partitions:
            if tp not in found:
                raise PipelineError(
                    "there is no such partition",
                    topic=tp.topic,
                    partition=tp.partition,
                    remedy="Correct option assign",
                )
        return {tp: found[tp] for tp in selection.partitions}

    def _known(self, view: ClusterView, name: str) -> TopicView:
        """Require a topic to exist."""
        try:
            return view.topic(name)
        except _UNKNOWN as error:
            raise PipelineError(
                f"the brokers at {self._options.servers} do not have this topic",
                topic=name,
                remedy=remedy_for(error, "Check the topic's name"),
            ) from error

    def offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """A FoundOffset for each timestamp in ms, EARLIEST or LATEST."""
        if not timestamps:
            return {}
        isolation = ISOLATION[self.setting("isolation.level")]
        patience = self.setting("default.api.timeout.ms")

        async def ask(cluster: ClusterClient) -> dict[TopicPartition, FoundOffset]:
            return await list_offsets(
                cluster, timestamps, isolation_level=isolation, timeout_ms=patience
            )

        return self._ask("the start and end of partitions", ask)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """The ends of leader epochs in the current logs; without those that no broker knows."""
        if not epochs:
            return {}

        async def ask(cluster: ClusterClient) -> dict[TopicPartition, EpochEnd]:
            rows = await epoch_ends(cluster, epochs)
            return {
                tp: end
                for tp, end in rows.items()
                if isinstance(end, EpochEnd) and end.end_offset >= 0
            }

        return self._ask("the ends of leader epochs", ask)

    def priors(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Any]:
        """For each partition the list of its PriorEpochs (KIP-253), empty for those as old as their
        topic; unknown ones are omitted.
        """
        if not partitions:
            return {}

        async def ask(cluster: ClusterClient) -> dict[TopicPartition, list[PriorEpoch]]:
            connection = await cluster.connection(ANY)
            if not connection.versions.has(_KIP_253):
                return {tp: [] for tp in partitions}
            topics: dict[str, list[int]] = {}
            for topic, index in sorted(partitions):
                topics.setdefault(topic, []).append(index)
            request = LeaderEpochForPartitionRequest(
                topics=[
                    LeaderEpochForPartitionTopic(name=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ]
            )
            answer = await cluster.ask(ANY, request)
            assert isinstance(answer, LeaderEpochForPartitionResponse)
            return {
                TopicPartition(topic.name, row.partition_index): [
                    PriorEpoch(
                        TopicPartition(topic.name, prior.partition_index), prior.leader_epoch
                    )
                    for prior in row.prior_leader_epochs
                ]
                for topic in answer.topics
                for row in topic.partitions
                if row.error_code == ErrorCode.NONE
            }

        return self._ask("the partitions before an expansion", ask)

    def resolve(
        self, limit: OffsetLimit, partitions: Collection[TopicPartition], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        """The offset of a limit in each partition."""
        given = self._given(limit, partitions)
        if not limit.is_time:
            special = {tp: offset for tp, offset in given.items() if offset < 0}
            found = self.offsets(special)
            plain = {tp: offset for tp, offset in given.items() if offset >= 0}
            return {tp: row.offset for tp, row in found.items()} | self._within(limit, plain)
        found = self.offsets(given)
        missing = [tp for tp, row in found.items() if row.offset < 0]
        if missing and is_start and not self._options.latest_without_match:
            tp = min(missing)
            raise PipelineError(
                f"no record has a timestamp of {given[tp]} or later, as {limit.option} asks",
                topic=tp.topic,
                partition=tp.partition,
                remedy="Use an earlier one, or startingOffsetsByTimestampStrategy=latest",
            )
        ends = self.offsets(dict.fromkeys(missing, LATEST))
        return {tp: (ends[tp] if row.offset < 0 else row).offset for tp, row in found.items()}

    def _within(
        self, limit: OffsetLimit, given: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Offsets of an option must exist; with failOnDataLoss=false they are moved to existing
        ones.
        """
        first = self.offsets(dict.fromkeys(given, EARLIEST))
        last = self.offsets(dict.fromkeys(given, LATEST))
        found = {}
        for tp, offset in given.items():
            low, high = first[tp].offset, last[tp].offset
            found[tp] = min(max(offset, low), high)
            if found[tp] != offset and self._options.fail_on_data_loss:
                raise PipelineError(
                    f"option {limit.option} has an offset that does not exist; the partition"
                    f" begins at offset {low} and ends before {high}",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=offset,
                    remedy=f"Give an offset from {low} to {high}, or set failOnDataLoss to false"
                    " to take the nearest",
                )
        return found

    def _given(
        self, limit: OffsetLimit, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The option's value for each partition; it must name exactly the existing ones."""
        if limit.by_partition is None:
            assert limit.everywhere is not None
            return dict.fromkeys(partitions, limit.everywhere)
        named = limit.by_partition.keys()
        missing, extra = set(partitions) - named, named - set(partitions)
        if missing or extra:
            tp = min(missing or extra)
            what = "does not name it" if missing else "names it, but the query does not read it"
            raise PipelineError(
                f"option {limit.option} {what}",
                topic=tp.topic,
                partition=tp.partition,
                remedy="Name exactly the partitions that are read"
                f" ({', '.join(map(str, sorted(partitions)))})"
                + ("" if limit.is_time else f"; {EARLIEST} is the earliest, {LATEST} the latest"),
            )
        return dict(limit.by_partition)

    def setting(self, name: str) -> Any:
        """One of the consumer's settings."""
        if self._settings is None:
            self._settings = client_settings("consumer", self._options.client)
        return self._settings[name]

    # ---- retries ----

    def _ask(self, what: str, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        """The response. Retriable errors are retried fetchOffset.numRetries times, and longer (for
        default.api.timeout.ms) if brokers have answered before: they may be restarting.
        """
        options = self._options
        thread, cluster = self._connected()
        patience_s = self.setting("default.api.timeout.ms") / 1000 if self._was_answered else 0.0
        deadline = time.monotonic() + patience_s
        tries = 0
        while True:
            tries += 1
            try:
                answer = thread.run(ask(cluster))
            except KafkaError as error:
                over = tries >= options.retries and time.monotonic() >= deadline
                if over or not error.retriable or isinstance(error, _UNKNOWN):
                    raise self._problem(what, error) from error
                time.sleep(options.retry_interval_ms / 1000)
            else:
                self._was_answered = True
                return answer

    def _connected(self) -> tuple[LoopThread, ClusterClient]:
        if self._thread is None or self._cluster is None:
            self._cluster = ClusterClient(client_settings("consumer", self._options.client))
            self._thread = LoopThread()
        return self._thread, self._cluster

    def _problem(self, what: str, error: KafkaError) -> PipelineError:
        """The error for the user."""
        return PipelineError(
            f"the brokers at {self._options.servers} did not report {what}: "
            + str(error).removesuffix("."),
            remedy=remedy_for(
                error,
                "Check kafka.bootstrap.servers, kafka.security.protocol and that brokers run",
            ),
        )
