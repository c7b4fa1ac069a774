"""kstore's clients compared with confluent-kafka, kafka-python and aiokafka, on one kstore broker,
in turns. Each task runs in a separate process (worker.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from bench.brokers import create_topic, kstore_broker
from bench.clients.worker import PARTITIONS
from bench.measure import Figures, Settings, Side, progress, take_turns
from bench.report import Goal, Row
from tests.conformance.kstore_broker import ROOT, KstoreBroker

__all__ = ["rows"]

CONFLUENT, KAFKA_PYTHON, AIOKAFKA = "confluent-kafka", "kafka-python", "aiokafka"
TURNS = 3
TIMEOUT_S = 600


class Shown(NamedTuple):
    """One line of the table: kstore's task, the peer's task, and the minimum ratio of records per
    CPU second.
    """

    what: str
    ours: str
    peer: str
    theirs: str
    per_cpu: float
    rate: float | None = None


# "Never slower than aiokafka or kafka-python on anything": 1.
PRODUCE = (
    Shown("send()", "produce", CONFLUENT, "produce", 2.0),
    Shown("send()", "produce", KAFKA_PYTHON, "produce", 1.0, 1.0),
    Shown("send_many()", "produce_many", CONFLUENT, "produce", 2.0),
    Shown("async send()", "produce_async", AIOKAFKA, "produce", 1.0, 1.0),
)
CONSUME = (
    Shown("poll()", "consume", CONFLUENT, "consume", 1.5),
    Shown("poll()", "consume", KAFKA_PYTHON, "consume", 1.0, 1.0),
    Shown("poll_arrow()", "consume_arrow", CONFLUENT, "consume", 5.0),
    Shown("async poll()", "consume_async", AIOKAFKA, "consume", 1.0, 1.0),
)


def rows(settings: Settings) -> list[Row]:
    """All rows of the group."""
    found: list[Row] = []
    with kstore_broker(settings.scratch / "clients") as broker:
        for size, full in ((100, 1_000_000), (1000, 300_000)):
            count = settings.pick(full, full // 10)
            for case, shown in (("produce", PRODUCE), ("consume", CONSUME)):
                if settings.wants(f"{case} {size} B"):
                    found += _throughput(broker, case, shown, count, size)
        if settings.wants("latency"):
            found += _latency(broker, settings.pick(3000, 500))
    return found


def _run(
    broker: KstoreBroker, client: str, work: str, topic: str, count: int, size: int
) -> Figures:
    command = [
        sys.executable, "-m", "bench.clients.worker", client, work, broker.bootstrap, topic,
        str(count), str(size),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "no words")
    figures: Figures = json.loads(done.stdout)
    return figures


def _throughput(
    broker: KstoreBroker, case: str, shown: tuple[Shown, ...], count: int, size: int
) -> list[Row]:
    topic = f"{case}-{size}"
    create_topic(broker, topic, PARTITIONS)
    if case == "consume":
        _run(broker, CONFLUENT, "produce", topic, count, size)
    works = dict.fromkeys(
        pair for row in shown for pair in (("kstore", row.ours), (row.peer, row.theirs))
    )
    progress(f"  {case} {size} B: {', '.join(' '.join(work) for work in works)}")
    sides = take_turns(
        f"{case} {size} B",
        {" ".join(work): partial(_run, broker, *work, topic, count, size) for work in works},
        TURNS,
    )
    found: list[Row] = []
    for row in shown:
        ours, theirs = sides[f"kstore {row.ours}"], sides[f"{row.peer} {row.theirs}"]
        label = f"{case} {size} B, {row.what}"
        per_cpu = Goal(row.per_cpu)
        found.append(_row(f"{label}: records per CPU s", "per_cpu_s", "1/s", row.peer, ours, theirs,
                          per_cpu))  # fmt: skip
        rate = Goal(row.rate) if row.rate is not None else None
        found.append(_row(f"{label}: records/s", "rate", "1/s", row.peer, ours, theirs, rate))
        found.append(_row(f"{label}: peak memory", "peak_mb", "MB", row.peer, ours, theirs, None))
    return found


def _latency(broker: KstoreBroker, count: int) -> list[Row]:
    create_topic(broker, "latency", PARTITIONS)
    clients = ("kstore", CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
    sides: Mapping[str, Side] = take_turns(
        "latency",
        {
            client: partial(_run, broker, client, "latency", "latency", count, 100)
            for client in clients
        },
        TURNS,
    )
    goals = {KAFKA_PYTHON: Goal(1, at_least=False), AIOKAFKA: Goal(1, at_least=False)}
    return [
        _row(f"latency of one acknowledged record, {name}", f"{name}_ms", "ms", peer,
             sides["kstore"], sides[peer], goals.get(peer))
        for name in ("p50", "p99")
        for peer in clients[1:]
    ]  # fmt: skip


def _row(
    case: str, figure: str, unit: str, peer: str, ours: Side, theirs: Side, goal: Goal | None
) -> Row:
    return Row(
        "clients",
        case,
        ours.median(figure),
        unit,
        peer,
        theirs.median(figure),
        goal,
        spread=ours.spread(figure),
        peer_spread=theirs.spread(figure),
        state=ours.state,
        peer_state=theirs.state,
    )
