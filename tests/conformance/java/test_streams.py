"""A Kafka Streams application with a repartition topic and a store, two instances, in both group
protocols. One instance and then the broker are killed with -9 while it works, and are restarted.
Every word is counted exactly once, record by record. Kafka's tool shows the streams group.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.beside.librdkafka import consumer_of, make_topics, write_all
from tests.conformance.broker_process import BrokerProcess
from tests.conformance.java.word_counts import WordCounts, lines_of, right_counts
from tests.conformance.kafka_broker import run_tool
from tests.conformance.kafka_jars import KafkaUnavailableError

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 3
LINES = 600
DEADLINE_S = 150.0
# What makes a killed instance be noticed soon, and its transaction be ended.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "200",
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "5000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


def instance(folder: Path, name: str, bootstrap: str, **more: str) -> WordCounts:
    """One instance of the application, quick to notice and to commit."""
    settings = {
        "bootstrap_servers": bootstrap,
        "application_id": "words",
        "client_id": name,
        "commit_interval_ms": "100",
        "auto_offset_reset": "earliest",
        "producer_transaction_timeout_ms": "5000",
        "consumer_session_timeout_ms": "6000",
    }
    if more.get("group_protocol") == "streams":
        del settings["consumer_session_timeout_ms"]  # the broker's to say
    try:
        return WordCounts(folder, name, ("lines", "counts"), **settings, **more)
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def produce(bootstrap: str, first: int, end: int) -> None:
    """Write the lines of these numbers, each once."""
    settings = {"enable.idempotence": True}
    write_all(bootstrap, "lines", lines_of(first, end), range(PARTITIONS), settings)


class Counts:
    """What the application has written, as a reader of committed records sees it."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import TopicPartition

        self._consumer = consumer_of(bootstrap)
        self._consumer.assign([TopicPartition("counts", p, 0) for p in range(PARTITIONS)])
        self.seen: dict[str, list[int]] = {}
        self.total = 0

    def read_until(self, total: int, apps: list[WordCounts]) -> None:
        """Read until there are this many records."""
        end = time.monotonic() + DEADLINE_S
        while self.total < total:
            self.total += self._step()
            assert time.monotonic() < end, f"{self.total} of {total}\n" + "\n".join(
                app.output()[-1500:] for app in apps
            )

    def read_rest(self) -> None:
        """Read what is there beyond: nothing should be."""
        for _ in range(5):
            self._step()

    def _step(self) -> bool:
        message = self._consumer.poll(0.2)
        if message is None or message.error() is not None:
            return False
        self.seen.setdefault(message.key().decode(), []).append(int(message.value()))
        return True

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_every_word_is_counted_exactly_once_over_two_kills(
    own_broker: BrokerProcess, tmp_path: Path, protocol: str
) -> None:
    words = 3
    make_topics(own_broker.bootstrap, "lines", "counts", partitions=PARTITIONS)
    settings = {"group_protocol": protocol, "processing_guarantee": "exactly_once_v2"}
    first, second = (
        instance(tmp_path, name, own_broker.bootstrap, **settings) for name in ("one", "two")
    )
    counts = Counts(own_broker.bootstrap)
    third = LINES // 3
    with first, second:
        first.wait_running()
        second.wait_running()
        produce(own_broker.bootstrap, 0, third)
        counts.read_until(third * words // 2, [first, second])
        first.kill()
        produce(own_broker.bootstrap, third, 2 * third)
        counts.read_until((third + third // 2) * words, [first, second])
        own_broker.kill()
        own_broker.start()
        first.start()
        produce(own_broker.bootstrap, 2 * third, LINES)
        counts.read_until(LINES * words, [first, second])
        counts.read_rest()
    counts.close()
    assert counts.seen == right_counts(lines_of(0, LINES))


@pytest.mark.thorough
@pytest.mark.timeout(200)
def test_kafka_streams_groups_lists_and_describes_the_group(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    make_topics(own_broker.bootstrap, "lines", "counts", partitions=PARTITIONS)
    at = ["--bootstrap-server", own_broker.bootstrap]
    with instance(tmp_path, "one", own_broker.bootstrap, group_protocol="streams") as app:
        app.wait_running()
        produce(own_broker.bootstrap, 0, PARTITIONS)
        counts = Counts(own_broker.bootstrap)
        counts.read_until(3 * PARTITIONS, [app])
        counts.close()
        assert run_tool("kafka-streams-groups", [*at, "--list"]).stdout.split() == ["words"]
        members = run_tool(
            "kafka-streams-groups",
            [*at, "--describe", "--group", "words", "--members", "--verbose"],
        ).stdout
        assert "ACTIVE: 0:[0,1,2]; 1:[0,1,2]; TARGET-ACTIVE: 0:[0,1,2]; 1:[0,1,2]" in members
        state = run_tool(
            "kafka-streams-groups", [*at, "--describe", "--group", "words", "--state"]
        ).stdout
        assert state.split()[-2:] == ["Stable", "1"]
        offsets = run_tool("kafka-streams-groups", [*at, "--describe", "--group", "words"]).stdout
        rows = {tuple(row.split()[1:3]) for row in offsets.splitlines() if row.startswith("words")}
        topics = ("lines", "words-words-repartition")
        assert rows == {(topic, str(index)) for topic in topics for index in range(PARTITIONS)}
    run_tool(
        "kafka-streams-groups",
        [*at, "--delete", "--group", "words", "--delete-all-internal-topics"],
    )
    assert run_tool("kafka-streams-groups", [*at, "--list"]).stdout.split() == []
