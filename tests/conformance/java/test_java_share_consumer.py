"""Kafka's own share consumer and kafka-console-share-consumer, unmodified, with the broker.
Acknowledged records are not delivered again; released, renewed and timed-out ones are. The
producer's user learns which records of a batch were refused. java/ShareConsumers.java talks to the
broker, in one JVM; this file checks what it saw.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.beside.programs import Listened, output_of
from tests.beside.waiting import until
from tests.conformance.java.test_share_group_tool import tool
from tests.conformance.kafka_broker import run_tool, tool_command
from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.conformance.libraries.samples import BASE_TIMESTAMP_MS, Sample

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

SOURCE = Path(__file__).with_name("ShareConsumers.java")
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
# Short locks are allowed; members learn their partitions soon.
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "500",
}
PART_OF_A_BATCH = (
    "KafkaException: Failed to append record because it was part of a batch which had one more "
    "more invalid records"
)


@pytest.fixture(scope="module")
def seen(broker) -> dict[str, str]:
    """What the program printed, by step."""
    command = tool_command(str(SOURCE), [broker.bootstrap, "shared"])
    lines = output_of(command, timeout_s=270).splitlines()
    return dict(line.split("\t", 1) for line in lines)


def steps(seen: dict[str, str], name: str) -> dict[str, str]:
    return {step: said for step, said in seen.items() if step.partition(",")[0] == name}


def test_what_is_polled_again_or_committed_counts_as_accepted(seen):
    assert steps(seen, "implicit") == {
        "implicit": "300 records, 300 values",
        "implicit, next": "[lastx1]",
    }


def test_each_record_has_an_acknowledgement_of_its_own(seen):
    assert steps(seen, "explicit") == {
        "explicit": "[v0x1, v1x1, v2x1, v3x1]",
        "explicit, not acknowledged": "IllegalStateException",
        "explicit, committed": "{0=ok}",
        "explicit, released": "[v1x2, v3x2]",
        "explicit, committed later": "[{0=[1, 3]} null]",
        "explicit, next": "[lastx1]",
    }


def test_a_renewed_record_stays_with_its_consumer_for_longer_than_a_lock(seen):
    assert steps(seen, "renewed") == {
        "renewed, lock": "5000",
        "renewed": "[{0=ok}], delivered Optional[1] times, others had 0",
    }


def test_who_holds_a_record_for_too_long_loses_it_and_is_answered_so(seen):
    assert steps(seen, "lost") == {
        "lost, again": "[v0x2]",
        "lost, committed": "{0=InvalidRecordStateException}",
        "lost, committed by the other": "{0=ok}",
    }


def test_a_record_is_delivered_at_most_five_times(seen):
    assert seen["limited"] == "[v0x1, v0x2, v0x3, v0x4, v0x5, lastx1]"


def test_the_producers_user_learns_which_records_had_no_key(seen):
    found = [seen[f"refused {n}"] for n in range(4)]
    assert found[0] == found[2] == PART_OF_A_BATCH
    for said in (found[1], found[3]):
        kind, _, words = said.partition(": ")
        assert kind == "InvalidRecordException"
        assert "compacted" in words.lower()


def samples(*values: bytes) -> list[Sample]:
    return [Sample(None, value, BASE_TIMESTAMP_MS) for value in values]


class Console(Listened):
    """kafka-console-share-consumer, until it is stopped."""

    def __init__(self, *args: str) -> None:
        self.lines: list[str] = []
        super().__init__(tool_command(CONSOLE, args), self.lines.append)

    def wait(self, count: int) -> None:
        """Wait until there are this many lines."""
        until(lambda: len(self.lines) >= count, f"{count} lines", 90)


def test_the_console_consumer_reads_as_a_member_that_the_groups_tool_sees(broker, topic):
    client = PYTHON_CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic, 1)
    client.send(topic, samples(b"v0", b"v1"))
    group = f"{topic}-g"
    where = ["--bootstrap-server", broker.bootstrap]
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"]
    assert [group, topic, "0", "0"] in tool(broker, *reset)
    with Console(*where, "--topic", topic, "--group", group) as console:
        console.wait(2)
        members = tool(broker, "--describe", "--members", "--group", group)
        assert [row[-1] for row in members if row[0] == group] == [f"{topic}:0"]
        refused = run_tool(
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            [*where, "--delete", "--group", group],
            check=False,
        )
        assert "GroupNotEmptyException" in refused.stdout + refused.stderr
        client.send(topic, samples(b"v2"))
        console.wait(3)
        end = time.monotonic() + 60
        while [group, topic, "0", "3", "0"] not in (
            rows := tool(broker, "--describe", "--group", group)
        ):
            assert time.monotonic() < end, rows
        assert console.lines == ["v0", "v1", "v2"]
