"""Contractions (KIP-253) and groups of the classic protocol, whose leader makes the assignment.
Partitions that a group may not read yet are removed from the leader's assignment before it is
stored. Once the group may read them, its members must join again.

Groups of Kafka Streams get all partitions: their assignments also list the tasks of each partition,
and the application fails if a partition is missing.
"""

from __future__ import annotations

from kstore.broker.state.groups.classic.group import STABLE, ClassicGroup
from kstore.broker.state.metadata.image import MetadataImage
from kstore.errors import ProtocolError
from kstore.protocol.groups.consumer_protocol import ConsumerProtocolAssignment

__all__ = ["assigned_partitions", "is_due", "lacks_remaining", "without_held_back"]

VERSION_BYTES = 2
STREAMS_ASSIGNOR = "stream"
"""The protocol name of Kafka Streams' groups."""


def _decoded(assignment: bytes) -> tuple[ConsumerProtocolAssignment, int] | None:
    """An assignment and its version. None if it is not a consumer's."""
    if len(assignment) < VERSION_BYTES:
        return None
    version = int.from_bytes(assignment[:VERSION_BYTES], "big", signed=True)
    if version < ConsumerProtocolAssignment.MIN_VERSION:
        return None
    version = min(version, ConsumerProtocolAssignment.MAX_VERSION)
    try:
        decoded = ConsumerProtocolAssignment.decode(
            assignment, version, offset=VERSION_BYTES, allow_trailing=True
        )
    except ProtocolError:
        return None
    return decoded, version


def _may_be_cut(group: ClassicGroup) -> bool:
    return group.uses_consumer_protocol and group.protocol_name != STREAMS_ASSIGNOR


def without_held_back(
    group: ClassicGroup, given: dict[str, bytes], image: MetadataImage | None
) -> tuple[dict[str, bytes], frozenset[str]]:
    """The leader's assignment without partitions that the group may not read yet, and the topics of
    these.
    """
    hidden = {} if image is None else {
        name: image.topics[name].hidden
        for name in image.ordered
        if image.topics[name].hidden
    }  # fmt: skip
    if not hidden or not _may_be_cut(group):
        return given, frozenset()
    left: dict[str, bytes] = {}
    lacking: set[str] = set()
    for member_id, assignment in given.items():
        left[member_id] = assignment
        found = _decoded(assignment)
        if found is None:
            continue
        decoded, version = found
        for row in decoded.assigned_partitions:
            missing = hidden.get(row.topic, frozenset()).intersection(row.partitions)
            if missing:
                lacking.add(row.topic)
                row.partitions = [index for index in row.partitions if index not in missing]
        rows = [row for row in decoded.assigned_partitions if row.partitions]
        if lacking:
            decoded.assigned_partitions = rows
            left[member_id] = version.to_bytes(VERSION_BYTES, "big") + decoded.encode(version)
    return left, frozenset(lacking)


def is_due(group: ClassicGroup, image: MetadataImage | None) -> bool:
    """Whether the missing partitions may be assigned now."""
    if group.state != STABLE or not group.lacking or image is None:
        return False
    return not any(name in image.topics and image.topics[name].hidden for name in group.lacking)


def assigned_partitions(group: ClassicGroup, topic: str) -> frozenset[int] | None:
    """The assigned partitions of a topic. None if assignments cannot be read."""
    assigned = _all_assigned(group)
    return None if assigned is None else frozenset(assigned.get(topic, ()))


def _all_assigned(group: ClassicGroup) -> dict[str, set[int]] | None:
    """The assigned partitions by topic. None if assignments cannot be read."""
    assigned: dict[str, set[int]] = {}
    for member in group.members.values():
        if not member.assignment:
            continue
        found = _decoded(member.assignment)
        if found is None:
            return None
        for row in found[0].assigned_partitions:
            assigned.setdefault(row.topic, set()).update(row.partitions)
    return assigned


def lacks_remaining(group: ClassicGroup, image: MetadataImage | None) -> frozenset[str]:
    """After replay, the topics of which a group has partitions but not the first one. A contraction
    held that back, and may have been rolled back since.
    """
    if group.state != STABLE or image is None or not image.ordered or not _may_be_cut(group):
        return frozenset()
    assigned = _all_assigned(group) or {}
    return frozenset(
        name
        for name, partitions in assigned.items()
        if partitions and 0 not in partitions
        if name in image.ordered and group.is_subscribed_to(name)
    )
