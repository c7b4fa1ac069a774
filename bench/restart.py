"""Restart after kill -9 with a full log: seconds from exec until the broker tells the right log end
offset. Kafka's own time with an empty log is shown too: most of it is the wait for the session of
the killed broker to expire, not the reading of the log.
"""

from __future__ import annotations

import random
import socket
import time

from bench import frames
from bench.brokers import KAFKA, KSTORE, Broker, create_topic, kafka_or_none
from bench.load import Load
from bench.measure import Settings
from bench.report import Goal, Row
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.wire import WireError, exchange

__all__ = ["rows"]

TOPIC = "full"
RECORDS_PER_BATCH = 900


def _fill(broker: Broker, size_bytes: int) -> int:
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
    return (answers + len(requests)) * RECORDS_PER_BATCH  # one each when it connected


def _end_offset(broker: Broker) -> int:
    with socket.create_connection((broker.host, broker.port), timeout=5) as connection:
        answer = exchange(connection, frames.latest_offset(TOPIC, 0))
    code, offset = frames.latest_offset_answer(answer, TOPIC)
    return -code if code else offset


def _restart(broker: Broker, end_offset: int) -> float:
    broker.kill()
    begin = time.monotonic()
    broker.start()
    while time.monotonic() - begin < 300:
        try:
            found = _end_offset(broker)
        except (OSError, WireError):
            found = -1
        if found == end_offset:
            return time.monotonic() - begin
        if found > 0:
            raise RuntimeError(f"the log ends at {found} after the restart, not at {end_offset}")
        time.sleep(0.005)
    raise TimeoutError("the broker did not tell the log end offset within 300 s")


def _measure(broker: Broker, size_bytes: int) -> float:
    broker.start()
    try:
        expected = _fill(broker, size_bytes)
        found = _end_offset(broker)
        if found != expected:
            raise RuntimeError(f"{found} records in the log, {expected} were acknowledged")
        return _restart(broker, found)
    finally:
        broker.stop()


def rows(settings: Settings) -> list[Row]:
    """Restart with a full log, and with an almost empty one."""
    size = settings.pick(2_000_000_000, 200_000_000)
    made = []
    for case, size_bytes, goal in (
        (f"{size / 1e9:g} GB in the log", size, Goal(1.0, at_least=False, of="value")),
        ("one batch in the log", 1, None),
    ):
        seconds: dict[str, float] = {}
        for name in (KSTORE, KAFKA):
            folder = settings.scratch / f"{name.split()[0]}-{size_bytes}"
            broker = KstoreBroker(folder) if name == KSTORE else kafka_or_none(folder)
            if broker is not None:
                seconds[name] = _measure(broker, size_bytes)
        made.append(Row("restart", case, seconds[KSTORE], "s", KAFKA, seconds.get(KAFKA), goal))
    return made
