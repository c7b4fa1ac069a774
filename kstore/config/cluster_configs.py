"""The broker configs of brokers in a cluster.

A part of the table in broker_configs.py.
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
        "The ZooKeeper servers that store the metadata, as host:port,host:port/chroot. By default "
        "the metadata is in the first log dir, and no ZooKeeper is needed.",
        _HIGH,
    ),
    ConfigDef(
        "zookeeper.session.timeout.ms", _INT, 18_000,
        "ZooKeeper removes this broker's registration if it hears nothing from the broker for "
        "this long.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "zookeeper.connection.timeout.ms", _INT, 18_000,
        "How long the broker waits for a ZooKeeper server at startup.", _HIGH, at_least(1),
    ),
    ConfigDef(
        "kstore.zookeeper.refusal.ends.session", _BOOLEAN, True,
        "Whether a broker counts as dead as soon as its connections break and its port refuses "
        "new ones, instead of when its ZooKeeper session ends. Set it to false if a firewall or "
        "a proxy between brokers may refuse connections to a live broker.",
        _MEDIUM,
    ),
    ConfigDef(
        "kstore.metadata.leader.wait.ms", _INT, 1000,
        "How long a Metadata, DescribeTopicPartitions, Produce or Fetch request waits if it asks "
        "for a partition that has just lost its leader. The broker answers as soon as a new "
        "leader is elected. Without this, a client that learns that there is no leader asks again "
        "only after its own backoff. The time counts from when this broker noticed the loss. 0: "
        "requests do not wait.",
        _MEDIUM, between(0, 10_000), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "kstore.coordination.dir", _STRING, None,
        "The folder that stores the metadata of a cluster whose brokers run on one machine. It is "
        "the same for all of them. A broker without this and without zookeeper.connect runs alone.",
        _HIGH,
    ),
    ConfigDef(
        "kstore.coordination.session.timeout.ms", _INT, 9000,
        "How long a broker that hangs keeps its registration in kstore.coordination.dir. A "
        "broker that exits loses it at once.",
        _MEDIUM, at_least(100),
    ),
    ConfigDef(
        "kstore.coordination.stall.timeout.ms", _INT, 0,
        "How long a broker that was stopped by a signal (SIGSTOP) or a debugger keeps its "
        "registration in kstore.coordination.dir. 0: as long as a broker that hangs for another "
        "reason. All brokers must be in the same PID namespace.",
        _LOW, between_or(100, 2**31 - 1, 0),
    ),
    ConfigDef(
        "kstore.expansion.timeout.ms", _INT, 10_000,
        "The maximum time that an expansion takes. During an expansion, producers that send their "
        "partition count (KIP-253) can be refused. If a leader that cannot be replaced has not "
        "answered the controller by then, the topic keeps the partitions that it has.",
        _MEDIUM, between(100, 600_000), (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "inter.broker.listener.name", _STRING, None,
        "The listener through which brokers connect to each other; by default the first of "
        "advertised.listeners.",
        _MEDIUM,
    ),
    ConfigDef(
        "inter.broker.protocol.version", _STRING, PROTOCOL_VERSIONS[-1],
        "The version of the protocol between brokers. 4.2 has no partition epochs (KIP-232) and "
        "no partition counts (KIP-253). To migrate a running cluster, restart its brokers one by "
        "one with the new code and 4.2, then one by one with 4.3.",
        _MEDIUM, one_of(*PROTOCOL_VERSIONS),
    ),
    ConfigDef(
        "replica.fetch.wait.max.ms", _INT, 500,
        "How long a follower's Fetch waits for records at its leader.", _HIGH,
    ),
    ConfigDef(
        "replica.fetch.min.bytes", _INT, 1,
        "The minimum number of bytes that a follower's Fetch waits for.", _HIGH,
    ),
    ConfigDef(
        "replica.fetch.max.bytes", _INT, 1_048_576,
        "The maximum number of bytes of one partition that a follower fetches at once.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "replica.fetch.response.max.bytes", _INT, 10_485_760,
        "The maximum number of bytes that a follower fetches from one leader at once.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "replica.fetch.backoff.ms", _INT, 1000,
        "The maximum backoff before a follower asks again for a partition that its leader "
        "refused. The first backoffs are shorter.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "replica.socket.timeout.ms", _INT, 30_000,
        "How long a follower waits for its leader's response before it reconnects.", _HIGH,
    ),
    ConfigDef(
        "replication.quota.window.num", _INT, 11,
        "The number of samples over which throttled replication rates are measured.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "replication.quota.window.size.seconds", _INT, 1,
        "The length of each sample of throttled replication rates.", _LOW, at_least(1),
    ),
    ConfigDef(
        "controlled.shutdown.enable", _BOOLEAN, True,
        "Whether a broker that stops cleanly first moves its leaderships to other brokers.",
        _MEDIUM,
    ),
    ConfigDef(
        "auto.leader.rebalance.enable", _BOOLEAN, True,
        "Whether the controller regularly moves leadership back to the preferred replica.",
        _HIGH,
    ),
    ConfigDef(
        "leader.imbalance.check.interval.seconds", _LONG, 300,
        "How often the controller looks for leaderships to move back.", _HIGH, at_least(1),
    ),
    ConfigDef(
        "replica.lag.time.max.ms", _LONG, 30_000,
        "A follower that has not caught up with its leader for this long is removed from the "
        "in-sync replicas.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "replica.selector.class", _STRING, None,
        "org.apache.kafka.common.replica.RackAwareReplicaSelector: a consumer that sends its rack "
        "reads from a replica in that rack. By default all consumers read from the leader.",
        _MEDIUM,
        one_of(
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    ),
)  # fmt: skip
