"""The settings of producers, consumers and admin clients under Kafka's names, and the mapping that
the clients work with. Security settings, which all three share, are in client_security_configs.py.

Defaults are Kafka 4.3's but for: bootstrap.servers (localhost), batch.size, socket buffers (left
to the operating system, which sizes them better), and assignors and partitioners, which have short
names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from kstore.config.client.security_configs import SECURITY_CONFIGS
from kstore.config.definition import (
    MAX_INT,
    ConfigDef,
    ConfigError,
    ConfigType,
    Importance,
    at_least,
    between,
    between_or,
    matching,
    non_empty,
    one_of,
)

__all__ = [
    "CLIENT_CONFIGS",
    "NO_EFFECT",
    "UNSUPPORTED",
    "ClientKind",
    "ClientSettings",
    "client_settings",
]

ClientKind = Literal["producer", "consumer", "admin"]

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _LIST, _CLASS = ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

_COMMON = (
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

_IDLE = "A connection unused for so long is closed; negative: never."
_API_TIMEOUT = ConfigDef(
    "default.api.timeout.ms", _INT, 60_000,
    "How long a call may take that is given no time limit of its own.",
    _MEDIUM, at_least(0),
)  # fmt: skip
_RETRIES = ConfigDef(
    "retries", _INT, MAX_INT,
    "How often a failed request is tried again; the time limits end it, too.",
    _HIGH, between(0, MAX_INT),
)  # fmt: skip
_INTERCEPTORS = ConfigDef(
    "interceptor.classes", _LIST, (),
    "Objects that see records on their way, in this order.",
)  # fmt: skip

_PRODUCER = (
    ConfigDef(
        "acks", _STRING, "all",
        "Who must have a record before it counts as delivered: all (-1) in-sync replicas, the"
        " leader (1), nobody (0).",
        _LOW, one_of("all", "-1", "0", "1"),
    ),
    ConfigDef(
        "enable.idempotence", _BOOLEAN, True,
        "Each record is written once and in order, whatever is sent again. Needs acks=all; with"
        " other acks it is off unless it is asked for.",
        _LOW,
    ),
    ConfigDef(
        "transactional.id", _STRING, None,
        "Who this producer is over restarts; transactions need it.",
        _LOW, non_empty(),
    ),
    ConfigDef(
        "transaction.timeout.ms", _INT, 60_000,
        "The coordinator aborts a transaction that is open for so long.",
    ),
    ConfigDef(
        "batch.size", _INT, 131_072,
        "Bytes of records, before compression, that a batch is filled up to. Kafka has 16,384,"
        " since its producer takes a batch's memory at once; here memory grows with the records,"
        " and a larger batch costs less per record for client and broker.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "linger.ms", _LONG, 5,
        "How long a batch waits for more records. Where it is not set, a batch that somebody waits"
        " for (result, await) leaves at once.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "buffer.memory", _LONG, 33_554_432,
        "Bytes of records that may wait to be sent; beyond it, send waits.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "max.block.ms", _LONG, 60_000,
        "How long send may wait for metadata and for buffer.memory, and calls of transactions for"
        " their answers.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "max.request.size", _INT, 1_048_576,
        "The largest request in bytes, and so the largest record.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "delivery.timeout.ms", _INT, 120_000,
        "How long after send a record may be delivered at the latest; not less than linger.ms plus"
        " request.timeout.ms.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "max.in.flight.requests.per.connection", _INT, 5,
        "Requests to a broker that may be unanswered; at most 5 with idempotence.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "compression.type", _STRING, "none", "How batches are compressed.",
        _HIGH, one_of("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    ConfigDef(
        "compression.gzip.level", _INT, -1, "From 1 (fast) to 9 (small); -1 is gzip's default.",
        _MEDIUM, between_or(1, 9, -1),
    ),
    ConfigDef(
        "compression.lz4.level", _INT, 9, "From 1 (fast) to 17 (small).", _MEDIUM, between(1, 17)
    ),
    ConfigDef(
        "compression.zstd.level", _INT, 3, "From -131072 (fast) to 22 (small).",
        _MEDIUM, between(-131_072, 22),
    ),
    ConfigDef(
        "partitioner.class", _CLASS, None,
        "Which partition a record goes to: murmur2 (the default: by key as Java does, without key"
        " sticky), sticky (keys are ignored), roundrobin, ordered (by key, and stable when"
        " partitions are added, KIP-253), or a function of (topic, key, value, partition count).",
        _MEDIUM,
    ),
    ConfigDef(
        "partitioner.ignore.keys", _BOOLEAN, False, "Spread records as if they had no keys.",
        _MEDIUM,
    ),
    ConfigDef(
        "partitioner.adaptive.partitioning.enable", _BOOLEAN, True,
        "Records without keys go more often to brokers that are faster.",
    ),
    ConfigDef(
        "partitioner.availability.timeout.ms", _LONG, 0,
        "Records without keys avoid a broker that has taken nothing for so long; 0: never.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "metadata.max.idle.ms", _LONG, 300_000,
        "A topic that nothing was sent to for so long is forgotten until it is used again.",
        _LOW, at_least(5_000),
    ),
    ConfigDef("connections.max.idle.ms", _LONG, 540_000, _IDLE, _MEDIUM),
    ConfigDef(
        "kstore.kip253.enable", _BOOLEAN, True,
        "Tell the number of partitions that keys were distributed over, so that a topic that has"
        " grown keeps the order of its keys (KIP-253).",
    ),
    ConfigDef(
        "kstore.kip359.enable", _BOOLEAN, True,
        "Tell the leader epoch, so that a leader that was replaced takes nothing (KIP-359).",
    ),
    _RETRIES,
    _INTERCEPTORS,
)  # fmt: skip

_RESETS = r"earliest|latest|none|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"
_CONSUMER = (
    ConfigDef("group.id", _STRING, None, "The consumer group to join and commit for.", _HIGH),
    ConfigDef(
        "group.instance.id", _STRING, None,
        "Makes the consumer a static member, which keeps its partitions over a restart.",
        _MEDIUM, non_empty(),
    ),
    ConfigDef(
        "group.protocol", _STRING, "classic",
        "How the group is coordinated: classic, or consumer (KIP-848).",
        _HIGH, one_of("classic", "consumer", any_case=True),
    ),
    ConfigDef(
        "group.remote.assignor", _STRING, None,
        "The coordinator's assignor (protocol consumer): uniform or range; by default its first.",
        _MEDIUM,
    ),
    ConfigDef(
        "partition.assignment.strategy", _LIST, ("range", "cooperative-sticky"),
        "Assignors that this member can do (protocol classic), best first: range, roundrobin,"
        " sticky, cooperative-sticky, or Kafka's class names.",
        _MEDIUM, non_empty(),
    ),
    ConfigDef(
        "session.timeout.ms", _INT, 45_000,
        "A member that was not heard for so long is out (protocol classic).",
        _HIGH,
    ),
    ConfigDef(
        "heartbeat.interval.ms", _INT, 3_000, "Time between heartbeats (protocol classic).", _HIGH
    ),
    ConfigDef(
        "max.poll.interval.ms", _INT, 300_000,
        "A member that does not poll for so long leaves its group.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "max.poll.records", _INT, 500, "Records that a poll returns at most.", _MEDIUM, at_least(1)
    ),
    ConfigDef(
        "enable.auto.commit", _BOOLEAN, True, "Commit what was polled, in the background.", _MEDIUM
    ),
    ConfigDef(
        "auto.commit.interval.ms", _INT, 5_000, "Time between such commits.", _LOW, at_least(0)
    ),
    ConfigDef(
        "auto.offset.reset", _STRING, "latest",
        "Where to read from without a usable offset: earliest, latest, none (an error), or"
        " by_duration:P1D and the like: from so long ago.",
        _MEDIUM, matching(_RESETS, "earliest, latest, none or by_duration:<ISO 8601 duration>"),
    ),
    ConfigDef(
        "isolation.level", _STRING, "read_uncommitted",
        "read_committed leaves out records of transactions that were not committed.",
        _MEDIUM, one_of("read_committed", "read_uncommitted"),
    ),
    ConfigDef(
        "fetch.min.bytes", _INT, 1, "Bytes that a broker waits for before it answers.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "fetch.max.wait.ms", _INT, 500, "How long it waits for them.", _LOW, at_least(0)
    ),
    ConfigDef(
        "fetch.max.bytes", _INT, 52_428_800,
        "Bytes of an answer; a larger first batch comes all the same.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "max.partition.fetch.bytes", _INT, 1_048_576,
        "Bytes of one partition in an answer; a larger first batch comes all the same.",
        _HIGH, at_least(0),
    ),
    ConfigDef(
        "kstore.fetch.ahead.bytes", _INT, -1,
        "Bytes that may wait, fetched ahead of poll; beyond it no more is asked for. -1: as"
        " fetch.max.bytes.",
        _MEDIUM, at_least(-1),
    ),
    ConfigDef("check.crcs", _BOOLEAN, True, "Check the checksums of batches."),
    ConfigDef(
        "client.rack", _STRING, "",
        "Where this consumer stands; it reads from a replica of the same rack (KIP-392).",
    ),
    ConfigDef(
        "allow.auto.create.topics", _BOOLEAN, True,
        "Have brokers create topics that are subscribed to, if they are set to.",
        _MEDIUM,
    ),
    ConfigDef(
        "exclude.internal.topics", _BOOLEAN, True, "Patterns match no internal topics.", _MEDIUM
    ),
    ConfigDef(
        "consumer.timeout.ms", _LONG, -1,
        "Iteration ends after so long without a record; -1: never.",
        _LOW, at_least(-1),
    ),
    ConfigDef("connections.max.idle.ms", _LONG, 540_000, _IDLE, _MEDIUM),
    ConfigDef(
        "kstore.kip253.enable", _BOOLEAN, True,
        "Read a new partition of a topic that has grown only when what was written before it is"
        " read (KIP-253).",
    ),
    _API_TIMEOUT,
    _INTERCEPTORS,
)  # fmt: skip

_ADMIN = (
    ConfigDef("connections.max.idle.ms", _LONG, 300_000, _IDLE, _MEDIUM),
    _API_TIMEOUT,
    _RETRIES,
)

CLIENT_CONFIGS: dict[ClientKind, dict[str, ConfigDef]] = {
    "producer": {row.name: row for row in _COMMON + _PRODUCER},
    "consumer": {row.name: row for row in _COMMON + _CONSUMER},
    "admin": {row.name: row for row in _COMMON + _ADMIN},
}

# A Kafka setting that does nothing here: why, and the names.
_REASONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "metrics are not kept by reporters of classes",
        (
            "auto.include.jmx.reporter", "metric.reporters", "metrics.num.samples",
            "metrics.recording.level", "metrics.sample.window.ms",
        ),
    ),
    ("telemetry is not pushed to brokers", ("enable.metrics.push",)),
    (
        "keys and values are bytes; encode them before send, decode them after poll",
        ("key.deserializer", "key.serializer", "value.deserializer", "value.serializer"),
    ),
    ("values are Python's own", ("config.providers",)),
    (
        "it is about Java's security classes",
        (
            "security.providers", "ssl.engine.factory.class", "ssl.keymanager.algorithm",
            "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
        ),
    ),
    (
        "the broker checks tokens, and has settings of its own for it",
        (
            "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
        ),
    ),
    ("it is not served by brokers", ("transaction.two.phase.commit.enable",)),
)  # fmt: skip
NO_EFFECT: dict[str, str] = {name: reason for reason, names in _REASONS for name in names}

# How names of Kafka's begin that are refused: to ignore them would break a promise.
UNSUPPORTED: tuple[tuple[str, str], ...] = (
    ("bootstrap.controllers", "requests for controllers go by the brokers"),
    ("sasl.client.callback.handler.class", "it names a class of Java"),
    ("sasl.kerberos.", "there is no GSSAPI here"),
    ("sasl.login.class", "it names a class of Java"),
    ("share.", "there is no share consumer here"),
)

# Another name of a setting.
_ALIASES = {
    "oauth_cb": "sasl.login.callback.handler.class",
    "oauth.cb": "sasl.login.callback.handler.class",
    "partitioner": "partitioner.class",
    "sasl.mechanisms": "sasl.mechanism",
}


class ClientSettings(dict[str, Any]):
    """Typed values by Kafka's dotted names, all defaults filled in."""

    def __init__(self, kind: ClientKind, given: Mapping[str, Any]) -> None:
        rows = CLIENT_CONFIGS[kind]
        super().__init__({name: row.default for name, row in rows.items()} | dict(given))
        self.given = frozenset(given)
        """The names that the user set, to tell a default from the same value asked for."""
        if not self["client.id"]:
            self["client.id"] = f"kstore-{kind}"


