"""The settings of producers, consumers and admin clients with Kafka's names, and the mapping that
the clients use. The tables are in common_client_configs.py, producer_configs.py,
consumer_configs.py and share_configs.py.

Defaults are Kafka 4.3's except: bootstrap.servers (localhost), batch.size, socket buffers (left to
the operating system, which sizes them better), group.protocol (consumer, if brokers support it),
and assignors and partitioners, which have short names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from kstore.config.client.common_client_configs import API_TIMEOUT, COMMON_CONFIGS, IDLE, RETRIES
from kstore.config.client.consumer_configs import CONSUMER_CONFIGS
from kstore.config.client.other_names import OTHER_NAMES
from kstore.config.client.producer_configs import PRODUCER_CONFIGS
from kstore.config.client.share_configs import SHARE_CONFIGS
from kstore.config.definition import ConfigDef, ConfigError, ConfigType, Importance
from kstore.config.nearest import nearest_name
from kstore.items import Items, items_of

__all__ = [
    "CLIENT_CONFIGS",
    "NO_EFFECT",
    "UNSUPPORTED",
    "ClientKind",
    "ClientSettings",
    "client_settings",
]

ClientKind = Literal["producer", "consumer", "share", "admin"]

_BOOLEAN, _LONG = ConfigType.BOOLEAN, ConfigType.LONG
_LIST, _CLASS, _PASSWORD = ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD
_OF_OBJECTS = {"interceptor.classes", "partition.assignment.strategy"}
"""Lists whose items may be objects and classes."""
_MEDIUM = Importance.MEDIUM

_ADMIN = (
    ConfigDef("connections.max.idle.ms", _LONG, 300_000, IDLE, _MEDIUM),
    API_TIMEOUT,
    RETRIES,
)

CLIENT_CONFIGS: dict[ClientKind, dict[str, ConfigDef]] = {
    "producer": {row.name: row for row in COMMON_CONFIGS + PRODUCER_CONFIGS},
    "consumer": {row.name: row for row in COMMON_CONFIGS + CONSUMER_CONFIGS},
    "share": {row.name: row for row in COMMON_CONFIGS + SHARE_CONFIGS},
    "admin": {row.name: row for row in COMMON_CONFIGS + _ADMIN},
}

# Kafka's settings that have no effect here: the reason, and the names.
_REASONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "metrics are not kept by reporter classes",
        (
            "auto.include.jmx.reporter", "metric.reporters", "metrics.num.samples",
            "metrics.recording.level", "metrics.sample.window.ms",
        ),
    ),
    ("telemetry is not pushed to brokers", ("enable.metrics.push",)),
    ("values are Python's own", ("config.providers",)),
    (
        "it concerns Java's security classes",
        (
            "security.providers", "ssl.engine.factory.class", "ssl.keymanager.algorithm",
            "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
        ),
    ),
    (
        "the broker checks tokens, and has its own settings for it",
        (
            "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
        ),
    ),
    ("brokers do not serve it", ("transaction.two.phase.commit.enable",)),
)  # fmt: skip
NO_EFFECT: dict[str, str] = {name: reason for reason, names in _REASONS for name in names}

# Prefixes of Kafka's settings that are refused, because ignoring them would break a promise.
UNSUPPORTED: tuple[tuple[str, str], ...] = (
    ("bootstrap.controllers", "requests to controllers go through the brokers"),
    ("sasl.client.callback.handler.class", "it names a Java class"),
    ("sasl.kerberos.", "GSSAPI is not supported"),
    ("sasl.login.class", "it names a Java class"),
)

# An alias of a setting.
_ALIASES = {
    "oauth_cb": "sasl.login.callback.handler.class",
    "oauth.cb": "sasl.login.callback.handler.class",
    "partitioner": "partitioner.class",
    "sasl.mechanisms": "sasl.mechanism",
}


class ClientSettings(dict[str, Any]):
    """Typed values by Kafka's dotted names, including defaults."""

    def __init__(self, kind: ClientKind, given: Mapping[str, Any]) -> None:
        rows = CLIENT_CONFIGS[kind]
        super().__init__({name: row.default for name, row in rows.items()} | dict(given))
        self.given = frozenset(given)
        """The names that the user set, to distinguish a default from an equal value."""
        if not self["client.id"]:
            self["client.id"] = f"kstore-{kind}"


