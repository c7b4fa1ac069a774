"""The broker configs that make a broker one of a cluster, and say how it behaves in it.

One part of the table in broker_configs.py, apart from it because tables are long.
"""

from __future__ import annotations

from kstore.config.definition import (
    ConfigDef,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    between,
    between_or,
    one_of,
)

__all__ = ["CLUSTER_CONFIGS"]

PROTOCOL_VERSIONS = ("4.2", "4.3")

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING = ConfigType.STRING
_CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

CLUSTER_CONFIGS = (
    ConfigDef(
        "zookeeper.connect", _STRING, None,
        "The ZooKeeper ensemble that holds the metadata, host:port,host:port/chroot; by default it"
        " is kept in the first log dir, with no server to install.",
        _HIGH,
    ),
    ConfigDef(
        "zookeeper.session.timeout.ms", _INT, 18_000,
        "How long ZooKeeper keeps this broker registered when it does not show up.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "zookeeper.connection.timeout.ms", _INT, 18_000,
        "How long to wait for a ZooKeeper server at start.", _HIGH, at_least(1),
    ),
    ConfigDef(
        "kstore.zookeeper.refusal.ends.session", _BOOLEAN, True,
        "Whether a broker whose connections break and whose port then refuses others counts as"
        " ended at once, and not when ZooKeeper ends its session. false where a firewall or a proxy"
        " between brokers may refuse connections to one that lives.",
        _MEDIUM,
    ),
    ConfigDef(
        "kstore.metadata.leader.wait.ms", _INT, 1000,
        "How long a Metadata, DescribeTopicPartitions, Produce or Fetch request is held at most"
        " that asks for a partition whose leader was just lost, until another one is elected: a"
        " client that is told of none asks again only after its own pause. It counts from when this"
        " broker has missed the leader; 0: nothing is held.",
        _MEDIUM, between(0, 10_000), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.coordination.dir", _STRING, None,
        "The folder that holds the metadata of a cluster whose brokers share one machine, the same"
        " for all of them; with neither it nor zookeeper.connect, a broker is alone.",
        _HIGH,
    ),
    ConfigDef(
        "kstore.coordination.session.timeout.ms", _INT, 9000,
        "How long a broker that stands still keeps its place in kstore.coordination.dir; one that"
        " ends loses it at once.",
        _MEDIUM, at_least(100),
    ),
    ConfigDef(
        "kstore.coordination.stall.timeout.ms", _INT, 0,
        "How long a broker that a signal (SIGSTOP) or a debugger has stopped keeps its place in"
        " kstore.coordination.dir; 0: as long as one that stands still for another reason. All"
        " brokers have to be in one PID namespace.",
        _LOW, between_or(100, 2**31 - 1, 0),
    ),
    ConfigDef(
        "kstore.expansion.timeout.ms", _INT, 10_000,
        "How long a topic may take to get more partitions, and producers that send their number"
        " (KIP-253) may be refused meanwhile. If a leader that nobody can replace does not answer"
        " the controller by then, the topic keeps the partitions that it has.",
        _MEDIUM, between(100, 600_000), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "inter.broker.listener.name", _STRING, None,
        "The listener on which brokers reach each other; by default the first of"
        " advertised.listeners.",
        _MEDIUM,
    ),
    ConfigDef(
        "inter.broker.protocol.version", _STRING, PROTOCOL_VERSIONS[-1],
        "What brokers say to each other: 4.2 is without partition epochs (KIP-232) and partition"
        " counts (KIP-253). To migrate a running cluster, restart its brokers one by one with new"
        " code and 4.2, then one by one with 4.3.",
        _MEDIUM, one_of(*PROTOCOL_VERSIONS),
    ),
    ConfigDef(
        "replica.fetch.wait.max.ms", _INT, 500,
        "How long a leader may keep a follower waiting for records.", _HIGH,
    ),
    ConfigDef(
        "replica.fetch.min.bytes", _INT, 1,
        "How many bytes a follower waits for.", _HIGH,
    ),
    ConfigDef(
        "replica.fetch.max.bytes", _INT, 1_048_576,
        "How many bytes of one partition a follower asks for at once.", _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "replica.fetch.response.max.bytes", _INT, 10_485_760,
        "How many bytes a follower asks one leader for at once.", _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "replica.fetch.backoff.ms", _INT, 1000,
        "The longest pause before a follower asks again for a partition that its leader refused;"
        " the first ones are shorter.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "replica.socket.timeout.ms", _INT, 30_000,
        "How long a follower waits for its leader's answer before it connects anew.", _HIGH,
    ),
    ConfigDef(
        "replication.quota.window.num", _INT, 11,
        "How many samples the rates of throttled replication are measured over.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "replication.quota.window.size.seconds", _INT, 1,
        "How long each sample of the rates of throttled replication is.", _LOW, at_least(1),
    ),
    ConfigDef(
        "controlled.shutdown.enable", _BOOLEAN, True,
        "Whether a broker that is told to stop first has its leaderships moved to others.",
        _MEDIUM,
    ),
    ConfigDef(
        "auto.leader.rebalance.enable", _BOOLEAN, True,
        "Whether the controller hands leaderships back to the first replica from time to time.",
        _HIGH,
    ),
    ConfigDef(
        "leader.imbalance.check.interval.seconds", _LONG, 300,
        "How often the controller looks for leaderships to hand back.", _HIGH, at_least(1),
    ),
    ConfigDef(
        "replica.lag.time.max.ms", _LONG, 30_000,
        "A follower that has not caught up with its leader for so long is no longer in sync.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "replica.selector.class", _STRING, None,
        "org.apache.kafka.common.replica.RackAwareReplicaSelector sends a consumer that names its"
        " rack to a replica there; by default all read from the leader.",
        _MEDIUM,
        one_of(
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    ),
)  # fmt: skip
