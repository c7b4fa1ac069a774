"""What a simulation is like, and the settings of its brokers: short times, small topics."""

from __future__ import annotations

from typing import NamedTuple

from tests.sim.faults import USUAL
from tests.sim.machines.world import World
from tests.sim.refusals import EXPANSION_TIMEOUT_MS
from tests.sim.workloads.sharing import SHARE_SETTINGS


class Options(NamedTuple):
    """What a simulation is like, beside its seed."""

    brokers: int = 1
    faults: tuple[str, ...] = USUAL
    seconds: float = 20.0
    workloads: tuple[str, ...] = ()
    """Empty: drawn from the seed."""
    partitions: int = 3
    producers: int = 2
    members: int = 3
    flush: str = ""
    """kstore.flush.policy; empty: drawn from the seed."""
    until: str = ""
    """The simulation ends as soon as this rule is broken."""


def broker_settings(flush: str, roll_ms: int, delivery_limit: int) -> dict[str, str]:
    """The settings of all brokers of a simulation."""
    return {
        "kstore.flush.policy": flush,
        "log.roll.ms": str(roll_ms),
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "100",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "400",
        "group.min.session.timeout.ms": "1000",
        "group.streams.min.session.timeout.ms": "1000",
        "group.streams.session.timeout.ms": "3000",
        "group.streams.min.heartbeat.interval.ms": "100",
        "group.streams.heartbeat.interval.ms": "400",
        "group.streams.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.snapshot.update.records.per.snapshot": "5",
        "share.coordinator.state.topic.prune.interval.ms": "700",
        "share.coordinator.cold.partition.snapshot.interval.ms": "900",
        **SHARE_SETTINGS,
        "group.share.delivery.count.limit": str(delivery_limit),
        "kstore.check.invariants": "true",
        "auto.create.topics.enable": "false",
    }


def cluster_settings(world: World, brokers: int, store: str = "store") -> dict[str, str]:
    """The settings that make brokers a cluster on the simulated store."""
    return {
        "kstore.coordination.dir": f"{world.folder}/{store}",
        "kstore.coordination.session.timeout.ms": str(int(world.store.session_timeout_s * 1000)),
        "default.replication.factor": str(min(brokers, 3)),
        "offsets.topic.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.min.isr": "2",
        "replica.lag.time.max.ms": "1000",
        "kstore.expansion.timeout.ms": str(EXPANSION_TIMEOUT_MS),
    }
