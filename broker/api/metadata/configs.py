"""DescribeConfigs 1-4 (KIP-133, KIP-226, KIP-569): the settings of topics, this broker, groups and
client metrics, and the levels of this broker's loggers. Each value has its source.

Names, types, defaults and documentation come from kstore.config's tables. alter_configs.py makes
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore.broker.api import RequestContext
from kstore.broker.api.requests.turns import HasTurns, in_turns
from kstore.broker.state.metadata.config_rules import ConfigRefusedError, broker_row
from kstore.broker.state.metadata.topic_rules import TopicError, check_name, topic_row
from kstore.broker.state.work import each
from kstore.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigType,
    SourceKind,
    UpdateMode,
)
from kstore.config.broker_configs import ALIASES
from kstore.errors import ErrorCode
from kstore.protocol.metadata.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = [
    "BROKER",
    "BROKER_LOGGER",
    "CLIENT_METRICS",
    "GROUP",
    "TOPIC",
    "ConfigParts",
    "HasConfigs",
    "check_broker_id",
    "handle_describe_configs",
    "shown_topic_defaults",
]


class HasConfigs(Protocol):
    """The parts of a broker that code that describes settings uses."""

    @property
    def node(self) -> Node:
        """The broker's settings and id."""

    @property
    def configs(self) -> DynamicConfigs:
        """The dynamic settings."""


class ConfigParts(HasConfigs, HasTurns, Protocol):
    """The parts of a broker that the handler of DescribeConfigs uses."""

    @property
    def image(self) -> MetadataImage:
        """The topics with their settings."""


# Resource types.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
# The source of a value.
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_CLUSTER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5
DYNAMIC_LOGGER, DYNAMIC_CLIENT_METRICS, DYNAMIC_GROUP = 6, 7, 8
UNKNOWN_TYPE = 0
# Settings that are internal in Kafka, or belong to its authorizer. They are listed only if they are
# set.
INTERNAL = {
    "allow.everyone.if.no.acl.found", "group.consumer.regex.refresh.interval.ms",
    "share.coordinator.cold.partition.snapshot.interval.ms",
    "share.coordinator.state.topic.prune.interval.ms", "super.users",
}  # fmt: skip


async def handle_describe_configs(
    broker: ConfigParts, request: DescribeConfigsRequest, ctx: RequestContext
) -> DescribeConfigsResponse:
    """Return the settings of each resource, or those with the requested keys."""
    results = []
    for requested in request.resources:
        result = DescribeConfigsResult(
            resource_type=requested.resource_type, resource_name=requested.resource_name
        )
        try:
            result.configs = await _describe(broker, requested, request, ctx)
        except (TopicError, ConfigRefusedError) as problem:
            result.error_code, result.error_message = problem.code, problem.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


async def _describe(
    broker: ConfigParts,
    requested: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    ctx: RequestContext,
) -> list[DescribeConfigsResourceResult]:
    describe = _KINDS.get(requested.resource_type)
    if describe is None:
        known = ", ".join(str(kind) for kind in sorted(_KINDS))
        raise ConfigRefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {requested.resource_type} have no settings to show; use {known}.",
        )
    keys = set(requested.configuration_keys or ())
    rows = each(lambda row: _shown(row, request), describe(broker, requested.resource_name, keys))
    return await in_turns(broker, ctx, rows)


