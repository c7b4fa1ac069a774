"""The table of group configs (KIP-848, KIP-932, KIP-1071): settings of one group, by its id.

Each has a broker config with the prefix ``group.``, which applies to groups without the setting.
Some of share groups have only a default here.
"""

from __future__ import annotations

from kstore.config.definition import ConfigDef, ConfigType, Importance, at_least, matching, one_of

__all__ = ["GROUP_CONFIGS"]

_INT, _STRING, _MEDIUM = ConfigType.INT, ConfigType.STRING, Importance.MEDIUM


def _row(name: str, default: int, documentation: str, low: int) -> ConfigDef:
    synonyms = ((f"group.{name}", 1),)
    return ConfigDef(name, _INT, default, documentation, _MEDIUM, at_least(low), synonyms)


_ROWS = (
    _row(
        "consumer.session.timeout.ms", 45_000,
        "A member of a consumer group is removed if the coordinator hears nothing from it for "
        "this long.", 1,
    ),
    _row(
        "consumer.heartbeat.interval.ms", 5_000,
        "How often a member of a consumer group sends a heartbeat.", 1,
    ),
    _row(
        "consumer.assignment.interval.ms", 1_000,
        "The minimum time between two assignments of a consumer group.", 0,
    ),
    _row(
        "streams.session.timeout.ms", 45_000,
        "A member of a streams group is removed if the coordinator hears nothing from it for this "
        "long.", 1,
    ),
    _row(
        "streams.heartbeat.interval.ms", 5_000,
        "How often a member of a streams group sends a heartbeat.", 1,
    ),
    _row(
        "streams.assignment.interval.ms", 1_000,
        "The minimum time between two assignments of a streams group.", 0,
    ),
    _row(
        "streams.initial.rebalance.delay.ms", 3_000,
        "How long the first assignment of a new streams group waits for more members.", 0,
    ),
    _row(
        "streams.num.standby.replicas", 0,
        "The number of standby replicas of each stateful task of a streams group.", 0,
    ),
    _row(
        "share.session.timeout.ms", 45_000,
        "A member of a share group is removed if the coordinator hears nothing from it for this "
        "long.", 1,
    ),
    _row(
        "share.heartbeat.interval.ms", 5_000,
        "How often a member of a share group sends a heartbeat.", 1,
    ),
    _row(
        "share.assignment.interval.ms", 1_000,
        "The minimum time between two assignments of a share group.", 0,
    ),
    _row(
        "share.record.lock.duration.ms", 30_000,
        "How long a consumer can hold a record before it is delivered to others.", 1_000,
    ),
    _row(
        "share.delivery.count.limit", 5,
        "The maximum number of deliveries of a record.", 2,
    ),
    _row(
        "share.partition.max.record.locks", 2_000,
        "The maximum number of records of a partition that are in flight.", 100,
    ),
    ConfigDef(
        "share.auto.offset.reset", _STRING, "latest",
        "Where a share group starts in a partition that is new to it.", _MEDIUM, matching(
            r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
            "latest, earliest or by_duration:PnDTnHnMn.nS",
        ),
    ),
    ConfigDef(
        "share.isolation.level", _STRING, "read_uncommitted",
        "Whether records of open and aborted transactions are delivered too.", _MEDIUM,
        one_of("read_committed", "read_uncommitted"),
    ),
    ConfigDef(
        "share.renew.acknowledge.enable", ConfigType.BOOLEAN, True,
        "Whether a consumer can ask for more time for a record.", _MEDIUM,
    ),
)  # fmt: skip

GROUP_CONFIGS: dict[str, ConfigDef] = {row.name: row for row in _ROWS}
