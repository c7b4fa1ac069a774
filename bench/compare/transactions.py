"""Transactions: librdkafka's transactional producer commits one record of 100 B at a time, by one
producer and by sixteen. Counted by log end offsets: each leaves its record and its marker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bench.brokers import Broker, create_topic, delete_topic
from bench.compare import librdkafka
from bench.compare.pair import LESS, MORE, Pair, compared, end_offset, require
from bench.measure import Figures, Settings, cpu_seconds, progress
from bench.report import Row

__all__ = ["rows"]

APIS = {22: "InitProducerId", 24: "AddPartitionsToTxn", 26: "EndTxn"}
PARTITIONS = 4


def _once(broker: Broker, producers: int, seconds: float, topic: str) -> Figures:
    require(broker, APIS)
    create_topic(broker, topic, PARTITIONS)
    used = cpu_seconds(broker.pid)
    found = librdkafka.run(
        broker, "transactions", topic=topic, producers=producers, seconds=seconds, name=topic
    )
    used = cpu_seconds(broker.pid) - used
    committed, stored = int(found["transactions"]), end_offset(broker, topic, PARTITIONS)
    delete_topic(broker, topic)
    if stored != 2 * committed:
        raise RuntimeError(
            f"{committed} transactions, {stored} offsets: not a record and a marker for each"
        )
    return {"rate": found["transactions/s"], "cost": used / committed * 1e6}


def rows(pair: Pair, settings: Settings) -> Iterator[Row]:
    """Rate and CPU for one producer and for sixteen."""
    numbers = itertools.count()
    for producers in (1, 16):
        case = "1 producer" if producers == 1 else f"{producers} producers"
        if not settings.wants(case):
            continue
        progress(f"  {case}")

        def turn(name: str, broker: Broker, producers: int = producers) -> Figures:
            del name
            topic = f"transactions-{next(numbers)}"
            return _once(broker, producers, settings.pick(4, 2), topic)

        pair.turns(f"transactions, {case}, warm-up", turn, 1)
        sides = pair.turns(f"transactions, {case}", turn, settings.pick(3, 1))
        yield compared("transactions", case, sides, "rate", "transactions/s", MORE)
        yield compared("transactions", case, sides, "cost", "broker CPU us/transaction", LESS)
