"""Kafka 4.3.1's own command-line tools, unmodified, against the broker: console producer and
consumer, the two perf tools, and the admin tools.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kstore.clients import AdminClient
from tests.conformance.kafka_broker import ask_tool, run_tool
from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.conformance.libraries.samples import CODECS, plain_samples, samples

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]


def create(peer, topic: str, partitions: int = 1) -> None:
    """A topic made by kafka-topics."""
    args = ["--create", "--topic", topic, "--partitions", str(partitions)]
    assert f"Created topic {topic}" in ask_tool(peer, "kafka-topics", *args).stdout


def typed(sent) -> str:
    """The console producer's input: headers, key and value, tab-separated; NULL is null."""
    return "".join(
        f"h:v\t{s.key.decode()}\t{'NULL' if s.value is None else s.value.decode()}\n" for s in sent
    )


def read_lines(peer, topic: str, count: int, *extra: str) -> list[str]:
    """The console consumer's lines with everything that it can print."""
    formats = ["key", "headers", "offset", "partition", "timestamp"]
    shown = [f"--formatter-property=print.{name}=true" for name in formats]
    limits = ["--max-messages", str(count), "--timeout-ms", "30000"]
    args = ["--topic", topic, *limits, *shown, *extra]
    return ask_tool(peer, "kafka-console-consumer", *args).stdout.splitlines()


@pytest.mark.parametrize(
    "codec",
    [name if name == "zstd" else pytest.param(name, marks=pytest.mark.thorough) for name in CODECS],
)
def test_the_console_producer_and_consumer_agree(peer, topic, codec):
    create(peer, topic)
    sent = plain_samples()
    properties = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    reader = [f"--reader-property={text}" for text in properties]
    args = ["--topic", topic, f"--compression-codec={codec}", *reader]
    ask_tool(peer, "kafka-console-producer", *args, stdin=typed(sent))
    lines = read_lines(peer, topic, len(sent), "--from-beginning")
    shown = [re.sub(r"^CreateTime:\d+\t", "", line) for line in lines]
    assert shown == [
        f"Partition:0\tOffset:{offset}\th:v\t{s.key.decode()}\t"
        + ("null" if s.value is None else s.value.decode())
        for offset, s in enumerate(sent)
    ]


def test_console_consumers_that_run_at_once_each_read_all_of_their_records(peer, topic):
    """Both wait when the records arrive: in one JVM, a shared count would end them early."""
    topics = [f"{topic}-{name}" for name in "ab"]
    client = PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap)
    with ThreadPoolExecutor(2) as pool, AdminClient(peer.bootstrap) as admin:
        for name in topics:
            client.create_topic(name, 1)
        reading = [pool.submit(read_lines, peer, name, 20, "--group", name) for name in topics]
        end = time.monotonic() + 60
        while not {*topics} <= {row.group_id for row in admin.list_groups(states=["Stable"])}:
            assert time.monotonic() < end
            time.sleep(0.05)
        for name in topics:
            client.send(name, samples(20))
        assert [len(lines.result()) for lines in reading] == [20, 20]


def test_java_reads_what_python_clients_wrote_compressed(peer, topic):
    create(peer, topic)
    expected = []
    for client in PYTHON_CLIENTS.values():
        for codec in CODECS:
            sent = [
                s._replace(key=b"%s %s" % (client.name.encode(), codec.encode()))
                for s in samples(5)
            ]
            client(peer.bootstrap).send(topic, sent, codec=codec)
            expected += sent
    lines = read_lines(peer, topic, len(expected), "--from-beginning")
    heads = [line.split("\t")[:3] for line in lines]
    assert heads == [
        [f"CreateTime:{s.timestamp_ms}", "Partition:0", f"Offset:{offset}"]
        for offset, s in enumerate(expected)
    ]


def test_a_java_group_commits_and_kafka_consumer_groups_describes_it(peer, topic):
    create(peer, topic, 2)
    client = PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap)
    for partition in range(2):
        client.send(topic, samples(10), partition=partition)
    group = f"g-{topic}"
    read = read_lines(peer, topic, 20, "--group", group, "--from-beginning")
    assert len(read) == 20
    client.send(topic, samples(5), partition=1)
    args = ["--describe", "--group", group]
    described = ask_tool(peer, "kafka-consumer-groups", *args).stdout
    rows = sorted(line.split()[1:6] for line in described.splitlines() if topic in line)
    assert rows == [[topic, "0", "10", "10", "0"], [topic, "1", "10", "15", "5"]]
    assert group in ask_tool(peer, "kafka-consumer-groups", "--list").stdout.split()


@pytest.mark.thorough
def test_the_perf_tools_move_every_record(peer, topic):
    create(peer, topic, 2)
    settings = ["acks=all", "compression.type=lz4", f"bootstrap.servers={peer.bootstrap}"]
    args = ["--topic", topic, "--num-records", "20000", "--record-size", "500"]
    args += ["--throughput", "-1", "--command-property", *settings]
    produced = run_tool("kafka-producer-perf-test", args).stdout
    assert "20000 records sent" in produced
    args = ["--topic", topic, "--num-records", "20000", "--timeout", "30000"]
    consumed = ask_tool(peer, "kafka-consumer-perf-test", *args).stdout
    head, row = (line.split(", ") for line in consumed.splitlines()[:2])
    measured = dict(zip(head, row, strict=True))
    assert measured["data.consumed.in.nMsg"] == "20000"
    assert float(measured["data.consumed.in.MB"]) == pytest.approx(20000 * 500 / 2**20, rel=0.01)


def test_kafka_topics_creates_lists_describes_and_deletes(peer, topic):
    create(peer, topic, 3)
    assert topic in ask_tool(peer, "kafka-topics", "--list").stdout.split()
    described = ask_tool(peer, "kafka-topics", "--describe", "--topic", topic).stdout
    rows = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", described)
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert all(row[1] == row[2] == row[3] for row in rows)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1", described)
    ask_tool(peer, "kafka-topics", "--delete", "--topic", topic)
    assert topic not in ask_tool(peer, "kafka-topics", "--list").stdout.split()
    missing = ask_tool(peer, "kafka-topics", "--describe", "--topic", topic, check=False)
    assert "does not exist" in missing.stdout + missing.stderr


@pytest.mark.thorough
def test_kafka_get_offsets_shows_ends_and_timestamps(peer, topic):
    create(peer, topic, 2)
    client = PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap)
    sent = samples(30)
    client.send(topic, sent, partition=1)

    def offsets(time: str) -> list[str]:
        return ask_tool(peer, "kafka-get-offsets", "--topic", topic, "--time", time).stdout.split()

    assert offsets("-1") == [f"{topic}:0:0", f"{topic}:1:30"]
    assert offsets("-2") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("-3") == [f"{topic}:1:29"]  # the record with the largest timestamp
    assert offsets(str(sent[12].timestamp_ms - 5)) == [f"{topic}:1:12"]
