"""Many partitions: topics of 100 partitions each are created in one request, each partition gets a
record, and the broker is restarted after kill -9, until every partition reports its log end offset.
It starts separate brokers.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from functools import partial

from bench import brokers, frames
from bench.brokers import Broker, exchange_once
from bench.compare.pair import LESS, Pair, compared, end_offsets
from bench.compare.restart import restart
from bench.frames import Answer, compact, unsigned
from bench.measure import Figures, Settings, cpu_seconds, memory_mb, progress, take_turns
from bench.report import Goal, Row
from tests.conformance.wire import request_frame

__all__ = ["create_errors", "create_topics", "rows"]

PER_TOPIC = 100
TOPICS_PER_REQUEST = 50  # Kafka writes at most 10,000 metadata records for one request.
CREATE_TOPICS = 19
# Kafka reports new partitions shortly after it has created them.
NOT_YET = {3, 6}  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER
PAUSE_S = 0.02
DEADLINE_S = 400
SECOND = Goal(1.0, at_least=False, of="value")


def create_topics(names: list[str]) -> bytes:
    """CreateTopics v5."""
    body = unsigned(len(names) + 1)
    for name in names:
        body += compact(name) + struct.pack(">ih", PER_TOPIC, 1) + unsigned(1) * 2 + b"\x00"
    body += struct.pack(">i?", DEADLINE_S * 1000, False) + b"\x00"
    return request_frame(CREATE_TOPICS, 5, body, flexible=True)


def create_errors(answer: bytes) -> list[int]:
    """The error codes of a CreateTopics v5 answer."""
    found = Answer(answer, flexible_header=True)
    found.skip(4)
    codes = []
    for _ in range(found.unsigned() - 1):
        found.compact()
        codes.append(found.take("h"))
        found.compact()
        found.skip(6)
        for _ in range(found.unsigned() - 1):
            found.compact()
            found.compact()
            found.skip(4)
        if found.unsigned():
            raise RuntimeError("the answer to CreateTopics has unexpected tags")
    return codes


def _create(broker: Broker, names: list[str]) -> None:
    for first in range(0, len(names), TOPICS_PER_REQUEST):
        some = names[first : first + TOPICS_PER_REQUEST]
        codes = create_errors(exchange_once(broker, create_topics(some), timeout_s=DEADLINE_S))
        if any(codes) or len(codes) != len(some):
            raise RuntimeError(f"CreateTopics was answered with errors {sorted(set(codes))}")


def _write(broker: Broker, names: list[str]) -> None:
    """Write one record to each partition, topic by topic, and repeat what is not ready yet."""
    batch = frames.record_batch([b"x" * 100])
    deadline = time.monotonic() + DEADLINE_S
    for name in names:
        left = list(range(PER_TOPIC))
        while True:
            frame = frames.produce_to_many(name, left, batch)
            errors = frames.produce_errors(exchange_once(broker, frame))
            worse = {code for code in errors.values() if code and code not in NOT_YET}
            if worse or len(errors) != len(left):
                raise RuntimeError(f"Produce to {name} was answered with errors {worse}")
            left = [partition for partition, code in errors.items() if code]
            if not left:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} did not take records in {DEADLINE_S} s")
            time.sleep(PAUSE_S)  # more requests would slow the broker down


def _once(broker: Broker, partitions: int) -> Figures:
    names = [f"many-{index}" for index in range(partitions // PER_TOPIC)]
    try:
        broker.start()
        before, begin = cpu_seconds(broker.pid), time.monotonic()
        _create(broker, names)
        _write(broker, names)
        written, used = time.monotonic(), cpu_seconds(broker.pid) - before
        for name in names:
            if end_offsets(broker, name, PER_TOPIC) != [1] * PER_TOPIC:
                raise RuntimeError(f"a partition of {name} has not its one record")
        memory = memory_mb(broker.pid)["Rss"]
        again = restart(broker, dict.fromkeys(names, (PER_TOPIC, PER_TOPIC)))
        return {
            "both": written - begin,
            "CPU": used,
            "memory": memory,
            "restart": again["seconds"],
            "restart CPU": again["CPU"],
        }
    finally:
        broker.stop()


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Creation, writing, memory and restart, for 1,000 and for 10,000 partitions."""
    del pair
    for partitions in (1000, 10_000):
        case = f"{partitions:,} partitions"
        if not settings.wants(case):
            continue
        progress(f"  {case}")
        rounds = settings.pick(3, 1) if partitions == 1000 else 1
        cases = {
            name: partial(_fresh, settings, name, partitions)
            for name in brokers.make(settings.scratch / "none", settings)
        }
        sides = take_turns(case, cases, rounds)
        goal = SECOND if partitions == 1000 else LESS
        for figure, words, unit, limit in (
            ("both", "created, and a record in each", "s", goal),
            ("CPU", "created, and a record in each", "broker CPU-s", LESS),
            ("memory", "memory with a record in each (RSS)", "MB", LESS),
            ("restart", "restarted after kill -9", "s", goal),
            ("restart CPU", "restarted after kill -9", "broker CPU-s", LESS),
        ):
            yield compared("partitions", f"{case}: {words}", sides, figure, unit, limit)


def _fresh(settings: Settings, name: str, partitions: int) -> Figures:
    """On a broker without data."""
    folder = settings.scratch / f"partitions-{time.monotonic_ns()}"
    return _once(brokers.make(folder, settings)[name], partitions)
