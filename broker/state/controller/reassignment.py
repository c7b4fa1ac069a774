"""The results of AlterPartitionReassignments and ElectLeaders on a single broker. The only valid
assignment is the current one, and each leader is the preferred one.

The checks are Kafka's, in Kafka's order. Nothing is moved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kstore.broker.state.metadata.image import MetadataImage, PartitionImage
from kstore.errors import ErrorCode

__all__ = ["Refusal", "refuse_assignment", "refuse_election", "refuse_reassignment"]

PREFERRED, UNCLEAN = 0, 1


class Refusal(NamedTuple):
    """A refusal: Kafka's error code, and a message."""

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
    """Why the partition cannot have these replicas, or None. (None as replicas cancels a
    reassignment, but none is ever in progress.)
    """
    partition = image.partition(topic, index)
    if partition is None:
        return _unknown_partition(image, topic, index)
    if replicas is None:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    refusal = refuse_assignment(replicas, image.brokers)
    if refusal is None and not allow_factor_change and len(replicas) != len(partition.replicas):
        words = (
            f"{topic}-{index} has {len(partition.replicas)} replicas, and the request has "
            f"{len(replicas)}: list as many as before, or allow the change."
        )
        refusal = Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, words)
    return refusal


def refuse_assignment(replicas: Sequence[int], brokers: Collection[int]) -> Refusal | None:
    """Why these cannot be the replicas of a partition, or None. They must be distinct, registered
    brokers.
    """
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not replicas:
        return Refusal(code, "The list of replicas is empty: list at least one broker.")
    before = None
    for broker in sorted(replicas):
        if broker == before:
            return Refusal(code, f"Broker {broker} is listed twice: list each broker once.")
        if broker not in brokers:
            known = ", ".join(map(str, sorted(brokers)))
            return Refusal(code, f"Broker {broker} is not registered: choose among {known}.")
        before = broker
    return None


def refuse_election(image: MetadataImage, topic: str, index: int, election_type: int) -> Refusal:
    """Why no leader is elected: on a single broker no partition needs an election."""
    if election_type not in (PREFERRED, UNCLEAN):
        words = f"Election type {election_type} is unknown: send 0 (preferred) or 1 (unclean)."
        return Refusal(ErrorCode.INVALID_REQUEST, words)
    partition = image.partition(topic, index)
    if partition is None:
        return _unknown_partition(image, topic, index)
    if _led(partition, election_type):
        words = f"{topic}-{index} is already led by broker {partition.leader}."
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, words)
    if election_type == PREFERRED:
        words = (
            f"Broker {partition.replicas[0]}, the preferred leader of {topic}-{index}, can't be "
            "reached: start it and try again."
        )
        return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, words)
    replicas = ", ".join(map(str, partition.replicas))
    words = f"No broker can lead {topic}-{index} now: start one of {replicas} and try again."
    return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, words)


def _unknown_partition(image: MetadataImage, topic: str, index: int) -> Refusal:
    words = f"There is no topic {topic}: check its name."
    if topic in image.topics:
        words = f"Topic {topic} has no partition {index}: check its number."
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, words)


def _led(partition: PartitionImage, election_type: int) -> bool:
    """Whether the desired leader leads: any leader for an unclean election, else the first
    replica.
    """
    if election_type == UNCLEAN:
        return partition.leader >= 0
    return partition.leader == partition.replicas[0]
