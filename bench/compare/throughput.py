"""Produce and consume throughput, and the broker's CPU time per GB of record values, with Kafka's
perf tools and librdkafka, each with its own defaults. Every run writes to a separate topic, whose
log end offsets show how much was stored: a run with fewer records has failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from bench.brokers import KAFKA, Broker, create_topic, delete_topic
from bench.compare import librdkafka, perf_tools
from bench.compare.pair import LESS, MORE, Pair, compared, end_offset
from bench.measure import Figures, Settings, Side, cpu_seconds, progress, touch_memory
from bench.report import Goal, Row

__all__ = ["rows"]

PARTITIONS = 4
SIZES = {"100 B": 100, "1 KB": 1000, "10 KB": 10_000}
FULL_BYTES = {"100 B": 100_000_000, "1 KB": 250_000_000, "10 KB": 250_000_000}
HALF = Goal(0.5, at_least=False)
Produce = Callable[[Broker, str, int, int, str], Figures]
Consume = Callable[[Broker, str, int], Figures]


def _java_produce(broker: Broker, topic: str, records: int, size: int, acks: str) -> Figures:
    return perf_tools.produce(broker, topic, records, size, {"acks": acks})


def _rdkafka_produce(broker: Broker, topic: str, records: int, size: int, acks: str) -> Figures:
    return librdkafka.run(
        broker, "produce", topic=topic, records=records, record_bytes=size, acks=acks
    )


def _rdkafka_consume(broker: Broker, topic: str, records: int) -> Figures:
    return librdkafka.run(broker, "consume", topic=topic, records=records, partitions=PARTITIONS)


CLIENTS: dict[str, tuple[Produce, Consume]] = {
    "Java": (_java_produce, perf_tools.consume),
    "librdkafka": (_rdkafka_produce, _rdkafka_consume),
}


def _metered(broker: Broker, size_bytes: int, work: Callable[[], Figures]) -> dict[str, float]:
    before = cpu_seconds(broker.pid)
    found = dict(work())
    found["CPU-s/GB"] = (cpu_seconds(broker.pid) - before) / (size_bytes / 1e9)
    return found


class _Runs:
    """One client, record size and acks. It writes a topic, reads it if requested,
    and deletes it.
    """

    def __init__(self, client: str, size: str, acks: str, settings: Settings) -> None:
        self._produce, self._consume = CLIENTS[client]
        self._record_bytes = SIZES[size]
        self._records = settings.pick(FULL_BYTES[size], 40_000_000) // self._record_bytes
        self._acks = acks
        self._topic = f"throughput-{client}-{size.replace(' ', '')}-{acks}"
        self._numbers = itertools.count()

    def once(self, broker: Broker, *, consume: bool) -> Figures:
        """The figures of producing, and those of consuming with the prefix "read "."""
        topic, records = f"{self._topic}-{next(self._numbers)}", self._records
        size_bytes = records * self._record_bytes
        create_topic(broker, topic, PARTITIONS)
        touch_memory(6 * size_bytes, broker.folder)
        before = end_offset(broker, topic, PARTITIONS)
        found = _metered(
            broker,
            size_bytes,
            lambda: self._produce(broker, topic, records, self._record_bytes, self._acks),
        )
        stored = end_offset(broker, topic, PARTITIONS) - before
        if stored != records:
            raise RuntimeError(f"{stored} of {records} records were stored, by log end offsets")
        if consume:
            read = _metered(broker, size_bytes, lambda: self._consume(broker, topic, records))
            found |= {f"read {name}": value for name, value in read.items()}
        delete_topic(broker, topic)
        return found


def _rows_of(case: str, sides: dict[str, Side], prefix: str, goal: Goal) -> Iterator[Row]:
    yield compared("throughput", case, sides, f"{prefix}MB/s", "MB/s", MORE)
    yield compared("throughput", case, sides, f"{prefix}CPU-s/GB", "broker CPU-s/GB", goal)


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Two rows (rate, CPU) for each client, record size and acks, and for each consumer."""
    if KAFKA in pair.running:
        progress("  throughput: warming the JVM up")
        warm = _Runs("Java", "1 KB", "all", settings)
        pair.turns("throughput, warm-up", lambda _, b: warm.once(b, consume=True), 1)
    for client, size, acks in itertools.product(CLIENTS, SIZES, ("all", "1")):
        produces, consumes = f"{client} producer, {size}, acks={acks}", f"{client} consumer, {size}"
        consume = acks == "all"
        if not (settings.wants(produces) or (consume and settings.wants(consumes))):
            continue
        progress(f"  {produces}{', and consumer' if consume else ''}")
        runs = _Runs(client, size, acks, settings)
        sides = pair.turns(
            produces,
            lambda _, broker, runs=runs, consume=consume: runs.once(broker, consume=consume),  # type: ignore[misc]
            settings.pick(3, 1),
        )
        yield from _rows_of(produces, sides, "", HALF if size == "1 KB" else LESS)
        if consume:
            yield from _rows_of(consumes, sides, "read ", HALF)
