"""The table of broker configs: what a server.properties file, the environment and --override may
set.

The rows that only give a topic config its default (log.segment.bytes and so on) are made from the
topic table, so each setting is written down once. Names that Kafka has and that can't matter here
are in no_effect.py.
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

# Settings that may be given for one listener too: listener.name.NAME.max.connections.
_PER_LISTENER = {
    "max.connections",
    "max.connection.creation.rate",
    *LISTENER_SSL,
    *(row.name for row in SASL_CONFIGS if not row.name.startswith("kstore.")),
}

# Two names of one setting: a value for the left one is kept under the right one.
ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}

_SERVER = (
    ConfigDef(
        "node.id", _INT, 1, "This broker's number in its cluster.", _HIGH, at_least(0)
    ),
    ConfigDef(
        "listeners", _LIST, ("PLAINTEXT://localhost:9092",),
        "The addresses to listen on, each NAME://host:port; an empty host means every interface,"
        " port 0 a free port.",
        _HIGH, non_empty(),
    ),
    ConfigDef(
        "advertised.listeners", _LIST, None,
        "The addresses that clients are told to connect to; by default those of listeners.",
        _HIGH,
    ),
    ConfigDef(
        "listener.security.protocol.map", _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name speaks, each NAME:PROTOCOL.",
        _LOW,
    ),
    ConfigDef(
        "log.dirs", _LIST, None,
        "The folders that hold the data; by default kstore/data in the user's data folder.",
        _HIGH,
    ),
    ConfigDef(
        "broker.rack", _STRING, None,
        "The rack that this broker stands in, which clients are told.", _MEDIUM,
    ),
    ConfigDef(
        "socket.send.buffer.bytes", _INT, 102_400,
        "The size of a connection's send buffer, where it is set; else the system sizes it.",
        _HIGH,
    ),
    ConfigDef(
        "socket.receive.buffer.bytes", _INT, 102_400,
        "The size of a connection's receive buffer, where it is set; else the system sizes it.",
        _HIGH,
    ),
    ConfigDef(
        "socket.request.max.bytes", _INT, 100 * 2**20,
        "The largest request that is read; a larger one ends its connection.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "kstore.request.max.elements", _INT, 100_000,
        "The most elements (topics, partitions, groups, resources; of all arrays) of a request."
        " One with more ends its connection: in memory an element of a few bytes takes a hundred.",
        _MEDIUM, at_least(1000),
    ),
    ConfigDef(
        "socket.listen.backlog.size", _INT, 50,
        "How many connections may wait to be accepted.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "connections.max.idle.ms", _LONG, 600_000,
        "A connection that has been silent for this long is closed.", _MEDIUM, at_least(-1),
    ),
    ConfigDef(
        "max.connections", _INT, MAX_INT,
        "How many connections the broker holds at once.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "max.connections.per.ip", _INT, MAX_INT,
        "How many connections one client address may hold at once.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "max.connections.per.ip.overrides", _STRING, "",
        "Other limits than max.connections.per.ip for some addresses: address:number,...",
        _MEDIUM, matching(r"(\S+:\d+(,|$))*", "host:count,host:count and so on"), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "max.connection.creation.rate", _INT, MAX_INT,
        "How many connections a second are accepted; more have to wait.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "controller.quota.window.num", _INT, 11,
        "How many windows' changes of partitions a client may make at once.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "controller.quota.window.size.seconds", _INT, 1,
        "How long each window of changes of partitions is.", _LOW, at_least(1),
    ),
    ConfigDef(
        "quota.window.num", _INT, 11,
        "How many samples a client's rate is measured over.", _LOW, at_least(1),
    ),
    ConfigDef(
        "quota.window.size.seconds", _INT, 1,
        "How long each sample of a client's rate is.", _LOW, at_least(1),
    ),
    ConfigDef(
        "telemetry.max.bytes", _INT, 1_048_576,
        "The most bytes of metrics that a client may push at once.", _LOW, at_least(1),
    ),
    ConfigDef(
        "kstore.slow.loop.ms", _INT, 50,
        "What holds the event loop for so long is told in the log, with its name; time in which it"
        " waited for a core does not count. 0 or -1: nothing is told, but metrics count it.",
        _LOW, at_least(-1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.logging.format", _STRING, "text",
        "The form of the broker's log: text (a line for each event; lines of a traceback begin with"
        " '  | ') or json (a JSON object for each event, traceback included).",
        _LOW, one_of("text", "json"),
    ),
    ConfigDef(
        "kstore.request.log.rate", _DOUBLE, 0.0,
        "How many of all requests are written to the log, from 0 (none) to 1 (all), chosen by"
        " chance: API, client and the parts of the time it took, at most 500 a second. The logger"
        " is kstore.request.",
        _LOW, between(0, 1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.request.log.apis", _LIST, (),
        "The APIs whose requests kstore.request.log.rate writes, by Kafka's names: Produce,Fetch"
        " and so on. Empty: all.",
        _LOW, None, (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.request.log.clients", _LIST, (),
        "The client ids whose requests kstore.request.log.rate writes. Empty: all.",
        _LOW, None, (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.slow.request.ms", _INT, -1,
        "A request that takes this long is written to the log as a warning, with the parts of its"
        " time. The time for which a Fetch, JoinGroup or SyncGroup waits for others does not count."
        " 0 or -1: none is. The logger is kstore.request.slow.",
        _LOW, at_least(-1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.trace.rate", _DOUBLE, 0.0,
        "How many of all requests become OpenTelemetry traces, from 0 (none) to 1 (all), chosen by"
        " chance. Needs the extra kstore[otel].",
        _LOW, between(0, 1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.trace.endpoint", _STRING, None,
        "Where traces are sent to by OTLP over HTTP: http://collector:4318/v1/traces. By default"
        " where OpenTelemetry's own environment variables say, else http://localhost:4318.",
        _LOW,
    ),
    ConfigDef(
        "kstore.long.holds.file", _STRING, None,
        "Where a line is added for each time that something held the event loop for a second or"
        " more; for tests, which then fail.",
        _LOW,
    ),
    ConfigDef(
        "kstore.metrics.listener", _STRING, None,
        "Where metrics are told in Prometheus's form: http://127.0.0.1:PORT, a loopback address;"
        " by default nowhere.",
        _LOW,
    ),
    ConfigDef(
        "kstore.metrics.max.partitions", _INT, 1000,
        "How many partitions /metrics names, and how many topics, groups and partitions of groups;"
        " what is above that is in one sum.",
        _LOW, at_least(0),
    ),
    ConfigDef(
        "kstore.http.listener", _STRING, None,
        "Where health, metrics, the cluster, topics and injected faults are told over HTTP:"
        " http://127.0.0.1:PORT, port 0 for a free one; by default nowhere.",
        _LOW,
    ),
    ConfigDef(
        "kstore.http.token", ConfigType.PASSWORD, None,
        "What a client of kstore.http.listener has to send, as Authorization: Bearer TOKEN; needed"
        " where that is no loopback address.",
        _LOW,
    ),
    ConfigDef(
        "kstore.http.principal", _STRING, "User:ANONYMOUS",
        "Whose rights requests to kstore.http.listener and kstore.metrics.listener have, where"
        " there is an authorizer.",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.enable", _BOOLEAN, True,
        "Whether kstore.http.listener serves the web console, at /. It is a process of its own that"
        " the first request starts; it needs kstore[console].",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.read.only", _BOOLEAN, False,
        "Whether the web console shows the cluster and changes nothing.", _LOW,
    ),
    ConfigDef(
        "kstore.console.listener.name", _STRING, None,
        "The listener that the web console connects to; by default one with SASL, else the first"
        " without TLS. With SASL, users log in with their user and password.",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.client.config", _STRING, None,
        "A properties file with client settings for the web console's connections, such as"
        " ssl.truststore.location.",
        _LOW,
    ),
    ConfigDef(
        "kstore.console.schema.registry", _STRING, None,
        "The URL of a schema registry, for Avro in the web console.", _LOW,
    ),
    ConfigDef(
        "kstore.fault.injection.enable", _BOOLEAN, False,
        "Whether faults may be injected over HTTP; for tests alone.", _LOW,
    ),
    ConfigDef(
        "kstore.stop.with.stdin", _BOOLEAN, False,
        "Stop when standard input ends: for a broker that is not to outlive who started it.",
        _LOW,
    ),
    ConfigDef(
        "queued.max.request.bytes", _LONG, -1,
        "How many bytes of requests may wait in memory before reading stops; -1 for no shared "
        "limit.",
        _MEDIUM, at_least(-1),
    ),
    ConfigDef(
        "kstore.flush.policy", _STRING, "os",
        "When a write counts as done: os (in the page cache, as in Kafka), interval (forced to "
        "disk now and then), always (acknowledged and seen only once it is on disk; concurrent "
        "writes share one flush).",
        _HIGH, one_of("os", "interval", "always"),
    ),
    ConfigDef(
        "kstore.log.write.back.bytes", _LONG, -1,
        "How many bytes of one log dir may be written and not on the disk before large writes "
        "there wait. With some of that (at most 128 MiB) the system is made to write, so that it "
        "never throttles small ones. -1: by the machine's memory, 0: the system alone decides.",
        _LOW, at_least(-1), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.append.threads", _STRING, "auto",
        "Which appends are left to a log directory's threads: auto (those that may have to wait "
        "for the disk, and with several log.dirs all), always (all). A thread costs a small append "
        "about 50 microseconds.",
        _LOW, one_of("auto", "always"),
    ),
    ConfigDef(
        "kstore.log.dir.probe.ms", _INT, 100,
        "How often a log directory's disk is asked whether it still answers, by a write of 4 KB, "
        "while small appends there need no thread. One that has owed the answer for as long gets "
        "no append but by threads until it answers. 0: never.",
        _LOW, at_least(0), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.commit.require.assignment", _BOOLEAN, False,
        "Whether members of consumer and streams groups may commit only partitions that are theirs,"
        " also in their present epoch; Kafka looks at that in earlier epochs only (KAFKA-19779).",
        _LOW,
    ),
    ConfigDef(
        "kstore.check.invariants", _BOOLEAN, False,
        "Check after each step what must hold of groups; for tests, since it takes time.",
        _LOW,
    ),
    ConfigDef(
        "kstore.flush.interval.ms", _INT, 1000,
        "How often data is forced to disk under the flush policy interval.", _MEDIUM, at_least(1),
    ),
)  # fmt: skip

_TOPICS = (
    ConfigDef(
        "auto.create.topics.enable", _BOOLEAN, True,
        "Create a topic when a client first asks for it and allows that.", _HIGH,
    ),
    ConfigDef(
        "delete.topic.enable", _BOOLEAN, True, "Whether topics may be deleted.", _HIGH
    ),
    ConfigDef(
        "num.partitions", _INT, 1,
        "How many partitions a topic gets when nobody says.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "default.replication.factor", _INT, 1,
        "How many replicas a topic gets when nobody says.", _MEDIUM, at_least(1),
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
        "How long the cleaner rests when there is nothing to clean.", _MEDIUM, at_least(0),
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.cleaner.io.max.bytes.per.second", _DOUBLE, MAX_DOUBLE,
        "How much the cleaner reads and writes per second, on average.", _MEDIUM, None,
        (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "fetch.max.bytes", _INT, 55 * 2**20,
        "The most that one fetch is answered with.", _MEDIUM, at_least(1024),
    ),
    ConfigDef(
        "max.request.partition.size.limit", _INT, 2000,
        "How many partitions one DescribeTopicPartitions request is told of.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "max.incremental.fetch.session.cache.slots", _INT, 1000,
        "How many fetch sessions are kept. Principals share them: one below its share takes one "
        "from the principal that has most. Consumers' sessions have 250 partitions for each "
        "slot, all together, and 50000 each.", _MEDIUM, at_least(0),
    ),
)  # fmt: skip


def _topic_defaults() -> Iterator[ConfigDef]:
    """Make the broker rows that set the topic configs' defaults.

    Where one default has several units (retention in ms, minutes and hours), the coarsest carries
    the default and the finer ones, which win when given, are unset. The finest can be changed while
    the broker runs.
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
    """The setting that ``listener.name.NAME.REST`` sets for one listener, and maybe for one
    mechanism of it, given REST; None if there is none.
    """
    for prefix in MECHANISM_PREFIXES:
        if name.startswith(prefix):
            base = name.removeprefix(prefix)
            return base if base in PER_MECHANISM else None
    return name if name in _PER_LISTENER or name in PER_MECHANISM else None
