"""Errors of producers, transactions, groups, tokens and quorums: Kafka's codes from 45 on.

Each class is one row: its code, what a client may do about it, and a description (the docstring).
"""

from __future__ import annotations

from kstore.errors.base import KafkaError
from kstore.errors.codes import ErrorCode

__all__ = [
    "BrokerIdNotRegisteredError",
    "CommitFailedError",
    "ConcurrentTransactionsError",
    "DelegationTokenAuthDisabledError",
    "DelegationTokenAuthorizationFailedError",
    "DelegationTokenExpiredError",
    "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError",
    "DelegationTokenRequestNotAllowedError",
    "DuplicateBrokerRegistrationError",
    "DuplicateResourceError",
    "DuplicateSequenceNumberError",
    "DuplicateVoterError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FeatureUpdateFailedError",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FencedMemberEpochError",
    "FencedStateEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupSubscribedToTopicError",
    "InconsistentClusterIdError",
    "InconsistentTopicIdError",
    "InconsistentVoterSetError",
    "IneligibleReplicaError",
    "InvalidFetchSessionEpochError",
    "InvalidPrincipalTypeError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidRegistrationError",
    "InvalidRegularExpressionError",
    "InvalidShareSessionEpochError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "InvalidUpdateVersionError",
    "InvalidVoterKeyError",
    "KafkaStorageError",
    "ListenerNotFoundError",
    "LogDirNotFoundError",
    "MemberIdRequiredError",
    "MismatchedEndpointTypeError",
    "NewLeaderElectedError",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "OffsetMovedToTieredStorageError",
    "OffsetNotAvailableError",
    "OperationNotAttemptedError",
    "OutOfOrderSequenceNumberError",
    "PositionOutOfRangeError",
    "PreferredLeaderNotAvailableError",
    "PrincipalDeserializationError",
    "ProducerFencedError",
    "ReassignmentInProgressError",
    "RebootstrapRequiredError",
    "ResourceNotFoundError",
    "SaslAuthenticationFailedError",
    "SecurityDisabledError",
    "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError",
    "SnapshotNotFoundError",
    "StaleBrokerEpochError",
    "StaleMemberEpochError",
    "StreamsInvalidTopologyEpochError",
    "StreamsInvalidTopologyError",
    "StreamsTopologyFencedError",
    "TelemetryTooLargeError",
    "ThrottlingQuotaExceededError",
    "TopicDeletionDisabledError",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "TransactionalIdAuthorizationFailedError",
    "TransactionalIdNotFoundError",
    "UnacceptableCredentialError",
    "UnknownControllerIdError",
    "UnknownLeaderEpochError",
    "UnknownProducerIdError",
    "UnknownSubscriptionIdError",
    "UnknownTopicIdError",
    "UnreleasedInstanceIdError",
    "UnstableOffsetCommitError",
    "UnsupportedAssignorError",
    "UnsupportedCompressionTypeError",
    "UnsupportedEndpointTypeError",
    "VoterNotFoundError",
]


class OutOfOrderSequenceNumberError(KafkaError, code=45):
    """A producer's batch does not follow the last one that the broker has from it."""


class DuplicateSequenceNumberError(KafkaError, code=46):
    """The broker already has a batch with this sequence number."""


class InvalidProducerEpochError(KafkaError, code=47):
    """The producer's epoch is older than the broker's."""


class InvalidTxnStateError(KafkaError, code=48):
    """The transaction is in a state that does not allow this operation."""


class InvalidProducerIdMappingError(KafkaError, code=49):
    """The producer id does not belong to the transactional id."""


class InvalidTransactionTimeoutError(KafkaError, code=50):
    """The transaction timeout is above transaction.max.timeout.ms."""


class ConcurrentTransactionsError(KafkaError, code=51, retriable=True):
    """Another operation on the same transaction is still in progress."""


class TransactionCoordinatorFencedError(KafkaError, code=52, fatal=True):
    """The coordinator that sent a transaction marker has been replaced."""


class TransactionalIdAuthorizationFailedError(KafkaError, code=53, fatal=True):
    """The principal may not use the transactional id."""


class SecurityDisabledError(KafkaError, code=54):
    """The broker runs without an authorizer."""


class OperationNotAttemptedError(KafkaError, code=55):
    """The operation was skipped because another one of the same request failed."""


class KafkaStorageError(KafkaError, code=56, retriable=True, refresh_metadata=True):
    """The broker could not read or write its log on disk."""


class LogDirNotFoundError(KafkaError, code=57):
    """The log directory is not one of the broker's."""


