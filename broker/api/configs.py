"""DescribeConfigs 1-4 and IncrementalAlterConfigs 0-1 (KIP-133, KIP-339, KIP-569): topics' and this
broker's settings.

Values and defaults come from kstore.config's tables. A broker's own settings can be read, not
changed, while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.broker.state.topic_rules import TopicError, check_name
from kstore.config import BROKER_CONFIGS, TOPIC_CONFIGS, ConfigDef, ConfigSource, ConfigType
from kstore.errors import ErrorCode
from kstore.protocol.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_describe_configs", "handle_incremental_alter_configs"]

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def handle_describe_configs(
    broker: Broker, request: DescribeConfigsRequest, ctx: RequestContext
) -> DescribeConfigsResponse:
    """Each resource's settings, or those of the keys asked for."""
    results = []
    for asked in request.resources:
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
        try:
            result.configs = _describe(broker, asked, request)
        except TopicError as problem:
            result.error_code, result.error_message = problem.code, problem.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: Broker, asked: DescribeConfigsResource, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    keys = None if asked.configuration_keys is None else set(asked.configuration_keys)
    if asked.resource_type == TOPIC:
        rows = _topic_rows(broker, asked.resource_name, keys)
    elif asked.resource_type == BROKER:
        _check_broker(broker, asked.resource_name)
        rows = _broker_rows(broker, keys)
    elif asked.resource_type == BROKER_LOGGER:
        _check_broker(broker, asked.resource_name)
        rows = []
    else:
        raise TopicError(
            ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {asked.resource_type}"
        )
    for row in rows:
        if not request.include_synonyms:
            row.synonyms = []
        if not request.include_documentation:
            row.documentation = None
    return rows


def _topic_rows(
    broker: Broker, name: str, keys: set[str] | None
) -> list[DescribeConfigsResourceResult]:
    check_name(name)
    topic = broker.image.topics.get(name)
    if topic is None:
        raise TopicError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    rows = []
    for row in _chosen(TOPIC_CONFIGS.values(), keys):
        default, origin = broker.config.topic_default(row.name)
        synonyms = [_synonym(row, default, origin)]
        value, source = default, _source(origin)
        if row.name in topic.configs:
            value, source = topic.configs[row.name], DYNAMIC_TOPIC
            synonyms.insert(
                0, DescribeConfigsSynonym(name=row.name, value=value, source=DYNAMIC_TOPIC)
            )
        rows.append(_result(row, value, source, synonyms, read_only=False))
    return rows


def _synonym(row: ConfigDef, value: str, origin: ConfigSource) -> DescribeConfigsSynonym:
    name = row.synonyms[0][0] if row.synonyms else row.name
    return DescribeConfigsSynonym(name=name, value=value, source=_source(origin))


def _broker_rows(broker: Broker, keys: set[str] | None) -> list[DescribeConfigsResourceResult]:
    rows = []
    for row in _chosen(BROKER_CONFIGS.values(), keys):
        value: str | None = broker.config.text(row.name)
        if row.type is ConfigType.PASSWORD or broker.config[row.name] is None:
            value = None
        source = _source(broker.config.source(row.name))
        synonyms = [DescribeConfigsSynonym(name=row.name, value=value, source=source)]
        rows.append(_result(row, value, source, synonyms, read_only=True))
    return rows


def _result(
    row: ConfigDef,
    value: str | None,
    source: int,
    synonyms: list[DescribeConfigsSynonym],
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=row.type is ConfigType.PASSWORD,
        synonyms=synonyms,
        config_type=int(row.type),
        documentation=row.documentation,
    )


def _chosen(rows: Iterable[ConfigDef], keys: set[str] | None) -> list[ConfigDef]:
    return [row for row in rows if not keys or row.name in keys]


def _source(origin: ConfigSource) -> int:
    return DEFAULT if origin.kind == "default" else STATIC_BROKER


def _check_broker(broker: Broker, name: str) -> None:
    """The empty name is the cluster-wide default, which lies nowhere yet."""
    if name not in {"", str(broker.node_id)}:
        raise TopicError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
        )


async def handle_incremental_alter_configs(
    broker: Broker, request: IncrementalAlterConfigsRequest, ctx: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to and subtract from topics' settings; each resource by itself."""
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        answer = AlterConfigsResourceResponse(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            await _alter(broker, resource, request.validate_only)
        except TopicError as problem:
            answer.error_code, answer.error_message = problem.code, problem.message
        response.responses.append(answer)
    return response


async def _alter(broker: Broker, resource: AlterConfigsResource, validate_only: bool) -> None:
    if resource.resource_type != TOPIC:
        raise TopicError(
            ErrorCode.INVALID_REQUEST,
            f"The settings of resource type {resource.resource_type} can't be changed in a running "
            "broker; "
            "put them into its properties file and restart it.",
        )
    check_name(resource.resource_name)
    topic = broker.image.topics.get(resource.resource_name)
    if topic is None:
        raise TopicError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"The topic '{resource.resource_name}' does not exist.",
        )
    names = [change.name for change in resource.configs]
    if len(set(names)) != len(names):
        raise TopicError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    configs = dict(topic.configs)
    for change in resource.configs:
        _apply(broker, configs, change)
    await broker.topics.set_configs(topic.name, configs, validate_only=validate_only)


def _apply(broker: Broker, configs: dict[str, str], change: AlterableConfig) -> None:
    row = TOPIC_CONFIGS.get(change.name)
    if row is None:
        raise TopicError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {change.name}")
    if change.config_operation == DELETE:
        configs.pop(change.name, None)
        return
    if change.value is None:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if change.config_operation == SET:
        configs[change.name] = change.value
        return
    if change.config_operation not in {APPEND, SUBTRACT} or row.type is not ConfigType.LIST:
        raise TopicError(
            ErrorCode.INVALID_CONFIG,
            f"Config value append is not allowed for config key: {change.name}",
        )
    old = configs.get(change.name) or broker.config.topic_default(change.name)[0]
    items = [item for item in old.split(",") if item]
    given = [item.strip() for item in change.value.split(",") if item.strip()]
    if change.config_operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    configs[change.name] = ",".join(items)
