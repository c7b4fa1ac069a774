"""The partitions that this broker knows, by topic name or id and by index; see
partition_table.pyx.
"""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_events import PartitionEvents

class PartitionTable(PartitionEvents):
    """All topics, with lookups that decode nothing; call_soon runs the wakeups of one loop turn
    together.
    """

    node_endpoint: Callable[[int, Any], bytes | None] | None
    """The encoded NodeEndpoint (KIP-951) of a broker on a listener; None: no endpoints in
    responses.
    """
    lost_leaders: set[int] | None
    """The leaders that were lost a moment ago; None: there are none."""
    leader_waits: Any
    """Holds requests for partitions of lost leaders; see runtime/metadata/leader_waits.py."""
    def __init__(self, node_id: int, call_soon: Callable[..., Any]) -> None: ...
    def add_topic(self, entry: TopicEntry) -> None:
        """Add a topic; its partitions follow with add_partition."""

    def add_partition(self, partition: Partition) -> None:
        """Set a partition in its topic."""

    def remove_topic(self, name: bytes) -> None:
        """Remove a topic; requests that wait for one of its partitions get an error."""

    def remove_partitions(self, name: bytes, first: int) -> None:
        """Remove a topic's partitions from an index on, as `remove_topic` does."""

    def topic(self, name: bytes) -> TopicEntry | None:
        """The TopicEntry with that name, or None."""

    def topic_by_id(self, topic_id: bytes) -> TopicEntry | None:
        """The TopicEntry with that id, or None."""

    def partition(self, name: bytes, index: int) -> Partition | None:
        """The Partition, or None if this broker does not know it."""

    def topics(self) -> list[TopicEntry]:
        """All TopicEntry objects, in order of creation."""
