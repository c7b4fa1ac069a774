"""One partition as Produce and Fetch see it, and its topic; see partition.pyx."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from kstore._fast.broker.partition_events import TopicCounts, Wakeable
from kstore._fast.broker.replica_state import ReplicaState
from kstore._fast.log.append_queue import CallbackJob
from kstore._fast.record.nested import NestedBatch

class TopicEntry:
    """One topic: its name, id (16 bytes) and partitions by index (None where this broker
    has none).
    """

    name: bytes
    topic_id: bytes
    internal: bool
    partitions: list[Partition | None]
    counts: TopicCounts
    partition_count: int
    """What a producer has to know (KIP-253), which in an expansion grows before the partitions do;
    -1: as many as are here.
    """
    retired_from: int
    """Partitions from this index on take no records: the topic shrinks; -1: all do."""
    mirror: bool
    """kstore.mirror: an exact copy, which takes nothing else."""
    least_producer_id: int
    """kstore.least.producer.id: smaller ones are of producers of another cluster."""
    count_required: bool
    """kstore.partition.count.required: a producer that doesn't say its count is refused."""
    def __init__(self, name: bytes, topic_id: bytes, *, internal: bool = False) -> None: ...

class PartitionJob(CallbackJob):
    """An append to a partition that calls back."""

class Partition(Wakeable):
    """One partition as the data plane sees it: its log's core, its leader and who waits
    for it to grow.
    """

    entry: TopicEntry
    index: int
    leader_epoch: int
    leader_id: int
    partition_epoch: int
    online: bool
    deleted: bool
    failed: bool
    """Its log dir has failed: whoever asks for it gets KAFKA_STORAGE_ERROR."""
    follows: bool
    """It has a replica here and is led elsewhere."""
    replication: ReplicaState | None
    """None: not led here, or the only replica."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """That the controller knows."""
    isr_version: int
    proposed_isr: tuple[int, ...] | None
    """That the controller is asked for."""
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
        """Store client batches in a codec (-1: as they come), and let acks=all writes need so many
        in-sync replicas.
        """

    def note_durable(self) -> None:
        """More of the log is on the disk, and may be seen. From any thread."""

    def notify(self) -> None:
        """Wake those who wait for this partition: something that they can see has changed."""

    def lead(
        self,
        leader_epoch: int,
        state_version: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int | None = None,
    ) -> None:
        """Lead the partition from now on, or go on leading it in another epoch or with other
        replicas. `now_ms` is not needed: the table has the clock.
        """

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Another broker leads (-1: none does): whoever waits for this one's followers, and
        followers that wait here, are told that it is no leader.
        """

    def end_leadership(self) -> None:
        """Answer all who wait: this broker leads the partition no more."""

    def advance(self) -> None:
        """Move the high watermark as far as the replicas allow: brokers have come or gone."""

    def take_high_watermark(self, offset: int) -> None:
        """A follower hears of the leader's high watermark: it has what lies below it, as far as its
        log goes. It never goes back.
        """

    def when_committed(self, end_offset: int, callback: Callable[[int], object]) -> None:
        """Call ``callback(error code)`` on the loop once the high watermark has reached the offset
        (0; at once if it has), or this broker leads no more (NOT_LEADER_OR_FOLLOWER).
        """

    def propose_isr(self, isr: tuple[int, ...]) -> bool:
        """Ask for another ISR; until it is agreed or refused, the high watermark waits for all that
        are in this one or in the old one (KIP-497). One at a time: False while one is asked for.
        """

    def isr_applied(self, isr: tuple[int, ...], state_version: int, leader_epoch: int) -> bool:
        """The controller has written an ISR; older news, and those of another epoch, change nothing
        (False).
        """

    def resign(self) -> None:
        """This broker can't write: let the controller choose a leader among the others in sync."""

    def isr_refused(self) -> None:
        """What was proposed has not come, and will not: the ISR stays as it was."""

    def shrink_candidates(self, now_ms: int, max_lag_ms: int) -> list[int]:
        """Followers of the ISR that have not caught up for so long, while no change is asked for.
        `now_ms` is on the scale of the table's replication.now_ms().
        """

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above the asked one, its end offset), as a leader knows it: its own
        epoch, and those that left no record here, end at the log's end. (-1, -1): unknown.
        """

    def fail(self) -> None:
        """Its log dir has failed: it has no log any more, and whoever waits for it is told."""

    def replace_log(self, log: Any) -> None:
        """Serve the partition from another log that holds the same, from its log that has come
        here, or from none (None).
        """

    def append_batches(self, data: Buffer, *, origin: int = 1) -> tuple[int, int, int, int]:
        """Append ready batches and wake who waits; a read-only buffer is copied first.

        Returns (error code, base offset, last offset, log end offset). Raises OSError only.
        """
    def may_append_now(self, data: bytes) -> bool:
        """Whether the loop may append these batches itself, as nothing has to be waited for."""
    def append_later(
        self,
        data: bytes | bytearray | NestedBatch,
        callback: Callable[[CallbackJob], object],
        *,
        origin: int = 1,
    ) -> tuple[int, int]:
        """Have a thread append ready batches; ``callback(job)`` is called when that is done, or has
        failed, after who waits was woken. A bytearray or a NestedBatch is the thread's from now on;
        of bytes a copy is made.

        Returns (error code, the base offset that they get if all before them succeed). With an
        error nothing is appended, and nobody called back.
        """
    @property
    def appends_queued(self) -> int:
        """How many appends are left to threads and are not done."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def high_watermark(self) -> int:
        """The offset below which a consumer reads."""

    @property
    def last_stable_offset(self) -> int:
        """The offset below which a read_committed consumer reads."""

    @property
    def waiting(self) -> int:
        """How many fetches wait for this partition."""
