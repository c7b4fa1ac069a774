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
        "DescribeQuorum shows the controller as the only voter. Voters cannot be changed. "
        "`kraft.version` can be raised to 1, as `kafka-features upgrade --release-version` does, "
        "without effect.",
        "There is no quorum.",
    ),
    Difference(
        "Eligible leader replicas (KIP-966) and replicas in the ISR",
        "The first in the order of the replicas leads, if it is in either.",
        "A replica in the ISR leads if one is alive, then an eligible one.",
        "Replicas in the ISR also have what is not committed yet.",
    ),
    Difference(
        "Eligible leader replicas after `min.insync.replicas` was lowered",
        "Any change of the setting ends their eligibility.",
        "They are not eligible any more, except while the ISR is empty. If it was raised, they "
        "stay eligible.",
        "A leader can learn the setting before the controller, and commit records that they do "
        "not have.",
    ),
    Difference(
        "`eligible.leader.replicas.version=1` in a cluster with older brokers",
        "The feature cannot be raised before all brokers have it.",
        "No replica becomes eligible while a broker of a version without this feature is alive.",
        "A broker of an earlier version also reports level 1, but would ignore these replicas if "
        "it became the controller.",
    ),
    Difference(
        "`min.insync.replicas` at level 0 of `eligible.leader.replicas.version`",
        "Can be set for one broker, and deleted for the cluster.",
        "Refused, as at level 1.",
        "Brokers of a cluster must agree on it before level 1 returns.",
    ),
    Difference(
        "The last leader of a partition without a leader, from a store of an older version",
        "Does not occur.",
        "All replicas of the old ISR are last known leaders.",
        "The older version did not store which of them led.",
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
