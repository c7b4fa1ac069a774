"""Settings of all clients with Kafka's names (CommonClientConfigs), and rows that two kinds of
client share. security_configs.py has the security settings.
"""

from __future__ import annotations

from kstore.config.client.security_configs import SECURITY_CONFIGS
from kstore.config.definition import (
    MAX_INT,
    ConfigDef,
    ConfigType,
    Importance,
    at_least,
    between,
    non_empty,
    one_of,
)

__all__ = ["API_TIMEOUT", "COMMON_CONFIGS", "IDLE", "INTERCEPTORS", "RETRIES", "converter"]

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _LIST = ConfigType.STRING, ConfigType.LIST
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

COMMON_CONFIGS = (
    ConfigDef(
        "bootstrap.servers", _LIST, ("localhost:9092",),
        "The brokers to connect to first, each as host:port; the client learns the others from "
        "them.",
        _HIGH, non_empty(),
    ),
    ConfigDef(
        "client.id", _STRING, "",
        "The name that this client gives to brokers, for their logs and quotas; by default "
        "kstore-producer, kstore-consumer or kstore-admin.",
        _MEDIUM,
    ),
    ConfigDef(
        "client.dns.lookup", _STRING, "use_all_dns_ips",
        "use_all_dns_ips tries all addresses of a name in turn; "
        "resolve_canonical_bootstrap_servers_only also replaces each bootstrap name by the "
        "canonical names of its addresses.",
        _MEDIUM, one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    ConfigDef(
        "metadata.max.age.ms", _LONG, 300_000,
        "The age at which metadata is fetched again; the actual time is up to a fifth shorter.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "metadata.recovery.strategy", _STRING, "rebootstrap",
        "What to do when no known broker can be reached: rebootstrap starts again from "
        "bootstrap.servers (KIP-899), none keeps trying the known ones.",
        _LOW, one_of("none", "rebootstrap", any_case=True),
    ),
    ConfigDef(
        "metadata.recovery.rebootstrap.trigger.ms", _LONG, 300_000,
        "A client that has had no metadata for this long starts again from bootstrap.servers "
        "(KIP-1102).",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "request.timeout.ms", _INT, 30_000,
        "How long to wait for a response; after that the connection is closed.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "retry.backoff.ms", _LONG, 100,
        "The backoff before a failed request is retried. It doubles with each failure.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "retry.backoff.max.ms", _LONG, 1_000,
        "The maximum backoff between retries.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "reconnect.backoff.ms", _LONG, 50,
        "The backoff before connecting to the same address again. It doubles with each failure.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "reconnect.backoff.max.ms", _LONG, 1_000,
        "The maximum backoff between attempts to connect.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "socket.connection.setup.timeout.ms", _LONG, 10_000,
        "The timeout of an attempt to connect. It doubles with each failure.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "socket.connection.setup.timeout.max.ms", _LONG, 30_000,
        "The maximum timeout of an attempt to connect.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "send.buffer.bytes", _INT, -1,
        "The socket's send buffer (SO_SNDBUF); -1 leaves it to the operating system.",
        _MEDIUM, at_least(-1),
    ),
    ConfigDef(
        "receive.buffer.bytes", _INT, -1,
        "The socket's receive buffer (SO_RCVBUF); -1 leaves it to the operating system.",
        _MEDIUM, at_least(-1),
    ),
    ConfigDef(
        "kstore.kip232.enable", _BOOLEAN, True,
        "Whether to use partition epochs if brokers have them (KIP-232): metadata never goes "
        "back to an older state, and an offset of a deleted topic is not used for a new topic of "
        "the same name.",
    ),
    *SECURITY_CONFIGS,
)  # fmt: skip

IDLE = "A connection that has been idle for this long is closed; negative: never."
API_TIMEOUT = ConfigDef(
    "default.api.timeout.ms", _INT, 60_000,
    "The timeout of calls without their own.",
    _MEDIUM, at_least(0),
)  # fmt: skip
RETRIES = ConfigDef(
    "retries", _INT, MAX_INT,
    "How often a failed request is retried. The timeouts apply as well.",
    _HIGH, between(0, MAX_INT),
)  # fmt: skip
INTERCEPTORS = ConfigDef(
    "interceptor.classes", _LIST, (),
    "Interceptors, in the order in which they see records.",
)  # fmt: skip


def converter(name: str, what: str) -> ConfigDef:
    """The row of a serializer or deserializer."""
    return ConfigDef(
        name, ConfigType.CLASS, None,
        f"A callable that {what}. Text, the name of a class of Java, does nothing.",
        Importance.HIGH,
    )  # fmt: skip
