"""Settings of all clients under Kafka's names (CommonClientConfigs), and rows that two kinds of
client share. Those of security are in security_configs.py.
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
        "Brokers to ask first, each host:port; the others are learnt from them.",
        _HIGH, non_empty(),
    ),
    ConfigDef(
        "client.id", _STRING, "",
        "How this client names itself to the brokers, in their logs and quotas; by default"
        " kstore-producer, kstore-consumer or kstore-admin.",
        _MEDIUM,
    ),
    ConfigDef(
        "client.dns.lookup", _STRING, "use_all_dns_ips",
        "use_all_dns_ips tries all addresses of a name in turn;"
        " resolve_canonical_bootstrap_servers_only also replaces each bootstrap name by the"
        " canonical names of its addresses.",
        _MEDIUM, one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    ConfigDef(
        "metadata.max.age.ms", _LONG, 300_000,
        "Metadata is fetched anew at this age at the latest, by up to a fifth earlier.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "metadata.recovery.strategy", _STRING, "rebootstrap",
        "What to do when no known broker can be reached: rebootstrap begins again from"
        " bootstrap.servers (KIP-899), none keeps trying the known ones.",
        _LOW, one_of("none", "rebootstrap", any_case=True),
    ),
    ConfigDef(
        "metadata.recovery.rebootstrap.trigger.ms", _LONG, 300_000,
        "After so long without metadata a client begins again from bootstrap.servers (KIP-1102).",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "request.timeout.ms", _INT, 30_000,
        "How long an answer may take; after it the connection is closed.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "retry.backoff.ms", _LONG, 100,
        "The pause before a failed request is tried again; it doubles with each failure.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "retry.backoff.max.ms", _LONG, 1_000, "The longest pause between tries.", _LOW, at_least(0)
    ),
    ConfigDef(
        "reconnect.backoff.ms", _LONG, 50,
        "The pause before connecting to the same address again; it doubles with each failure.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "reconnect.backoff.max.ms", _LONG, 1_000,
        "The longest pause between attempts to connect.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "socket.connection.setup.timeout.ms", _LONG, 10_000,
        "How long connecting to an address may take; it doubles with each failure.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "socket.connection.setup.timeout.max.ms", _LONG, 30_000,
        "The longest that connecting may take.",
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
        "Use partition epochs where brokers have them (KIP-232): metadata never goes back, and an"
        " offset of a deleted topic is not taken for one of its successor.",
    ),
    *SECURITY_CONFIGS,
)  # fmt: skip

IDLE = "A connection unused for so long is closed; negative: never."
API_TIMEOUT = ConfigDef(
    "default.api.timeout.ms", _INT, 60_000,
    "How long a call may take that is given no time limit of its own.",
    _MEDIUM, at_least(0),
)  # fmt: skip
RETRIES = ConfigDef(
    "retries", _INT, MAX_INT,
    "How often a failed request is tried again; the time limits end it, too.",
    _HIGH, between(0, MAX_INT),
)  # fmt: skip
INTERCEPTORS = ConfigDef(
    "interceptor.classes", _LIST, (),
    "Objects that see records on their way, in this order.",
)  # fmt: skip


def converter(name: str, what: str) -> ConfigDef:
    """The row of a serializer or deserializer."""
    return ConfigDef(
        name, ConfigType.CLASS, None,
        f"A callable that {what}. Text, the name of a class of Java, does nothing.",
        Importance.HIGH,
    )  # fmt: skip
