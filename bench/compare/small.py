"""Small requests: rate, p50 and p99 as the client sees them, and the broker's CPU time per request
(CPU seconds per million requests), minus its idle CPU time. One request at a time on 1, 16 and 64
connections, and pipelined on 64. Produce requests are also counted by log end offsets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from bench import frames
from bench.brokers import KAFKA, Broker, create_topic, delete_topic
from bench.compare.pair import LESS, MORE, Pair, compared, end_offset
from bench.load import Load
from bench.measure import Figures, Settings, Side, cpu_seconds, percentile, progress
from bench.report import Goal, Row

__all__ = ["rows"]

PRODUCED, FETCHED = "small-produce", "small-fetch"
PARTITIONS = 16
PIPELINE_DEPTH = 16
CONNECTIONS = (1, 16, 64)


def _ok(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} was answered with error {code}")


def _produce(connections: int) -> tuple[list[bytes], Callable[[bytes], None]]:
    batch = frames.record_batch([random.Random(1).randbytes(100)])
    requests = [frames.produce(PRODUCED, i % PARTITIONS, batch) for i in range(connections)]
    return requests, lambda answer: _ok(frames.produce_error(answer, PRODUCED), "Produce")


FETCHED_BATCH = frames.record_batch([random.Random(2).randbytes(1024)])


def _fetch(connections: int) -> tuple[list[bytes], Callable[[bytes], None]]:
    def check(answer: bytes) -> None:
        if not frames.fetched_batch(answer, FETCHED_BATCH):
            raise RuntimeError("Fetch was not answered with the batch that was stored")

    requests = [
        frames.fetch(FETCHED, i % PARTITIONS, 100 + i, max_bytes=1024) for i in range(connections)
    ]
    return requests, check


def _metadata(connections: int) -> tuple[list[bytes], Callable[[bytes], None]]:
    requests = [frames.metadata(PRODUCED)] * connections
    return requests, lambda answer: _ok(frames.metadata_error(answer, PRODUCED), "Metadata")


def _api_versions(connections: int) -> tuple[list[bytes], Callable[[bytes], None]]:
    def check(answer: bytes) -> None:
        if not frames.api_versions_answer(answer):
            raise RuntimeError("ApiVersions was answered with an error")

    return [frames.api_versions()] * connections, check


class _Api(NamedTuple):
    """A kind of request, and the limits of its CPU in ratio to Kafka's: usual, and pipelined."""

    name: str
    requests: Callable[[int], tuple[list[bytes], Callable[[bytes], None]]]
    goal: float
    pipelined_goal: float


APIS = [
    _Api("Produce 100 B", _produce, 1 / 3, 1 / 5),
    _Api("Fetch 1 KB", _fetch, 1 / 4, 1 / 4),
    _Api("Metadata", _metadata, 1 / 2, 1 / 2),
    _Api("ApiVersions", _api_versions, 1 / 2, 1 / 2),
]


def _fill(broker: Broker) -> None:
    """The topic that is fetched: 200 batches of one record in each partition, one partition after
    the other, because a broker may serve connections unevenly.
    """

    def check(answer: bytes) -> None:
        _ok(frames.produce_error(answer, FETCHED), "Produce")

    for partition in range(PARTITIONS):
        request = frames.produce(FETCHED, partition, FETCHED_BATCH)
        with Load((broker.host, broker.port), [request], check) as load:
            load.run(60, at_most=200)


def _idle_share(broker: Broker, seconds: float) -> float:
    before = cpu_seconds(broker.pid)
    time.sleep(seconds)
    return (cpu_seconds(broker.pid) - before) / seconds


class _Turn:
    """One broker under one load."""

    def __init__(self, broker: Broker, load: Load, settings: Settings, name: str) -> None:
        self._broker, self._load, self._seconds = broker, load, settings.pick(3, 1)
        # The JVM compiles at run time.
        load.run(settings.pick(4, 2) if name == KAFKA else 1)
        self._idle = _idle_share(broker, settings.pick(2, 1))

    def __call__(self, *, counted: bool) -> Figures:
        stored = end_offset(self._broker, PRODUCED, PARTITIONS) if counted else 0
        before = cpu_seconds(self._broker.pid)
        answers, elapsed = self._load.run(self._seconds)
        used = cpu_seconds(self._broker.pid) - before - self._idle * elapsed
        if counted:
            stored = end_offset(self._broker, PRODUCED, PARTITIONS) - stored
            if stored != answers:
                raise RuntimeError(f"{answers} answers, {stored} records by log end offsets")
        found = {"rate": answers / elapsed, "cost": max(used, 0.0) / answers * 1e6}
        if latencies := self._load.latencies:
            found["p50"] = percentile(latencies, 0.5) * 1e6
            found["p99"] = percentile(latencies, 0.99) * 1e6
        return found


def _measure(
    pair: Pair, settings: Settings, case: str, api: _Api, connections: int, depth: int
) -> dict[str, Side]:
    turns: dict[str, _Turn] = {}
    with ExitStack() as stack:

        def turn(name: str, broker: Broker) -> Figures:
            if name not in turns:
                requests, check = api.requests(connections)
                load = Load((broker.host, broker.port), requests, check, depth=depth)
                turns[name] = _Turn(broker, stack.enter_context(load), settings, name)
            return turns[name](counted=api.requests is _produce)

        return pair.turns(case, turn, settings.pick(3, 2))


def _rows_of(case: str, sides: dict[str, Side], goal: float, *, pipelined: bool) -> Iterator[Row]:
    limit = Goal(goal, at_least=False)
    yield compared("small", case, sides, "cost", "broker CPU us/request", limit)
    yield compared("small", case, sides, "rate", "requests/s", MORE)
    if not pipelined:
        yield compared("small", case, sides, "p50", "us p50", LESS)
        yield compared("small", case, sides, "p99", "us p99", LESS)


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """CPU, rate, p50 and p99 for each API and number of connections."""
    for broker in pair.running.values():
        create_topic(broker, PRODUCED, PARTITIONS)
        create_topic(broker, FETCHED, PARTITIONS)
        _fill(broker)
    for api in APIS:
        kinds = [(count, 1, "1 connection" if count == 1 else f"{count} connections")
                 for count in CONNECTIONS]  # fmt: skip
        for connections, depth, words in [*kinds, (64, PIPELINE_DEPTH, "64 connections pipelined")]:
            case = f"{api.name}, {words}"
            if not settings.wants(case):
                continue
            progress(f"  {case}")
            sides = _measure(pair, settings, case, api, connections, depth)
            pipelined = depth > 1
            goal = api.pipelined_goal if pipelined else api.goal
            yield from _rows_of(case, sides, goal, pipelined=pipelined)
    for broker in pair.running.values():
        delete_topic(broker, PRODUCED)
        delete_topic(broker, FETCHED)