def client_settings(
    kind: ClientKind,
    config: Mapping[str, Any] | str | Items[str] | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> ClientSettings:
    """The settings of a client: ``config`` has Kafka's dotted names, or is bootstrap.servers as
    text or list; ``keywords`` are the same names in snake_case, and take precedence. None means not
    set.

    Raises ConfigError (a ValueError) for an unknown name, with the most similar one, and for
    invalid values.
    """
    if config is None:
        config = {}
    elif not isinstance(config, Mapping):
        servers = config
        if not isinstance(config, str):
            servers = items_of("bootstrap.servers", config, str, '"host:port"')
        config = {"bootstrap.servers": servers}
    given: dict[str, Any] = {}
    for key, value in config.items():
        _put(given, kind, key, key, value)
    for key, value in (keywords or {}).items():
        _put(given, kind, key.replace("_", "."), key, value)
    return ClientSettings(kind, given)


def _put(given: dict[str, Any], kind: ClientKind, name: str, typed: str, value: Any) -> None:
    name = _ALIASES.get(name, name)
    row = CLIENT_CONFIGS[kind].get(name)
    if row is not None:
        if value is not None:
            given[name] = _value(row, value, typed)
        return
    reason = NO_EFFECT.get(name)
    if reason is None:
        raise ConfigError(_unknown(kind, name, typed), key=name)
    if value is not None and not isinstance(value, (str, int, float, list, tuple)):
        raise ConfigError(f"{typed} is {value!r}, which has no effect here: {reason}", key=name)


def _value(row: ConfigDef, value: Any, typed: str) -> Any:
    """The typed value of a Python value or of text in the format of a properties file."""
    if isinstance(value, str):
        return row.parse(value, typed)
    if row.type is _CLASS:
        return value
    is_one = isinstance(value, (bytes, bytearray, memoryview, Mapping))
    if row.type is _LIST and isinstance(value, Iterable) and not is_one:
        items = tuple(value)
        if all(isinstance(item, str) for item in items):
            row.parse(",".join(items), typed)
        elif row.name not in _OF_OBJECTS:
            raise _refused(row, items)
        return items
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = isinstance(value, bool) if row.type is _BOOLEAN else is_number
    if not fits or row.type is _PASSWORD:
        raise _refused(row, value)
    return row.parse(row.format(value), typed)


def _refused(row: ConfigDef, value: Any) -> ConfigError:
    shown = row.format(value) if row.type is _PASSWORD else repr(value)
    return ConfigError(f"{row.name} is {shown}; it must be {row.allowed}", key=row.name)


def _unknown(kind: ClientKind, name: str, typed: str) -> str:
    for begin, reason in UNSUPPORTED:
        if name.startswith(begin):
            return f"{typed} is not supported: {reason}"
    others = [other for other, rows in CLIENT_CONFIGS.items() if name in rows]
    sentence = f"{typed} is not a setting of {'an' if kind == 'admin' else 'a'} {kind} client"
    if others:
        return f"{sentence}, but of {' and '.join(others)} clients"
    other = OTHER_NAMES.get(name)
    if other is not None and other not in CLIENT_CONFIGS[kind]:
        kinds = [known for known, rows in CLIENT_CONFIGS.items() if other in rows]
        return f"{sentence}; as {other} it is one of {' and '.join(kinds) or 'no'} clients"
    nearest = other or nearest_name(name, [*CLIENT_CONFIGS[kind], *NO_EFFECT])
    if nearest is None:
        return sentence
    nearest = nearest.replace(".", "_") if "." not in typed and "_" in typed else nearest
    return f"{sentence}; did you mean {nearest}?"
