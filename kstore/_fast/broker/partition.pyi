"""A partition as Produce and Fetch use it, and its topic; see partition.pyx."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from kstore._fast.broker.partition_events import TopicCounts, Wakeable
from kstore._fast.broker.replica_state import ReplicaState
from kstore._fast.log.append_queue import CallbackJob
from kstore._fast.record.nested import NestedBatches

class TopicEntry:
    """A topic: its name, id (16 bytes) and partitions by index (None if this broker does not have
    one).
    """

    name: bytes
    topic_id: bytes
    internal: bool
    partitions: list[Partition | None]
    counts: TopicCounts
    partition_count: int
    """The partition count for producers (KIP-253), which an expansion increases before it adds the
    partitions; -1: the number of partitions here.
    """
    retired_from: int
    """Partitions from this index on refuse records, because the topic shrinks; -1: all accept
    them.
    """
    mirror: bool
    """kstore.mirror: an exact copy, which refuses other writes."""
    least_producer_id: int
    """kstore.least.producer.id: smaller ids belong to producers of another cluster."""
    count_required: bool
    """kstore.partition.count.required: a producer that does not send its partition count is
    refused.
    """
    def __init__(self, name: bytes, topic_id: bytes, *, internal: bool = False) -> None: ...

class PartitionJob(CallbackJob):
    """An append to a partition, with a callback."""

class Partition(Wakeable):
    """A partition for the data plane: its log's core, its leader, and the requests that wait for it
    to grow.
    """

    entry: TopicEntry
    index: int
    leader_epoch: int
    leader_id: int
    partition_epoch: int
    online: bool
    deleted: bool
    failed: bool
    """Its log dir has failed: requests get KAFKA_STORAGE_ERROR."""
    follows: bool
    """It has a replica here, and another broker leads it."""
    replication: ReplicaState | None
    """None: not led here, or the only replica."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """The ISR that the controller knows."""
    isr_version: int
    proposed_isr: tuple[int, ...] | None
    """The ISR that the controller was asked for."""
    ending: dict[int, Any] | None
    """Producer id to its markers that threads append: its transaction ends here."""
    def __init__(
        self,
        entry: TopicEntry,
        index: int,
        log: Any,
        *,
        leader_id: int,
        leader_epoch: int = 0,
        partition_epoch: int = -1,
    ) -> None: ...
    stored_codec: int
    stored_level: int
    insync_replicas: int
    min_insync_replicas: int
    def configure(self, *, stored_codec: int, stored_level: int, min_insync_replicas: int) -> None:
        """Store client batches with a codec (-1: unchanged), and require so many in-sync replicas
        for acks=all writes.
        """

    def note_durable(self) -> None:
        """More of the log is durable, and may become visible. Any thread may call it."""

    def notify(self) -> None:
        """Wake the requests that wait for this partition: something visible has changed."""

    def lead(
        self,
        leader_epoch: int,
        state_version: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int | None = None,
    ) -> None:
        """Lead the partition from now on, or continue to lead it in another epoch or with other
        replicas. `now_ms` is not needed: the table has the clock.
        """

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Another broker leads (-1: none does): requests that wait for this leader's followers, and
        followers that wait here, get an error.
        """

    def end_leadership(self) -> None:
        """Answer all waiting requests: this broker no longer leads the partition."""

    def advance(self) -> None:
        """Advance the high watermark as far as the replicas allow: brokers have joined or left."""

    def take_high_watermark(self, offset: int) -> None:
        """A follower learns the leader's high watermark, limited to its own log end. It never
        decreases.
        """

    def when_committed(self, end_offset: int, callback: Callable[[int], object]) -> None:
        """Call ``callback(error code)`` on the loop when the high watermark reaches the offset (0;
        at once if it has), or when this broker no longer leads (NOT_LEADER_OR_FOLLOWER).
        """

    def propose_isr(self, isr: tuple[int, ...]) -> bool:
        """Propose another ISR; until it is accepted or refused, the high watermark waits for all
        replicas of both (KIP-497). Returns False if a proposal is pending: one at a time.
        """

    def isr_applied(self, isr: tuple[int, ...], state_version: int, leader_epoch: int) -> bool:
        """The controller has written an ISR. Older changes, and those of another epoch, are ignored
        (returns False).
        """

    def resign(self) -> None:
        """This broker can't write: let the controller choose a leader among the other in-sync
        replicas.
        """

    def isr_refused(self) -> None:
        """The proposal was lost or refused: the ISR does not change."""

    def shrink_candidates(self, now_ms: int, max_lag_ms: int) -> list[int]:
        """Followers in the ISR that have not caught up for so long, if no proposal is pending.
        `now_ms` is on the scale of the table's replication.now_ms().
        """

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above the requested one, its end offset), for a leader: its own epoch,
        and epochs without a record here, end at the log's end. (-1, -1): unknown.
        """

    def fail(self) -> None:
        """Its log dir has failed: the partition has no log any more, and waiting requests get an
        error.
        """

    def replace_log(self, log: Any) -> None:
        """Use another log with the same records, a log that was moved here, or none (None)."""

    def append_batches(self, data: Buffer, *, origin: int = 1) -> tuple[int, int, int, int]:
        """Append ready batches and wake waiting requests; a read-only buffer is copied first.

        Returns (error code, base offset, last offset, log end offset). Raises only OSError.
        """
    def may_append_now(self, data: bytes) -> bool:
        """Whether the loop may append these batches, because nothing has to wait."""
    def append_later(
        self,
        data: bytes | bytearray | NestedBatches,
        callback: Callable[[CallbackJob], object],
        *,
        origin: int = 1,
    ) -> tuple[int, int]:
        """Let a thread append ready batches; ``callback(job)`` is called after success or failure,
        when waiting requests were woken. The thread owns a bytearray or NestedBatches from now on;
        bytes are copied.

        Returns (error code, the base offset if all earlier appends succeed). After an error nothing
        is appended, and there is no callback.
        """
    @property
    def appends_queued(self) -> int:
        """The number of appends that threads have not finished."""

    @property
    def log_start_offset(self) -> int:
        """The log start offset."""

    @property
    def log_end_offset(self) -> int:
        """The log end offset."""

    @property
    def high_watermark(self) -> int:
        """The offset below which a consumer reads."""

    @property
    def last_stable_offset(self) -> int:
        """The offset below which a read_committed consumer reads."""

    @property
    def waiting(self) -> int:
        """The number of fetches that wait for this partition."""
