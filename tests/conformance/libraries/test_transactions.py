"""Transactions of unmodified clients: librdkafka, aiokafka, kafka-python and Java's tools, and a
copy with exactly-once results while the broker is killed again and again.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.beside.librdkafka import committed_offset, consumer_of, read_all, write_all
from tests.beside.waiting import until
from tests.conformance.kafka_broker import run_tool, tool_command
from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.reference.transactional_producer import Producer

DEADLINE_S = 40.0
READER = {
    "isolation.level": "read_committed", "metadata.recovery.strategy": "none",
    "reconnect.backoff.max.ms": 300,
}  # fmt: skip
ENDS = (True, False, True, True, False)  # commit or abort


def make_topic(broker: Any, topic: str, partitions: int = 1) -> None:
    """A topic made by librdkafka."""
    PYTHON_CLIENTS["confluent-kafka"](broker.bootstrap).create_topic(topic, partitions)


def confluent_consumer(broker: Any, group: str) -> Any:
    """A read_committed consumer that does not commit automatically."""
    return consumer_of(broker.bootstrap, group, READER)


def committed(broker: Any, topic: str, partition: int = 0) -> list[bytes]:
    """All committed values of a partition, up to the last stable offset."""
    found = read_all(broker.bootstrap, topic, [partition], READER)
    return [each.value() for each in found]


# ---- the clients' own transactions ----


def with_confluent(broker: Any, topic: str, group: str) -> None:
    """Each transaction: a record in both partitions and an offset."""
    from confluent_kafka import Producer, TopicPartition

    consumer = confluent_consumer(broker, group)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(DEADLINE_S)
    for number, commits in enumerate(ENDS):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition)
        offsets = [TopicPartition(topic, 0, number + 1)]
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, DEADLINE_S)
        end = producer.commit_transaction if commits else producer.abort_transaction
        end(DEADLINE_S)
    consumer.close()


def with_aiokafka(broker: Any, topic: str, group: str) -> None:

    async def story() -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.structs import TopicPartition

        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
        await producer.start()
        try:
            for number, commits in enumerate(ENDS):
                await producer.begin_transaction()
                for partition in (0, 1):
                    await producer.send_and_wait(topic, b"%d" % number, partition=partition)
                offsets = {TopicPartition(topic, 0): number + 1}
                await producer.send_offsets_to_transaction(offsets, group)
                end = producer.commit_transaction if commits else producer.abort_transaction
                await end()
        finally:
            await producer.stop()

    asyncio.run(story())


def with_kafka_python(broker: Any, topic: str, group: str) -> None:
    from kafka import KafkaProducer
    from kafka.structs import OffsetAndMetadata, TopicPartition

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for number, commits in enumerate(ENDS):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send(topic, b"%d" % number, partition=partition).get(DEADLINE_S)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(number + 1, "", -1)}
        producer.send_offsets_to_transaction(offsets, group)
        end = producer.commit_transaction if commits else producer.abort_transaction
        end()
    producer.close()


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("run", [with_confluent, with_aiokafka, with_kafka_python])
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    peer: Any, topic: str, run: Callable[[Any, str, str], None]
) -> None:
    make_topic(peer, topic, 2)
    run(peer, topic, f"{topic}-group")
    kept = [b"%d" % number for number, commits in enumerate(ENDS) if commits]
    assert committed(peer, topic, 0) == committed(peer, topic, 1) == kept
    assert (
        committed_offset(peer.bootstrap, f"{topic}-group", topic) == 4
    )  # of the last that was committed


def test_a_second_producer_fences_the_first(peer: Any, topic: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka import Producer as Confluent

    make_topic(peer, topic)
    settings = {"bootstrap.servers": peer.bootstrap, "transactional.id": topic, "log_level": 0}
    first = Confluent(settings)
    first.init_transactions(DEADLINE_S)
    first.begin_transaction()
    first.produce(topic, b"first", partition=0)
    first.flush(DEADLINE_S)
    second = Confluent(settings)
    second.init_transactions(DEADLINE_S)
    second.begin_transaction()
    second.produce(topic, b"second", partition=0)
    second.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException):
        first.commit_transaction(DEADLINE_S)
    assert committed(peer, topic) == [b"second"]


# ---- exactly once, while the broker is killed ----


class Copier:
    """Copies a topic record by record, in transactions with the offsets, as an application would: a
    failed transaction is aborted and started again from the committed offsets.
    """

    def __init__(self, broker: Any, source: str, target: str) -> None:
        self.broker, self.source, self.target = broker, source, target
        self.made = 0

    def run(self, count: int, size: int, after_each: Callable[[int], None]) -> None:
        """Run until ``count`` records are copied; ``after_each(copied)`` runs after each
        transaction.
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + 3 * DEADLINE_S
        while True:
            try:
                for copied in self._attempt(size):
                    after_each(copied)
                    if copied >= count:
                        return
            except KafkaException:
                assert time.monotonic() < deadline, "the copy did not get on"

    def _attempt(self, size: int) -> Iterator[int]:
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka import Producer as Confluent

        consumer = confluent_consumer(self.broker, "copies")
        producer = Confluent(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "transactional.id": "copier",
                "transaction.timeout.ms": 30_000,
                "metadata.recovery.strategy": "none",  # see FINDINGS.md
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(DEADLINE_S)
            (start,) = consumer.committed([TopicPartition(self.source, 0)], DEADLINE_S)
            position = max(start.offset, 0)
            consumer.assign([TopicPartition(self.source, 0, position)])
            while True:
                yield position
                producer.begin_transaction()
                for message in consumer.consume(size, 1.0):
                    if message.error() is None:
                        producer.produce(self.target, message.value(), partition=0)
                        position = message.offset() + 1
                offsets = [TopicPartition(self.source, 0, position)]
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(offsets, metadata, DEADLINE_S)
                producer.commit_transaction(DEADLINE_S)
        finally:
            with suppress(KafkaException):
                producer.abort_transaction(1)
            consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_copy_is_exact_while_the_broker_is_killed(own_broker: Any, topic: str) -> None:
    values = [b"%05d" % number for number in range(600)]
    source, target = f"{topic}-from", f"{topic}-to"
    make_topic(own_broker, source)
    make_topic(own_broker, target)
    write_all(own_broker.bootstrap, source, values, [0], {"enable.idempotence": True})
    kills = iter((80, 200, 330, 450, 10_000))
    next_kill = next(kills)

    def kill_now_and_then(copied: int) -> None:
        nonlocal next_kill
        if copied >= next_kill:
            next_kill = next(kills)
            own_broker.kill()
            own_broker.start()

    Copier(own_broker, source, target).run(len(values), 20, kill_now_and_then)
    assert next_kill == 10_000
    assert committed(own_broker, target) == values


# ---- Java ----


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mode", ["--group-mode", pytest.param("--use-group-metadata", marks=pytest.mark.thorough)]
)
def test_kafkas_transactional_message_copier_is_exact_under_kills(
    own_broker: Any, topic: str, mode: str
) -> None:
    values = [b"%06d" % number for number in range(6000)]
    source, target = f"{topic}-from", f"{topic}-to"
    make_topic(own_broker, source)
    make_topic(own_broker, target)
    write_all(own_broker.bootstrap, source, values, [0], {"enable.idempotence": True})
    options = {
        "--broker-list": own_broker.bootstrap,
        "--input-topic": source,
        "--input-partition": "0",
        "--output-topic": target,
        "--consumer-group": "copiers",
        "--transaction-size": "50",
        "--transactional-id": "copier",
    }
    args = [part for option in options.items() for part in option]
    command = tool_command(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        [*args, "--enable-random-aborts", "--use-group-metadata", mode],
    )
    kills = [500, 2000, 4000]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            done = processed(line)
            if kills and done >= kills[0]:
                kills.pop(0)
                own_broker.kill()
                own_broker.start()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert kills == []
    assert committed(own_broker, target) == values


