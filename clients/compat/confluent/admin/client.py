"""AdminClient with confluent-kafka's API: calls return futures at once, one for each item."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from kstore.clients.admin import ConfigChange, ScramDeletion, ScramUpsertion
from kstore.clients.admin import ConfigResource as KstoreResource
from kstore.clients.admin import NewPartitions as KstorePartitions
from kstore.clients.admin import NewTopic as KstoreTopic
from kstore.clients.compat.confluent.admin.descriptions import (
    DeletedRecords,
    DescribeClusterResult,
    ListOffsetsResultInfo,
    UserScramCredentialsDescription,
    config_entry,
    node,
    operations,
    topic_description,
)
from kstore.clients.compat.confluent.admin.futures import Futures, names_of
from kstore.clients.compat.confluent.admin.groups import GroupsAdmin
from kstore.clients.compat.confluent.admin.resources import (
    AclBinding,
    AclBindingFilter,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kstore.clients.compat.confluent.error import error_of
from kstore.clients.compat.confluent.model import (
    ElectionType,
    IsolationLevel,
    Node,
    TopicCollection,
    TopicPartition,
    pairs_of,
)

__all__ = ["AdminClient"]

KINDS: dict[ResourceType, Any] = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.GROUP: "group",
}
MECHANISMS: dict[ScramMechanism, Any] = {
    ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256",
    ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512",
}


class AdminClient(GroupsAdmin):
    """Takes librdkafka's settings in a dict. The futures of each method return the result or raise
    KafkaException. The keywords request_timeout and operation_timeout (seconds) limit the wait.
    """

    def _leave(self) -> None:
        self._admin.close()

    def poll(self, timeout: float = -1) -> int:
        """Call the callbacks that are due; returns their number."""
        return self._events.serve(timeout)

    # ---- topics ----

    def create_topics(self, new_topics: list[NewTopic], **options: Any) -> Futures[str]:
        """Create topics."""
        rows = [
            KstoreTopic(
                row.topic, -1 if row.replica_assignment else row.num_partitions,
                -1 if row.replica_assignment else row.replication_factor,
                {name: str(value) for name, value in (row.config or {}).items()},
                dict(enumerate(row.replica_assignment or [])),
            )
            for row in _some(new_topics, "NewTopic")
        ]  # fmt: skip
        call = self._client.create_topics(
            rows, validate_only=options.get("validate_only", False), raise_errors=False
        )
        return self._each({row.name: row.name for row in rows}, call, options)

    def delete_topics(self, topics: list[str], **options: Any) -> Futures[str]:
        """Delete topics."""
        names = names_of(topics)
        call = self._client.delete_topics(names, raise_errors=False)
        return self._each({name: name for name in names}, call, options)

    def create_partitions(
        self, new_partitions: list[NewPartitions], **options: Any
    ) -> Futures[str]:
        """Add partitions."""
        rows = {
            row.topic: KstorePartitions(row.new_total_count, row.replica_assignment)
            for row in _some(new_partitions, "NewPartitions")
        }
        call = self._client.create_partitions(
            rows, validate_only=options.get("validate_only", False), raise_errors=False
        )
        return self._each({name: name for name in rows}, call, options)

    def describe_topics(self, topics: TopicCollection, **options: Any) -> Futures[str]:
        """Ids and partitions of topics."""
        if not isinstance(topics, TopicCollection):
            raise TypeError("Expected input to be instance of TopicCollection")
        rights = options.get("include_authorized_operations", False)
        nodes: dict[int, Node] = {}
        futures: Futures[str] = {}
        for name in topics.topic_names:

            async def describe(name: str = name) -> Any:
                nodes.update(await self._nodes())
                (found,) = await self._client.describe_topics([name], authorized_operations=rights)
                return found

            futures[name] = self._one(
                describe(), options, lambda found: topic_description(found, nodes)
            )
        return futures

    def delete_records(
        self, topic_partition_offsets: list[TopicPartition], **options: Any
    ) -> Futures[TopicPartition]:
        """Delete the records before the offsets (OFFSET_END: all)."""
        rows = {row.pair: row for row in pairs_of(topic_partition_offsets)}
        offsets = {tp: row.offset for tp, row in rows.items()}
        call = self._client.delete_records(offsets, raise_errors=False)
        return self._each(rows, call, options, lambda _row, low: DeletedRecords(low))

    def list_offsets(
        self, topic_partition_offsets: dict[TopicPartition, OffsetSpec], **options: Any
    ) -> Futures[TopicPartition]:
        """The offsets for the specifications."""
        level = options.get("isolation_level", IsolationLevel.READ_UNCOMMITTED).name.lower()
        rows = {row.pair: row for row in topic_partition_offsets}
        specs = {row.pair: _spec(spec.value) for row, spec in topic_partition_offsets.items()}
        call = self._client.list_offsets(specs, isolation_level=level, raise_errors=False)
        return self._each(
            rows, call, options,
            lambda _row, at: ListOffsetsResultInfo(at.offset, at.timestamp, at.leader_epoch),
        )  # fmt: skip

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: list[TopicPartition] | None = None,
        **options: Any,
    ) -> Future[Any]:
        """Elect leaders; returns the result by partition, None for success."""
        wanted = None if partitions is None else [row.pair for row in pairs_of(partitions)]
        call = self._client.elect_leaders(
            wanted, election=election_type.name.lower(), raise_errors=False
        )

        def outcome(found: Any) -> dict[TopicPartition, Any]:
            rows = {TopicPartition(*tp): None for tp in found}
            return rows | {
                TopicPartition(*tp): error_of(error) for tp, error in found.errors.items()
            }

        return self._one(call, options, outcome)

    # ---- configs ----

    def describe_configs(
        self, resources: list[ConfigResource], **options: Any
    ) -> Futures[ConfigResource]:
        """The configs of each resource, by name."""
        rows = {_resource(row): row for row in _some(resources, "ConfigResource")}
        call = self._client.describe_resource_configs(list(rows), synonyms=True, raise_errors=False)

        def entries(_row: ConfigResource, found: Mapping[str, Any]) -> dict[str, Any]:
            return {name: config_entry(entry) for name, entry in found.items()}

        return self._each(rows, call, options, entries)

    def incremental_alter_configs(
        self, resources: list[ConfigResource], **options: Any
    ) -> Futures[ConfigResource]:
        """Apply each resource's incremental_configs."""
        rows = {_resource(row): row for row in _some(resources, "ConfigResource")}
        changes = {
            key: {
                each.name: ConfigChange(each.incremental_operation.name.lower(), each.value)
                for each in row.incremental_configs
            }
            for key, row in rows.items()
        }
        return self._alter(rows, changes, options)

    def alter_configs(
        self, resources: list[ConfigResource], **options: Any
    ) -> Futures[ConfigResource]:
        """Set each resource's configs, and reset all others to their defaults."""
        rows = {_resource(row): row for row in _some(resources, "ConfigResource")}

        async def replace() -> Any:
            now = await self._client.describe_resource_configs(list(rows), raise_errors=False)
            changes: dict[Any, dict[str, Any]] = {}
            for key, row in rows.items():
                own = {name for name, entry in now.get(key, {}).items() if _is_own(entry)}
                changes[key] = dict.fromkeys(own) | row.set_config_dict
            return await self._client.alter_resource_configs(
                changes, validate_only=options.get("validate_only", False), raise_errors=False
            )

        return self._each(rows, replace(), options)

    def _alter(
        self,
        rows: Mapping[Any, ConfigResource],
        changes: Mapping[Any, Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> Futures[ConfigResource]:
        call = self._client.alter_resource_configs(
            changes, validate_only=options.get("validate_only", False), raise_errors=False
        )
        return self._each(rows, call, options)

    # ---- ACLs and credentials ----

    def create_acls(self, acls: list[AclBinding], **options: Any) -> Futures[AclBinding]:
        """Create ACLs."""
        rows = {row.as_acl(): row for row in _some(acls, "AclBinding")}
        return self._each(rows, self._client.create_acls(list(rows), raise_errors=False), options)

    def describe_acls(self, acl_binding_filter: AclBindingFilter, **options: Any) -> Future[Any]:
        """The ACLs that match."""
        call = self._client.describe_acls(acl_binding_filter.as_filter())
        return self._one(call, options, lambda found: [AclBinding.of(acl) for acl in found])

    def delete_acls(
        self, acl_binding_filters: list[AclBindingFilter], **options: Any
    ) -> Futures[AclBindingFilter]:
        """Delete the ACLs that match; returns them."""
        rows = {row.as_filter(): row for row in _some(acl_binding_filters, "AclBindingFilter")}
        call = self._client.delete_acls(list(rows), raise_errors=False)
        return self._each(
            rows, call, options, lambda _row, found: [AclBinding.of(acl) for acl in found]
        )

    def describe_user_scram_credentials(
        self, users: list[str] | None = None, **options: Any
    ) -> Any:
        """A future for each user; without users, one future for all users."""
        call = self._client.describe_scram_credentials(users, raise_errors=False)
        if users is None:
            return self._one(
                call, options, lambda found: {user: _scram(user, found[user]) for user in found}
            )
        return self._each({user: user for user in users}, call, options, _scram)

    def alter_user_scram_credentials(
        self, alterations: list[UserScramCredentialAlteration], **options: Any
    ) -> Futures[str]:
        """Set and remove credentials."""
        changes = [_alteration(row) for row in _some(alterations, "UserScramCredentialAlteration")]
        call = self._client.alter_scram_credentials(changes, raise_errors=False)
        return self._each({row.user: row.user for row in changes}, call, options)

    # ---- the cluster ----

    def describe_cluster(self, **options: Any) -> Future[Any]:
        """The brokers and the controller."""
        call = self._client.describe_cluster(
            authorized_operations=options.get("include_authorized_operations", False)
        )

        def result(found: Any) -> DescribeClusterResult:
            nodes = {row.node_id: node(row) for row in found.brokers}
            return DescribeClusterResult(
                nodes.get(found.controller_id), list(nodes.values()), found.cluster_id,
                operations(found.authorized_operations),
            )  # fmt: skip

        return self._one(call, options, result)


def _some(given: Any, kind: str) -> list[Any]:
    found = [given] if isinstance(given, (str, bytes)) else list(given)
    if not found:
        raise ValueError(f"Expected non-empty list of {kind} objects")
    for row in found:
        if kind not in {each.__name__ for each in type(row).__mro__}:
            raise TypeError(f"Expected list of {kind} objects, not {row!r}")
    return found


def _spec(value: int) -> Any:
    return {-1: "latest", -2: "earliest", -3: "max-timestamp"}.get(value, value)


def _resource(row: ConfigResource) -> KstoreResource:
    kind = KINDS.get(row.restype)
    if kind is None:
        raise ValueError(f"{row} is not a resource with configs")
    return KstoreResource(kind, row.name)


def _is_own(entry: Any) -> bool:
    return int(entry.source) in (1, 2, 8) and not entry.read_only


def _scram(user: str, found: Any) -> UserScramCredentialsDescription:
    by_name = {name: mechanism for mechanism, name in MECHANISMS.items()}
    infos = [ScramCredentialInfo(by_name[row.mechanism], row.iterations) for row in found]
    return UserScramCredentialsDescription(user, infos)


def _alteration(row: Any) -> ScramUpsertion | ScramDeletion:
    if isinstance(row, UserScramCredentialDeletion):
        return ScramDeletion(row.user, MECHANISMS[row.mechanism])
    if not isinstance(row, UserScramCredentialUpsertion):
        raise TypeError(f"{row!r} is neither an upsertion nor a deletion")
    info = row.scram_credential_info
    password = row.password if isinstance(row.password, bytes) else str(row.password).encode()
    return ScramUpsertion(row.user, MECHANISMS[info.mechanism], password, info.iterations, row.salt)
