"""A soak: three real brokers, steady producers and a reader, churn of clients and topics, and one
fault after the other. Broker 1, the witness, is never disturbed: its resources at the end are
compared with those before. Every line that any broker logs must be explained.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.beside.waiting import until
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.soak.clients import Churn, Expander, OrderReader, SteadyProducer
from tests.soak.log_lines import AFTER_A_STALL, EXPLAINED, unexplained
from tests.soak.samples import Growth, Sample, growth, sample, stalls

TOPIC, PRODUCERS = "orders", 2
WITNESS = 1
SAMPLE_S = 10.0
SETTINGS = THREE_REPLICAS | {
    "log.retention.check.interval.ms": "15000",
    "log.cleaner.backoff.ms": "5000",
    "transactional.id.expiration.ms": "600000",
    "producer.id.expiration.ms": "600000",
}
ORDERS = {"segment.bytes": "1048576", "retention.bytes": "4194304"}
"""Segments come and go within minutes: what they need is steady before the first quarter ends."""


@dataclass
class Report:
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    records: int = 0
    rounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of churn and expansions: done, and put off because a broker was away."""
    samples: list[Sample] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    """For how many seconds the machine stood still, each time."""
    lines: Counter[str] = field(default_factory=Counter)
    """Log lines that nothing explains."""
    wrong: list[str] = field(default_factory=list)
    """Records that were lost, doubled, out of order or refused."""

    @property
    def problems(self) -> list[str]:
        """Why the soak failed; empty when it passed."""
        found = [f"growth: {each}" for each in self.growth if each.is_leak]
        found += [f"log line, {count} times: {line}" for line, count in self.lines.most_common(20)]
        return found + [f"record: {each}" for each in self.wrong[:20]]


def soak(
    folder: Path,
    seconds: float,
    seed: int,
    tell: Callable[[str], None],
    *,
    fault_every_s: float = 45.0,
    churn_pause_s: float = 2.0,
    expand_every_s: float = 30.0,
) -> Report:
    """Run for this time; ``tell`` gets a line of progress now and then."""
    report = Report(seconds)
    with KstoreCluster(folder, overrides=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3, ORDERS)
        cluster.create_topic("transactions", PARTITIONS, 3, ORDERS)
        bootstrap = cluster.bootstrap
        producers = [
            SteadyProducer(f"p{n}", bootstrap, TOPIC, PARTITIONS) for n in range(PRODUCERS)
        ]
        reader = OrderReader(bootstrap, TOPIC, PARTITIONS)
        churn = Churn(cluster, TOPIC, churn_pause_s)
        rounds = [churn, Expander("expander", cluster, expand_every_s)]
        workers = [*producers, reader, *rounds]
        for worker in workers:
            worker.start()
        sampling = threading.Event()
        sampler = threading.Thread(
            target=_sample, args=(cluster, report, sampling, seconds), daemon=True
        )
        sampler.start()
        # Or a broker is down when the topic of a transaction's coordinator is created.
        until(lambda: churn.done >= len(churn.kinds), "each kind of churn was done once", 120)
        try:
            _disturb(cluster, report, random.Random(seed), seconds, fault_every_s, tell)
        finally:
            sampling.set()
            sampler.join()
        for worker in (*rounds, *producers):
            worker.finish()
        until(lambda: reader.has_read(producers), "all that was acknowledged is read", 120)
        reader.finish()
        report.records = reader.records
        report.rounds = {each.name: (each.done, each.put_off) for each in rounds}
        report.wrong = reader.wrong + [f for each in producers for f in each.failed]
    report.stalls = stalls(report.samples, min(SAMPLE_S, seconds / 20))
    known = EXPLAINED + (AFTER_A_STALL if report.stalls else ())
    for broker in cluster.brokers.values():
        output = (broker.folder / broker.OUTPUT).read_text(errors="replace")
        report.lines += unexplained(output.splitlines(), known)
    report.growth = growth(report.samples)
    return report


def _sample(
    cluster: KstoreCluster, report: Report, stopping: threading.Event, seconds: float
) -> None:
    begin = time.monotonic()
    pid = cluster.brokers[WITNESS].pid
    while not stopping.wait(min(SAMPLE_S, seconds / 20)):
        report.samples.append(sample(pid, time.monotonic() - begin))


def _disturb(
    cluster: KstoreCluster,
    report: Report,
    rng: random.Random,
    seconds: float,
    every_s: float,
    tell: Callable[[str], None],
) -> None:
    """One fault after the other, each healed before the next."""
    deadline = time.monotonic() + seconds
    others = [node for node in cluster.brokers if node != WITNESS]
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, every_s * rng.uniform(0.5, 1.5)))
        node, kind = rng.choice(others), rng.choice(["kill", "kill", "stop", "pause"])
        cluster.fault(node, kind, rng.uniform(0.3, 4.0))
        report.faults[kind] += 1
        until(lambda: cluster.all_in_sync(TOPIC), f"all in sync after {kind} of broker {node}", 120)
        if report.samples:
            now = report.samples[-1]
            tell(
                f"{now.at_s:6.0f} of {seconds:.0f} s: {report.faults.total()} faults, the witness"
                f" has {now.anonymous_kb / 1024:.1f} MB, {now.descriptors} descriptors,"
                f" {now.threads} threads"
            )
