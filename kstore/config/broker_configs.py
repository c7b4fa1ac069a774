"""The table of broker configs: the settings of a server.properties file, the environment and
--override.

The rows that give a topic config its default (log.segment.bytes and so on) are created from the
topic table, so each setting is defined once. no_effect.py has Kafka's settings that have no effect
here.
"""

from __future__ import annotations

from collections.abc import Iterator

from kstore.config.authorizer_configs import AUTHORIZER_CONFIGS
from kstore.config.cluster_configs import CLUSTER_CONFIGS
from kstore.config.coordinator_configs import COORDINATOR_CONFIGS
from kstore.config.definition import (
    MAX_DOUBLE,
    MAX_INT,
    ConfigDef,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    between,
    matching,
    non_empty,
    one_of,
)
from kstore.config.sasl_configs import MECHANISM_PREFIXES, PER_MECHANISM, SASL_CONFIGS
from kstore.config.security_configs import LISTENER_SSL, SECURITY_CONFIGS
from kstore.config.topic_configs import TOPIC_CONFIGS

__all__ = ["ALIASES", "BROKER_CONFIGS", "listener_base"]

_BOOLEAN, _INT, _DOUBLE = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.DOUBLE
_LONG, _STRING, _LIST = ConfigType.LONG, ConfigType.STRING, ConfigType.LIST
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

# Settings that can also be set for one listener: listener.name.NAME.max.connections.
_PER_LISTENER = {
    "max.connections",
    "max.connection.creation.rate",
    *LISTENER_SSL,
    *(row.name for row in SASL_CONFIGS if not row.name.startswith("kstore.")),
}

# Two names of one setting: a value for the left one is stored under the right one.
ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}

