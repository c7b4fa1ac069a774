"""End-to-end latency of one record of 100 B: from before it is sent on one connection until a
waiting fetch on another connection has it. The loop uses raw sockets and is the same for both
brokers. Java's EndToEndLatency tool is a second measurement. The received records are compared with
the log end offset.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator

from bench import frames
from bench.brokers import Broker, create_topic, delete_topic
from bench.compare import perf_tools
from bench.compare.pair import LESS, Pair, compared, end_offset
from bench.measure import Figures, Settings, percentile, progress
from bench.report import Goal, Row
from tests.conformance.wire import read_frame

__all__ = ["rows"]

HALF = Goal(0.5, at_least=False)
PARKED_S = 0.0003  # time for the fetch to arrive before the record is sent
RECORD_BYTES = 100


def _connect(broker: Broker) -> socket.socket:
    connection = socket.create_connection((broker.host, broker.port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _one(
    sender: socket.socket, reader: socket.socket, topic: str, offset: int, batch: bytes, acks: int
) -> float:
    fetch = frames.fetch(topic, 0, offset, max_bytes=1 << 20)
    produce = frames.produce(topic, 0, batch, acks=acks)
    reader.sendall(fetch)
    parked = time.perf_counter() + PARKED_S
    while time.perf_counter() < parked:
        pass  # busy, so that the figure does not include the wake-up of an idle core
    begin = time.perf_counter()
    sender.sendall(produce)
    fetched = read_frame(reader)
    elapsed = time.perf_counter() - begin
    answer = read_frame(sender)
    if code := frames.produce_error(answer, topic):
        raise RuntimeError(f"Produce was answered with error {code}")
    if not frames.fetched_batch(fetched, batch):
        raise RuntimeError(f"the fetch at offset {offset} was answered without the record")
    return elapsed


def _loop(broker: Broker, topic: str, records: int, acks: int) -> Figures:
    """Fail unless the log end offset grew by the number of received records."""
    batch = frames.record_batch([bytes(range(RECORD_BYTES))])
    first = end_offset(broker, topic)
    with _connect(broker) as sender, _connect(broker) as reader:
        taken = [_one(sender, reader, topic, first + i, batch, acks) for i in range(records)]
    stored = end_offset(broker, topic) - first
    if stored != records:
        raise RuntimeError(f"{records} records were seen, {stored} stored, by log end offsets")
    return {"p50": percentile(taken, 0.5) * 1e3, "p99": percentile(taken, 0.99) * 1e3}


def _java(broker: Broker, topic: str, records: int) -> Figures:
    """In a separate topic, because the tool reads from the end and counts only its own records."""
    create_topic(broker, topic, 1)
    found = perf_tools.end_to_end(broker, topic, records, RECORD_BYTES)
    stored = end_offset(broker, topic)
    delete_topic(broker, topic)
    if stored != records:
        raise RuntimeError(f"{stored} of {records} records were stored, by log end offsets")
    return found


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """p50 and p99 of the loop for acks 1 and all, and the mean of Java's tool."""
    records = settings.pick(10_000, 2_000)
    for acks, word in ((1, "1"), (-1, "all")):
        case, topic = f"100 B, raw sockets, acks={word}", f"latency-{word}"
        if not settings.wants(case):
            continue
        progress(f"  {case}")
        for broker in pair.running.values():
            create_topic(broker, topic, 1)
            _loop(broker, topic, records // 4, acks)

        def turn(name: str, broker: Broker, topic: str = topic, acks: int = acks) -> Figures:
            del name
            return _loop(broker, topic, records, acks)

        sides = pair.turns(case, turn, settings.pick(5, 2))
        yield compared("latency", case, sides, "p50", "ms p50", HALF)
        yield compared("latency", case, sides, "p99", "ms p99", HALF)
        for broker in pair.running.values():
            delete_topic(broker, topic)
    case = "100 B, Java EndToEndLatency, acks=1"
    if settings.wants(case):
        progress(f"  {case}")
        numbers = itertools.count()
        sides = pair.turns(
            case,
            lambda _, broker: _java(broker, f"latency-java-{next(numbers)}", records),
            settings.pick(3, 1),
        )
        yield compared("latency", case, sides, "mean ms", "ms mean", LESS)
