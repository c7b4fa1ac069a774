"""Results of AdminClient's futures: descriptions of the cluster, topics, groups and users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kstore.clients.admin import BrokerDescription as KstoreBroker
from kstore.clients.admin import ConfigEntry as KstoreEntry
from kstore.clients.admin import GroupDescription as KstoreGroup
from kstore.clients.admin import TopicDescription as KstoreTopic
from kstore.clients.compat.confluent.admin.resources import (
    AclOperation,
    ConfigEntry,
    ConfigSource,
    ScramCredentialInfo,
)
from kstore.clients.compat.confluent.model import (
    ConsumerGroupState,
    ConsumerGroupType,
    Node,
    TopicPartition,
    TopicPartitionInfo,
    Uuid,
    enum_of,
)

__all__ = [
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "DeletedRecords",
    "DescribeClusterResult",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "MemberAssignment",
    "MemberDescription",
    "TopicDescription",
    "UserScramCredentialsDescription",
    "config_entry",
    "group_description",
    "group_state",
    "group_type",
    "node",
    "operations",
    "topic_description",
]


class DescribeClusterResult:
    """The brokers and the controller."""

    def __init__(
        self,
        controller: Node | None,
        nodes: list[Node],
        cluster_id: str | None = None,
        authorized_operations: list[AclOperation] | None = None,
    ) -> None:
        self.cluster_id, self.controller, self.nodes = cluster_id, controller, nodes
        self.authorized_operations = authorized_operations


class TopicDescription:
    """A topic's id and partitions."""

    def __init__(
        self,
        name: str,
        topic_id: Uuid,
        is_internal: bool,
        partitions: list[TopicPartitionInfo],
        authorized_operations: list[AclOperation] | None = None,
    ) -> None:
        self.name, self.topic_id, self.is_internal = name, topic_id, is_internal
        self.partitions, self.authorized_operations = partitions, authorized_operations


class ConsumerGroupListing:
    """A group's id, state and type."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        state: Any = None,
        type: Any = None,
    ) -> None:
        self.group_id, self.is_simple_consumer_group = group_id, is_simple_consumer_group
        self.state = None if state is None else enum_of(ConsumerGroupState, state)
        self.type = None if type is None else enum_of(ConsumerGroupType, type)


class ListConsumerGroupsResult:
    """The groups, and the errors of brokers that did not report theirs."""

    def __init__(
        self,
        valid: list[ConsumerGroupListing] | None = None,
        errors: list[Exception] | None = None,
    ) -> None:
        self.valid, self.errors = valid or [], errors or []


class MemberAssignment:
    """The partitions of a member."""

    def __init__(self, topic_partitions: list[TopicPartition] | None) -> None:
        self.topic_partitions = topic_partitions or []


class MemberDescription:
    """A member of a group."""

    def __init__(
        self,
        member_id: str,
        client_id: str,
        host: str,
        assignment: MemberAssignment,
        group_instance_id: str | None = None,
        target_assignment: MemberAssignment | None = None,
    ) -> None:
        self.member_id, self.client_id, self.host = member_id, client_id, host
        self.assignment, self.target_assignment = assignment, target_assignment
        self.group_instance_id = group_instance_id


class ConsumerGroupDescription:
    """A group and its members."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        members: list[MemberDescription],
        partition_assignor: str,
        state: Any,
        coordinator: Node | None,
        authorized_operations: list[AclOperation] | None = None,
        type: Any = ConsumerGroupType.UNKNOWN,
    ) -> None:
        self.group_id, self.is_simple_consumer_group = group_id, is_simple_consumer_group
        self.members, self.partition_assignor = members, partition_assignor
        self.state = enum_of(ConsumerGroupState, state)
        self.type = enum_of(ConsumerGroupType, type)
        self.coordinator, self.authorized_operations = coordinator, authorized_operations


class DeletedRecords:
    """The log start offset after records were deleted."""

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark


class ListOffsetsResultInfo:
    """An offset that was found."""

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset, self.timestamp = offset, timestamp
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch


class UserScramCredentialsDescription:
    """A user's credentials."""

    def __init__(self, user: str, scram_credential_infos: list[ScramCredentialInfo]) -> None:
        self.user, self.scram_credential_infos = user, scram_credential_infos


def operations(found: Iterable[Any] | None) -> list[AclOperation] | None:
    """Authorized operations; operations without a name in this API are omitted."""
    if found is None:
        return None
    known = {each.value: each for each in AclOperation}
    return [known[row.value] for row in sorted(found) if row.value in known]


def node(broker: KstoreBroker) -> Node:
    """A broker."""
    return Node(broker.node_id, broker.host, broker.port, broker.rack)


def topic_description(topic: KstoreTopic, nodes: Mapping[int, Node]) -> TopicDescription:
    """A topic, with the brokers by id."""
    partitions = [
        TopicPartitionInfo(
            row.partition,
            nodes.get(row.leader),
            [nodes.get(each) or Node(each, "", -1) for each in row.replicas],
            [nodes.get(each) or Node(each, "", -1) for each in row.isr],
        )
        for row in topic.partitions
    ]
    rights = operations(topic.authorized_operations)
    return TopicDescription(
        topic.name, Uuid.of(topic.topic_id), topic.is_internal, partitions, rights
    )


_STATES = {
    "preparingrebalance": ConsumerGroupState.PREPARING_REBALANCING,
    "completingrebalance": ConsumerGroupState.COMPLETING_REBALANCING,
    "assigning": ConsumerGroupState.PREPARING_REBALANCING,
    "reconciling": ConsumerGroupState.COMPLETING_REBALANCING,
    "stable": ConsumerGroupState.STABLE,
    "dead": ConsumerGroupState.DEAD,
    "empty": ConsumerGroupState.EMPTY,
}


def group_state(text: str) -> ConsumerGroupState:
    """Kafka's name of a state."""
    return _STATES.get(text.lower(), ConsumerGroupState.UNKNOWN)


def group_type(text: str) -> ConsumerGroupType:
    """Kafka's name of a group's type."""
    return ConsumerGroupType.__members__.get(text.upper(), ConsumerGroupType.UNKNOWN)


def group_description(group: KstoreGroup, nodes: Mapping[int, Node]) -> ConsumerGroupDescription:
    """A group, with the brokers by id."""
    is_classic = group.group_type.lower() == "classic"
    members = [
        MemberDescription(
            row.member_id, row.client_id, row.host, _assignment(row.assignment),
            row.group_instance_id, None if is_classic else _assignment(row.target_assignment),
        )
        for row in group.members
    ]  # fmt: skip
    return ConsumerGroupDescription(
        group.group_id, not group.protocol_type, members, group.assignor,
        group_state(group.state), nodes.get(group.coordinator),
        operations(group.authorized_operations), group_type(group.group_type),
    )  # fmt: skip


def _assignment(partitions: Iterable[Any]) -> MemberAssignment:
    return MemberAssignment([TopicPartition(tp.topic, tp.partition) for tp in partitions])


def config_entry(entry: KstoreEntry) -> ConfigEntry:
    """A config, with its synonyms."""
    source = _source(entry.source)
    synonyms = {
        row.name: ConfigEntry(row.name, row.value, _source(row.source), is_synonym=True)
        for row in entry.synonyms
    }
    return ConfigEntry(
        entry.name, entry.value, source, entry.read_only, source is ConfigSource.DEFAULT_CONFIG,
        entry.is_sensitive, synonyms=synonyms,
    )  # fmt: skip


def _source(number: int) -> ConfigSource:
    known = {each.value for each in ConfigSource}
    return ConfigSource(int(number) if int(number) in known else 0)