def processed(line: bytes) -> int:
    """How many messages a status line of the copier says to be copied."""
    with suppress(ValueError):
        status = json.loads(line)
        return int(status.get("totalProcessed", 0))
    return 0


def started_producer(broker: Any, name: str) -> Producer:
    """A producer with an id, and its topic."""
    producer = Producer(broker, name)
    producer.create_topic()
    until(lambda: not producer.init().error_code, "a producer id")
    return producer


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_kafka_transactions_lists_describes_finds_and_aborts(own_broker: Any) -> None:
    def tool(*args: str) -> list[list[str]]:
        main = "org.apache.kafka.tools.TransactionsCommand"
        done = run_tool(main, ["--bootstrap-server", own_broker.bootstrap, *args])
        return [line.split() for line in done.stdout.splitlines()[1:]]

    producer = started_producer(own_broker, "tool-tx")
    producer.behind_ms = 5 * 3600 * 1000
    assert producer.write(b"v", 0, 0, 1) == [0, 0]
    listed = tool("list", "--transactional-id-pattern", "tool-.*", "--duration-filter", "0")
    assert listed == [["tool-tx", "1", str(producer.id), "Ongoing"]]
    ((*_, places),) = tool("describe", "--transactional-id", "tool-tx")
    assert sorted(places.split(",")) == ["t-0", "t-1"]
    ((*found, start),) = tool("describe-producers", "--topic", "t", "--partition", "1")
    assert (found[0], start) == (str(producer.id), "0")
    assert tool("find-hanging", "--topic", "t") == []  # its coordinator knows it
    tool("abort", "--topic", "t", "--partition", "1", "--start-offset", "0")
    assert producer.stable_offset(1) == 2
    assert producer.stable_offset(0) == 0


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_kafka_transactions_finds_and_aborts_what_hangs(peer: Any, tmp_path: Path) -> None:
    unverified = {"transaction.partition.verification.enable": "false"}
    with type(peer)(tmp_path, overrides=unverified) as broker:
        producer = started_producer(broker, "hangs")
        producer.behind_ms = 5 * 3600 * 1000
        assert producer.write(b"v", version=11) == [0]
        assert producer.stable_offset() == 0
        main = "org.apache.kafka.tools.TransactionsCommand"
        server = ["--bootstrap-server", broker.bootstrap]
        found = run_tool(main, [*server, "find-hanging", "--broker-id", "1"]).stdout.splitlines()
        assert found[1].split()[:3] == ["t", "0", str(producer.id)]
        place = ["--topic", "t", "--partition", "0", "--start-offset", "0"]
        run_tool(main, [*server, "abort", *place])
        assert producer.stable_offset() == 2
        assert producer.read() == []


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_kafkas_own_decoder_reads_the_transaction_log(peer: Any, tmp_path: Path) -> None:
    one = {"transaction.state.log.num.partitions": "1"}
    with type(peer)(tmp_path, overrides=one) as broker:
        producer = started_producer(broker, "tx")
        producer.write(b"v", 0, 0, 1)
        producer.end(committed=True)
        producer.await_state("CompleteCommit")
    segment = broker.log_dir / "__transaction_state-0" / "00000000000000000000.log"
    args = ["--files", str(segment), "--transaction-log-decoder"]
    payloads = re.findall(r"payload: (\{.*\})", run_tool("kafka-dump-log", args).stdout)
    found = [json.loads(payload)["data"] for payload in payloads]
    assert [row["transactionStatus"] for row in found] == [0, 1, 2, 4]
    assert [row["producerEpoch"] for row in found] == [0, 0, 1, 1]
    assert [row["transactionPartitions"] for row in found] == [
        None,
        [{"topic": "t", "partitionIds": [0, 1]}],
        [{"topic": "t", "partitionIds": [0, 1]}],
        [],
    ]
