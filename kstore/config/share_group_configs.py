"""The broker configs of share groups (KIP-932), a part of the table in coordinator_configs.py.

Those with a minimum and a maximum limit the settings of single groups (group_configs.py).
"""

from __future__ import annotations

from kstore.config.definition import (
    ConfigDef,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    between,
)

__all__ = ["SHARE_GROUP_CONFIGS"]

_INT, _MEDIUM = ConfigType.INT, Importance.MEDIUM

SHARE_GROUP_CONFIGS = (
    ConfigDef(
        "group.share.session.timeout.ms", _INT, 45_000,
        "A member of a share group is removed if the coordinator hears nothing from it for this "
        "long.",
        _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.share.min.session.timeout.ms", _INT, 45_000,
        "The minimum session timeout of a share group.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.share.max.session.timeout.ms", _INT, 60_000,
        "The maximum session timeout of a share group.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.share.heartbeat.interval.ms", _INT, 5_000,
        "How often a member of a share group sends a heartbeat.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.share.min.heartbeat.interval.ms", _INT, 5_000,
        "The minimum heartbeat interval of a share group.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.share.max.heartbeat.interval.ms", _INT, 15_000,
        "The maximum heartbeat interval of a share group.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.share.assignment.interval.ms", _INT, 1_000,
        "The minimum time between two assignments of a share group.",
        _MEDIUM, at_least(0), (), UpdateMode.CLUSTER_WIDE,
    ),
    ConfigDef(
        "group.share.min.assignment.interval.ms", _INT, 0,
        "The minimum assignment interval of a share group.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "group.share.max.assignment.interval.ms", _INT, 15_000,
        "The maximum assignment interval of a share group.",
        _MEDIUM, at_least(0),
    ),
    ConfigDef(
        "group.share.max.size", _INT, 200,
        "The maximum number of members of a share group.", _MEDIUM, between(1, 1000),
    ),
    ConfigDef(
        "group.share.max.share.sessions", _INT, 2000,
        "The maximum number of share sessions on a broker.", _MEDIUM, at_least(1),
    ),
    ConfigDef(
        "group.share.min.delivery.count.limit", _INT, 2,
        "The minimum delivery count limit of a share group.",
        _MEDIUM, between(2, 5),
    ),
    ConfigDef(
        "group.share.max.delivery.count.limit", _INT, 10,
        "The maximum delivery count limit of a share group.",
        _MEDIUM, between(5, 25),
    ),
    ConfigDef(
        "group.share.min.partition.max.record.locks", _INT, 100,
        "The minimum of group.share.partition.max.record.locks for a single group.",
        _MEDIUM, between(100, 2000),
    ),
    ConfigDef(
        "group.share.max.partition.max.record.locks", _INT, 4000,
        "The maximum of group.share.partition.max.record.locks for a single group.",
        _MEDIUM, between(2000, 10_000),
    ),
    ConfigDef(
        "group.share.min.record.lock.duration.ms", _INT, 15_000,
        "The minimum record lock duration of a share group.", _MEDIUM, between(1000, 30_000),
    ),
    ConfigDef(
        "group.share.max.record.lock.duration.ms", _INT, 60_000,
        "The maximum record lock duration of a share group.",
        _MEDIUM, between(30_000, 3_600_000),
    ),
    ConfigDef(
        "group.share.delivery.count.limit", _INT, 5,
        "The maximum number of deliveries of a record to a share group.", _MEDIUM, between(2, 10),
    ),
    ConfigDef(
        "group.share.partition.max.record.locks", _INT, 2000,
        "The maximum number of records of a partition that are in flight to a share group.",
        _MEDIUM, between(100, 10_000),
    ),
    ConfigDef(
        "group.share.record.lock.duration.ms", _INT, 30_000,
        "How long a consumer of a share group can hold a record before it is delivered to others.",
        _MEDIUM, between(1000, 3_600_000),
    ),
)  # fmt: skip
