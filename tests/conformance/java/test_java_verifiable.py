"""Kafka's own test programs, unmodified: verifiable producer and consumer with every classic
assignor and with the new protocol, the end-to-end latency tool, the replica verification tool, and
kafka-broker-api-versions, whose answer is compared with what Kafka itself says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.beside.programs import Listened
from tests.beside.waiting import until
from tests.conformance.conftest import AGAINST_KAFKA
from tests.conformance.java.test_java_tools import create
from tests.conformance.kafka_broker import KafkaBroker, ask_tool, run_tool, tool_command

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

ASSIGNORS = {
    "eager": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def events(text: str) -> Iterator[dict[str, Any]]:
    """The JSON lines that the verifiable programs print."""
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def produce(peer, topic: str, count: int, *more: str) -> list[dict[str, Any]]:
    """The output of kafka-verifiable-producer for `count` records."""
    args = ["--topic", topic, "--max-messages", str(count), *more]
    done = ask_tool(peer, "org.apache.kafka.tools.VerifiableProducer", *args)
    return list(events(done.stdout))


class Consumer(Listened):
    """A verifiable consumer in a process; its events in order."""

    def __init__(self, peer, topic: str, *more: str) -> None:
        args = ["--bootstrap-server", peer.bootstrap, "--topic", topic]
        args += ["--group-id", f"g-{topic}", "--reset-policy", "earliest", "--verbose", *more]
        self.events: list[dict[str, Any]] = []
        command = tool_command("org.apache.kafka.tools.VerifiableConsumer", args)
        super().__init__(command, lambda line: self.events.extend(events(line)))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["name"] == name]

    def values(self) -> list[str]:
        return [event["value"] for event in self.named("record_data")]

    def held(self) -> set[int]:
        """The partitions that it has now."""
        mine: set[int] = set()
        for event in list(self.events):
            partitions = {row["partition"] for row in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                mine |= partitions
            elif event["name"] == "partitions_revoked":
                mine -= partitions
        return mine


@contextmanager
def consumers(peer, topic: str, *options: list[str]) -> Iterator[list[Consumer]]:
    """One consumer for each list of options, all stopped at the end."""
    with ExitStack() as running:
        yield [running.enter_context(Consumer(peer, topic, *more)) for more in options]


@pytest.mark.parametrize("acks", ["-1", pytest.param("1", marks=pytest.mark.thorough)])
def test_the_verifiable_producer_has_every_record_acknowledged(peer, topic, acks):
    create(peer, topic, 2)
    said = produce(peer, topic, 500, "--acks", acks, "--value-prefix", "7")
    (summary,) = (event for event in said if event["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (500, 500)
    places = {
        (event["partition"], event["offset"])
        for event in said
        if event["name"] == "producer_send_success"
    }
    assert len(places) == 500
    assert {partition for partition, _ in places} <= {0, 1}


@pytest.mark.thorough
@pytest.mark.parametrize("assignor", ["cooperative", "eager"])
def test_two_verifiable_consumers_share_a_topic_and_one_takes_over(peer, topic, assignor):
    create(peer, topic, 4)
    options = ["--assignment-strategy", ASSIGNORS[assignor]]
    with consumers(peer, topic, options, options) as (first, second):
        until(
            lambda: (
                sorted([len(first.held()), len(second.held())]) == [2, 2]
                and not first.held() & second.held()
            ),
            "not shared",
        )
        produce(peer, topic, 200)
        wanted = {str(number) for number in range(200)}
        until(lambda: {*first.values(), *second.values()} >= wanted, "not all read")
        first.stop()
        until(lambda: second.held() == {0, 1, 2, 3}, "not taken over")
        produce(peer, topic, 100, "--value-prefix", "2")
        later = {f"2.{number}" for number in range(100)}
        until(lambda: set(second.values()) >= later, "later ones not read")
        assert len(first.values()) + len(second.values()) == 300


@pytest.mark.thorough
def test_a_static_verifiable_consumer_comes_back_without_a_rebalance(peer, topic):
    create(peer, topic, 4)
    options = [["--group-instance-id", name, "--session-timeout", "60000"] for name in "ab"]
    with consumers(peer, topic, *options) as (first, second):
        until(lambda: sorted([len(first.held()), len(second.held())]) == [2, 2], "not shared")
        had, before = second.held(), len(second.named("partitions_assigned"))
        lost = first.held()
        first.stop()
        with consumers(peer, topic, options[0]) as (again,):
            until(lambda: again.held() == lost, "not given back")
        assert second.held() == had
        assert len(second.named("partitions_assigned")) == before


@pytest.mark.thorough
def test_end_to_end_latency_gets_every_message_back(peer, topic):
    create(peer, topic)
    args = ["--bootstrap-server", peer.bootstrap, "--topic", topic, "--num-records", "200"]
    args += ["--producer-acks", "all", "--record-size", "100"]
    said = run_tool("org.apache.kafka.tools.EndToEndLatency", args).stdout
    assert re.search(r"Percentiles: 50th = \d+", said)


@pytest.mark.thorough
def test_kafka_broker_api_versions_says_what_it_says_of_kafka(peer, kafka: KafkaBroker):
    if AGAINST_KAFKA:
        pytest.skip("it compares kstore with Kafka")

    def listed(broker: Any) -> dict[str, str]:
        said = ask_tool(broker, "kafka-broker-api-versions").stdout
        return dict(re.findall(r"^\s+(\w+\(\d+\)): (.*?),?$", said, re.MULTILINE))

    ours, theirs = listed(peer), listed(kafka)
    assert ours == theirs | {name: ours[name] for name in ours if "Telemetry" in name}
