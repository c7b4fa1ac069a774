"""Errors of records, partitions, topics and requests: Kafka's codes -1 to 44, and kstore's own.

Each class is one row: its code, what a client may do about it, and a description (the docstring).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kstore.errors.base import KafkaError

if TYPE_CHECKING:
    from kstore.types import TopicPartition

__all__ = [
    "BrokerNotAvailableError",
    "ClusterAuthorizationFailedError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptMessageError",
    "GroupAuthorizationFailedError",
    "IllegalGenerationError",
    "IllegalSaslStateError",
    "InconsistentGroupProtocolError",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigError",
    "InvalidFetchSizeError",
    "InvalidGroupIdError",
    "InvalidLeaderEpochError",
    "InvalidPartitionCountError",
    "InvalidPartitionEpochError",
    "InvalidPartitionsError",
    "InvalidProduceOffsetError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "LeaderNotAvailableError",
    "MessageTooLargeError",
    "NetworkError",
    "NotControllerError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "PolicyViolationError",
    "RebalanceInProgressError",
    "RecordListTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "StaleControllerEpochError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "UnknownMemberIdError",
    "UnknownServerError",
    "UnknownTopicOrPartitionError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
]


class UnknownServerError(KafkaError, code=-1):
    """The broker failed with an error that has no code; see its log."""


class OffsetOutOfRangeError(KafkaError, code=1):
    """The offset is before the log start offset or after the end of the log."""


class CorruptMessageError(KafkaError, code=2, retriable=True):
    """A batch failed its checksum or format checks, or lacks the key that a compacted topic
    needs.
    """


class UnknownTopicOrPartitionError(KafkaError, code=3, retriable=True, refresh_metadata=True):
    """The broker does not know the topic or has no such partition of it."""


class InvalidFetchSizeError(KafkaError, code=4):
    """The fetch size in bytes is not valid."""


class LeaderNotAvailableError(KafkaError, code=5, retriable=True, refresh_metadata=True):
    """The partition has no leader at the moment; an election is in progress."""


class NotLeaderOrFollowerError(KafkaError, code=6, retriable=True, refresh_metadata=True):
    """The broker is not the leader (or not a replica) of the partition: refresh the metadata."""


class RequestTimedOutError(KafkaError, code=7, retriable=True, refresh_metadata=True):
    """The request was not finished within its timeout."""


class BrokerNotAvailableError(KafkaError, code=8):
    """The broker cannot be reached or is not running."""


class ReplicaNotAvailableError(KafkaError, code=9, retriable=True, refresh_metadata=True):
    """The requested replica is not available for this partition."""


class MessageTooLargeError(KafkaError, code=10):
    """A batch is larger than max.message.bytes of the topic."""


class StaleControllerEpochError(KafkaError, code=11):
    """The request comes from a controller that has been replaced."""


class OffsetMetadataTooLargeError(KafkaError, code=12):
    """The metadata string of a committed offset is longer than offset.metadata.max.bytes."""


class NetworkError(KafkaError, code=13, retriable=True, refresh_metadata=True):
    """The connection was lost before the response arrived."""


class CoordinatorLoadInProgressError(KafkaError, code=14, retriable=True):
    """The coordinator is still loading its state; retry."""


class CoordinatorNotAvailableError(KafkaError, code=15, retriable=True):
    """No coordinator is available for this group or transactional id."""


class NotCoordinatorError(KafkaError, code=16, retriable=True):
    """The broker is not the coordinator of this group or transactional id: look it up again."""


class InvalidTopicError(KafkaError, code=17):
    """The topic's name is not valid, or the operation is not allowed on this topic."""


class RecordListTooLargeError(KafkaError, code=18):
    """A batch is larger than segment.bytes."""


class NotEnoughReplicasError(KafkaError, code=19, retriable=True, refresh_metadata=True):
    """Fewer replicas are in sync than min.insync.replicas requires; nothing was written."""


class NotEnoughReplicasAfterAppendError(KafkaError, code=20, retriable=True, refresh_metadata=True):
    """The records were written, but fewer replicas than min.insync.replicas have them."""


