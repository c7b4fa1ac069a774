"""Configs of topics, brokers, loggers, client metrics and groups: describe, alter, list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from kstore.clients.admin.routing import AdminBase, AnyBroker, Broker, Results, item_error
from kstore.clients.io.cluster import ANY
from kstore.errors import KafkaError
from kstore.items import Items, check_config, items_of, mapping_of
from kstore.protocol.metadata.config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kstore.protocol.metadata.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kstore.types import KafkaNumber

__all__ = [
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigsAdmin",
    "ResourceKind",
]

ResourceKind: TypeAlias = Literal["topic", "broker", "broker-logger", "client-metrics", "group"]
RESOURCE_TYPES: Mapping[ResourceKind, int] = {
    "topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32,
}  # fmt: skip
KINDS = {number: kind for kind, number in RESOURCE_TYPES.items()}
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
VALUE_TYPES = (
    "unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password",
)  # fmt: skip


class ConfigSource(KafkaNumber):
    """Where a value comes from, with Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ConfigResource(NamedTuple):
    """Something that has configs. The broker named "" stands for the default of all brokers."""

    kind: ResourceKind
    name: str


class ConfigSynonym(NamedTuple):
    """A source from which a value can come. The synonyms of a config are in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config: its value (None if it is sensitive or unset), source and type. `synonyms` and
    `documentation` are set if they were requested.
    """

    name: str
    value: str | None
    read_only: bool
    is_sensitive: bool
    source: ConfigSource
    value_type: str = "unknown"
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The change of one config. "append" and "subtract" are for configs that are lists
    (KIP-339).
    """

    operation: Literal["set", "delete", "append", "subtract"]
    value: str | None = None


class ConfigsAdmin(AdminBase):
    """Requests about configs."""

    async def describe_configs(
        self, name: str, *, resource: ResourceKind = "topic", keys: Items[str] | None = None,
        synonyms: bool = False, documentation: bool = False,
    ) -> dict[str, ConfigEntry]:  # fmt: skip
        """The configs of one resource by name: those in `keys`, or all. A broker's name is
        its id.
        """
        wanted = ConfigResource(resource, name)
        found = await self.describe_resource_configs(
            [wanted], keys=keys, synonyms=synonyms, documentation=documentation
        )
        return found[wanted]

    async def describe_resource_configs(
        self, resources: Items[ConfigResource], *, keys: Items[str] | None = None,
        synonyms: bool = False, documentation: bool = False, raise_errors: bool = True,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:  # fmt: skip
        """The configs of several resources: those in `keys`, or all."""
        names = None if keys is None else items_of("keys", keys, str, "config names")
        resources = items_of("resources", resources, tuple, "ConfigResource")

        async def ask(
            node_id: int, wanted: list[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            rows = [
                DescribeConfigsResource(
                    resource_type=RESOURCE_TYPES[kind],
                    resource_name=name,
                    configuration_keys=names,
                )
                for kind, name in wanted
            ]
            request = DescribeConfigsRequest(
                resources=rows, include_synonyms=synonyms, include_documentation=documentation
            )
            answer = await self._ask(node_id, request, DescribeConfigsResponse)
            found: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for row in answer.results:
                resource = ConfigResource(KINDS[row.resource_type], row.resource_name)
                found[resource] = item_error(
                    _what(resource), row.error_code, row.error_message
                ) or {entry.name: _entry(entry) for entry in row.configs}
            return found

        return await self._each(resources, self._route(), ask, raise_errors=raise_errors)

    async def alter_configs(
        self, name: str, configs: Mapping[str, str | ConfigChange | None], *,
        resource: ResourceKind = "topic", validate_only: bool = False,
    ) -> None:  # fmt: skip
        """Set some configs of one resource. None resets a config to its default. With validate_only
        the change is only checked.
        """
        await self.alter_resource_configs(
            {ConfigResource(resource, name): configs}, validate_only=validate_only
        )

    async def alter_resource_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | ConfigChange | None]], *,
        validate_only: bool = False, raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:  # fmt: skip
        """Set some configs of several resources. Other configs do not change. With validate_only
        the changes are only checked.
        """
        mapping_of("changes", changes, "ConfigResource -> configs")
        for configs in changes.values():
            mapping_of("configs", configs, "config -> value")

        async def ask(
            node_id: int, wanted: list[ConfigResource]
        ) -> dict[ConfigResource, KafkaError | None]:
            rows = [
                AlterConfigsResource(
                    resource_type=RESOURCE_TYPES[resource.kind],
                    resource_name=resource.name,
                    configs=_alterable(changes[resource]),
                )
                for resource in wanted
            ]
            request = IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only)
            answer = await self._ask(node_id, request, IncrementalAlterConfigsResponse)
            found: dict[ConfigResource, KafkaError | None] = {}
            for row in answer.responses:
                resource = ConfigResource(KINDS[row.resource_type], row.resource_name)
                found[resource] = item_error(_what(resource), row.error_code, row.error_message)
            return found

        return await self._each(changes, self._route(), ask, raise_errors=raise_errors)

    async def list_config_resources(self, kinds: Items[ResourceKind] = ()) -> list[ConfigResource]:
        """The resources of these kinds (default: all) that can have configs (KIP-1142)."""
        types = [RESOURCE_TYPES[kind] for kind in items_of("kinds", kinds, str, "resource kinds")]

        async def ask(node_id: int) -> list[ConfigResource] | KafkaError:
            request = ListConfigResourcesRequest(resource_types=types)
            answer = await self._ask(node_id, request, ListConfigResourcesResponse, at_least=1)
            rows = [(row.resource_type, row.resource_name) for row in answer.config_resources]
            found = [ConfigResource(KINDS[kind], name) for kind, name in rows if kind in KINDS]
            return item_error("config resources", answer.error_code) or sorted(found)

        return await self._one(AnyBroker(self._cluster), ask)

    def _route(self) -> Broker:
        """A broker's configs are requested from the broker itself, others from the controller."""
        return Broker(self._cluster, _broker_of)


def _broker_of(resource: ConfigResource) -> int:
    if resource.kind not in {"broker", "broker-logger"} or not resource.name:
        return ANY
    if not resource.name.isdecimal():
        raise ValueError(f"the {resource.kind} {resource.name!r} is not a broker's id")
    return int(resource.name)


def _what(resource: ConfigResource) -> str:
    return f"{resource.kind} {resource.name!r}"


def _alterable(configs: Mapping[str, str | ConfigChange | None]) -> list[AlterableConfig]:
    rows = []
    for key, given in configs.items():
        change = given
        if not isinstance(change, ConfigChange):
            change = ConfigChange("delete" if change is None else "set", change)
        check_config(key, change.value)
        operation = OPERATIONS[change.operation]
        rows.append(AlterableConfig(name=key, config_operation=operation, value=change.value))
    return rows


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    known = 0 <= row.config_type < len(VALUE_TYPES)
    return ConfigEntry(
        row.name,
        row.value,
        row.read_only,
        row.is_sensitive,
        ConfigSource(row.config_source),
        VALUE_TYPES[row.config_type] if known else VALUE_TYPES[0],
        tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in row.synonyms),
        row.documentation or None,
    )
