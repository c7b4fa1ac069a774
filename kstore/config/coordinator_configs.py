"""The broker configs of the group, transaction and share coordinators, a part of the table in
broker_configs.py.

Settings of single groups (GROUP resources) are also in group_configs.py.
"""

from __future__ import annotations

from kstore.config.definition import (
    MAX_INT,
    ConfigDef,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    between,
    each_one_of,
    one_of,
)
from kstore.config.share_group_configs import SHARE_GROUP_CONFIGS

__all__ = ["COORDINATOR_CONFIGS"]

_BOOLEAN, _SHORT, _INT = ConfigType.BOOLEAN, ConfigType.SHORT, ConfigType.INT
_LONG, _STRING, _LIST = ConfigType.LONG, ConfigType.STRING, ConfigType.LIST
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

_OFFSETS = (
    ConfigDef(
        "offset.metadata.max.bytes", _INT, 4096,
        "The maximum size of the metadata that is stored with a committed offset.", _HIGH,
    ),
    ConfigDef(
        "offsets.commit.timeout.ms", _INT, 5000,
        "How long a change to a group may take to reach the followers. After that, the client "
        "gets a retriable error.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "offsets.retention.minutes", _INT, 10_080,
        "How long the offsets of an empty group are kept.", _HIGH, at_least(1),
    ),
    ConfigDef(
        "offsets.retention.check.interval.ms", _LONG, 600_000,
        "How often the broker checks for expired offsets.", _HIGH, at_least(1),
    ),
    ConfigDef(
        "offsets.topic.num.partitions", _INT, 50,
        "The number of partitions of __consumer_offsets. It cannot be changed after that topic "
        "has been created.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "offsets.topic.replication.factor", _SHORT, 1,
        "The replication factor of __consumer_offsets. If not set: 1 on a broker that runs "
        "alone; in a cluster 3, or the number of brokers if there are fewer.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "offsets.topic.segment.bytes", _INT, 100 * 2**20,
        "The segment size of __consumer_offsets; small, so that it is compacted and loaded "
        "quickly.",
        _HIGH, at_least(1),
    ),
)  # fmt: skip

_CLASSIC = (
    ConfigDef(
        "group.initial.rebalance.delay.ms", _INT, 3000,
        "How long the first rebalance of a new group waits for more members.", _MEDIUM,
    ),
    ConfigDef(
        "group.min.session.timeout.ms", _INT, 6000,
        "The minimum session timeout of a member.", _MEDIUM,
    ),
    ConfigDef(
        "group.max.session.timeout.ms", _INT, 1_800_000,
        "The maximum session timeout of a member.", _MEDIUM,
    ),
    ConfigDef(
        "group.max.size", _INT, MAX_INT,
        "The maximum number of members of a group.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.coordinator.rebalance.protocols", _LIST, ("classic", "consumer", "streams"),
        "The group protocols that the broker serves. The protocol of share groups is served if "
        "share.version is on.",
        _MEDIUM, each_one_of("consumer", "classic", "share", "streams"),
    ),
)  # fmt: skip


def _timeouts(kind: str, who: str) -> tuple[ConfigDef, ...]:
    """The session timeout and the heartbeat interval of one group protocol, with their limits."""
    prefix = f"group.{kind}."
    return (
        ConfigDef(
            f"{prefix}session.timeout.ms", _INT, 45_000,
            f"A member of {who} is removed if the coordinator hears nothing from it for this "
            "long.",
            _MEDIUM, at_least(1),
        ),
        ConfigDef(
            f"{prefix}min.session.timeout.ms", _INT, 45_000,
            f"The minimum session timeout of {who}.", _MEDIUM, at_least(1),
        ),
        ConfigDef(
            f"{prefix}max.session.timeout.ms", _INT, 60_000,
            f"The maximum session timeout of {who}.", _MEDIUM, at_least(1),
        ),
        ConfigDef(
            f"{prefix}heartbeat.interval.ms", _INT, 5_000,
            f"How often a member of {who} sends a heartbeat.", _MEDIUM, at_least(1),
        ),
        ConfigDef(
            f"{prefix}min.heartbeat.interval.ms", _INT, 5_000,
            f"The minimum heartbeat interval of {who}.", _MEDIUM, at_least(1),
        ),
        ConfigDef(
            f"{prefix}max.heartbeat.interval.ms", _INT, 15_000,
            f"The maximum heartbeat interval of {who}.", _MEDIUM, at_least(1),
        ),
        ConfigDef(
            f"{prefix}assignment.interval.ms", _INT, 1_000,
            f"The minimum time between two assignments of {who}.",
            _MEDIUM, at_least(0), (), _CLUSTER_WIDE,
        ),
        ConfigDef(
            f"{prefix}min.assignment.interval.ms", _INT, 0,
            f"The minimum assignment interval of {who}.", _MEDIUM, at_least(0),
        ),
        ConfigDef(
            f"{prefix}max.assignment.interval.ms", _INT, 15_000,
            f"The maximum assignment interval of {who}.", _MEDIUM, at_least(0),
        ),
        ConfigDef(
            f"{prefix}max.size", _INT, MAX_INT,
            f"The maximum number of members of {who}.", _MEDIUM, at_least(1),
        ),
    )  # fmt: skip


