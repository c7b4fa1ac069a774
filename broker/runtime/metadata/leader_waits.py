"""Requests that are held for a moment, since a partition that they ask for has just lost its leader
and nobody is elected yet: clients that are told "no leader" ask again only after their own pause,
librdkafka after a second.

A request is held before it is carried out, with what is behind it on its connection, and is carried
out as if it came when the leader is known, or when `kstore.metadata.leader.wait.ms` have passed
since the leader was lost. A partition that stays without a leader holds nobody after that.
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
"""Connections that are held at a time; who comes beyond is answered by what is known."""
READ_BYTES = 8 * 1024
"""A longer request is not read here: it counts as asking for all topics."""
_Place: TypeAlias = "tuple[str, int] | Partition"
"""What a held request waits for: a partition of the image, or of the data plane's table."""


class LeaderWaits:
    """The leaders that were lost a moment ago, and the connections that wait for others."""

    def __init__(
        self,
        node: Node,
        table: PartitionTable,
        metadata: MetadataCache,
        forget_answers: Callable[[], None],
    ) -> None:
        """``forget_answers``: those that are kept would still tell of the lost leader."""
        self.held_requests = 0
        """How many requests were held so far."""
        self._node = node
        self._table = table
        self._metadata = metadata
        self._forget_answers = forget_answers
        self._brokers = metadata.image.brokers
        self._lost: dict[int, TimerHandle] = {}
        self._held: dict[Connection, _Place] = {}
        self._scheduled = False
        table.leader_waits = self

    # ---- who is lost ----

    def image_changed(self) -> None:
        """The metadata image is another: brokers may have gone or come, leaders may be known."""
        before, self._brokers = self._brokers, self._metadata.image.brokers
        if before is not self._brokers:
            for node_id in before.keys() - self._brokers.keys():
                self.lost(node_id)
            for node_id in self._brokers.keys() - before.keys():
                self.found(node_id)
        self.look_soon()

    def lost(self, node_id: int) -> None:
        """A broker has gone, or seems to have: what it led will have other leaders."""
        wait_ms = self._node.config["kstore.metadata.leader.wait.ms"]
        if node_id in self._lost or node_id == self._node.node_id or not wait_ms:
            return
        self._lost[node_id] = self._node.loop.call_later(wait_ms / 1000, self.found, node_id)
        self._table.lost_leaders = set(self._lost)
        self._forget_answers()

    def found(self, node_id: int) -> None:
        """A broker is there, or has been away for so long that nobody is held any more."""
        timer = self._lost.pop(node_id, None)
        if timer is not None:
            timer.cancel()
            self._table.lost_leaders = set(self._lost) or None
            self.look_soon()

    # ---- who is held ----

    def hold(self, connection: Connection, place: _Place) -> bool:
        """Have a connection's request handled again once this partition has a leader; False if it
        is to be answered now.
        """
        if len(self._held) >= MOST_HELD:
            return False
        self._held[connection] = place
        self.held_requests += 1
        return True

    def holds(
        self, connection: Connection, api_key: int, version: int, body: bytes, rights: Any
    ) -> bool:
        """Whether a request that tells of leaders is held; False for every other one."""
        if api_key not in (METADATA, DESCRIBE_TOPIC_PARTITIONS):
            return False
        topics = self._asked(api_key, version, body)
        if rights is not None:
            kind, may = AclResourceType.TOPIC, AclOperation.DESCRIBE
            topics = (topic for topic in topics if rights.mask(kind, topic.name) >> may & 1)
        place = first_led_by(topics, set(self._lost))
        return place is not None and self.hold(connection, place)

    def _asked(self, api_key: int, version: int, body: bytes) -> Iterable[TopicImage]:
        """The topics that a request asks for, as far as they are there."""
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

    # ---- who goes on ----

    def look_soon(self) -> None:
        """Let those go on whose partition has a leader, or will have none so soon."""
        if self._held and not self._scheduled:
            self._scheduled = True
            self._node.loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        end = monotonic() + SLICE_S
        for connection, place in list(self._held.items()):
            if connection.is_closed:
                del self._held[connection]
            elif not self._lacks_leader(place):
                del self._held[connection]
                connection.admitted()
                if monotonic() >= end:  # the others in the next turn
                    self.look_soon()
                    return

    def _lacks_leader(self, place: _Place) -> bool:
        if isinstance(place, Partition):
            return not place.online and not place.deleted and place.leader_id in self._lost
        known = self._metadata.image.partition(*place)
        return known is not None and known.leader in self._lost