def _shown(
    row: DescribeConfigsResourceResult, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """The row with the details that the request asks for."""
    if request.include_synonyms and (request.include_documentation or not row.documentation):
        return row
    hidden: dict[str, list[DescribeConfigsSynonym] | None] = {}
    if not request.include_synonyms:
        hidden["synonyms"] = []
    if not request.include_documentation and row.documentation:
        hidden["documentation"] = None
    return row.replaced(**hidden)


# ---- the source of a value ----


class _Set(NamedTuple):
    """The value of a broker setting from one source, or its default."""

    name: str
    value: str
    source: int


# The settings of the broker by source, highest priority first.
_Layers = list[tuple[int, Mapping[str, str]]]


def _layers(broker: HasConfigs) -> _Layers:
    static = dict(broker.node.config.given)
    for one, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if one in static:
            static.setdefault(other, static[one])
    mine = broker.configs.brokers.get(str(broker.node.node_id), {})
    return [
        (DYNAMIC_BROKER, mine),
        (DYNAMIC_CLUSTER, broker.configs.cluster),
        (STATIC_BROKER, static),
    ]


def _chain(layers: _Layers, names: tuple[str, ...]) -> list[_Set]:
    """The sources of a broker setting and of its synonyms, highest priority first.

    As in Kafka, the first source is one with the exact name.
    """
    found = [
        _Set(name, layer[name], source)
        for source, layer in layers
        for name in names
        if name in layer
    ]
    for name in names:
        row = broker_row(name)
        default = _ALIAS_DEFAULTS.get(name) if row is None else _default(row)
        if default is not None:
            found.append(_Set(name, default, DEFAULT))
    while found and found[0].name != names[0]:
        del found[0]
    return found


def _default(row: ConfigDef) -> str | None:
    if row.default is None or row.name in _NO_DEFAULT:
        return None
    return row.format(row.default)


# Topic setting to the broker settings that set its default, including those in other units.
_STAND_INS: dict[str, tuple[str, ...]] = {
    name: (name, *(other for other, _ in topic.synonyms if other != name))
    for topic in TOPIC_CONFIGS.values()
    for name, _ in topic.synonyms
}
# Settings without a default in Kafka: they are listed only if they are set.
_NO_DEFAULT = frozenset({
    "node.id",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
})  # fmt: skip
# Names that are aliases in kstore and have a default of their own in Kafka.
_ALIAS_DEFAULTS = {"broker.id": "-1"}


def shown_topic_defaults(broker: HasConfigs) -> Sequence[tuple[str, str, int]]:
    """All topic settings, sorted by name, each with its default on this broker and the source of
    the default, as CreateTopics returns them. Cached until a broker setting changes.
    """
    if broker.configs.topic_defaults is None:
        rows = [(name, *broker.node.config.topic_default(name)) for name in sorted(TOPIC_CONFIGS)]
        broker.configs.topic_defaults = [
            (name, value, _SOURCES.get(origin.kind, STATIC_BROKER)) for name, value, origin in rows
        ]
    return broker.configs.topic_defaults


_SOURCES = {
    SourceKind.DEFAULT: DEFAULT,
    SourceKind.DYNAMIC_CLUSTER: DYNAMIC_CLUSTER,
    SourceKind.DYNAMIC_BROKER: DYNAMIC_BROKER,
}


def _topic_chain(layers: _Layers, row: ConfigDef) -> list[_Set]:
    names = tuple(synonym for synonym, _ in row.synonyms)
    return _chain(layers, names) if names else []


# ---- kinds of resources ----


def _topic_rows(
    broker: ConfigParts, name: str, keys: set[str]
) -> Iterator[DescribeConfigsResourceResult]:
    check_name(name)
    topic = broker.image.topics.get(name)
    if topic is None:
        raise ConfigRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    defaults = _topic_default_rows(broker)
    for config in dict.fromkeys((*TOPIC_CONFIGS, *topic.configs)):
        if keys and config not in keys:
            continue
        row = topic_row(config)
        if row is None:
            continue
        if config not in topic.configs:
            yield defaults[config]
            continue
        value = _normal(row, topic.configs[config])
        yield _result(
            row, value, [_Set(config, value, DYNAMIC_TOPIC), *_topic_chain(_layers(broker), row)]
        )


def _topic_default_rows(broker: HasConfigs) -> Mapping[str, DescribeConfigsResourceResult]:
    """The rows of settings that a topic does not set. Cached until a broker setting changes."""
    if broker.configs.topic_default_rows is None:
        layers = _layers(broker)
        broker.configs.topic_default_rows = {
            name: _result(row, broker.node.config.topic_default(name)[0], _topic_chain(layers, row))
            for name, row in TOPIC_CONFIGS.items()
        }
    return broker.configs.topic_default_rows


def _broker_rows(
    broker: ConfigParts, name: str, keys: set[str]
) -> Iterator[DescribeConfigsResourceResult]:
    """This broker's settings, or with an empty name the settings for all brokers."""
    check_broker_id(broker, name)
    from kstore.config.no_effect import NO_EFFECT, REFUSED

    layers = _layers(broker)
    if not name:
        layers = [layer for layer in layers if layer[0] == DYNAMIC_CLUSTER]
    is_set = [config for _, layer in layers for config in layer if not config.startswith("KSTORE_")]
    known = (*BROKER_CONFIGS, *ALIASES, *NO_EFFECT, *REFUSED) if name else ()
    for config in dict.fromkeys((*known, *is_set)):
        if (keys and config not in keys) or (config in INTERNAL and config not in is_set):
            continue
        chain = _chain(layers, _STAND_INS.get(config, (config,)))
        if not name:
            chain = [place for place in chain if place.source == DYNAMIC_CLUSTER]
        yield _broker_result(broker, config, chain)


def _broker_result(
    broker: HasConfigs, name: str, chain: list[_Set]
) -> DescribeConfigsResourceResult:
    row = _alias_row(name) if name in ALIASES else broker_row(name)
    if row is None:  # unknown, but set: as in Kafka it may be a secret
        hidden = [_Set(place.name, "", place.source) for place in chain]
        unknown = ConfigDef(name, ConfigType.PASSWORD, None, "")
        result = _result(unknown, None, hidden)
        result.config_type, result.read_only, result.documentation = UNKNOWN_TYPE, True, None
        return result
    if name in BROKER_CONFIGS or name in ALIASES:
        acting = broker.node.config[name]
        value = None if acting is None else broker.node.config.text(name)
    else:
        value = _normal(row, chain[0].value) if chain else None
    return _result(row, value, chain, read_only=row.update is UpdateMode.READ_ONLY)


def _alias_row(name: str) -> ConfigDef:
    return BROKER_CONFIGS[ALIASES[name]]._replace(name=name)


def _logger_rows(
    broker: ConfigParts, name: str, keys: set[str]
) -> Iterator[DescribeConfigsResourceResult]:
    from kstore.broker.runtime.log_levels import levels

    if not name:
        raise ConfigRefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Loggers belong to one broker; name it by its id, {broker.node.node_id}.",
        )
    check_broker_id(broker, name)
    for logger, level in levels().items():
        if not keys or logger in keys:
            yield DescribeConfigsResourceResult(
                name=logger,
                value=level,
                config_source=DYNAMIC_LOGGER,
                config_type=UNKNOWN_TYPE,
                documentation="",
            )