_SERVER = (
    ConfigDef(
        "node.id", _INT, 1, "This broker's id in its cluster.", _HIGH, at_least(0)
    ),
    ConfigDef(
        "listeners", _LIST, ("PLAINTEXT://localhost:9092",),
        "The addresses to listen on, each as NAME://host:port. An empty host means all "
        "interfaces; port 0 means a free port.",
        _HIGH, non_empty(),
    ),
    ConfigDef(
        "advertised.listeners", _LIST, None,
        "The addresses that clients connect to; by default those of listeners.",
        _HIGH,
    ),
    ConfigDef(
        "listener.security.protocol.map", _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, each as NAME:PROTOCOL.",
        _LOW,
    ),
    ConfigDef(
        "log.dirs", _LIST, None,
        "The folders that hold the data; by default kstore/data in the user's data folder.",
        _HIGH,
    ),
    ConfigDef(
        "broker.rack", _STRING, None,
        "The rack of this broker, which clients can see.", _MEDIUM,
    ),
    ConfigDef(
        "socket.send.buffer.bytes", _INT, 102_400,
        "The size of a connection's send buffer. If it is not set, the system decides.",
        _HIGH,
    ),
    ConfigDef(
        "socket.receive.buffer.bytes", _INT, 102_400,
        "The size of a connection's receive buffer. If it is not set, the system decides.",
        _HIGH,
    ),
    ConfigDef(
        "socket.request.max.bytes", _INT, 100 * 2**20,
        "The maximum size of a request. A larger request closes its connection.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "kstore.request.max.elements", _INT, 100_000,
        "The maximum number of array elements (topics, partitions, groups, resources) in one "
        "request. A request with more closes its connection, because an element of a few bytes "
        "can take a hundred in memory.",
        _MEDIUM, at_least(1000),
    ),
    ConfigDef(
        "socket.listen.backlog.size", _INT, 50,
        "The maximum number of connections that wait to be accepted.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "connections.max.idle.ms", _LONG, 600_000,
        "The broker closes connections that have been idle for this long.", _MEDIUM, at_least(-1),
    ),
    ConfigDef(
        "max.connections", _INT, MAX_INT,
        "The maximum number of open connections.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "max.connections.per.ip", _INT, MAX_INT,
        "The maximum number of open connections from one client address.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "max.connections.per.ip.overrides", _STRING, "",
        "Exceptions to max.connections.per.ip, as address:number,...",
        _MEDIUM, matching(r"(\S+:\d+(,|$))*", "host:count,host:count and so on"), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "max.connection.creation.rate", _INT, MAX_INT,
        "The maximum number of new connections per second. Others wait.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "controller.quota.window.num", _INT, 11,
        "The number of samples over which a client's rate of partition changes is measured.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "controller.quota.window.size.seconds", _INT, 1,
        "The length of each sample of a client's rate of partition changes.", _LOW, at_least(1),
    ),
    ConfigDef(
        "quota.window.num", _INT, 11,
        "The number of samples over which a client's rate is measured.", _LOW, at_least(1),
    ),
    ConfigDef(
        "quota.window.size.seconds", _INT, 1,
        "The length of each sample of a client's rate.", _LOW, at_least(1),
    ),
    ConfigDef(
        "telemetry.max.bytes", _INT, 1_048_576,
        "The maximum number of bytes of metrics that a client can push at once.", _LOW, at_least(1),
    ),
    ConfigDef(
        "kstore.slow.loop.ms", _INT, 50,
        "The broker logs everything that holds the event loop for longer than this. Time spent "
        "waiting for a core does not count. 0 or -1: nothing is logged, but the metrics still "
        "count it.",
        _LOW, at_least(-1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.logging.format", _STRING, "text",
        "The format of the broker's log: text (one line per event; traceback lines start with '  "
        "| ') or json (one JSON object per event, with its traceback).",
        _LOW, one_of("text", "json"),
    ),
    ConfigDef(
        "kstore.request.log.rate", _DOUBLE, 0.0,
        "The share of requests that are logged, chosen at random, from 0 (none) to 1 (all). Each "
        "line has the API, the client and how the time was spent. At most 500 lines per second. "
        "The logger is kstore.request.",
        _LOW, between(0, 1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.request.log.apis", _LIST, (),
        "The APIs that kstore.request.log.rate logs, by Kafka's names, such as Produce,Fetch. "
        "Empty: all.",
        _LOW, None, (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.request.log.clients", _LIST, (),
        "The client ids whose requests kstore.request.log.rate logs. Empty: all.",
        _LOW, None, (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.slow.request.ms", _INT, -1,
        "Requests that take longer than this are logged as warnings, with how their time was "
        "spent. The time for which Fetch, JoinGroup and SyncGroup wait for others does not count. "
        "0 or -1: none is logged. The logger is kstore.request.slow.",
        _LOW, at_least(-1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.trace.rate", _DOUBLE, 0.0,
        "The share of requests that become OpenTelemetry traces, from 0 (none) to 1 (all), "
        "chosen at random. Needs kstore[otel].",
        _LOW, between(0, 1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.trace.endpoint", _STRING, None,
        "The URL that traces are sent to, as OTLP over HTTP, such as "
        "http://collector:4318/v1/traces. By default OpenTelemetry's environment variables "
        "decide. Without them it is http://localhost:4318.",
        _LOW,
    ),
    ConfigDef(
        "kstore.long.holds.file", _STRING, None,
        "A file that gets a line each time something holds the event loop for a second or more. "
        "Tests use it, and fail then.",
        _LOW,
    ),
    ConfigDef(
        "kstore.metrics.listener", _STRING, None,
        "The address at which Prometheus metrics are served: http://127.0.0.1:PORT, a loopback "
        "address. By default they are not served.",
        _LOW,
    ),
    ConfigDef(
        "kstore.metrics.max.partitions", _INT, 1000,
        "The maximum number of partitions that /metrics lists. The same limit applies to topics, "
        "to groups, and to partitions of groups. The rest is reported as one sum.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "kstore.http.listener", _STRING, None,
        "The address of the HTTP API (health, metrics, cluster, topics, injected faults): "
        "http://127.0.0.1:PORT; port 0 means a free port. By default it is off.",
        _LOW,
    ),
    ConfigDef(
        "kstore.http.token", ConfigType.PASSWORD, None,
        "The token that a client of kstore.http.listener must send as Authorization: Bearer "
        "TOKEN. Required if that address is not a loopback address.",
        _LOW,
    ),
    ConfigDef(
        "kstore.http.principal", _STRING, "User:ANONYMOUS",
        "The principal whose rights apply to requests to kstore.http.listener and "
        "kstore.metrics.listener, if there is an authorizer.",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.enable", _BOOLEAN, True,
        "Whether kstore.http.listener serves the web console at /. The first request starts it "
        "as a separate process; it needs kstore[console].",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.read.only", _BOOLEAN, False,
        "Whether the web console is read-only.", _LOW,
    ),
    ConfigDef(
        "kstore.console.listener.name", _STRING, None,
        "The listener that the web console connects to; by default one with SASL, else the first "
        "without TLS. With SASL, users log in with their user name and password.",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.client.config", _STRING, None,
        "A properties file with client settings for the web console's connections, such as "
        "ssl.truststore.location.",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.schema.registry", _STRING, None,
        "The URL of a schema registry, for Avro in the web console.", _LOW,
    ),
    ConfigDef(
        "kstore.fault.injection.enable", _BOOLEAN, False,
        "Whether faults may be injected over HTTP. For tests only.", _LOW,
    ),
    ConfigDef(
        "kstore.stop.with.stdin", _BOOLEAN, False,
        "Stop when standard input closes, for a broker that must not outlive the process that "
        "started it.",
        _LOW,
    ),
    ConfigDef(
        "queued.max.request.bytes", _LONG, -1,
        "The maximum number of bytes of requests that wait in memory. At the limit, the broker "
        "stops reading. -1: no shared limit.",
        _MEDIUM, at_least(-1),
    ),
    ConfigDef(
        "kstore.flush.policy", _STRING, "os",
        "When a write counts as done: os (once it is in the page cache, as in Kafka), interval "
        "(forced to disk at regular intervals) or always (acknowledged and visible only once it "
        "is on disk; concurrent writes share one flush).",
        _HIGH, one_of("os", "interval", "always"),
    ),
    ConfigDef(
        "kstore.log.write.back.bytes", _LONG, -1,
        "The maximum number of bytes of one log dir that are written but not yet on disk. At the "
        "limit, large writes wait. At a part of it (at most 128 MiB) the broker starts write-back "
        "itself, so that the system never throttles small writes. -1: set by the machine's "
        "memory. 0: left to the system.",
        _LOW, at_least(-1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.append.threads", _STRING, "auto",
        "Which appends use a thread of the log dir: auto (those that may wait for the disk, and "
        "all if there are several log.dirs) or always (all). A thread adds about 50 microseconds "
        "to a small append.",
        _LOW, one_of("auto", "always"),
    ),
    ConfigDef(
        "kstore.log.dir.probe.ms", _INT, 100,
        "How often a log dir's disk is checked with a write of 4 KB, while small appends to it "
        "do not use a thread. If a check takes longer than this, appends use threads until the "
        "disk answers. 0: never.",
        _LOW, at_least(0), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.commit.require.assignment", _BOOLEAN, False,
        "Whether members of consumer and streams groups may commit only partitions that are "
        "assigned to them, even with the current epoch. Kafka checks this only for earlier "
        "epochs (KAFKA-19779).",
        _LOW,
    ),
    ConfigDef(
        "kstore.check.invariants", _BOOLEAN, False,
        "Whether the invariants of groups are checked after each step. For tests, because it is "
        "slow.",
        _LOW,
    ),
    ConfigDef(
        "kstore.flush.interval.ms", _INT, 1000,
        "How often data is forced to disk if kstore.flush.policy is interval.",
        _MEDIUM, at_least(1),
    ),
)  # fmt: skip

_TOPICS = (
    ConfigDef(
        "auto.create.topics.enable", _BOOLEAN, True,
        "Whether a topic that does not exist is created when a client requests it and allows that.",
        _HIGH,
    ),
    ConfigDef(
        "delete.topic.enable", _BOOLEAN, True, "Whether topics can be deleted.", _HIGH
    ),
    ConfigDef(
        "num.partitions", _INT, 1,
        "The partition count of a topic that is created without one.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "default.replication.factor", _INT, 1,
        "The replication factor of a topic that is created without one.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "log.retention.check.interval.ms", _LONG, 300_000,
        "How often segments are checked against the retention settings.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "log.cleaner.enable", _BOOLEAN, True,
        "Whether logs with cleanup.policy=compact are compacted.", _MEDIUM,
    ),
    ConfigDef(
        "log.cleaner.backoff.ms", _LONG, 15_000,
        "How long the cleaner waits when there is nothing to clean.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.cleaner.io.max.bytes.per.second", _DOUBLE, MAX_DOUBLE,
        "The average rate, in bytes per second, at which the cleaner reads and "
        "writes.", _MEDIUM, None,
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "fetch.max.bytes", _INT, 55 * 2**20,
        "The maximum number of bytes in one Fetch response.", _MEDIUM, at_least(1024),
    ),
    ConfigDef(
        "max.request.partition.size.limit", _INT, 2000,
        "The maximum number of partitions in one DescribeTopicPartitions response.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "max.incremental.fetch.session.cache.slots", _INT, 1000,
        "The maximum number of fetch sessions. Principals share them: a principal with fewer than "
        "its share takes a session from the principal with the most. The sessions of all "
        "consumers together have at most 250 partitions per slot, and each has at most 50000.",
        _MEDIUM, at_least(0),
    ),
)  # fmt: skip


def _topic_defaults() -> Iterator[ConfigDef]:
    """Create the broker rows for the defaults of topic configs.

    If a default has several units (retention in ms, minutes and hours), the coarsest has the
    default value, and the finer ones, which take precedence, are unset. The finest can be changed
    while the broker runs.
    """
    for topic in TOPIC_CONFIGS.values():
        for name, factor in topic.synonyms:
            coarsest, _ = topic.synonyms[-1]
            finest, _ = topic.synonyms[0]
            default = topic.default if factor == 1 else topic.default // factor
            words = f"The default of the topic config {topic.name}. {topic.documentation}"
            if name != coarsest:
                default = None
                words = f"As {coarsest}, which it overrides: the default of {topic.name}."
            yield ConfigDef(
                name, topic.type if factor == 1 else ConfigType.INT, default, words,
                topic.importance, topic.validator, (),
                _CLUSTER_WIDE if name == finest else UpdateMode.READ_ONLY,
            )  # fmt: skip


BROKER_CONFIGS: dict[str, ConfigDef] = {
    row.name: row
    for row in (
        *_SERVER,
        *_TOPICS,
        *_topic_defaults(),
        *COORDINATOR_CONFIGS,
        *CLUSTER_CONFIGS,
        *SECURITY_CONFIGS,
        *AUTHORIZER_CONFIGS,
        *SASL_CONFIGS,
    )
}


def listener_base(name: str) -> str | None:
    """The setting of ``listener.name.NAME.REST`` for one listener, and possibly for one mechanism,
    given REST; None if there is none.
    """
    for prefix in MECHANISM_PREFIXES:
        if name.startswith(prefix):
            base = name.removeprefix(prefix)
            return base if base in PER_MECHANISM else None
    return name if name in _PER_LISTENER or name in PER_MECHANISM else None