def client_settings(
    kind: ClientKind,
    config: Mapping[str, Any] | str | Sequence[str] | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> ClientSettings:
    """The settings of a client: ``config`` has Kafka's dotted names, or is bootstrap.servers as
    text or list; ``keywords`` are the same names in snake_case, and win. None means not given.

    Raises ConfigError (a ValueError) for an unknown name, naming the nearest, and for bad values.
    """
    if config is None:
        config = {}
    elif not isinstance(config, Mapping):
        config = {"bootstrap.servers": config}
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
        raise ConfigError(f"{typed} is {value!r}, which would do nothing: {reason}", key=name)


def _value(row: ConfigDef, value: Any, typed: str) -> Any:
    """The typed value of a Python value or of text as in a properties file."""
    if isinstance(value, str):
        return row.parse(value, typed)
    if row.type is _CLASS:
        return value
    if row.type is _LIST and isinstance(value, Iterable):
        items = tuple(value)
        if all(isinstance(item, str) for item in items):
            row.parse(",".join(items), typed)
        return items
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = isinstance(value, bool) if row.type is _BOOLEAN else is_number
    if not fits:
        raise ConfigError(f"{row.name} is {value!r}; it must be {row.allowed}", key=row.name)
    return row.parse(row.format(value), typed)


def _unknown(kind: ClientKind, name: str, typed: str) -> str:
    from difflib import get_close_matches  # only when somebody has mistyped

    for begin, reason in UNSUPPORTED:
        if name.startswith(begin):
            return f"{typed} is not supported: {reason}"
    others = [other for other, rows in CLIENT_CONFIGS.items() if name in rows]
    sentence = f"{typed} is not a setting of {'an' if kind == 'admin' else 'a'} {kind} client"
    if others:
        return f"{sentence}, but of {' and '.join(others)} clients"
    known = [*CLIENT_CONFIGS[kind], *NO_EFFECT]
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if not close:
        return sentence
    nearest = close[0].replace(".", "_") if "." not in typed and "_" in typed else close[0]
    return f"{sentence}; did you mean {nearest}?"
