"""Kafka's admin tools, unmodified, on what they change: offsets of a group reset in every way,
groups and records deleted, replicas verified.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from datetime import UTC, datetime

import pytest

from tests.conformance.kafka_broker import ask_tool, tool_command
from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.conformance.libraries.samples import BASE_TIMESTAMP_MS, plain_samples

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

REPLICA_VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
RECORDS = 40


@pytest.fixture
def filled(peer, topic) -> str:
    """A topic of two partitions; each has records one second apart, and a group has read 20."""
    client = PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap)
    client.create_topic(topic, 2)
    sent = [
        sample._replace(timestamp_ms=BASE_TIMESTAMP_MS + 1000 * index)
        for index, sample in enumerate(plain_samples(RECORDS))
    ]
    for partition in range(2):
        client.send(topic, sent, partition=partition)
    return topic


def commit(peer, topic: str, offsets: dict[int, int]) -> str:
    """Commits offsets for a group without members; the group's name."""
    from confluent_kafka import Consumer, TopicPartition

    group = f"g-{topic}"
    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": group})
    rows = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=rows, asynchronous=False)
    consumer.close()
    return group


def when(index: int) -> str:
    """The moment of record `index`, as the tools write moments."""
    moment = datetime.fromtimestamp((BASE_TIMESTAMP_MS + 1000 * index) / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000")


@pytest.mark.thorough
def test_offsets_of_a_group_are_reset_in_every_way(peer, filled, tmp_path):
    group = commit(peer, filled, {0: 20, 1: 30})
    file = tmp_path / "reset.csv"
    file.write_text(f"{filled},0,3\n{filled},1,4\n")

    def reset(*how: str, run: str = "--execute") -> dict[int, int]:
        args = ["--reset-offsets", "--group", group, "--topic", filled, *how, run]
        said = ask_tool(peer, "kafka-consumer-groups", *args).stdout
        rows = re.findall(rf"{group}\s+{filled}\s+(\d+)\s+(\d+)", said)
        return {int(partition): int(offset) for partition, offset in rows}

    assert reset("--to-current", run="--dry-run") == {0: 20, 1: 30}
    assert reset("--shift-by", "-5") == {0: 15, 1: 25}
    assert reset("--shift-by", "100") == {0: RECORDS, 1: RECORDS}
    assert reset("--to-earliest") == {0: 0, 1: 0}
    assert reset("--to-offset", "7") == {0: 7, 1: 7}
    assert reset("--to-datetime", when(12)) == {0: 12, 1: 12}
    assert reset("--by-duration", "PT30M") == {0: RECORDS, 1: RECORDS}
    assert reset("--to-latest") == {0: RECORDS, 1: RECORDS}
    assert reset("--from-file", str(file)) == {0: 3, 1: 4}
    exported = ask_tool(
        peer, "kafka-consumer-groups", "--reset-offsets", "--group", group, "--all-topics",
        "--to-current", "--export",
    ).stdout  # fmt: skip
    assert sorted(exported.split()) == [f"{filled},0,3", f"{filled},1,4"]


def test_a_group_is_described_and_its_offsets_and_itself_are_deleted(peer, filled):
    group = commit(peer, filled, {0: 20, 1: 30})

    def groups(*args: str) -> str:
        return ask_tool(peer, "kafka-consumer-groups", *args, check=False).stdout

    described = groups("--describe", "--group", group)
    rows = re.findall(rf"{group}\s+{filled}\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", described)
    assert sorted(rows) == [("0", "20", "40", "20"), ("1", "30", "40", "10")]
    assert re.search(rf"{group}\s.*\s+Empty\s+0", groups("--describe", "--group", group, "--state"))
    said = groups("--delete-offsets", "--group", group, "--topic", f"{filled}:0")
    assert re.search(rf"{filled}\s+0\s+Successful", said)
    left = groups("--describe", "--group", group)
    assert re.findall(rf"{group}\s+{filled}\s+(\d+)", left) == ["1"]
    assert "was successful" in groups("--delete", "--group", group)
    assert group not in groups("--list").split()
    again = ask_tool(peer, "kafka-consumer-groups", "--delete", "--group", group, check=False)
    assert "GroupIdNotFoundException" in again.stdout + again.stderr


def test_kafka_delete_records_raises_the_log_start_offset(peer, filled, tmp_path):
    wanted = [{"topic": filled, "partition": 0, "offset": 15}]
    wanted += [{"topic": filled, "partition": 1, "offset": -1}]
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    said = ask_tool(peer, "kafka-delete-records", "--offset-json-file", str(file)).stdout
    assert sorted(re.findall(r"partition: (\S+)\s+low_watermark: (\d+)", said)) == [
        (f"{filled}-0", "15"),
        (f"{filled}-1", "40"),
    ]
    starts = ask_tool(peer, "kafka-get-offsets", "--topic", filled, "--time", "earliest").stdout
    assert starts.split() == [f"{filled}:0:15", f"{filled}:1:40"]


def test_the_replica_verification_tool_finds_no_lag(peer, filled):
    args = ["--broker-list", peer.bootstrap, "--topics-include", filled, "--report-interval-ms"]
    process = subprocess.Popen(
        tool_command(REPLICA_VERIFICATION, [*args, "500"]), stdout=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    verified = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "max lag is 0" in line:
                verified.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert verified.wait(60), lines
    finally:
        process.kill()
        process.wait()
        reader.join(10)
