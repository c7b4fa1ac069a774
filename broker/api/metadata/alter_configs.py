"""AlterConfigs 0-2, IncrementalAlterConfigs 0-1 and ListConfigResources 0-1 (KIP-133, KIP-226,
KIP-339, KIP-714, KIP-1142): change the settings of topics, brokers, groups, client metrics and
loggers, and list them.

state/metadata/config_rules.py and topic_rules.py have the rules. Each resource succeeds or fails on
its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kstore.broker.api import RequestContext
from kstore.broker.api.metadata.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigParts,
    check_broker_id,
)
from kstore.broker.api.requests.turns import in_turns
from kstore.broker.state.metadata import config_rules
from kstore.broker.state.metadata.config_rules import Change, ConfigRefusedError, Operation
from kstore.broker.state.metadata.topic_rules import (
    TopicError,
    check_configs,
    check_name,
    topic_row,
)
from kstore.broker.state.work import Work, each
from kstore.config import ConfigError, ConfigType
from kstore.errors import ErrorCode
from kstore.protocol.metadata import config_resources as replacing
from kstore.protocol.metadata import configs as incremental
from kstore.protocol.metadata.config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.security.security import Security
    from kstore.broker.runtime.topics.topics import Topics
    from kstore.config.broker import BrokerConfig

__all__ = [
    "AlterConfigParts",
    "handle_alter_configs",
    "handle_incremental_alter_configs",
    "handle_list_config_resources",
]


class AlterConfigParts(ConfigParts, Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def topics(self) -> Topics:
        """Stores the settings of topics."""

    @property
    def security(self) -> Security | None:
        """Applies changed settings of listeners."""


# Returns the changes of one resource, from its current settings.
NO_LISTS: Mapping[str, str] = {}
"""No setting of this kind is a list."""
_Changes = Callable[[dict[str, str]], Sequence[Change]]
# The resource types of IncrementalAlterConfigs, and of AlterConfigs.
_ALTERABLE = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})
_REPLACEABLE = _ALTERABLE - {BROKER_LOGGER}
MANY = 128  # more changes of one resource are checked in slices


async def handle_incremental_alter_configs(
    broker: AlterConfigParts,
    request: incremental.IncrementalAlterConfigsRequest,
    ctx: RequestContext,
) -> incremental.IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from single settings."""
    response = incremental.IncrementalAlterConfigsResponse()
    counts = Counter((row.resource_type, row.resource_name) for row in request.resources)
    for resource in request.resources:
        made = each(lambda c: Change(c.name, c.config_operation, c.value), resource.configs)
        changes = await in_turns(broker, ctx, _few(resource.resource_type, made))
        code, message = await _try(
            broker, resource, counts, _whatever_is_set(changes), request.validate_only
        )
        response.responses.append(
            incremental.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return response


async def handle_alter_configs(
    broker: AlterConfigParts, request: replacing.AlterConfigsRequest, ctx: RequestContext
) -> replacing.AlterConfigsResponse:
    """Replace all settings of each resource."""
    response = replacing.AlterConfigsResponse()
    counts = Counter((row.resource_type, row.resource_name) for row in request.resources)
    for resource in request.resources:
        made = each(lambda c: Change(c.name, Operation.SET, c.value), resource.configs)
        changes = await in_turns(broker, ctx, _few(resource.resource_type, made))
        given = [(change.name, change.value) for change in changes]
        code, message = await _try(
            broker, resource, counts, _replacing(given), request.validate_only, _REPLACEABLE
        )
        response.responses.append(
            replacing.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return response


def _few(kind: int, made: Work[list[Change]]) -> Work[list[Change]]:
    """The changes of one resource. If there are very many, most name settings that do not exist: of
    these, only the first and any duplicate are returned, since they are refused.
    """
    changes = yield from made
    known = _KNOWN.get(kind)
    if len(changes) <= MANY or known is None:
        return changes
    counts: Counter[str] = Counter()
    yield from each(lambda change: counts.update((change.name,)), changes)
    refused = False

    def counts_here(change: Change) -> bool:
        nonlocal refused
        if known(change.name) or counts[change.name] > 1:
            return True
        is_first = change.operation != Operation.DELETE and not refused
        refused = refused or is_first
        return is_first

    kept = yield from each(counts_here, changes)
    return [change for change, is_kept in zip(changes, kept, strict=True) if is_kept]


def _whatever_is_set(changes: Sequence[Change]) -> _Changes:
    return lambda now: changes


def _replacing(given: Sequence[tuple[str, str | None]]) -> _Changes:
    return lambda now: config_rules.replacing_changes(now, given)


async def _try(
    broker: AlterConfigParts,
    resource: Any,
    counts: Counter[Any],
    changes: _Changes,
    validate_only: bool,
    kinds: frozenset[int] = _ALTERABLE,
) -> tuple[int, str | None]:
    """Change one resource. Returns Kafka's error code and a message, or 0 and None."""
    kind, name = resource.resource_type, resource.resource_name
    try:
        if kind not in kinds:
            known = ", ".join(str(other) for other in sorted(kinds))
            raise _invalid(f"Resources of type {kind} have no settings to alter; use {known}.")
        if counts[kind, name] > 1:
            raise _invalid(
                f"'{name}' is listed {counts[kind, name]} times; list it once with all its changes."
            )
        async with broker.configs.lock:
            await _KINDS[kind](broker, name, changes, validate_only)
    except (TopicError, ConfigRefusedError) as problem:
        return problem.code, problem.message
    return ErrorCode.NONE, None


async def _alter_topic(
    broker: AlterConfigParts, name: str, changes: _Changes, validate_only: bool
) -> None:
    if not name:
        raise _invalid("No topic is named; to set the default of all topics, change the brokers.")
    check_name(name)
    topic = broker.image.topics.get(name)
    current = {} if topic is None else dict(topic.configs)

    def list_default(config: str) -> str | None:
        row = topic_row(config)
        if row is None or row.type is not ConfigType.LIST:
            return None
        return broker.node.config.topic_default(config)[0]

    made = changes(current)
    configs = config_rules.apply_changes(current, made, _lists(made, list_default))
    check_configs(configs)
    await broker.topics.set_configs(name, configs, validate_only=validate_only)
    if not validate_only:
        for change in made:
            row = topic_row(change.name)
            if row is not None and change.operation != Operation.DELETE:
                broker.configs.warn_if_without_effect(change.name, row.documentation)


async def _alter_broker(
    broker: AlterConfigParts, name: str, changes: _Changes, validate_only: bool
) -> None:
    check_broker_id(broker, name)
    mine = broker.configs.brokers.get(str(broker.node.node_id), {})
    current = mine if name else broker.configs.cluster

    def list_default(config: str) -> str | None:
        row = config_rules.broker_row(config)
        if row is None or row.type is not ConfigType.LIST:
            return None
        return broker.node.config.given.get(config, row.format(row.default))

    made = changes(current)
    configs = config_rules.apply_changes(current, made, _lists(made, list_default))
    now = {**broker.node.config.given, **broker.configs.cluster, **mine}
    config_rules.check_broker(made, configs, now, cluster=not name)
    if not name:
        config_rules.check_cluster_default(configs)
    elif broker.security is not None:
        try:
            broker.security.check(configs)
        except ConfigError as problem:
            raise _invalid(str(problem)) from None
    if validate_only:
        return
    await broker.configs.set_broker(name, configs)
    if broker.security is not None:
        broker.security.users_changed()
    for change in made:
        if change.operation != Operation.DELETE:
            row = config_rules.broker_row(change.name)
            words = "No effect here: brokers have no such setting."
            broker.configs.warn_if_without_effect(change.name, row.documentation if row else words)


async def _alter_group(
    broker: AlterConfigParts, name: str, changes: _Changes, validate_only: bool
) -> None:
    from kstore.config.group_configs import GROUP_CONFIGS

    if not name:
        raise _invalid("No group is named; to set the default of all groups, change the brokers.")
    current = broker.configs.groups.get(name, {})
    configs = config_rules.apply_changes(current, changes(current), NO_LISTS)

    config_rules.check_group(configs, _in_force(broker.node.config))
    if not validate_only:
        await broker.configs.set_group(name, configs)
        for config in configs.keys() - current.keys():
            broker.configs.warn_if_without_effect(config, GROUP_CONFIGS[config].documentation)


async def _alter_client_metrics(
    broker: AlterConfigParts, name: str, changes: _Changes, validate_only: bool
) -> None:
    if not name:
        raise _invalid("No client metrics subscription is named; name the one to alter.")
    current = broker.configs.subscriptions.get(name, {})
    configs = config_rules.apply_changes(current, changes(current), NO_LISTS)
    config_rules.check_client_metrics(configs)
    if not validate_only:
        await broker.configs.set_client_metrics(name, configs)


async def _alter_loggers(
    broker: AlterConfigParts, name: str, changes: _Changes, validate_only: bool
) -> None:
    from kstore.broker.runtime import log_levels

    if not name:
        raise _invalid(f"Loggers belong to one broker; name it by its id, {broker.node.node_id}.")
    check_broker_id(broker, name)
    made = changes({})
    for change in made:
        if change.operation in {Operation.APPEND, Operation.SUBTRACT}:
            word = Operation(change.operation).name
            raise _invalid(
                f"{change.name} has a single level and does not support {word}; use SET."
            )
    config_rules.apply_changes({}, made, NO_LISTS)
    for change in made:
        problem = log_levels.check(change.name, change.value, change.operation == Operation.DELETE)
        if problem is not None:
            raise ConfigRefusedError(*problem)
    if not validate_only:
        for change in made:
            log_levels.set_level(
                change.name, None if change.operation == Operation.DELETE else change.value
            )


_KINDS = {
    TOPIC: _alter_topic,
    BROKER: _alter_broker,
    BROKER_LOGGER: _alter_loggers,
    CLIENT_METRICS: _alter_client_metrics,
    GROUP: _alter_group,
}


def _is_group_config(name: str) -> bool:
    from kstore.config.group_configs import GROUP_CONFIGS

    return name in GROUP_CONFIGS


def _is_client_metrics_config(name: str) -> bool:
    from kstore.config.client_metrics_configs import CLIENT_METRICS_CONFIGS

    return name in CLIENT_METRICS_CONFIGS


# Whether a kind of resource has a setting. Brokers accept any name.
_KNOWN: dict[int, Callable[[str], bool]] = {
    TOPIC: lambda name: topic_row(name) is not None,
    GROUP: _is_group_config,
    CLIENT_METRICS: _is_client_metrics_config,
}


def _lists(changes: Sequence[Change], list_default: Callable[[str], str | None]) -> dict[str, str]:
    """The lists that are changed, with their default values."""
    defaults = {change.name: list_default(change.name) for change in changes}
    return {name: value for name, value in defaults.items() if value is not None}


def _in_force(config: BrokerConfig) -> dict[str, Any]:
    """The broker settings that limit the settings of groups, also of kinds of groups that are not
    served.
    """
    names = [name for name in config_rules.broker_rows() if name.startswith("group.")]
    values: dict[str, Any] = {}
    for name in names:
        row = config_rules.broker_row(name)
        if name in config:
            values[name] = config[name]
        elif row is not None:
            values[name] = row.default
    return values


def _invalid(message: str) -> ConfigRefusedError:
    return ConfigRefusedError(ErrorCode.INVALID_REQUEST, message)


# Resource types that can be listed, in the order of the response.
_LISTED = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def handle_list_config_resources(
    broker: AlterConfigParts, request: ListConfigResourcesRequest, ctx: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of the requested types, or of all types. Version 0 lists only client
    metrics.
    """
    requested = set(request.resource_types) or set(_LISTED)
    if ctx.api_version == 0:
        requested = {CLIENT_METRICS}
    if not requested <= set(_LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    nodes = [str(node) for node in sorted(broker.image.brokers)]
    names: dict[int, Sequence[str]] = {
        GROUP: sorted(broker.configs.groups),
        CLIENT_METRICS: sorted(broker.configs.subscriptions),
        BROKER_LOGGER: nodes,
        BROKER: nodes,
        TOPIC: sorted(broker.image.topics),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if kind in requested
            for name in names[kind]
        ]
    )
