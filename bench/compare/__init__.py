"""Compares kstore with Apache Kafka 4.3.1, on the same machine, in the same run, in turns: `python
-m bench compare`. Each module makes one group of rows. This table names them.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ROWS", "Kind"]


class Kind(NamedTuple):
    """One group of rows: its module below bench.compare has
    ``rows(pair: Pair, settings: Settings) -> Iterator[Row]``.
    """

    what: str
    needs_pair: bool = True
    """True if it runs on the pair of brokers that serves all loads. Otherwise it starts its own."""


# In the order in which they run. memory is the last of the rows that use the pair.
ROWS: dict[str, Kind] = {
    "startup": Kind("exec to the first answer; memory of a new broker", needs_pair=False),
    "throughput": Kind("produce and consume by Java's perf tools and librdkafka: rate, CPU per GB"),
    "small": Kind("small requests on 1, 16 and 64 connections: rate, p50, p99, CPU per request"),
    "bulk": Kind("batches of 16 KB and 900 KB: CPU, rate, also of a bare server"),
    "latency": Kind("a record of 100 B from one connection to another: p50, p99"),
    "rebalance": Kind("a group of 50 members forms, and one leaves: both group protocols"),
    "commits": Kind("offset commits per second, and their CPU"),
    "share": Kind("1, 8 and 64 members of a share group on one partition: rate, CPU per record"),
    "transactions": Kind("transactions per second through librdkafka"),
    "memory": Kind("memory after all rows that the pair has served in this run"),
    "tls": Kind("produce, consume, small requests and new connections over TLS", needs_pair=False),
    "partitions": Kind("1,000 and 10,000 partitions: creation, writes, restart", needs_pair=False),
    "restart": Kind("restart after kill -9 with 2 GB in the log", needs_pair=False),
    "isolation": Kind("latency of small records beside other loads", needs_pair=False),
    "scale": Kind("small requests with 1, 2, 4, ... brokers: rate, CPU", needs_pair=False),
    "cluster": Kind("three brokers: start, replication, failover", needs_pair=False),
    "failover": Kind("kill -9 of leaders, as three clients see it; two stores", needs_pair=False),
}
