"""The Kafka clients of kstore: Producer, Consumer, ShareConsumer and AdminClient, and their asyncio
forms.

They work with kstore's brokers and with Apache Kafka's. Import all public names from here. A name's
module is imported when the name is first used.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.admin, kstore.clients.core,
    kstore.clients.io, kstore.config, kstore.errors, kstore.items, kstore.record, kstore.types.
"""
# ruff: noqa: F405  the errors come by a star, and are named in __all__

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "kstore.clients":
    raise ImportError("this package is imported as kstore.clients, not as " + repr(__name__))

if TYPE_CHECKING:
    from kstore.clients.admin import (
        OFFSET_SPECS,
        AbortSpec,
        Acl,
        AclFilter,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
        AdminClient,
        AIOAdminClient,
        BrokerDescription,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        ConfigSynonym,
        DelegationToken,
        FeatureRange,
        FeaturesDescription,
        FeatureUpdate,
        GroupDescription,
        GroupListing,
        GroupMember,
        HangingTransaction,
        ListedOffset,
        LogDirDescription,
        MemberDescription,
        NewPartitions,
        NewTopic,
        PartitionDescription,
        PartitionReassignment,
        ProducerState,
        QuotaEntity,
        ReplicaOnBroker,
        ReplicaSize,
        Results,
        ScramCredential,
        ScramDeletion,
        ScramUpsertion,
        ShareGroupOffset,
        Subtopology,
        TaskId,
        TopicDescription,
        TransactionDescription,
        TransactionListing,
        quota_entity,
    )
    from kstore.clients.aio_consumer import (
        AIOConsumer,
    )
    from kstore.clients.aio_share_consumer import (
        AIOShareConsumer,
    )
    from kstore.clients.consumer import (
        Consumer,
        ConsumerRecord,
        CorruptRecordError,
        LogTruncationError,
        LostRecords,
        OnTruncation,
        RebalanceListener,
        WakeupError,
    )
    from kstore.clients.consumer_calls import (
        CommitCallback,
        ConsumerInterceptor,
    )
    from kstore.clients.core.consumer.offset_check import (
        OffsetCheck,
        OffsetFinding,
    )
    from kstore.clients.core.consumer.subscription import (
        SubscriptionPattern,
    )
    from kstore.clients.core.group.assignors import (
        Assignor,
        Subscription,
    )
    from kstore.clients.core.metadata import (
        PartitionView,
    )
    from kstore.clients.core.share.acknowledgements import (
        AcknowledgeType,
    )
    from kstore.clients.producer import (
        AIOProducer,
        Deliveries,
        Delivery,
        Producer,
        ProducerRecord,
    )
    from kstore.clients.producer_record import (
        ProducerInterceptor,
    )
    from kstore.clients.serializers import (
        DeserializedRecord,
        SerializationContext,
    )
    from kstore.clients.share_consumer import (
        ShareConsumer,
    )
    from kstore.clients.share_record import (
        AcknowledgementCallback,
        AcknowledgementResult,
        ShareRecord,
    )
    from kstore.config.definition import (
        ConfigError,
    )
    from kstore.errors import *  # noqa: F403
    from kstore.items import (
        Headers,
        Items,
        Listed,
    )
    from kstore.record import (
        RecordSet,
    )
    from kstore.types import (
        ConsumerGroupMetadata,
        Header,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
    )

