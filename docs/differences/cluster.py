"""Differences between a cluster of kstore brokers and a KRaft cluster."""

from __future__ import annotations

from docs.differences.table import Difference

__all__ = ["ROWS"]

ROWS = (
    Difference(
        "Where a cluster keeps its metadata",
        "In a KRaft quorum.",
        "In ZooKeeper, with the paths and the format of Kafka's ZooKeeper releases, or in a "
        "folder that the brokers of one machine share.",
        "A broker needs no other process, and KIP-232 and KIP-253 were written for ZooKeeper.",
    ),
    Difference(
        "DescribeQuorum, AddRaftVoter, RemoveRaftVoter, `kraft.version`",
        "Show and change the quorum.",
        "DescribeQuorum shows the controller as the only voter. Voters and `kraft.version` cannot "
        "be changed.",
        "There is no quorum.",
    ),
    Difference(
        "Eligible leader replicas (KIP-966), leader recovery state (KIP-704)",
        "Supported. A replica that has left an ISR below `min.insync.replicas` can still become "
        "leader without loss.",
        "Not supported. Only replicas in the ISR can become leader. The last replica stays in the "
        "ISR when it fails, and the partition waits for it. After an unclean election the new "
        "leader leads at once. DescribeTopicPartitions reports no eligible leader replicas.",
        "Not built yet: the partition state in the store has no field for them. The high "
        "watermark waits for `min.insync.replicas`, as in Kafka. While the ISR is at least that "
        "large, elections are the same as in Kafka.",
    ),
    Difference(
        "`ControllerId` in Metadata and DescribeCluster",
        "An arbitrary live broker.",
        "The broker that answers. It forwards requests that only the controller can carry out.",
        "librdkafka waits a long time for a dead controller. The broker that answers is alive.",
    ),
    Difference(
        "Metadata with automatic creation: the first response about a missing topic",
        "`UNKNOWN_TOPIC_OR_PARTITION`; a later response has the leaders.",
        "The response waits for the topic and has its leaders.",
        "The first record or fetch needs one fewer round trip.",
    ),
    Difference(
        "UnregisterBroker for a running broker",
        "Removes the broker from the metadata.",
        "Succeeds, and the broker registers itself again at once.",
        "A running broker is a part of the cluster.",
    ),
    Difference(
        "`listeners`, `listener.security.protocol.map` at run time",
        "Can be changed.",
        "Read-only, as DescribeConfigs says.",
        "Not built yet.",
    ),
    Difference(
        "`sasl.enabled.mechanisms` and `sasl.jaas.config` of a listener at run time",
        "Can be changed.",
        "Can be changed; the change applies to new connections.",
        "Open connections are already authenticated.",
    ),
)
