"""Checks of brokers, partitions, log dirs and topics of a running cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.findings import Check, Finding, Limits, Severity, counted
from kstore.cli.doctor.machine_checks import free_space

if TYPE_CHECKING:
    from kstore.clients.admin import PartitionDescription

__all__ = ["PARTITION_CHECKS", "shortened"]

ERROR, WARNING = Severity.ERROR, Severity.WARNING
SHOWN = 5
ALIKE = (
    "authorizer.class.name", "auto.create.topics.enable", "default.replication.factor",
    "inter.broker.protocol.version", "log.retention.ms", "message.max.bytes",
    "min.insync.replicas", "offsets.topic.num.partitions", "super.users",
    "transaction.max.timeout.ms", "transaction.state.log.num.partitions",
    "unclean.leader.election.enable",
)  # fmt: skip
"""Settings that should be the same on all brokers of a cluster."""


def shortened(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def brokers(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Brokers that have replicas and are not alive."""
    replicas = Counter(
        node_id for topic in view.topics for row in topic.partitions for node_id in row.replicas
    )
    for node_id in sorted(set(replicas) - view.alive):
        yield Finding(
            ERROR, f"broker {node_id}",
            f"it has {counted(replicas[node_id], 'replica')}, and is not registered",
            "Its partitions have fewer copies. They are lost when the others fail too.",
            f"start broker {node_id} again (kstore cluster start, or kstore serve FILE); if it is "
            "gone for good, kstore reassign start moves its replicas",
        )  # fmt: skip