class InvalidRequiredAcksError(KafkaError, code=21):
    """acks must be 0, 1 or -1 (all)."""


class IllegalGenerationError(KafkaError, code=22):
    """The member's generation is not the group's current one."""


class InconsistentGroupProtocolError(KafkaError, code=23):
    """The member has no assignment protocol in common with the group, or named none."""


class InvalidGroupIdError(KafkaError, code=24):
    """The group id is empty or otherwise not valid."""


class UnknownMemberIdError(KafkaError, code=25):
    """The coordinator does not know this member: it must join again."""


class InvalidSessionTimeoutError(KafkaError, code=26):
    """The session timeout is not between group.min.session.timeout.ms and
    group.max.session.timeout.ms.
    """


class RebalanceInProgressError(KafkaError, code=27):
    """The group is rebalancing: the member must join again."""


class InvalidCommitOffsetSizeError(KafkaError, code=28):
    """The record of a committed offset would be larger than the offsets topic allows."""


class TopicAuthorizationFailedError(KafkaError, code=29):
    """The principal may not do this with the topic."""


class GroupAuthorizationFailedError(KafkaError, code=30):
    """The principal may not do this with the group."""


class ClusterAuthorizationFailedError(KafkaError, code=31, fatal=True):
    """The principal may not do this with the cluster."""


class InvalidTimestampError(KafkaError, code=32):
    """A record's timestamp is too far from the broker's clock for the topic's limits."""


class UnsupportedSaslMechanismError(KafkaError, code=33, fatal=True):
    """The listener does not support the requested SASL mechanism."""


class IllegalSaslStateError(KafkaError, code=34):
    """The request does not match the authentication state of the connection."""


class UnsupportedVersionError(KafkaError, code=35, fatal=True):
    """The broker does not support the API in the required version."""


class TopicAlreadyExistsError(KafkaError, code=36):
    """A topic with this name already exists."""


class InvalidPartitionsError(KafkaError, code=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactorError(KafkaError, code=38):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignmentError(KafkaError, code=39):
    """The given replicas are not a valid assignment."""


class InvalidConfigError(KafkaError, code=40):
    """A config has an unknown name or a value that is not valid."""


class NotControllerError(KafkaError, code=41, retriable=True):
    """The broker is not the controller of the cluster."""


class InvalidRequestError(KafkaError, code=42):
    """The request is malformed or contradicts itself."""


class UnsupportedForMessageFormatError(KafkaError, code=43):
    """The stored message format does not support the operation."""


class PolicyViolationError(KafkaError, code=44):
    """A policy of the broker forbids this."""


class InvalidProduceOffsetError(KafkaError, code=77, produce_only=True):
    """kstore (KIP-391): the given offset is below the log end offset, which is in the response."""

    def __init__(self, message: str | None = None, log_end_offset: int = -1) -> None:
        super().__init__(message)
        self.log_end_offset = log_end_offset
        """The partition's log end offset: the smallest offset that it accepts; -1 for unknown."""


class InvalidPartitionEpochError(KafkaError, code=23200):
    """kstore (KIP-232): the partition epoch is older than that of the last commit."""

    def __init__(self, about: str | Mapping[TopicPartition, int] | None = None) -> None:
        """``about`` is a message, or the partitions, each with its current epoch."""
        epochs = {} if about is None or isinstance(about, str) else dict(about)
        if epochs:
            names = ", ".join(f"{tp} (now epoch {epoch})" for tp, epoch in sorted(epochs.items()))
            about = (
                f"the position is from an earlier topic of {names}: the topic was deleted and "
                "created again; seek to where you want to continue"
            )
        super().__init__(about if isinstance(about, str) else None)
        self.partition_epochs = epochs
        """The partitions, each with its current partition epoch."""


class InvalidLeaderEpochError(KafkaError, code=23201):
    """kstore (KIP-232): the partition epoch is the same, but the leader epoch is older than that of
    the last commit.
    """


class InvalidPartitionCountError(KafkaError, code=25300, retriable=True, refresh_metadata=True):
    """kstore (KIP-253): the producer used an old partition count: refresh the metadata, and
    partition the records again.
    """
