"""Offset commits: OffsetCommit requests of one partition each on 16 connections, each for a
separate group. They are counted by the growth of the log of __consumer_offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import frames
from bench.brokers import KAFKA, Broker, create_topic, delete_topic
from bench.compare.pair import LESS, MORE, Pair, compared, end_offset, require
from bench.compare.rebalance import wait_for_coordinator
from bench.load import Load
from bench.measure import Figures, Settings, cpu_seconds, percentile
from bench.report import Row

__all__ = ["rows"]

TOPIC = "commits"
OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 4
CONNECTIONS = 16


def _check(answer: bytes) -> None:
    if code := frames.offset_commit_error(answer):
        raise RuntimeError(f"OffsetCommit was answered with error {code}")


def _load(broker: Broker, depth: int) -> Load:
    requests = [frames.offset_commit(f"commits-{i}", TOPIC, 0, 1) for i in range(CONNECTIONS)]
    return Load((broker.host, broker.port), requests, _check, depth=depth)


def _once(broker: Broker, seconds: float, depth: int) -> Figures:
    with _load(broker, depth) as load:
        before = end_offset(broker, OFFSETS_TOPIC, OFFSETS_PARTITIONS)
        used = cpu_seconds(broker.pid)
        answers, elapsed = load.run(seconds)
        used = cpu_seconds(broker.pid) - used
        stored = end_offset(broker, OFFSETS_TOPIC, OFFSETS_PARTITIONS) - before
    if stored < answers:
        raise RuntimeError(f"{answers} commits, {stored} records by log end offsets")
    found = {"rate": answers / elapsed, "cost": used / answers * 1e6}
    if load.latencies:
        found["p99"] = percentile(load.latencies, 0.99) * 1e3
    return found


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Rate, CPU and p99, one at a time on each connection; rate and CPU, pipelined."""
    for name, broker in pair.running.items():
        require(broker, {8: "OffsetCommit"})
        create_topic(broker, TOPIC, 1)
        for i in range(CONNECTIONS):
            wait_for_coordinator(broker, f"commits-{i}")
        _once(broker, settings.pick(10, 3) if name == KAFKA else 1, 1)
    for depth, words in ((1, f"{CONNECTIONS} connections"),
                         (16, f"{CONNECTIONS} connections pipelined")):  # fmt: skip
        if not settings.wants(words):
            continue

        def turn(name: str, broker: Broker, depth: int = depth) -> Figures:
            del name
            return _once(broker, settings.pick(3, 1), depth)

        sides = pair.turns(f"commits, {words}", turn, settings.pick(3, 2))
        yield compared("commits", words, sides, "rate", "commits/s", MORE)
        yield compared("commits", words, sides, "cost", "broker CPU us/commit", LESS)
        if depth == 1:
            yield compared("commits", words, sides, "p99", "ms p99", LESS)
    for broker in pair.running.values():
        delete_topic(broker, TOPIC)