def controller(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Whether there is a controller."""
    if view.cluster.controller_id not in view.alive:
        yield Finding(
            ERROR, "controller", f"the controller's id is {view.cluster.controller_id}",
            "No leader is elected and no topic is created until there is a controller.",
            "kstore cluster describe; then see the brokers' logs for the coordination store",
        )  # fmt: skip


def offline_partitions(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Partitions without a live leader."""
    for topic in view.topics:
        rows = [row for row in topic.partitions if row.leader not in view.alive]
        if not rows:
            continue
        waits_for = sorted({node for row in rows for node in _may_lead(row)})
        names = shortened([f"{topic.name}:{row.partition}" for row in rows])
        ids = ", ".join(map(str, waits_for))
        yield Finding(
            ERROR, f"topic {topic.name}", f"no leader: {names}",
            f"No client can read or write them. Broker {ids} had the last in-sync replicas.",
            f"start broker {ids}; if it is lost for good, kstore elect "
            f"{topic.name}:{rows[0].partition} --unclean elects another replica and loses records",
        )  # fmt: skip


def _may_lead(row: PartitionDescription) -> tuple[int, ...]:
    """The replicas that can lead a partition without losing records."""
    return row.isr or row.elr or row.last_known_elr or row.replicas


def in_sync(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Partitions with fewer in-sync replicas than replicas, or than writes need."""
    for topic in view.topics:
        needed = view.topic_int(topic.name, "min.insync.replicas", 1)
        led = [
            row
            for row in topic.partitions
            if row.leader in view.alive and len(row.isr) < len(row.replicas)
        ]
        below = [row for row in led if len(row.isr) < needed]
        behind = [row for row in led if len(row.isr) >= needed]
        for rows, severity, meaning in (
            (below, ERROR, f"Writes with acks=all fail: min.insync.replicas is {needed}."),
            (behind, WARNING, "Fewer copies than the topic should have."),
        ):
            if not rows:
                continue
            missing = sorted({node for row in rows for node in set(row.replicas) - set(row.isr)})
            first = rows[0]
            yield Finding(
                severity, f"topic {topic.name}",
                f"{len(rows)} of {counted(len(topic.partitions), 'partition')}: "
                f"{topic.name}:{first.partition} has isr {list(first.isr)} of "
                f"{list(first.replicas)}",
                f"{meaning} Broker {', '.join(map(str, missing))} is behind or down.",
                "kstore cluster describe; start the broker; if it runs, its log says why it cannot "
                "follow",
            )  # fmt: skip


def preferred_leaders(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Partitions that are not led by their first replica although it could lead."""
    found = [
        f"{topic.name}:{row.partition}"
        for topic in view.topics
        for row in topic.partitions
        if row.replicas
        and row.leader in view.alive
        and row.leader != row.replicas[0]
        and row.replicas[0] in row.isr
    ]
    if found:
        yield Finding(
            WARNING, "leaders", f"{counted(len(found), 'partition')}: {shortened(found)}",
            "Another replica than the preferred one leads, so the load is uneven. The controller "
            "changes this within leader.imbalance.check.interval.seconds.",
            "kstore elect --all",
        )  # fmt: skip


def single_replicas(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Topics with one replica, in a cluster with more brokers."""
    if len(view.alive) < 2:
        return
    names = [t.name for t in view.topics if any(len(row.replicas) < 2 for row in t.partitions)]
    if names:
        yield Finding(
            WARNING, "replication",
            f"{counted(len(names), 'topic')} with one replica: {shortened(names)}",
            "When that one broker is down, its partitions are offline.",
            f"kstore reassign start {names[0]}:0={','.join(map(str, sorted(view.alive)[:3]))}",
        )  # fmt: skip


def topic_settings(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Configs of a topic that contradict each other or its number of replicas."""
    request_bytes = view.broker_value("socket.request.max.bytes")
    for topic in view.topics:
        subject, change = f"topic {topic.name}", f"kstore config set topic {topic.name}"
        replicas = max((len(row.replicas) for row in topic.partitions), default=0)
        needed = view.topic_int(topic.name, "min.insync.replicas", 1)
        if needed > replicas > 0:
            yield Finding(
                ERROR, subject,
                f"min.insync.replicas={needed}, and it has {counted(replicas, 'replica')}",
                "Writes with acks=all always fail.", f"{change} min.insync.replicas={replicas}",
            )  # fmt: skip
        segment = view.topic_int(topic.name, "segment.bytes")
        retention = view.topic_int(topic.name, "retention.bytes")
        if 0 <= retention < segment:
            yield Finding(
                WARNING, subject, f"retention.bytes={retention}, segment.bytes={segment}",
                "Only whole segments are deleted, so a partition keeps at least segment.bytes.",
                f"{change} segment.bytes={max(retention // 4, 1 << 20)}",
            )  # fmt: skip
        largest = view.topic_int(topic.name, "max.message.bytes")
        if request_bytes is not None and largest > int(request_bytes):
            yield Finding(
                ERROR, subject,
                f"max.message.bytes={largest}, socket.request.max.bytes={request_bytes}",
                "Batches between the two sizes are allowed, but their requests fail.",
                f"{change} max.message.bytes={request_bytes}",
            )  # fmt: skip


def brokers_agree(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Settings that differ between brokers and should not."""
    for name in ALIKE:
        values = {
            node_id: entries[name].value
            for node_id, entries in view.broker_configs.items()
            if name in entries
        }
        if len(set(values.values())) > 1:
            shown = ", ".join(f"broker {node}: {value}" for node, value in values.items())
            yield Finding(
                WARNING, name, shown,
                "What happens depends on which broker leads or is the controller.",
                f"set {name} to one value in each server.properties, and restart those brokers",
            )  # fmt: skip


def log_dirs(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Log dirs that are offline, and the free space of the others."""
    for node_id, folders in view.log_dirs.items():
        for path, row in folders.items():
            subject = f"broker {node_id} {path}"
            if row.error is not None:
                yield Finding(
                    ERROR, subject, str(row.error),
                    "The log dir is offline: its replicas are not served.",
                    f"repair the disk, then restart broker {node_id}",
                )  # fmt: skip
            elif row.total_bytes > 0:
                fix = f"kstore logdirs describe --broker {node_id} --replicas shows the largest"
                yield from free_space(subject, row.total_bytes, row.usable_bytes, limits, fix)


PARTITION_CHECKS: tuple[Check[ClusterView], ...] = (
    Check("brokers", "brokers that are down", brokers),
    Check("controller", "whether there is a controller", controller),
    Check("offline-partitions", "partitions without a leader", offline_partitions),
    Check("isr", "partitions with too few in-sync replicas", in_sync),
    Check("leaders", "partitions not led by their preferred leader", preferred_leaders),
    Check("single-replicas", "topics with one copy", single_replicas),
    Check("topic-configs", "topic configs that contradict each other", topic_settings),
    Check("brokers-agree", "settings that differ between brokers", brokers_agree),
    Check("broker-log-dirs", "brokers' log dirs and their space", log_dirs),
)