def _client_metrics_rows(
    broker: ConfigParts, name: str, keys: set[str]
) -> Iterator[DescribeConfigsResourceResult]:
    from kstore.config.client_metrics_configs import CLIENT_METRICS_CONFIGS

    if not name:
        raise ConfigRefusedError(
            ErrorCode.INVALID_REQUEST,
            "No client metrics subscription is named; name the one to show.",
        )
    given = broker.configs.subscriptions.get(name, {})
    for row in CLIENT_METRICS_CONFIGS.values():
        if keys and row.name not in keys:
            continue
        text, chain = given.get(row.name), []
        if text is not None:
            chain = [_Set(row.name, text.strip(), DYNAMIC_CLIENT_METRICS)]
        yield _result(row, _normal(row, row.format(row.default) if text is None else text), chain)


def _group_rows(
    broker: ConfigParts, name: str, keys: set[str]
) -> Iterator[DescribeConfigsResourceResult]:
    from kstore.config.group_configs import GROUP_CONFIGS

    if not name:
        raise ConfigRefusedError(
            ErrorCode.INVALID_REQUEST, "No group is named; name the one to show."
        )
    given = broker.configs.groups.get(name, {})
    values = broker.configs.group(name)
    layers = _layers(broker)
    for row in GROUP_CONFIGS.values():
        if keys and row.name not in keys:
            continue
        names = tuple(synonym for synonym, _ in row.synonyms)
        chain = _chain(layers, names) if names else [_Set(row.name, _default(row) or "", DEFAULT)]
        if row.name in given:
            chain.insert(0, _Set(row.name, given[row.name].strip(), DYNAMIC_GROUP))
        yield _result(row, row.format(values[row.name]), chain)


_Describe = Callable[[ConfigParts, str, set[str]], Iterator[DescribeConfigsResourceResult]]
_KINDS: dict[int, _Describe] = {
    TOPIC: _topic_rows,
    BROKER: _broker_rows,
    BROKER_LOGGER: _logger_rows,
    CLIENT_METRICS: _client_metrics_rows,
    GROUP: _group_rows,
}


def _result(
    row: ConfigDef, value: str | None, chain: list[_Set], *, read_only: bool = False
) -> DescribeConfigsResourceResult:
    hidden = row.type is ConfigType.PASSWORD
    return DescribeConfigsResourceResult(
        name=row.name,
        value=None if hidden else value,
        read_only=read_only,
        config_source=chain[0].source if chain else DEFAULT,
        is_sensitive=hidden,
        synonyms=[
            DescribeConfigsSynonym(
                name=place.name, value=None if hidden else place.value, source=place.source
            )
            for place in chain
        ],
        config_type=int(row.type),
        documentation=row.documentation,
    )


def _normal(row: ConfigDef, text: str) -> str:
    """A value as Kafka shows it: parsed and formatted again."""
    return row.format(row.parse(text, "a setting")) if row.complaint(text) is None else text


def check_broker_id(broker: HasConfigs, name: str) -> None:
    """Refuse a name that is neither empty nor this broker's id."""
    if name in {"", str(broker.node.node_id)}:
        return
    words = (
        f"Broker {broker.node.node_id} can't describe broker {name}; send the request to that "
        "broker."
    )
    if not name.removeprefix("-").isdigit():
        words = f"'{name}' is not a broker id; the id of this broker is {broker.node.node_id}."
    raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, words)
