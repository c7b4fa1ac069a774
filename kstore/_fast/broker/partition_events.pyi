"""What happens to partitions in one turn of the loop, gathered; see partition_events.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition import Partition
from kstore._fast.broker.replica_state import ReplicationContext

class Waiter:
    """Whoever waits for a partition to grow."""

class Wakeable:
    """What wakes its waiters: a partition."""

    log: Any
    """kstore.log's Log; None while the partition is not here."""

class TopicCounts:
    """What was produced to a topic and fetched from it, or to and from all topics, since the start.

    Requests are counted by partition: one request for three partitions counts three times.
    """

    produce_requests: int
    produce_failed: int
    messages_in: int
    bytes_in: int
    bytes_rejected: int
    fetch_requests: int
    fetch_failed: int
    bytes_out: int
    """What consumers have fetched."""
    replica_bytes_out: int
    """What followers have fetched."""
    replica_bytes_in: int
    """What this broker, as a follower, has copied."""
    def note_appended(self, total: TopicCounts, messages: int, size: int) -> None:
        """Count records that no Produce request has brought, in ``total``, too."""

class ErrorCounts:
    """The errors that this broker has answered with."""

    counts: dict[tuple[int, int], int]
    """(API key, error code) -> how often, since the start. A request for three partitions that
    all have it counts three times.
    """
    def add(self, api_key: int, error: int, count: int = 1) -> int:
        """Count an error that an answer has so many times."""

class PartitionEvents:
    """What all partitions share: this node's id, the wake-ups of one turn of the loop, and who is
    told.
    """

    node_id: int
    replication: ReplicationContext
    on_isr_change: Callable[[Partition, tuple[int, ...]], object] | None
    """Told of an ISR that the controller is to be asked for; None: nothing is proposed."""
    rack_aware: bool
    """replica.selector.class is RackAwareReplicaSelector (KIP-392)."""
    on_unsynced: Callable[[list[tuple[Any, int]]], object] | None
    """Has logs put on the disk up to these ends soon (flush=always); None: nobody does."""
    counts: TopicCounts
    """Of all topics, also of those that were deleted."""
    errors: ErrorCounts
    """Of all answers of this broker."""
    isr_shrinks: int
    isr_expands: int
    """How often the ISR of a partition that this broker leads became smaller or larger."""
    isr_refusals: int
    """How often the controller did not take an ISR that this broker proposed."""
    call_threadsafe: Callable[..., Any]
    """As call_soon, from other threads."""
    def __init__(self, node_id: int, call_soon: Callable[..., Any]) -> None: ...
    def sync_unsynced(self) -> None:
        """Have what has grown put on the disk."""

    def note_durable(self, partition: Wakeable) -> None:
        """More of a partition is on the disk: let the loop know. From any thread."""

    def run_synced(self) -> None:
        """Show what has come to the disk: high watermarks move, who waits is woken."""

    def run_woken(self) -> None:
        """Wake the waiters of every partition that grew in this turn of the loop."""