class SaslAuthenticationFailedError(KafkaError, code=58, fatal=True):
    """The credentials were refused."""


class UnknownProducerIdError(KafkaError, code=59):
    """The broker has no state for the producer id, for example because its records expired."""


class ReassignmentInProgressError(KafkaError, code=60):
    """The partition's replicas are being reassigned."""


class DelegationTokenAuthDisabledError(KafkaError, code=61):
    """The broker does not support delegation tokens."""


class DelegationTokenNotFoundError(KafkaError, code=62):
    """The broker does not know the delegation token."""


class DelegationTokenOwnerMismatchError(KafkaError, code=63):
    """The principal is neither the owner nor a renewer of the token."""


class DelegationTokenRequestNotAllowedError(KafkaError, code=64):
    """Token requests need an authenticated, secure connection that was not authenticated with a
    token.
    """


class DelegationTokenAuthorizationFailedError(KafkaError, code=65):
    """The principal may not do this with delegation tokens."""


class DelegationTokenExpiredError(KafkaError, code=66):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(KafkaError, code=67):
    """The type of the principal is not supported."""


class NonEmptyGroupError(KafkaError, code=68):
    """The group still has members."""


class GroupIdNotFoundError(KafkaError, code=69):
    """No group has this id."""


class FetchSessionIdNotFoundError(KafkaError, code=70, retriable=True):
    """The broker no longer has the fetch session: start a new one."""


class InvalidFetchSessionEpochError(KafkaError, code=71, retriable=True):
    """The fetch session's epoch is not the expected one: start a new session."""


class ListenerNotFoundError(KafkaError, code=72, retriable=True, refresh_metadata=True):
    """The leader has no listener with the name through which the metadata was requested."""


class TopicDeletionDisabledError(KafkaError, code=73):
    """The broker's settings forbid the deletion of topics."""


class FencedLeaderEpochError(KafkaError, code=74, retriable=True, refresh_metadata=True):
    """The request has an older leader epoch than the broker: refresh the metadata."""


class UnknownLeaderEpochError(KafkaError, code=75, retriable=True, refresh_metadata=True):
    """The request has a newer leader epoch than the broker."""


class UnsupportedCompressionTypeError(KafkaError, code=76):
    """The client's version cannot read the compression of this partition."""


class StaleBrokerEpochError(KafkaError, code=77):
    """The broker has registered again since the request was created."""


class OffsetNotAvailableError(KafkaError, code=78, retriable=True):
    """A new leader does not know its high watermark yet."""


class MemberIdRequiredError(KafkaError, code=79):
    """The member must join again with its new member id."""


class PreferredLeaderNotAvailableError(KafkaError, code=80, retriable=True, refresh_metadata=True):
    """The preferred leader is not available."""


class GroupMaxSizeReachedError(KafkaError, code=81):
    """The group already has group.max.size members."""


class FencedInstanceIdError(KafkaError, code=82, fatal=True):
    """Another member has taken over the group instance id."""


class EligibleLeadersNotAvailableError(KafkaError, code=83, retriable=True, refresh_metadata=True):
    """No replica that may become leader is available."""


class ElectionNotNeededError(KafkaError, code=84, retriable=True, refresh_metadata=True):
    """The partition already has the leader that the election would give it."""


class NoReassignmentInProgressError(KafkaError, code=85):
    """The partition's replicas are not being reassigned."""


class GroupSubscribedToTopicError(KafkaError, code=86):
    """The group subscribes to the topic, so its offsets cannot be deleted."""


class InvalidRecordError(KafkaError, code=87):
    """A record violates a rule of the topic; the response names the record."""


class UnstableOffsetCommitError(KafkaError, code=88, retriable=True):
    """A transaction that commits offsets of the partition is still open."""


class ThrottlingQuotaExceededError(KafkaError, code=89, retriable=True):
    """The quota for such requests is currently used up."""


class ProducerFencedError(KafkaError, code=90, fatal=True):
    """A newer producer with the same transactional id has replaced this one."""


class ResourceNotFoundError(KafkaError, code=91):
    """The request refers to something that does not exist."""


class DuplicateResourceError(KafkaError, code=92):
    """The request refers to the same thing twice."""


class UnacceptableCredentialError(KafkaError, code=93):
    """The credential does not meet the rules for credentials."""


class InconsistentVoterSetError(KafkaError, code=94):
    """The sender and the receiver of a quorum request disagree on the voters."""


class InvalidUpdateVersionError(KafkaError, code=95):
    """The version in an update is not valid."""


