"""A served topic with damaged or cut files: consumers get the rest, and the log a report."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.record import batches, decode
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kafka_broker import free_port
from tests.conformance.kstore_broker import KstoreBroker

Start = Callable[..., KstoreBroker]


def fill(broker: KstoreBroker, batches_count: int, records: int) -> Path:
    """Topic t with so many batches and records in each; its segment. The broker is stopped."""
    with TopicClient(broker) as client:
        client.create("t")
        for _ in range(batches_count):
            client.produce("t", records=records)
    broker.stop()
    return next((broker.log_dir / "t-0").glob("*.log"))


def fetch(client: TopicClient, offset: int) -> Any:
    """A partition's answer to a fetch. The fetch that finds damage may return no records."""
    for _ in range(2):
        found = client.fetch_at("t", offset, 8 << 20)
        if found.records or found.error_code != ErrorCode.NONE:
            break
    return found


@pytest.mark.parametrize(
    "records", [pytest.param(1, marks=pytest.mark.slow), 4000]
)  # copied into the answer, and sent from the file
def test_consumers_get_what_is_before_and_behind_a_moved_offset(
    start_broker: Start, records: int
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    broker = start_broker({"kstore.metrics.listener": url})
    segment = fill(broker, 40, records)
    data = bytearray(segment.read_bytes())
    starts = [view.position for view in batches(data)]
    damaged = 30 * records
    data[starts[30] + 4] ^= 1  # adds 2^24
    segment.write_bytes(data)
    broker.start()
    with TopicClient(broker) as client:
        first = fetch(client, 0)
        assert [r.offset for r in decode(first.records)] == list(range(damaged))
        assert fetch(client, damaged).error_code == ErrorCode.CORRUPT_MESSAGE
        behind = fetch(client, damaged + records)
        expected = range(damaged + records, 40 * records)
        assert [r.offset for r in decode(behind.records)] == list(expected)
        assert client.list_offsets("t").offset == 40 * records
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        told = answer.read().decode().splitlines()
    assert "kstore_log_damaged_parts_total 1" in told
    [line] = [row for row in broker.error_output().splitlines() if "damaged bytes" in row]
    assert "ERROR t-0: " in line
    place = f"in bytes {starts[30]} to {starts[30] + 7}, expected {damaged}"
    assert f"base offset {damaged + 2**24} {place}" in line


def test_what_was_checked_is_sent_without_a_second_check_for_a_while(start_broker: Start) -> None:
    broker = start_broker({})
    segment = fill(broker, 10, 4000)
    broker.start()
    with TopicClient(broker) as client:
        whole = bytes(fetch(client, 0).records)
        assert whole == segment.read_bytes()[: len(whole)]
        moved = [view.position for view in batches(whole)][5] + 4
        with segment.open("r+b") as file:
            file.seek(moved)
            file.write(bytes([whole[moved] ^ 1]))
        # The headers are not read again: the file goes out as it is.
        sent = bytes(fetch(client, 0).records)
        assert [at for at in range(len(whole)) if sent[at] != whole[at]] == [moved]
    assert "damaged bytes" not in broker.error_output()


def test_a_segment_that_was_cut_while_the_broker_was_away_is_told(start_broker: Start) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    broker = start_broker({"kstore.metrics.listener": url})
    segment = fill(broker, 10, 1)
    with segment.open("r+b") as file:
        file.truncate(6 * segment.stat().st_size // 10)
    broker.start()
    with TopicClient(broker) as client:
        assert client.list_offsets("t").offset == 10
        client.produce("t")
        assert [r.offset for r in decode(fetch(client, 0).records)] == list(range(6))
        assert [r.offset for r in decode(fetch(client, 6).records)] == [10]
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        assert "kstore_log_lost_offsets_total 4" in answer.read().decode().splitlines()
    [line] = [row for row in broker.error_output().splitlines() if "ERROR t-0: offsets" in row]
    assert f"ERROR t-0: offsets 6 to 9 are lost from {segment}; its log continues at 10" in line
