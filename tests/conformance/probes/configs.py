"""Probes of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources: topics,
brokers, groups, client metrics and loggers.

Cases run beside others, so only broker configs that no other case reads are changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstore._fast.record.builder import build_batch
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask
from tests.record_requests import produce_request

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Ops = tuple[tuple[str, int, str | None], ...]


def _resource(kind: int, name: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, **fields}]


def describe(kind: int, name: str, *keys: str, synonyms: bool = True) -> Any:
    """A request for some settings of one resource; for all if none is named."""
    resources = _resource(kind, name, configuration_keys=list(keys) or None)
    return Ask.DescribeConfigs(resources=resources, include_synonyms=synonyms)


def alter(kind: int, name: str, *ops: tuple[str, int, str | None], dry: bool = False) -> Any:
    """A request to change some settings of one resource."""
    rows = [{"name": key, "config_operation": how, "value": value} for key, how, value in ops]
    resources = _resource(kind, name, configs=rows)
    return Ask.IncrementalAlterConfigs(resources=resources, validate_only=dry)


def replace(kind: int, name: str, *pairs: tuple[str, str | None], dry: bool = False) -> Any:
    """A request to replace all settings of one resource."""
    rows = [{"name": key, "value": value} for key, value in pairs]
    return Ask.AlterConfigs(resources=_resource(kind, name, configs=rows), validate_only=dry)


def shows(**values: str | None) -> Callable[[Any], bool]:
    """Whether a description has these values; Kafka applies a change after its response."""

    def check(answer: Any) -> bool:
        found = {row.name: row.value for row in answer.results[0].configs}
        return all(found.get(name.replace("_", ".")) == value for name, value in values.items())

    return check


# kstore's valid value may differ from Kafka's: these are not compared.
_OTHER_BY_DESIGN = {
    "advertised.listeners", "controller.quorum.voters", "listener.security.protocol.map",
    "listeners", "log.dir", "log.dirs", "process.roles", "controller.listener.names",
    "inter.broker.protocol.version",  # Kafka had it until 4.0
}  # fmt: skip


@case("DescribeConfigs, all of a topic", 32)
def _all_of_a_topic(peer: Peer, version: int) -> Story:
    name = f"probe-all-configs-{version}"
    yield create(name)
    yield describe(TOPIC, name)
    yield describe(TOPIC, name, synonyms=False)
    yield describe(TOPIC, name, "retention.ms", "no.such.config")
    both = [describe(TOPIC, name, "retention.ms"), describe(TOPIC, name)]
    yield Ask.DescribeConfigs(resources=[request.resources[0] for request in both])


@case("DescribeConfigs, all of the broker", 32, every_version=False)
def _all_of_the_broker(peer: Peer, version: int) -> Story:
    answer = yield Step(describe(BROKER, "1"), compare=False)
    names = sorted(
        row.name for row in answer.results[0].configs
        if row.name not in _OTHER_BY_DESIGN and not row.name.startswith(("kstore.", "zookeeper."))
    )  # fmt: skip
    # The list of names is compared by requesting each, including missing ones.
    for first in range(0, len(names), 40):
        yield describe(BROKER, "1", *names[first : first + 40])
    yield describe(BROKER, "")


@case("DescribeConfigs, other resources", 32)
def _others_described(peer: Peer, version: int) -> Story:
    for kind, name in (
        (GROUP, "probe-no-group"), (GROUP, ""), (METRICS, "probe-no-subscription"), (METRICS, ""),
        (BROKER, "2"), (BROKER, "abc"), (BROKER, "-1"), (LOGGER, ""), (LOGGER, "3"), (LOGGER, "x"),
        (7, "x"), (0, ""), (1, ""), (99, ""), (TOPIC, ""), (TOPIC, "a b"),
        (TOPIC, "absent"),
    ):  # fmt: skip
        yield describe(kind, name, "root")
    yield describe(GROUP, "probe-no-group")
    yield describe(METRICS, "probe-no-subscription")


_TOPIC_CHANGES: tuple[Ops, ...] = (
    (("retention.ms", SET, " 5000 "),),
    (("min.cleanable.dirty.ratio", SET, "0.50"), ("cleanup.policy", SET, "delete, compact")),
    (("retention.ms", SET, "abc"),), (("retention.ms", SET, "-5"),),
    (("no.such.config", SET, "1"),), (("no.such.config", DELETE, None),),
    (("retention.ms", SET, None),), (("retention.ms", SET, ""),),
    (("retention.ms", APPEND, "1"),), (("no.such.config", APPEND, "1"),),
    (("cleanup.policy", SUBTRACT, "delete"),), (("cleanup.policy", APPEND, "bad"),),
    (("cleanup.policy", APPEND, None),), (("cleanup.policy", SET, ""),),
    (("cleanup.policy", APPEND, "compact,delete"),), (("cleanup.policy", SUBTRACT, "compact"),),
    (("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
    (), (("segment.bytes", SET, "100"),), (("segment.bytes", SET, "99999999999"),),
    (("internal.segment.bytes", SET, "2097152"),),
    (("remote.storage.enable", SET, "true"),), (("remote.storage.enable", SET, "false"),),
    (("remote.log.copy.disable", SET, "true"),), (("remote.log.delete.on.disable", SET, "true"),),
    (("local.retention.ms", SET, "5"),), (("local.retention.bytes", SET, "-3"),),
    (("message.format.version", SET, "2.8"),),
    (("message.timestamp.difference.max.ms", SET, "2"),),
    (("message.downconversion.enable", SET, "true"),),
    (("leader.replication.throttled.replicas", SET, "0:1,1:1"),),
    (("follower.replication.throttled.replicas", SET, "x"),),
    (("follower.replication.throttled.replicas", SET, "*"),),
    (("compression.type", SET, "GZIP"),), (("compression.type", SET, "lz4"),),
    (("compression.gzip.level", SET, "0"),), (("compression.gzip.level", SET, "-1"),),
    (("compression.lz4.level", SET, "18"),), (("compression.zstd.level", SET, "22"),),
    (("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "50")),
    (("preallocate", SET, "yes"),), (("preallocate", SET, "TRUE"),),
    (("min.insync.replicas", SET, "0"),), (("min.insync.replicas", SET, "1"),),
    (("message.timestamp.type", SET, "logappendtime"),), (("segment.jitter.ms", SET, "7"),),
    (("unclean.leader.election.enable", SET, "true"),), (("flush.ms", SET, "1000"),),
)  # fmt: skip


# How values are written is decided by Java's parsers.
_SPELLINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cleanup.policy", ("delete,delete", "delete,,compact", ",", " ", "Delete", "none")),
    ("retention.ms", ("+5", "0x10", "1e3", "05", "-0", "9223372036854775808", "1 000", "1_000",
                      "\u0661", "5L", "-1")),
    ("min.cleanable.dirty.ratio", ("NaN", "Infinity", "1d", ".5", "1e-1", "1.", "0x1p-1", "-0.0",
                                   "1.0000001", "0.30000000000000004", "1e-5", "0.00001")),
    ("preallocate", (" true ", "True", "1", "on", "FALSE")),
    ("message.timestamp.type", ("createtime", " CreateTime ", "LogAppendTime")),
    ("compression.type", ("none", " gzip ", "producer")),
    ("leader.replication.throttled.replicas", ("*,*", "1:2, 3:4", "*:1", "1:*", "1:2:3", "a:b",
                                               "-1:1", "1:2,1:2", " * ", "")),
    ("index.interval.bytes", ("2147483648", "2147483647", "-1", "")),
)  # fmt: skip


@case("IncrementalAlterConfigs, spellings", 44, 1)
def _spelled(peer: Peer, version: int) -> Story:
    name = f"probe-spelled-configs-{version}"
    yield create(name)
    for key, values in _SPELLINGS:
        for number, value in enumerate(values):
            yield alter(TOPIC, name, (key, SET, value))
            # A marker change after it shows when Kafka's broker has applied the change.
            mark = str(number + 1)
            yield alter(TOPIC, name, ("flush.messages", SET, mark))
            yield Step(
                describe(TOPIC, name, key, "flush.messages"), until=shows(flush_messages=mark)
            )


@case("IncrementalAlterConfigs, topics", 44)
def _topics_changed(peer: Peer, version: int) -> Story:
    name = f"probe-alter-configs-{version}"
    yield create(name, 1)
    for ops in _TOPIC_CHANGES:
        yield alter(TOPIC, name, *ops, dry=True)
        yield alter(TOPIC, name, *ops)
    # The total result is compared once Kafka's broker has applied the last change.
    yield Step(describe(TOPIC, name), until=shows(flush_ms="1000"))
    for other in ("probe-absent", "bad name", "", "..", "__consumer_offsets"):
        yield alter(TOPIC, other, ("retention.ms", SET, "x"))
    request = alter(TOPIC, name, ("retention.ms", SET, "1"))
    request.resources.append(request.resources[0])
    yield request


_BROKER_CHANGES: tuple[tuple[str, Ops], ...] = (
    ("1", (("num.io.threads", SET, "9"),)), ("1", (("num.io.threads", SET, "0"),)),
    ("1", (("num.io.threads", SET, "100"),)), ("1", (("num.io.threads", SET, "x"),)),
    ("", (("num.io.threads", SET, "7"),)), ("", (("num.network.threads", SET, "x"),)),
    ("1", (("node.id", SET, "3"),)), ("1", (("node.id", DELETE, None),)),
    ("1", (("log.dirs", SET, "/x"),)), ("1", (("log.retention.hours", SET, "12"),)),
    ("2", (("num.io.threads", SET, "9"),)), ("x", (("num.io.threads", SET, "9"),)),
    ("1", (("no.such.config", DELETE, None),)), ("1", (("min.insync.replicas", SET, "2"),)),
    ("1", (("min.insync.replicas", DELETE, None),)), ("", (("min.insync.replicas", DELETE, None),)),
    ("", (("min.insync.replicas", SET, "1"),)), ("1", (("message.max.bytes", SET, "xx"),)),
    ("1", (("log.cleaner.threads", SET, "3"),)), ("", (("listeners", SET, "PLAINTEXT://:1"),)),
    ("", (("ssl.keystore.location", SET, "/x"),)), ("1", (("ssl.keystore.password", SET, "x"),)),
    ("1", (("advertised.listeners", SET, "PLAINTEXT://localhost:2"),)),
    ("", (("follower.replication.throttled.rate", SET, "x"),)),
    ("1", (("background.threads", SET, None),)), ("1", (("background.threads", APPEND, "1"),)),
    ("1", (("background.threads", SET, "9"), ("background.threads", SET, "8"))),
    ("1", (("max.connections.per.ip.overrides", SET, "zz"),)), ("1", ()), ("", ()),
)  # fmt: skip


@case("IncrementalAlterConfigs, brokers", 44, 1)
def _brokers_changed(peer: Peer, version: int) -> Story:
    for name, ops in _BROKER_CHANGES:
        yield alter(BROKER, name, *ops, dry=True)
        yield alter(BROKER, name, *ops)
    yield Step(describe(BROKER, "1", "num.io.threads"), until=shows(num_io_threads="9"))
    yield Step(describe(BROKER, "", "num.io.threads"), until=shows(num_io_threads="7"))
    yield alter(BROKER, "1", ("num.io.threads", DELETE, None))
    yield Step(describe(BROKER, "1", "num.io.threads"), until=shows(num_io_threads="7"))
    yield alter(BROKER, "", ("num.io.threads", DELETE, None))
    yield Step(describe(BROKER, "1", "num.io.threads"), until=shows(num_io_threads="8"))
    rate = "leader.replication.throttled.rate"
    yield alter(BROKER, "1", (rate, SET, "1000"), ("probe.plugin.secret", SET, "x"))
    yield Step(
        describe(BROKER, "1", rate, "probe.plugin.secret"),
        until=lambda answer: len(answer.results[0].configs) == 2,
    )
    yield alter(BROKER, "1", (rate, DELETE, None), ("probe.plugin.secret", DELETE, None))
    yield Step(
        describe(BROKER, "1", rate, "probe.plugin.secret"),
        until=lambda answer: not answer.results[0].configs,
    )


_GROUP_CHANGES: tuple[tuple[str, str | None], ...] = (
    ("consumer.session.timeout.ms", "50000"), ("consumer.session.timeout.ms", "1"),
    ("consumer.session.timeout.ms", "70000"), ("consumer.session.timeout.ms", "x"),
    ("consumer.heartbeat.interval.ms", "1"), ("consumer.heartbeat.interval.ms", "99999"),
    ("consumer.assignment.interval.ms", "99999"), ("streams.num.standby.replicas", "9"),
    ("streams.num.standby.replicas", "2"), ("streams.initial.rebalance.delay.ms", "9"),
    ("streams.session.timeout.ms", "1"), ("streams.heartbeat.interval.ms", "1"),
    ("share.auto.offset.reset", "earliest"), ("share.auto.offset.reset", "by_duration:PT1H"),
    ("share.auto.offset.reset", "x"), ("share.record.lock.duration.ms", "1"),
    ("share.record.lock.duration.ms", "1000"), ("share.delivery.count.limit", "100"),
    ("share.isolation.level", "serializable"), ("share.session.timeout.ms", "1"),
    ("share.renew.acknowledge.enable", "maybe"), ("no.such.config", "1"),
    ("consumer.session.timeout.ms", None),
)  # fmt: skip


@case("IncrementalAlterConfigs, groups", 44)
def _groups_changed(peer: Peer, version: int) -> Story:
    name = f"probe/configs of a group {version}%"
    for key, value in _GROUP_CHANGES:
        yield alter(GROUP, name, (key, SET, value))
    yield alter(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    yield alter(GROUP, name, ("consumer.session.timeout.ms", APPEND, "50000"))
    yield alter(GROUP, f"{name}-dry", ("consumer.session.timeout.ms", SET, "50000"), dry=True)
    reset = "by_duration:PT1H"
    yield Step(describe(GROUP, name), until=shows(share_auto_offset_reset=reset))
    yield alter(GROUP, name, ("consumer.session.timeout.ms", DELETE, None))
    yield Step(describe(GROUP, name), until=shows(consumer_session_timeout_ms="45000"))


_METRICS_CHANGES: tuple[Ops, ...] = (
    (("interval.ms", SET, "1"),), (("interval.ms", SET, "99999999"),), (("interval.ms", SET, "x"),),
    (("match", SET, "nope=1"),), (("match", SET, "client_id=["),), (("match", SET, "client_id"),),
    (("match", SET, "client_id=a=b"),), (("match", SET, ""),), (("metrics", APPEND, "c"),),
    (("metrics", SET, ""),), (("no.such.config", SET, "c"),), (("interval.ms", SET, None),),
    (("interval.ms", SET, "1000"), ("metrics", SET, "a,b"),
     ("match", SET, "client_id=.*,client_software_name=x")),
)  # fmt: skip


@case("IncrementalAlterConfigs, client metrics", 44)
def _client_metrics_changed(peer: Peer, version: int) -> Story:
    name = f"probe-metrics-{version}"
    for ops in _METRICS_CHANGES:
        yield alter(METRICS, name, *ops)
    yield alter(METRICS, "", ("interval.ms", SET, "1000"))
    yield Step(describe(METRICS, name), until=shows(metrics="a,b"))
    keys = ("interval.ms", "metrics", "match")
    yield alter(METRICS, name, *((key, DELETE, None) for key in keys))
    yield Step(describe(METRICS, name), until=shows(metrics=""))


@case("IncrementalAlterConfigs, loggers", 44, 1)
def _loggers_changed(peer: Peer, version: int) -> Story:
    for name, operation, value in (
        ("no.such.logger", SET, "DEBUG"), ("root", SET, "BAD"), ("root", SET, "OFF"),
        ("root", SET, "debug"), ("root", SET, None), ("no.such.logger", DELETE, None),
        ("root", DELETE, None), ("root", APPEND, "INFO"), ("root", SUBTRACT, "INFO"),
    ):  # fmt: skip
        yield alter(LOGGER, "1", (name, operation, value))
    for node in ("", "2", "x"):
        yield alter(LOGGER, node, ("root", SET, "INFO"))
    yield alter(LOGGER, "1", ("root", SET, "WARN"), ("root", SET, "INFO"))
    yield alter(LOGGER, "1", ("root", SET, "FATAL"), dry=True)
    for level in ("TRACE", "FATAL", "WARN", "ERROR"):
        yield alter(LOGGER, "1", ("root", SET, level))
        yield describe(LOGGER, "1", "root")
    for kind in (0, 7, 99):
        yield alter(kind, "1", ("root", SET, "INFO"))


@case("AlterConfigs", 33)
def _replaced(peer: Peer, version: int) -> Story:
    topic, group, metrics = (f"probe-replaced-{kind}-{version}" for kind in "tgm")
    yield create(topic, 1, cleanup_policy="compact", flush_ms="5")
    for pairs in (
        (("retention.ms", None),), (("retention.ms", "x"),), (("no.such.config", "x"),),
        (("retention.ms", "1"), ("retention.ms", "2")), (("retention.ms", "77"),),
    ):  # fmt: skip
        yield replace(TOPIC, topic, *pairs)
    yield Step(describe(TOPIC, topic), until=shows(retention_ms="77"))
    yield replace(TOPIC, topic, dry=True)
    yield replace(TOPIC, topic)
    yield Step(describe(TOPIC, topic), until=shows(retention_ms="604800000"))
    for name in ("probe-absent", "", "bad name"):
        yield replace(TOPIC, name, ("retention.ms", "1"))
    for name, key in (
        ("1", "node.id"), ("", "num.io.threads"), ("3", "num.io.threads"), ("x", "num.io.threads"),
    ):  # fmt: skip
        yield replace(BROKER, name, (key, "6"), dry=True)
    yield replace(GROUP, group, ("consumer.session.timeout.ms", "55000"))
    yield Step(describe(GROUP, group), until=shows(consumer_session_timeout_ms="55000"))
    yield replace(METRICS, metrics, ("interval.ms", "2000"))
    yield Step(describe(METRICS, metrics), until=shows(interval_ms="2000"))
    yield replace(METRICS, metrics)
    for kind in (LOGGER, 0, 7, 99):
        yield replace(kind, "1", ("root", "INFO"))


@case("Produce with too few in-sync replicas of the configs", 0, 3)
def _too_few_in_sync(peer: Peer, version: int) -> Story:
    name = f"probe-min-insync-{version}"
    yield create(name, 1, min_insync_replicas="2")
    named = peer.topic_id(name) if version >= 13 else name
    for acks in (-1, 1):
        yield produce_request(named, build_batch([b"x"]), acks=acks, timeout_ms=5000)


@case("ListConfigResources", 74)
def _listed(peer: Peer, version: int) -> Story:
    """Resources that other cases create meanwhile would be listed too: use only types that they do
    not create.
    """
    for asked in ([8], [4], [8, 4], [0], [1], [99], [4, 99]) if version else ():
        yield Ask.ListConfigResources(resource_types=asked)
