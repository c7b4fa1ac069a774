"""Unmodified clients get Kafka's bytes: a relay keeps every answer that librdkafka and the Java
client get from a broker, and each is decoded by Kafka's own schemas, which know no tag of kstore's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.clients.io.loop_thread import LoopThread
from kstore.protocol.registry import APIS
from tests.conformance.broker_process import free_ports
from tests.conformance.kafka_broker import run_tool
from tests.conformance.kstore_broker import KstoreBroker
from tests.protocol.test_messages_match_kafka import kafka_schemas
from tests.reference.kafka_decoder import decode_message

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

API_VERSIONS = 18
DATA = ("ProduceResponse", "FetchResponse", "ListOffsetsResponse", "MetadataResponse")
GROUPS = ("OffsetCommitResponse", "OffsetFetchResponse", "FindCoordinatorResponse")
CLASSIC = ("JoinGroupResponse", "SyncGroupResponse", "HeartbeatResponse")
TRANSACTIONS = (
    "InitProducerIdResponse", "AddPartitionsToTxnResponse", "AddOffsetsToTxnResponse",
    "TxnOffsetCommitResponse", "EndTxnResponse",
)  # fmt: skip


class Relay:
    """Stands between clients and a broker, and keeps the answers."""

    def __init__(self, port: int, broker: int) -> None:
        self.answers: list[tuple[int, int, bytes]] = []
        """(API key, version, what stands behind the header)."""
        self._port, self._broker = port, broker
        self._thread = LoopThread()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.run(self._open())

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._lead, "127.0.0.1", self._port)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection("127.0.0.1", self._broker)
        asked: dict[int, tuple[int, int]] = {}
        tasks = [
            asyncio.ensure_future(self._pass(reader, before, asked, is_request=True)),
            asyncio.ensure_future(self._pass(behind, writer, asked, is_request=False)),
        ]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in (before, writer):
            each.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[int, int]],
        *,
        is_request: bool,
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size))
                if is_request:
                    key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
                    asked[int.from_bytes(frame[4:8])] = key, version
                else:
                    key, version = asked.pop(int.from_bytes(frame[:4]))
                    has_tags = version >= APIS[key].flexible_from and key != API_VERSIONS
                    self.answers.append((key, version, frame[5 if has_tags else 4 :]))
                writer.write(size + frame)
                await writer.drain()

    def check(self) -> Counter[str]:
        """Decode everything that arrived; returns the number of answers of each type."""
        schemas = kafka_schemas()
        found: Counter[str] = Counter()
        for key, version, body in list(self.answers):
            name = APIS[key].response.__name__
            decode_message(schemas[name], version, body)
            found[name] += 1
        self.answers.clear()
        return found

    def close(self) -> None:
        self._thread.run(self._close())
        self._thread.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Relay, str]]:
    """A relay to a broker that names the relay's address, and that address."""
    mine = free_ports(1)
    folder: Path = tmp_path_factory.mktemp("relayed")
    overrides = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{mine}",
        "group.initial.rebalance.delay.ms": "0",
    }
    with KstoreBroker(folder, overrides=overrides) as broker:
        between = Relay(mine, int(broker.bootstrap.rpartition(":")[2]))
        yield between, f"127.0.0.1:{mine}"
        between.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_gets_kafkas_bytes(relay: tuple[Relay, str], protocol: str) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    between, address = relay
    topic = f"rd-{protocol}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    settings = {"bootstrap.servers": address, "transactional.id": topic, "linger.ms": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": topic, "group.protocol": protocol,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        "enable.auto.commit": False,
    })  # fmt: skip
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    producer.commit_transaction(60)
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    assert message.value() == b"1"
    producer.begin_transaction()
    producer.produce(topic, b"2", partition=1)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
    )
    producer.commit_transaction(60)
    message = consumer.poll(60)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    consumer.committed(consumer.assignment(), 60)
    consumer.close()
    admin.list_consumer_groups().result(60)
    found = between.check()
    wanted = {*DATA, *GROUPS, *TRANSACTIONS, "CreateTopicsResponse", "ApiVersionsResponse"}
    wanted |= {*CLASSIC[:2]} if protocol == "classic" else {"ConsumerGroupHeartbeatResponse"}
    assert wanted <= found.keys(), wanted - found.keys()


def test_java_gets_kafkas_bytes(relay: tuple[Relay, str]) -> None:
    between, address = relay
    server = ["--bootstrap-server", address, "--topic", "java"]
    run_tool("kafka-topics", [*server, "--create", "--partitions", "2"])
    run_tool("kafka-producer-perf-test", [
        *server, "--num-records", "20", "--record-size", "10", "--throughput", "1000",
        "--transactional-id", "t-java", "--transaction-duration-ms", "5",
    ])  # fmt: skip
    for protocol in ("classic", "consumer"):
        lines = run_tool("kafka-console-consumer", [
            *server, "--from-beginning", "--max-messages", "20", "--timeout-ms", "30000",
            "--group", protocol, "--command-property", f"group.protocol={protocol}",
            "--isolation-level", "read_committed",
        ])  # fmt: skip
        assert len(lines.stdout.splitlines()) == 20
    run_tool("kafka-consumer-groups", ["--bootstrap-server", address, "--describe", "--all-groups"])
    found = between.check()
    wanted = {*DATA, *GROUPS, *CLASSIC[:2], "ConsumerGroupHeartbeatResponse"}
    wanted |= {"InitProducerIdResponse", "EndTxnResponse", "ConsumerGroupDescribeResponse"}
    assert wanted <= found.keys(), wanted - found.keys()