__all__ = [
    "OFFSET_SPECS", "AIOAdminClient", "AIOConsumer", "AIOProducer", "AIOShareConsumer", "AbortSpec",
    "AcknowledgeType", "AcknowledgementCallback", "AcknowledgementResult", "Acl", "AclFilter",
    "AclOperation", "AclPatternType", "AclPermission", "AclResourceType", "AdminClient", "Assignor",
    "BrokerDescription", "BrokerIdNotRegisteredError", "BrokerNotAvailableError",
    "ClusterAuthorizationFailedError", "ClusterDescription", "CommitCallback", "CommitFailedError",
    "ConcurrentTransactionsError", "ConfigChange", "ConfigEntry", "ConfigError", "ConfigResource",
    "ConfigSource", "ConfigSynonym", "Consumer", "ConsumerGroupMetadata", "ConsumerInterceptor",
    "ConsumerRecord", "CoordinatorLoadInProgressError", "CoordinatorNotAvailableError",
    "CorruptMessageError", "CorruptRecordError", "DelegationToken",
    "DelegationTokenAuthDisabledError", "DelegationTokenAuthorizationFailedError",
    "DelegationTokenExpiredError", "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError", "DelegationTokenRequestNotAllowedError", "Deliveries",
    "Delivery", "DeserializedRecord", "DuplicateBrokerRegistrationError", "DuplicateResourceError",
    "DuplicateSequenceNumberError", "DuplicateVoterError", "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError", "ErrorCode", "FeatureRange", "FeatureUpdate",
    "FeatureUpdateFailedError", "FeaturesDescription", "FencedInstanceIdError",
    "FencedLeaderEpochError", "FencedMemberEpochError", "FencedStateEpochError",
    "FetchSessionIdNotFoundError", "FetchSessionTopicIdError", "GroupAuthorizationFailedError",
    "GroupDescription", "GroupIdNotFoundError", "GroupListing", "GroupMaxSizeReachedError",
    "GroupMember", "GroupSubscribedToTopicError", "HangingTransaction", "Header", "Headers",
    "IllegalGenerationError", "IllegalSaslStateError", "InconsistentClusterIdError",
    "InconsistentGroupProtocolError", "InconsistentTopicIdError", "InconsistentVoterSetError",
    "IneligibleReplicaError", "InvalidCommitOffsetSizeError", "InvalidConfigError",
    "InvalidFetchSessionEpochError", "InvalidFetchSizeError", "InvalidGroupIdError",
    "InvalidLeaderEpochError", "InvalidPartitionCountError", "InvalidPartitionEpochError",
    "InvalidPartitionsError", "InvalidPrincipalTypeError", "InvalidProduceOffsetError",
    "InvalidProducerEpochError", "InvalidProducerIdMappingError", "InvalidRecordError",
    "InvalidRecordStateError", "InvalidRegistrationError", "InvalidRegularExpressionError",
    "InvalidReplicaAssignmentError", "InvalidReplicationFactorError", "InvalidRequestError",
    "InvalidRequiredAcksError", "InvalidSessionTimeoutError", "InvalidShareSessionEpochError",
    "InvalidTimestampError", "InvalidTopicError", "InvalidTransactionTimeoutError",
    "InvalidTxnStateError", "InvalidUpdateVersionError", "InvalidVoterKeyError", "Items",
    "KafkaError", "KafkaStorageError", "LeaderNotAvailableError", "Listed", "ListedOffset",
    "ListenerNotFoundError", "LogDirDescription", "LogDirNotFoundError", "LogTruncationError",
    "LostRecords", "MemberDescription", "MemberIdRequiredError", "MessageTooLargeError",
    "MismatchedEndpointTypeError", "NetworkError", "NewLeaderElectedError", "NewPartitions",
    "NewTopic", "NoReassignmentInProgressError", "NonEmptyGroupError", "NotControllerError",
    "NotCoordinatorError", "NotEnoughReplicasAfterAppendError", "NotEnoughReplicasError",
    "NotLeaderOrFollowerError", "OffsetAndMetadata", "OffsetAndTimestamp", "OffsetCheck",
    "OffsetFinding", "OffsetMetadataTooLargeError", "OffsetMovedToTieredStorageError",
    "OffsetNotAvailableError", "OffsetOutOfRangeError", "OnTruncation",
    "OperationNotAttemptedError", "OutOfOrderSequenceNumberError", "PartitionDescription",
    "PartitionReassignment", "PartitionView", "PolicyViolationError", "PositionOutOfRangeError",
    "PreferredLeaderNotAvailableError", "PrincipalDeserializationError", "Producer",
    "ProducerFencedError", "ProducerInterceptor", "ProducerRecord", "ProducerState",
    "ProtocolError", "QuotaEntity", "ReassignmentInProgressError", "RebalanceInProgressError",
    "RebalanceListener", "RebootstrapRequiredError", "RecordListTooLargeError", "RecordSet",
    "ReplicaNotAvailableError", "ReplicaOnBroker", "ReplicaSize", "RequestTimedOutError",
    "ResourceNotFoundError", "Results", "SaslAuthenticationFailedError", "ScramCredential",
    "ScramDeletion", "ScramUpsertion", "SecurityDisabledError", "SerializationContext",
    "ShareConsumer", "ShareGroupOffset", "ShareRecord", "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError", "SnapshotNotFoundError", "StaleBrokerEpochError",
    "StaleControllerEpochError", "StaleMemberEpochError", "StreamsInvalidTopologyEpochError",
    "StreamsInvalidTopologyError", "StreamsTopologyFencedError", "Subscription",
    "SubscriptionPattern", "Subtopology", "TaskId", "TelemetryTooLargeError",
    "ThrottlingQuotaExceededError", "TopicAlreadyExistsError", "TopicAuthorizationFailedError",
    "TopicDeletionDisabledError", "TopicDescription", "TopicPartition", "TransactionAbortableError",
    "TransactionCoordinatorFencedError", "TransactionDescription", "TransactionListing",
    "TransactionalIdAuthorizationFailedError", "TransactionalIdNotFoundError",
    "UnacceptableCredentialError", "UnknownControllerIdError", "UnknownLeaderEpochError",
    "UnknownMemberIdError", "UnknownProducerIdError", "UnknownServerError",
    "UnknownSubscriptionIdError", "UnknownTopicIdError", "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError", "UnstableOffsetCommitError", "UnsupportedAssignorError",
    "UnsupportedCompressionTypeError", "UnsupportedEndpointTypeError",
    "UnsupportedForMessageFormatError", "UnsupportedSaslMechanismError", "UnsupportedVersionError",
    "VoterNotFoundError", "WakeupError", "quota_entity",
]  # fmt: skip

