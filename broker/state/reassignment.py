"""What AlterPartitionReassignments and ElectLeaders are answered with on one node: every valid
assignment is already the one there is, and every leader is the preferred one.

Kafka's checks in Kafka's order; nothing is moved here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kstore.broker.state.image import MetadataImage, PartitionImage
from kstore.errors import ErrorCode

__all__ = ["Refusal", "refuse_assignment", "refuse_election", "refuse_reassignment"]

PREFERRED, UNCLEAN = 0, 1


class Refusal(NamedTuple):
    """Why something is not done: Kafka's error code and words."""

    code: int
    message: str | None


def refuse_reassignment(
    image: MetadataImage,
    topic: str,
    index: int,
    replicas: Sequence[int] | None,
    *,
    allow_factor_change: bool,
) -> Refusal | None:
    """Why the partition can't have these replicas, or None; null cancels what is under way, and
    nothing ever is.
    """
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic not in image.topics:
        return Refusal(unknown, f"Unable to find a topic named {topic}.")
    partition = image.partition(topic, index)
    if partition is None:
        return Refusal(unknown, f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    refusal = refuse_assignment(replicas, image.brokers)
    if refusal is None and not allow_factor_change and len(replicas) != len(partition.replicas):
        words = f"The replication factor is changed from {len(partition.replicas)}."
        refusal = Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, words)
    return refusal


def refuse_assignment(replicas: Sequence[int], brokers: Collection[int]) -> Refusal | None:
    """Why these can't be a partition's replicas, or None: distinct brokers that are registered."""
    code, what = ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes"
    if not replicas:
        return Refusal(code, f"{what} an empty replica list.")
    before = None
    for broker in sorted(replicas):
        if broker == before:
            return Refusal(code, f"{what} the broker {broker} more than once.")
        if broker not in brokers:
            return Refusal(code, f"{what} broker {broker}, but no such broker is registered.")
        before = broker
    return None


def refuse_election(image: MetadataImage, topic: str, index: int, election_type: int) -> Refusal:
    """Why no election takes place for the partition: on one node, none ever does."""
    if election_type not in (PREFERRED, UNCLEAN):
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic not in image.topics:
        return Refusal(unknown, f"No such topic as {topic}")
    partition = image.partition(topic, index)
    if partition is None:
        return Refusal(unknown, f"No such partition as {topic}-{index}")
    if _led(partition, election_type):
        words = "Leader election not needed for topic partition."
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, words)
    if election_type == PREFERRED:
        words = "The preferred leader was not available."
        return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, words)
    words = "Eligible topic partition leaders are not available."
    return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, words)


def _led(partition: PartitionImage, election_type: int) -> bool:
    """Whether the election's aim is reached: any leader for an unclean one, else the first
    replica.
    """
    if election_type == UNCLEAN:
        return partition.leader >= 0
    return partition.leader == partition.replicas[0]
