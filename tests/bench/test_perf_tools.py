"""bench/compare/perf_tools.py: what Kafka's tools print, as Kafka 4.3.1 prints it."""

from __future__ import annotations

import pytest

from bench.compare.perf_tools import parse_consumer, parse_end_to_end, parse_producer

PRODUCER = """\
30001 records sent, 5999.0 records/sec (5.72 MB/sec), 2011.2 ms avg latency, 2890.0 ms max latency.
40000 records sent, 25445.3 records/sec (24.27 MB/sec), 712.04 ms avg latency, \
1010.00 ms max latency, 701 ms 50th, 962 ms 95th, 998 ms 99th, 1007 ms 99.9th.
"""
CONSUMER = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-01-05 10:00:00:000, 2026-01-05 10:00:04:000, 38.1470, 9.5368, 40000, 10000.0000, \
3600, 400, 95.3674, 100000.0000
"""


def test_the_producers_last_line_is_its_result():
    assert parse_producer(PRODUCER, 40000) == {
        "MB/s": pytest.approx(24.27 * 1.048576),
        "records/s": 25445.3,
        "latency ms": 712.04,
    }


def test_a_producer_that_sent_fewer_records_has_failed():
    with pytest.raises(RuntimeError, match="sent 40000 of 50000 records"):
        parse_producer(PRODUCER, 50000)


def test_a_producer_without_a_result_has_failed():
    with pytest.raises(RuntimeError, match="no result"):
        parse_producer(PRODUCER.splitlines()[0], 30001)


def test_the_consumers_rate_is_that_of_its_fetching():
    assert parse_consumer(CONSUMER, 40000) == {
        "MB/s": pytest.approx(95.3674 * 1.048576),
        "records/s": 100000.0,
    }


def test_a_consumer_that_read_fewer_records_has_failed():
    with pytest.raises(RuntimeError, match="read 40000 of 40001 records"):
        parse_consumer(CONSUMER, 40001)


def test_a_consumer_without_a_result_has_failed():
    with pytest.raises(RuntimeError, match="no result"):
        parse_consumer(CONSUMER.splitlines()[0], 1)


def test_the_end_to_end_tool_tells_a_mean():
    said = "0\t2.5\nAvg latency: 0.6312 ms\n\nPercentiles: 50th = 0, 99th = 2, 99.9th = 5\n"
    assert parse_end_to_end(said) == {"mean ms": 0.6312}
    with pytest.raises(RuntimeError, match="no result"):
        parse_end_to_end("")
