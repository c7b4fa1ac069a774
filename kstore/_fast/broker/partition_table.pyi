"""The partitions that this broker knows, looked up by topic name or id and by index; see
partition_table.pyx.
"""

from collections.abc import Callable
from typing import Any

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_events import PartitionEvents

class PartitionTable(PartitionEvents):
    """All topics, for look-ups that cost no decode; call_soon runs the wake-ups of one
    loop turn together.
    """

    node_endpoint: Callable[[int, Any], bytes | None] | None
    """The encoded NodeEndpoint (KIP-951) of a broker on a listener; None: nobody is told."""
    lost_leaders: set[int] | None
    """The leaders that were lost a moment ago; None: there are none."""
    leader_waits: Any
    """Who holds requests that ask for their partitions; see runtime/metadata/leader_waits.py."""
    def __init__(self, node_id: int, call_soon: Callable[..., Any]) -> None: ...
    def add_topic(self, entry: TopicEntry) -> None:
        """Make a topic known; its partitions follow with add_partition."""

    def add_partition(self, partition: Partition) -> None:
        """Put a partition in its topic's place for it."""

    def remove_topic(self, name: bytes) -> None:
        """Forget a topic; who waits for one of its partitions is woken and finds it gone."""

    def remove_partitions(self, name: bytes, first: int) -> None:
        """Forget a topic's partitions from an index on, as `remove_topic` does."""

    def topic(self, name: bytes) -> TopicEntry | None:
        """The TopicEntry of that name, or None."""

    def topic_by_id(self, topic_id: bytes) -> TopicEntry | None:
        """The TopicEntry of that id, or None."""

    def partition(self, name: bytes, index: int) -> Partition | None:
        """The Partition, or None where this broker does not know it."""

    def topics(self) -> list[TopicEntry]:
        """All TopicEntry objects, in order of creation."""
