"""Administration of a cluster from Python: AdminClient, AIOAdminClient, and the types of their
arguments and results. Each family of requests has a module; routing.py finds the broker that
answers.

May import: kstore.acls, kstore.clients.core.consumer, kstore.clients.io, kstore.config.client,
    kstore.errors, kstore.items, kstore.protocol, kstore.types, kstore.version.
"""

from __future__ import annotations

from kstore.clients.admin.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from kstore.clients.admin.client import AdminClient, AIOAdminClient
from kstore.clients.admin.cluster import (
    BrokerDescription,
    ClusterDescription,
    FeatureRange,
    FeaturesDescription,
    FeatureUpdate,
)
from kstore.clients.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
)
from kstore.clients.admin.credentials import ScramCredential, ScramDeletion, ScramUpsertion
from kstore.clients.admin.delegation_tokens import DelegationToken
from kstore.clients.admin.group_types import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    Subtopology,
    TaskId,
)
from kstore.clients.admin.groups import GroupMember
from kstore.clients.admin.offsets import OFFSET_SPECS, ListedOffset
from kstore.clients.admin.quotas import QuotaEntity, quota_entity
from kstore.clients.admin.replicas import (
    LogDirDescription,
    PartitionReassignment,
    ReplicaOnBroker,
    ReplicaSize,
)
from kstore.clients.admin.routing import Results
from kstore.clients.admin.share_offsets import ShareGroupOffset
from kstore.clients.admin.topics import (
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from kstore.clients.admin.transactions import (
    AbortSpec,
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "OFFSET_SPECS",
    "AIOAdminClient",
    "AbortSpec",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "AdminClient",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "DelegationToken",
    "FeatureRange",
    "FeatureUpdate",
    "FeaturesDescription",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "PartitionReassignment",
    "ProducerState",
    "QuotaEntity",
    "ReplicaOnBroker",
    "ReplicaSize",
    "Results",
    "ScramCredential",
    "ScramDeletion",
    "ScramUpsertion",
    "ShareGroupOffset",
    "Subtopology",
    "TaskId",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "quota_entity",
]