_CONSUMER = (
    *_timeouts("consumer", "a consumer group"),
    ConfigDef(
        "group.consumer.assignors", _LIST, ("uniform", "range"),
        "The server-side assignors of consumer groups. If members name none, the first one is "
        "used.",
        _MEDIUM,
    ),
    ConfigDef(
        "group.consumer.migration.policy", _STRING, "bidirectional",
        "In which direction a group with members can be converted between the classic protocol "
        "and the consumer protocol.",
        _MEDIUM, one_of("disabled", "downgrade", "upgrade", "bidirectional", any_case=True),
    ),
    ConfigDef(
        "group.consumer.regex.refresh.interval.ms", _INT, 600_000,
        "How often the topics that match a regular expression are looked up again.",
        _MEDIUM, at_least(10_000),
    ),
)  # fmt: skip

_STREAMS = (
    *_timeouts("streams", "a streams group"),
    ConfigDef(
        "group.streams.num.standby.replicas", _INT, 0,
        "The number of standby replicas of each stateful task of a streams group.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "group.streams.max.standby.replicas", _INT, 2,
        "The maximum number of standby replicas of a streams group.", _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "group.streams.initial.rebalance.delay.ms", _INT, 3_000,
        "How long the first assignment of a new streams group waits for more members.",
        _MEDIUM, at_least(0),
    ),
)  # fmt: skip

_TRANSACTIONS = (
    ConfigDef(
        "transaction.max.timeout.ms", _INT, 900_000,
        "The maximum transaction timeout of a producer.", _HIGH, at_least(1),
    ),
    ConfigDef(
        "transactional.id.expiration.ms", _INT, 7 * 86_400_000,
        "How long a transactional id is kept after its last transaction.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.num.partitions", _INT, 50,
        "The number of partitions of __transaction_state. It cannot be changed after that topic "
        "has been created.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.replication.factor", _SHORT, 1,
        "The replication factor of __transaction_state. If not set: 1 on a broker that runs "
        "alone; in a cluster 3, or the number of brokers if there are fewer.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.min.isr", _INT, 1,
        "The number of in-sync replicas that a write to __transaction_state needs. If not set: 1 "
        "on a broker that runs alone; in a cluster 2, or 1 if there are fewer than three replicas.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "transaction.state.log.segment.bytes", _INT, 100 * 2**20,
        "The segment size of __transaction_state; small, so that it is compacted and loaded "
        "quickly.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000,
        "How often the broker checks for transactions that have timed out.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000,
        "How often the broker checks for expired transactional ids.", _LOW, at_least(1),
    ),
    ConfigDef(
        "transaction.partition.verification.enable", _BOOLEAN, True,
        "Whether a transactional write is refused if its partition is not part of an open "
        "transaction.",
        _LOW, None, (), _CLUSTER_WIDE,
    ),
    ConfigDef(
        "producer.id.expiration.ms", _INT, 86_400_000,
        "How long a producer's sequence numbers are kept after its last write.",
        _LOW, at_least(1), (), _CLUSTER_WIDE,
    ),
)  # fmt: skip

_SHARE_STATE = (
    ConfigDef(
        "share.coordinator.state.topic.num.partitions", _INT, 50,
        "The number of partitions of __share_group_state. It cannot be changed after that topic "
        "has been created.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "share.coordinator.state.topic.replication.factor", _SHORT, 1,
        "The replication factor of __share_group_state. If not set: 1 on a broker that runs "
        "alone; in a cluster 3, or the number of brokers if there are fewer.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "share.coordinator.state.topic.min.isr", _SHORT, 1,
        "The number of in-sync replicas that a write to __share_group_state needs. If not set: 1 "
        "on a broker that runs alone; in a cluster 2, or 1 if there are fewer than three replicas.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "share.coordinator.state.topic.segment.bytes", _INT, 100 * 2**20,
        "The segment size of __share_group_state; small, so that old segments are deleted and "
        "loaded quickly.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "share.coordinator.snapshot.update.records.per.snapshot", _INT, 500,
        "The number of updates of a share-partition after which its state is written as a "
        "snapshot.",
        _MEDIUM, between(0, 500),
    ),
    ConfigDef(
        "share.coordinator.write.timeout.ms", _INT, 5000,
        "How long a change to a share-partition may take to reach the followers. After that, the "
        "client gets a retriable error.",
        _HIGH, at_least(1),
    ),
    ConfigDef(
        "share.coordinator.state.topic.prune.interval.ms", _INT, 300_000,
        "How often the broker deletes records of __share_group_state that a snapshot has replaced.",
        _LOW, at_least(1),
    ),
    ConfigDef(
        "share.coordinator.cold.partition.snapshot.interval.ms", _INT, 300_000,
        "How often the broker writes snapshots of share-partitions that do not change, so that it "
        "can delete older records.",
        _LOW, at_least(1),
    ),
)  # fmt: skip

COORDINATOR_CONFIGS = (
    *_OFFSETS, *_CLASSIC, *_CONSUMER, *_STREAMS, *SHARE_GROUP_CONFIGS, *_TRANSACTIONS,
    *_SHARE_STATE,
)  # fmt: skip