_MODULES = {
    "AIOConsumer": "kstore.clients.aio_consumer",
    "AIOShareConsumer": "kstore.clients.aio_share_consumer",
    "AcknowledgeType": "kstore.clients.core.share.acknowledgements",
    "AcknowledgementCallback": "kstore.clients.share_record",
    "AcknowledgementResult": "kstore.clients.share_record",
    "ShareConsumer": "kstore.clients.share_consumer",
    "ShareRecord": "kstore.clients.share_record",
    "Consumer": "kstore.clients.consumer",
    "ConsumerRecord": "kstore.clients.consumer",
    "CorruptRecordError": "kstore.clients.consumer",
    "LogTruncationError": "kstore.clients.consumer",
    "LostRecords": "kstore.clients.consumer",
    "OnTruncation": "kstore.clients.consumer",
    "RebalanceListener": "kstore.clients.consumer",
    "WakeupError": "kstore.clients.consumer",
    "DeserializedRecord": "kstore.clients.serializers",
    "SerializationContext": "kstore.clients.serializers",
    "CommitCallback": "kstore.clients.consumer_calls",
    "ConsumerInterceptor": "kstore.clients.consumer_calls",
    "OffsetCheck": "kstore.clients.core.consumer.offset_check",
    "OffsetFinding": "kstore.clients.core.consumer.offset_check",
    "SubscriptionPattern": "kstore.clients.core.consumer.subscription",
    "Assignor": "kstore.clients.core.group.assignors",
    "Subscription": "kstore.clients.core.group.assignors",
    "PartitionView": "kstore.clients.core.metadata",
    "AIOProducer": "kstore.clients.producer",
    "Deliveries": "kstore.clients.producer",
    "Delivery": "kstore.clients.producer",
    "Producer": "kstore.clients.producer",
    "ProducerInterceptor": "kstore.clients.producer_record",
    "ProducerRecord": "kstore.clients.producer",
    "ConfigError": "kstore.config.definition",
    "Headers": "kstore.items",
    "Items": "kstore.items",
    "Listed": "kstore.items",
    "RecordSet": "kstore.record",
    "ConsumerGroupMetadata": "kstore.types",
    "Header": "kstore.types",
    "OffsetAndMetadata": "kstore.types",
    "OffsetAndTimestamp": "kstore.types",
    "TopicPartition": "kstore.types",
}
"""The modules of names that are neither errors nor part of the admin client."""


def __getattr__(name: str) -> Any:
    """Import the module of a name when the name is used."""
    if name not in __all__:
        raise AttributeError(f"module 'kstore.clients' has no attribute {name!r}")
    module = _MODULES.get(name)
    if module is not None:
        return getattr(import_module(module), name)
    errors = import_module("kstore.errors")
    return getattr(
        errors if name in errors.__all__ else import_module("kstore.clients.admin"), name
    )
