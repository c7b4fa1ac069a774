"""Collects the changes of partitions during one turn of the loop; see partition_events.pyx."""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition import Partition
from kstore._fast.broker.replica_state import ReplicationContext

class Waiter:
    """Waits for a partition to grow."""

class Wakeable:
    """What waiters wait for: a partition."""

    log: Any
    """kstore.log's Log; None while the partition has no log here."""

class TopicCounts:
    """Counters of what was produced and fetched since the start, of a topic or of all topics.

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
    """Fetched by consumers."""
    replica_bytes_out: int
    """Fetched by followers."""
    replica_bytes_in: int
    """Copied by this broker as a follower."""
    def note_appended(self, total: TopicCounts, messages: int, size: int) -> None:
        """Count records that did not arrive in a Produce request, also in ``total``."""

class ErrorCounts:
    """The errors in this broker's responses."""

    counts: dict[tuple[int, int], int]
    """(API key, error code) -> count since the start. A request for three partitions that all have
    the error counts three times.
    """
    def add(self, api_key: int, error: int, count: int = 1) -> int:
        """Count an error that a response contains so many times."""

class PartitionEvents:
    """What all partitions share: this node's id, the wakeups of one turn of the loop, and the
    listeners.
    """

    node_id: int
    replication: ReplicationContext
    on_isr_change: Callable[[Partition, tuple[int, ...]], object] | None
    """Called to propose an ISR to the controller; None: no proposals."""
    rack_aware: bool
    """replica.selector.class is RackAwareReplicaSelector (KIP-392)."""
    on_unsynced: Callable[[list[tuple[Any, int]]], object] | None
    """Makes logs durable up to these ends soon (flush=always); None: nothing does."""
    counts: TopicCounts
    """Of all topics, including deleted ones."""
    errors: ErrorCounts
    """Of all responses of this broker."""
    isr_shrinks: int
    isr_expands: int
    """How often the ISR of a partition that this broker leads shrank or expanded."""
    isr_refusals: int
    """How often the controller refused a proposed ISR."""
    call_threadsafe: Callable[..., Any]
    """As call_soon, from other threads."""
    def __init__(self, node_id: int, call_soon: Callable[..., Any]) -> None: ...
    def sync_unsynced(self) -> None:
        """Make what was appended durable."""

    def note_durable(self, partition: Wakeable) -> None:
        """More of a partition is durable: notify the loop. Any thread may call it."""

    def run_synced(self) -> None:
        """Make durable records visible: advance high watermarks, and wake waiters."""

    def run_woken(self) -> None:
        """Wake the waiters of every partition that grew in this turn of the loop."""