class FeatureUpdateFailedError(KafkaError, code=96):
    """The cluster's features could not be updated."""


class PrincipalDeserializationError(KafkaError, code=97):
    """A forwarded request has a principal that cannot be parsed."""


class SnapshotNotFoundError(KafkaError, code=98):
    """The snapshot does not exist."""


class PositionOutOfRangeError(KafkaError, code=99):
    """The position is outside the snapshot."""


class UnknownTopicIdError(KafkaError, code=100, retriable=True, refresh_metadata=True):
    """The broker does not know the topic id."""


class DuplicateBrokerRegistrationError(KafkaError, code=101):
    """Another broker is registered under this broker id."""


class BrokerIdNotRegisteredError(KafkaError, code=102):
    """No broker is registered under this broker id."""


class InconsistentTopicIdError(KafkaError, code=103, retriable=True, refresh_metadata=True):
    """The log belongs to a topic with another id than in the request."""


class InconsistentClusterIdError(KafkaError, code=104):
    """The request has another cluster id than this cluster."""


class TransactionalIdNotFoundError(KafkaError, code=105):
    """The coordinator does not know the transactional id."""


class FetchSessionTopicIdError(KafkaError, code=106, retriable=True):
    """A fetch session mixes requests with and without topic ids: start a new one."""


class IneligibleReplicaError(KafkaError, code=107):
    """The new ISR contains a replica that must not be in it."""


class NewLeaderElectedError(KafkaError, code=108):
    """The ISR was changed, and the partition has a new leader."""


class OffsetMovedToTieredStorageError(KafkaError, code=109):
    """The records at this offset are only in tiered storage."""


class FencedMemberEpochError(KafkaError, code=110):
    """The coordinator has fenced the member: give up all partitions and join again."""


class UnreleasedInstanceIdError(KafkaError, code=111):
    """Another member still has the instance id; it must leave first."""


class UnsupportedAssignorError(KafkaError, code=112):
    """The group does not support the assignor in this version."""


class CommitFailedError(KafkaError, code=ErrorCode.ILLEGAL_GENERATION, client_only=True):
    """The consumer is not, or no longer, the member that it commits for: its partitions may belong
    to others. Raised for ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH of commits.
    """


class StaleMemberEpochError(KafkaError, code=113):
    """The member's epoch is behind: retry with the epoch from the next heartbeat."""


class MismatchedEndpointTypeError(KafkaError, code=114):
    """The request was sent to a broker's endpoint instead of a controller's, or the reverse."""


class UnsupportedEndpointTypeError(KafkaError, code=115):
    """Endpoints of this type are not supported yet."""


class UnknownControllerIdError(KafkaError, code=116):
    """No controller has this id."""


class UnknownSubscriptionIdError(KafkaError, code=117):
    """The telemetry subscription is unknown or outdated."""


class TelemetryTooLargeError(KafkaError, code=118):
    """The pushed telemetry is larger than the broker accepts."""


class InvalidRegistrationError(KafkaError, code=119):
    """The controller refused the broker's registration."""


class TransactionAbortableError(KafkaError, code=120):
    """The transaction failed and must be aborted; then the producer can continue."""


class InvalidRecordStateError(KafkaError, code=121):
    """The record is not in a state that allows an acknowledgement."""


class ShareSessionNotFoundError(KafkaError, code=122, retriable=True):
    """The broker no longer has the share session."""


class InvalidShareSessionEpochError(KafkaError, code=123, retriable=True):
    """The share session's epoch is not the expected one."""


class FencedStateEpochError(KafkaError, code=124):
    """The state epoch of the share group is older than the coordinator's."""


class InvalidVoterKeyError(KafkaError, code=125):
    """The voter's key is not that of the replica that received the request."""


class DuplicateVoterError(KafkaError, code=126):
    """The replica is already a voter."""


class VoterNotFoundError(KafkaError, code=127):
    """The replica is not a voter."""


class InvalidRegularExpressionError(KafkaError, code=128):
    """The regular expression cannot be compiled."""


class RebootstrapRequiredError(KafkaError, code=129):
    """The client's metadata is too old: start again from the bootstrap servers."""


class StreamsInvalidTopologyError(KafkaError, code=130):
    """The topology of the streams group is not valid."""


class StreamsInvalidTopologyEpochError(KafkaError, code=131):
    """The epoch of the topology is not valid."""


class StreamsTopologyFencedError(KafkaError, code=132):
    """A newer topology has replaced the member's."""


class ShareSessionLimitReachedError(KafkaError, code=133, retriable=True):
    """The broker has reached its limit of share sessions."""
