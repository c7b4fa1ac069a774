"""Checks of the connections from this machine to the brokers: names, ports, advertised listeners,
clocks. They need no permissions in the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.connecting import connect_problem, is_loopback, split_address
from kstore.cli.doctor.findings import Check, Finding, Limits, Severity
from kstore.errors import KafkaError

__all__ = ["REACH_CHECKS", "brokers_answer"]

ERROR, WARNING = Severity.ERROR, Severity.WARNING


def bootstrap(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Each address of bootstrap.servers. A client uses any one that answers."""
    for address, problem in view.unreachable.items():
        host, port = split_address(address)
        if problem is not None:
            yield Finding(
                WARNING if len(view.servers) > 1 else ERROR, f"bootstrap.servers {address}",
                problem, "A client that asks this address first waits, or fails.",
                f"nc -vz {host} {port} on this machine, and ss -ltn on the broker's",
            )  # fmt: skip


def brokers_answer(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Whether any broker answers Kafka's protocol."""
    if None not in view.unreachable.values():
        yield _no_answer(view, "; ".join(filter(None, view.unreachable.values())))
        return
    try:
        _ = view.cluster
    except KafkaError as problem:
        yield _no_answer(view, str(problem))


def _no_answer(view: ClusterView, problem: str) -> Finding:
    return Finding(
        ERROR, ",".join(view.servers), problem,
        "No broker answered this client, so nothing else about the cluster is known.",
        "kstore cluster status, or see the broker's log; check security.protocol and the port",
    )  # fmt: skip


def advertised(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Whether each broker can be reached at its advertised address."""
    asked_loopback = any(is_loopback(split_address(each)[0]) for each in view.servers)
    for broker in view.cluster.brokers:
        subject = f"broker {broker.node_id}"
        address = f"{broker.host}:{broker.port}"
        if is_loopback(broker.host) and not asked_loopback:
            yield Finding(
                ERROR, subject, f"it advertises {address}, and answered at {view.servers[0]}",
                "Clients on other machines connect to themselves and find no broker.",
                f"set advertised.listeners of broker {broker.node_id} to a name that clients "
                "reach, and restart it",
            )  # fmt: skip
            continue
        problem = connect_problem(broker.host, broker.port)
        if problem is not None:
            yield Finding(
                ERROR, subject, f"it advertises {address}; {problem}",
                "Clients here cannot use the partitions that it leads.",
                f"nc -vz {broker.host} {broker.port}; then correct advertised.listeners, DNS or "
                "the firewall",
            )  # fmt: skip


def broker_clocks(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Records of internal topics have their broker's time, which cannot be later than now."""
    now_ms = round(time.time() * 1000)
    leaders = {
        (topic.name, row.partition): row.leader
        for topic in view.topics
        if topic.is_internal
        for row in topic.partitions
    }
    ahead: dict[int, int] = {}
    for tp, row in view.newest.items():
        leader = leaders.get((tp.topic, tp.partition))
        if leader is not None and row - now_ms > limits.clock_ms:
            ahead[leader] = max(ahead.get(leader, 0), row - now_ms)
    for node_id, difference_ms in sorted(ahead.items()):
        yield Finding(
            WARNING, f"broker {node_id}",
            f"it wrote a record with a time {difference_ms / 1000:.1f} s after this machine's",
            "Its clock is ahead, or this machine's is behind. Lookups by time are wrong.",
            "timedatectl on both machines",
        )  # fmt: skip


def future_records(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Records of users' topics with a time in the future."""
    now_ms = round(time.time() * 1000)
    internal = {topic.name for topic in view.topics if topic.is_internal}
    worst: dict[str, int] = {}
    for tp, timestamp in view.newest.items():
        if tp.topic not in internal and timestamp - now_ms > limits.future_ms:
            worst[tp.topic] = max(worst.get(tp.topic, 0), timestamp - now_ms)
    for topic, ahead_ms in sorted(worst.items()):
        yield Finding(
            WARNING, f"topic {topic}",
            f"its newest record is {ahead_ms / 3_600_000:.1f} hours ahead of this clock",
            "Its segment is kept until retention.ms after that time, and lookups by time skip it.",
            "correct the producer's clock or unit (milliseconds); kstore config set topic "
            f"{topic} message.timestamp.after.max.ms=3600000 refuses such records",
        )  # fmt: skip


REACH_CHECKS: tuple[Check[ClusterView], ...] = (
    Check("bootstrap", "the addresses of bootstrap.servers", bootstrap),
    Check("advertised-listeners", "whether each broker can be reached from here", advertised),
    Check("broker-clocks", "brokers' clocks against this one", broker_clocks),
    Check("future-records", "records with a time in the future", future_records),
)
