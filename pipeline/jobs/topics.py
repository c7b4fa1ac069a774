"""Topics as a whole: their configs, and their creation. No records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kstore.clients.admin import AdminClient, ConfigResource, ConfigSource, NewTopic
from kstore.config.client.configs import CLIENT_CONFIGS

__all__ = ["admin_settings", "create_topic", "set_configs", "topic_configs", "topic_partitions"]

# Configs about brokers of one cluster, which another does not have.
_LOCAL = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)
TIMESTAMP_TYPE = "message.timestamp.type"


def admin_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a consumer that an admin client also has."""
    return {name: value for name, value in settings.items() if name in CLIENT_CONFIGS["admin"]}


def set_configs(
    settings: Mapping[str, Any], topics: Iterable[str]
) -> dict[str, dict[str, str | None]]:
    """The configs that are set on each topic. Raises KafkaError."""
    with AdminClient(admin_settings(settings)) as admin:
        found = admin.describe_resource_configs([ConfigResource("topic", name) for name in topics])
    return {
        resource.name: {
            entry.name: entry.value
            for entry in configs.values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC and entry.name not in _LOCAL
        }
        for resource, configs in found.items()
    }


def topic_configs(settings: Mapping[str, Any], name: str) -> dict[str, str | None]:
    """The effective configs of a topic. Raises KafkaError."""
    with AdminClient(admin_settings(settings)) as admin:
        found = admin.describe_resource_configs([ConfigResource("topic", name)])
    return {entry.name: entry.value for configs in found.values() for entry in configs.values()}


def create_topic(
    settings: Mapping[str, Any],
    name: str,
    partitions: int,
    configs: Mapping[str, str | None],
    replication_factor: int = -1,
) -> None:
    """Create a topic for a copy: it keeps each record's timestamp, so it never uses the append
    time. Raises KafkaError.
    """
    wanted = dict(configs)
    if TIMESTAMP_TYPE in wanted:
        wanted[TIMESTAMP_TYPE] = "CreateTime"
    with AdminClient(admin_settings(settings)) as admin:
        admin.create_topics([NewTopic(name, partitions, replication_factor, wanted)])


def topic_partitions(settings: Mapping[str, Any], name: str) -> int | None:
    """The number of partitions of a topic; None if it does not exist. Raises KafkaError."""
    with AdminClient(admin_settings(settings)) as admin:
        found = {topic.name: topic for topic in admin.describe_topics()}
    return len(found[name].partitions) if name in found else None
