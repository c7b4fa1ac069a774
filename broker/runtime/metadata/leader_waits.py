"""Delays requests for a partition that has just lost its leader until a new leader is elected. A
client that gets a response without a leader retries only after a pause, librdkafka after a second.

A request is delayed before it is executed, and so are the later requests on its connection. It is
executed when the new leader is known, or `kstore.metadata.leader.wait.ms` after the old leader was
lost. After that, the partition delays no requests even if it still has no leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from kstore._fast.broker.metadata_topics import first_led_by
from kstore._fast.broker.partition import Partition
from kstore.acls import AclOperation, AclResourceType
from kstore.broker.runtime.slices import SLICE_S
from kstore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from kstore._fast.broker.partition_table import PartitionTable
    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import TopicImage

__all__ = ["LeaderWaits"]

METADATA, DESCRIBE_TOPIC_PARTITIONS = 3, 75
MOST_HELD = 1000
"""The limit of delayed connections; further ones are answered at once."""
READ_BYTES = 8 * 1024
"""A request of more bytes is not parsed here: it counts as a request for all topics."""
_Leaderless: TypeAlias = "tuple[str, int] | Partition"
"""What a delayed request waits for: a partition of the image, or of the data plane's table."""


class LeaderWaits:
    """Recently lost leaders, and the connections that wait for new ones."""

    def __init__(
        self,
        node: Node,
        table: PartitionTable,
        metadata: MetadataCache,
        forget_answers: Callable[[], None],
    ) -> None:
        """``forget_answers`` drops cached answers, which still contain the lost leader."""
        self.held_requests = 0
        """How many requests were delayed so far."""
        self._node = node
        self._table = table
        self._metadata = metadata
        self._forget_answers = forget_answers
        self._brokers = metadata.image.brokers
        self._lost: dict[int, TimerHandle] = {}
        self._held: dict[Connection, _Leaderless] = {}
        self._scheduled = False
        table.leader_waits = self

    # ---- lost leaders ----

    def image_changed(self) -> None:
        """The metadata image has changed: brokers may have left or joined, leaders may be known."""
        before, self._brokers = self._brokers, self._metadata.image.brokers
        if before is not self._brokers:
            for node_id in before.keys() - self._brokers.keys():
                self.lost(node_id)
            for node_id in self._brokers.keys() - before.keys():
                self.found(node_id)
        self.look_soon()

    def lost(self, node_id: int) -> None:
        """A broker has left, or seems to have left: its partitions will get other leaders."""
        wait_ms = self._node.config["kstore.metadata.leader.wait.ms"]
        if node_id in self._lost or node_id == self._node.node_id or not wait_ms:
            return
        self._lost[node_id] = self._node.loop.call_later(wait_ms / 1000, self.found, node_id)
        self._table.lost_leaders = set(self._lost)
        self._forget_answers()

    def found(self, node_id: int) -> None:
        """A broker is available again, or has been away for so long that requests no longer
        wait.
        """
        timer = self._lost.pop(node_id, None)
        if timer is not None:
            timer.cancel()
            self._table.lost_leaders = set(self._lost) or None
            self.look_soon()

    # ---- delayed requests ----

    def hold(self, connection: Connection, waits_for: _Leaderless) -> bool:
        """Handle a connection's request again once this partition has a leader; False if it should
        be answered now.
        """
        if len(self._held) >= MOST_HELD:
            return False
        self._held[connection] = waits_for
        self.held_requests += 1
        return True

    def holds(
        self, connection: Connection, api_key: int, version: int, body: bytes, rights: Any
    ) -> bool:
        """Whether a request is delayed. Always False for an API whose responses have no leaders."""
        if api_key not in (METADATA, DESCRIBE_TOPIC_PARTITIONS):
            return False
        topics = self._asked(api_key, version, body)
        if rights is not None:
            kind, may = AclResourceType.TOPIC, AclOperation.DESCRIBE
            topics = (topic for topic in topics if rights.mask(kind, topic.name) >> may & 1)
        waits_for = first_led_by(topics, set(self._lost))
        return waits_for is not None and self.hold(connection, waits_for)

    def _asked(self, api_key: int, version: int, body: bytes) -> Iterable[TopicImage]:
        """The existing topics that a request names."""
        from kstore.protocol.metadata.metadata import (
            DescribeTopicPartitionsRequest,
            MetadataRequest,
        )

        image = self._metadata.image
        if len(body) > READ_BYTES:
            return image.topics.values()
        if api_key == DESCRIBE_TOPIC_PARTITIONS:
            described = DescribeTopicPartitionsRequest.decode(body, version, allow_trailing=True)
            names = [topic.name for topic in described.topics]
        else:
            request = MetadataRequest.decode(body, version, allow_trailing=True)
            if request.topics is None:
                return image.topics.values()
            names = [
                image.names.get(topic.topic_id, "")
                if topic.topic_id != ZERO_UUID
                else topic.name or ""
                for topic in request.topics
            ]
        if not names and (api_key == DESCRIBE_TOPIC_PARTITIONS or version == 0):
            return image.topics.values()
        return [image.topics[name] for name in names if name in image.topics]

    # ---- continuing ----

    def look_soon(self) -> None:
        """Continue requests whose partition has a leader, or will not get one soon."""
        if self._held and not self._scheduled:
            self._scheduled = True
            self._node.loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        end = monotonic() + SLICE_S
        for connection, waits_for in list(self._held.items()):
            if connection.is_closed:
                del self._held[connection]
            elif not self._lacks_leader(waits_for):
                del self._held[connection]
                connection.admitted()
                if monotonic() >= end:  # the others in the next turn
                    self.look_soon()
                    return

    def _lacks_leader(self, waits_for: _Leaderless) -> bool:
        if isinstance(waits_for, Partition):
            return (
                not waits_for.online and not waits_for.deleted and waits_for.leader_id in self._lost
            )
        known = self._metadata.image.partition(*waits_for)
        return known is not None and known.leader in self._lost
