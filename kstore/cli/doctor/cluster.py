"""A running cluster, as an admin client sees it from this machine. Each request is sent once, when
the first check needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kstore.cli.doctor.connecting import connect_problem, split_address
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import ssl

    from kstore.clients import AdminClient
    from kstore.clients.admin import (
        Acl,
        ClusterDescription,
        ConfigEntry,
        GroupDescription,
        LogDirDescription,
        TopicDescription,
    )

__all__ = ["ClusterView", "name_of"]


class ClusterView:
    """The brokers' answers. ``servers``: host:port of the brokers to ask first. With
    ``max_groups``, only so many groups are described, the first by name.
    """

    def __init__(
        self,
        admin: AdminClient,
        servers: list[str],
        *,
        settings: Mapping[str, Any] | None = None,
        max_groups: int | None = None,
    ) -> None:
        self.admin = admin
        self.settings = settings
        """The client's settings, with all defaults; None if no check needs them."""
        self.servers = servers
        self.max_groups = max_groups
        self.left_out_groups = 0
        """The number of groups that were not described."""

    @cached_property
    def unreachable(self) -> dict[str, str | None]:
        """For each address to ask first, why no connection is possible; None if it is."""
        return {each: connect_problem(*split_address(each)) for each in self.servers}

    def tls_context(self) -> ssl.SSLContext | None:
        """The client's TLS settings; None if it does not use TLS. Raises ConfigError."""
        if self.settings is None or not self.settings["security.protocol"].endswith("SSL"):
            return None
        from kstore.net.tls import client_context

        return client_context(self.settings)

    @cached_property
    def cluster(self) -> ClusterDescription:
        """The live brokers, and the controller."""
        return self.admin.describe_cluster()

    @cached_property
    def alive(self) -> frozenset[int]:
        """The ids of the live brokers."""
        return frozenset(broker.node_id for broker in self.cluster.brokers)

    @cached_property
    def topics(self) -> list[TopicDescription]:
        """All topics, internal ones too."""
        return list(self.admin.describe_topics())

    @cached_property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a live leader."""
        return [
            TopicPartition(topic.name, row.partition)
            for topic in self.topics
            for row in topic.partitions
            if row.leader in self.alive
        ]

    @cached_property
    def topic_configs(self) -> dict[str, dict[str, ConfigEntry]]:
        """The configs of each topic."""
        from kstore.clients.admin import ConfigResource

        wanted = [ConfigResource("topic", topic.name) for topic in self.topics]
        found = self.admin.describe_resource_configs(wanted, raise_errors=False)
        return {resource.name: entries for resource, entries in found.items()}

    @cached_property
    def broker_configs(self) -> dict[int, dict[str, ConfigEntry]]:
        """The configs of each live broker."""
        from kstore.clients.admin import ConfigResource

        wanted = [ConfigResource("broker", str(node_id)) for node_id in sorted(self.alive)]
        found = self.admin.describe_resource_configs(wanted, raise_errors=False)
        return {int(resource.name): entries for resource, entries in found.items()}

    @cached_property
    def log_dirs(self) -> Mapping[int, Mapping[str, LogDirDescription]]:
        """The log dirs of each live broker, by path."""
        return self.admin.describe_log_dirs(sorted(self.alive))

    @cached_property
    def groups(self) -> Mapping[str, GroupDescription]:
        """The groups that can be described."""
        listed = [row.group_id for row in self.admin.list_groups()]
        requested = listed[: self.max_groups]
        self.left_out_groups = len(listed) - len(requested)
        return self.admin.describe_groups(requested, raise_errors=False)

    @cached_property
    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """The committed offsets of each group."""
        return {
            group_id: {
                tp: row.offset
                for tp, row in self.admin.list_group_offsets(group_id, raise_errors=False).items()
                if row.offset >= 0
            }
            for group_id in self.groups
        }

    @cached_property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The end offset of each partition that has a leader."""
        return self._offsets("latest")

    @cached_property
    def starts(self) -> Mapping[TopicPartition, int]:
        """The start offset of each partition that has a leader."""
        return self._offsets("earliest")

    @cached_property
    def newest(self) -> Mapping[TopicPartition, int]:
        """The largest timestamp in each partition that has a leader and a record."""
        wanted = dict.fromkeys(self.partitions, "max-timestamp")
        found = self.admin.list_offsets(wanted, raise_errors=False)
        return {tp: row.timestamp for tp, row in found.items() if row.timestamp >= 0}

    def _offsets(self, spec: str) -> Mapping[TopicPartition, int]:
        found = self.admin.list_offsets(dict.fromkeys(self.partitions, spec), raise_errors=False)
        return {tp: row.offset for tp, row in found.items()}

    @cached_property
    def acls(self) -> list[Acl]:
        """All ACLs. Raises SecurityDisabledError if there is no authorizer."""
        return list(self.admin.describe_acls())

    def topic_int(self, topic: str, name: str, default: int = -1) -> int:
        """A topic's config as a number."""
        entry = self.topic_configs.get(topic, {}).get(name)
        return default if entry is None or entry.value is None else int(entry.value)

    def broker_value(self, name: str) -> Any:
        """A setting of the first broker that reports it; None if none does."""
        for entries in self.broker_configs.values():
            if name in entries:
                return entries[name].value
        return None


def name_of(tp: TopicPartition) -> str:
    """The partition as commands take it."""
    return f"{tp.topic}:{tp.partition}"
