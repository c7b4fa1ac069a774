"""Restart after kill -9 with a full log: seconds from exec until the broker reports the right log
end offset. Kafka's time with an empty log is shown too, because most of it is the wait until the
session of the killed broker expires, not the reading of the log. It starts separate brokers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from functools import partial

from bench import brokers, frames
from bench.brokers import Broker, create_topic, exchange_once
from bench.compare.pair import LESS, Pair, compared, end_offset
from bench.load import Load
from bench.measure import Figures, Settings, cpu_seconds, progress, take_turns
from bench.report import Goal, Row

__all__ = ["restart", "rows"]

TOPIC = "full"
RECORDS_PER_BATCH = 900


def _fill(broker: Broker, size_bytes: int) -> None:
    create_topic(broker, TOPIC, 1)
    noise = random.Random(3)
    batch = frames.record_batch([noise.randbytes(1000) for _ in range(RECORDS_PER_BATCH)])

    def check(answer: bytes) -> None:
        code = frames.produce_error(answer, TOPIC)
        if code:
            raise RuntimeError(f"produce answered with error {code}")

    requests = [frames.produce(TOPIC, 0, batch)] * 4
    with Load((broker.host, broker.port), requests, check) as load:
        answers, _ = load.run(600, at_most=size_bytes // len(batch))
    expected = (answers + len(requests)) * RECORDS_PER_BATCH  # one for each connection
    stored = end_offset(broker, TOPIC)
    if stored != expected:
        raise RuntimeError(f"{stored} records in the log, {expected} were acknowledged")


def _offsets(broker: Broker, partitions: int, topic: str) -> int | None:
    """The sum of the topic's log end offsets; None while a partition does not report its own."""
    frame = frames.latest_offsets(topic, range(partitions))
    try:
        answer = exchange_once(broker, frame)
    except OSError:
        return None
    found = frames.latest_offsets_answer(answer).values()
    return None if any(code for code, _ in found) else sum(offset for _, offset in found)


def restart(broker: Broker, expected: Mapping[str, tuple[int, int]]) -> Figures:
    """Kill the broker, start it, and ask until every topic has its log end offset. `expected` maps
    a topic to its partitions and their sum. Raises RuntimeError if a topic has another one.
    """
    broker.kill()
    begin = time.monotonic()
    broker.start()
    for topic, (partitions, end) in expected.items():
        while (found := _offsets(broker, partitions, topic)) != end:
            if found:
                raise RuntimeError(f"{topic} ends at {found} after the restart, not at {end}")
            if time.monotonic() - begin > 300:
                raise TimeoutError("the broker did not report its log end offsets within 300 s")
            time.sleep(0.005)
    return {"seconds": time.monotonic() - begin, "CPU": cpu_seconds(broker.pid)}


def _once(broker: Broker, size_bytes: int) -> Figures:
    if broker.process is None:
        broker.start()
        _fill(broker, size_bytes)
    return restart(broker, {TOPIC: (1, end_offset(broker, TOPIC))})


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Restart with a full log, and with an almost empty one."""
    del pair
    size = settings.pick(2_000_000_000, 200_000_000)
    for case, size_bytes, goal in (
        (f"{size / 1e9:g} GB in the log", size, Goal(1.0, at_least=False, of="value")),
        ("one batch in the log", 1, LESS),
    ):
        if not settings.wants(case):
            continue
        progress(f"  {case}")
        ours = brokers.make(settings.scratch / f"restart-{size_bytes}", settings)
        cases = {name: partial(_once, broker, size_bytes) for name, broker in ours.items()}
        try:
            sides = take_turns(f"restart, {case}", cases, settings.pick(3, 1))
        finally:
            for broker in ours.values():
                broker.stop()
        yield compared("restart", case, sides, "seconds", "s", goal)
        yield compared("restart", case, sides, "CPU", "broker CPU-s", LESS)
