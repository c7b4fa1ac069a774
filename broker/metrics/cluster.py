"""The replica manager, the controller, waits and fetch sessions under the names that jmx_exporter's
rules for Kafka use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kstore.broker.metrics.measured import Measured, plain
from kstore.broker.state.exposition import Family, Metrics, sample
from kstore.broker.state.work import ROWS_BETWEEN

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition

__all__ = ["of_controller", "of_replica_manager", "of_waits"]

RUNNING, STARTING = 3, 1
"""Kafka's numbers for the state of a broker."""
REPLICA_MANAGER = {
    "partitioncount": "Replicas on this broker",
    "leadercount": "Partitions that this broker leads",
    "offlinereplicacount": "Replicas whose log dir has failed",
    "underreplicatedpartitions": "Partitions led here whose ISR lacks a replica",
    "underminisrpartitioncount": "Partitions led here with an ISR below min.insync.replicas",
    "atminisrpartitioncount": "Partitions led here with an ISR of min.insync.replicas",
}
PURGATORY = Family(
    "kafka_server_delayedoperationpurgatory_purgatorysize", "gauge",
    "Requests that wait for records (Fetch) or for followers (Produce)",
)  # fmt: skip


def of_replica_manager(broker: Measured) -> Metrics:
    """Counts over all partitions on this broker, and changes of ISRs."""
    counts = dict.fromkeys(REPLICA_MANAGER, 0)
    seen = 0
    for entry in broker.table.topics():
        for partition in list(entry.partitions):
            seen += 1
            if partition is not None:
                _count(partition, counts)
            if seen % ROWS_BETWEEN == 0:
                yield ""
    for name, words in REPLICA_MANAGER.items():
        yield from plain(f"kafka_server_replicamanager_{name}", "gauge", words, counts[name])
    table = broker.table
    for name, words, value in (
        ("isrshrinks", "ISRs that became smaller", table.isr_shrinks),
        ("isrexpands", "ISRs that became larger", table.isr_expands),
        ("failedisrupdates", "ISRs that the controller refused", table.isr_refusals),
    ):
        yield from plain(f"kafka_server_replicamanager_{name}_total", "counter", words, value)
    yield from plain(
        "kafka_log_logmanager_offlinelogdirectorycount", "gauge", "Log dirs that have failed",
        len(broker.log_manager.failed),
    )  # fmt: skip


def _count(partition: Partition, counts: dict[str, int]) -> None:
    if partition.failed:
        counts["offlinereplicacount"] += 1
    if partition.log is None:
        return
    counts["partitioncount"] += 1
    if partition.online:
        spare = partition.insync_replicas - partition.min_insync_replicas
        counts["leadercount"] += 1
        counts["underreplicatedpartitions"] += len(partition.isr) < len(partition.replicas)
        counts["underminisrpartitioncount"] += spare < 0
        counts["atminisrpartitioncount"] += spare == 0


def of_controller(broker: Measured, seen: Mapping[str, int]) -> Metrics:
    """The controller's metrics. They are 0 on all other brokers. ``seen`` is the result of
    Membership.gauges, which is empty on a single broker.
    """
    image, alone = broker.image, not seen
    active = bool(alone or seen["active_controller"])
    offline = seen.get("controller_offline_partitions", 0)
    partitions = seen.get("controller_partitions", 0)
    if alone:
        for number, topic in enumerate(list(image.topics.values())):
            partitions += len(topic.partitions)
            entry = broker.table.topic(topic.name.encode())
            known = [] if entry is None else entry.partitions
            offline += sum(each is not None and not each.online for each in known)
            if number % ROWS_BETWEEN == 0:
                yield ""
    for name, words, value in (
        ("activecontrollercount", "1 on the controller", int(active)),
        ("offlinepartitionscount", "Partitions without a leader", offline),
        ("preferredreplicaimbalancecount", "Partitions whose leader is not the first replica",
         seen.get("controller_not_preferred_leaders", 0)),
        ("globaltopiccount", "Topics of the cluster", len(image.topics) if active else 0),
        ("globalpartitioncount", "Partitions of the cluster", partitions),
        ("activebrokercount", "Brokers that are alive", len(image.brokers) if active else 0),
    ):  # fmt: skip
        yield from plain(f"kafka_controller_kafkacontroller_{name}", "gauge", words, value)
    yield from plain(
        "kafka_server_kafkaserver_brokerstate", "gauge", "3: running, 1: starting",
        RUNNING if broker.membership.joined else STARTING,
    )  # fmt: skip
    yield from plain("kafka_brokers", "gauge", "Brokers that this one knows", len(image.brokers))


def of_waits(broker: Measured) -> Metrics:
    """Requests that wait, and fetch sessions."""
    plane = broker.plane
    yield PURGATORY
    yield sample(PURGATORY.name, plane.fetch.parked, delayedOperation="Fetch")
    yield sample(PURGATORY.name, plane.produce.waiting.parked, delayedOperation="Produce")
    yield from plain(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions", "gauge", "Fetch sessions",
        len(plane.fetch.cache.sessions),
    )  # fmt: skip
    yield from plain(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", "counter",
        "Fetch sessions that were evicted for others", plane.fetch.cache.evictions,
    )  # fmt: skip
