"""Handlers of a running broker: ListOffsets, epochs, DeleteRecords, configs, cluster, topics."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.api import API_TABLE, FAST, resolve_handler
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS, decode_response
from tests.broker.harness.wire import Wire
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import list_request, only, produce_request


@pytest.fixture
def wire(running: KstoreBroker) -> Iterator[Wire]:
    wire = Wire(running)
    yield wire
    wire.sock.close()


def produce(wire: Wire, topic: str, *timestamps: int) -> None:
    for timestamp in timestamps:
        request = produce_request(topic, build_batch([b"x"], timestamp=timestamp))
        assert only(wire.call(request, 12)).error_code == 0


def test_every_row_has_a_handler_and_versions_that_can_be_decoded() -> None:
    for key, row in API_TABLE.items():
        api = APIS[key]
        assert api.min_version <= row.min_version <= row.max_version <= api.max_version, api
        if row.handler != FAST:
            assert callable(resolve_handler(row))


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_exactly_the_table(wire: Wire, version: int) -> None:
    request = Ask.ApiVersions(client_software_name="t", client_software_version="1")
    response = wire.call(request, version)
    assert response.error_code == 0
    told = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
    assert told.pop(0) == (0, 13), "Produce is told from 0 on, as Kafka does for old librdkafka"
    assert told == {
        key: (row.min_version, row.max_version)
        for key, row in API_TABLE.items()
        if key != 0 and key < 25300 and not row.internal
    }


def test_api_versions_of_the_future_is_answered_in_version_0(wire: Wire) -> None:
    payload = struct.pack(">hhi", 18, 99, 5) + b"\0\1x\0"
    wire.sock.sendall(struct.pack(">i", len(payload)) + payload)
    correlation_id, response = decode_response(wire.answer(), APIS[18].response, 0)
    assert correlation_id == 5
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [
        (18, 0, 4)
    ]


def test_api_versions_wants_a_software_name(wire: Wire) -> None:
    request = Ask.ApiVersions(client_software_name="", client_software_version="1")
    assert wire.call(request, 4).error_code == ErrorCode.INVALID_REQUEST


def list_offsets(wire: Wire, topic: str, timestamp: int, version: int = 9) -> Any:
    return wire.call(list_request(topic, timestamp), version).topics[0].partitions[0]


def test_list_offsets(wire: Wire) -> None:
    wire.make_topic("offsets")
    empty = list_offsets(wire, "offsets", -3)
    assert (empty.offset, empty.timestamp) == (-1, -1)
    produce(wire, "offsets", 1000, 3000, 2000)

    def ask(timestamp: int, version: int = 9) -> tuple[int, int, int]:
        answer = list_offsets(wire, "offsets", timestamp, version)
        return answer.error_code, answer.offset, answer.timestamp

    assert ask(-1) == (0, 3, -1)
    assert ask(-2) == (0, 0, -1)
    assert ask(-3) == (0, 1, 3000)
    assert ask(-4) == (0, 0, -1)
    assert ask(-5) == (0, -1, -1)
    assert ask(0) == (0, 0, 1000)
    assert ask(1001) == (0, 1, 3000)
    assert ask(3001) == (0, -1, -1)
    assert ask(-3, 6)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert ask(-9)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert list_offsets(wire, "nope", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_in_every_version(wire: Wire, version: int) -> None:
    name = f"offsets-v{version}"
    wire.make_topic(name)
    produce(wire, name, 1000)
    answer = list_offsets(wire, name, -1, version)
    assert (answer.error_code, answer.offset) == (0, 1)
    assert answer.leader_epoch == (0 if version >= 4 else -1)


def test_list_offsets_of_a_partition_named_twice(wire: Wire) -> None:
    part = {"partition_index": 0, "timestamp": -1}
    topic = {"name": "offsets", "partitions": [part, part]}
    answers = wire.call(Ask.ListOffsets(replica_id=-1, topics=[topic])).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST]


def test_offset_for_leader_epoch(wire: Wire) -> None:
    wire.make_topic("epochs")
    produce(wire, "epochs", 1, 2)

    def ask(epoch: int, current: int = -1) -> tuple[int, int, int]:
        part = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        topic = {"topic": "epochs", "partitions": [part]}
        [answer] = wire.call(Ask.OffsetForLeaderEpoch(topics=[topic])).topics[0].partitions
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert ask(0) == (0, 0, 2)
    assert ask(5) == (0, -1, -1)
    assert ask(0, current=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


def test_delete_records(wire: Wire) -> None:
    wire.make_topic("shrinks")
    produce(wire, "shrinks", 1, 2, 3)

    def delete(offset: int, topic: str = "shrinks") -> tuple[int, int]:
        part = {"partition_index": 0, "offset": offset}
        request = Ask.DeleteRecords(topics=[{"name": topic, "partitions": [part]}])
        [answer] = wire.call(request).topics[0].partitions
        return answer.error_code, answer.low_watermark

    assert delete(2) == (0, 2)
    assert list_offsets(wire, "shrinks", -2).offset == 2
    assert delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (0, 3)
    assert delete(0, "nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    wire.make_topic("compacted", cleanup_policy="compact")
    assert delete(0, "compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    wire.call(Ask.FindCoordinator(key="g"), 3)
    assert delete(0, "__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_topic_configs_are_described_and_altered(wire: Wire) -> None:
    wire.make_topic("configured", retention_ms="777")

    def describe(*keys: str) -> dict[str, tuple[str, int]]:
        resource = {
            "resource_type": 2,
            "resource_name": "configured",
            "configuration_keys": list(keys) or None,
        }
        [result] = wire.call(Ask.DescribeConfigs(resources=[resource])).results
        assert result.error_code == 0
        return {row.name: (row.value, row.config_source) for row in result.configs}

    def alter(name: str, operation: int, value: str | None, validate: bool = False) -> int:
        change = {"name": name, "config_operation": operation, "value": value}
        resource = {"resource_type": 2, "resource_name": "configured", "configs": [change]}
        request = Ask.IncrementalAlterConfigs(resources=[resource], validate_only=validate)
        code: int = wire.call(request).responses[0].error_code
        return code

    assert describe("retention.ms") == {"retention.ms": ("777", 1)}
    assert describe()["segment.bytes"] == (str(2**30), 5)
    assert alter("retention.ms", 0, "888", validate=True) == 0
    assert describe("retention.ms")["retention.ms"] == ("777", 1)
    assert alter("retention.ms", 0, "888") == 0
    assert describe("retention.ms")["retention.ms"] == ("888", 1)
    assert alter("retention.ms", 1, None) == 0
    assert describe("retention.ms")["retention.ms"] == (str(7 * 86_400_000), 5)
    assert alter("cleanup.policy", 2, "compact") == 0
    assert describe("cleanup.policy")["cleanup.policy"] == ("delete,compact", 1)
    assert alter("cleanup.policy", 3, "delete") == 0
    assert describe("cleanup.policy")["cleanup.policy"] == ("compact", 1)
    assert alter("retention.ms", 2, "1") == ErrorCode.INVALID_CONFIG
    assert alter("retention.ms", 0, "soon") == ErrorCode.INVALID_CONFIG
    assert alter("nonsense", 0, "1") == ErrorCode.INVALID_CONFIG


def test_broker_configs_are_described(wire: Wire) -> None:
    resource = {
        "resource_type": 4,
        "resource_name": "1",
        "configuration_keys": ["num.partitions", "log.dirs"],
    }
    [result] = wire.call(Ask.DescribeConfigs(resources=[resource])).results
    assert {row.name: row.config_source for row in result.configs} == {
        "num.partitions": 5, "log.dirs": 4,
    }  # fmt: skip
    resource = {"resource_type": 4, "resource_name": "7"}
    [result] = wire.call(Ask.DescribeConfigs(resources=[resource])).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_the_cluster_is_described(wire: Wire, running: KstoreBroker) -> None:
    response = wire.call(Ask.DescribeCluster())
    [node] = response.brokers
    assert (node.broker_id, node.host, node.port) == (1, running.host, running.port)
    assert response.controller_id == 1
    assert len(response.cluster_id) == 22
    other = wire.call(Ask.DescribeCluster(endpoint_type=2))
    assert other.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(wire: Wire, running: KstoreBroker, version: int) -> None:
    topic_id = wire.make_topic(f"meta-v{version}", 2)
    request = Ask.Metadata(topics=[{"name": f"meta-v{version}"}])
    response = wire.call(request, version)
    [topic] = response.topics
    assert (topic.error_code, topic.name) == (0, f"meta-v{version}")
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1), (1, 1)]
    assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [1]
    if version >= 10:
        assert topic.topic_id == topic_id
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
        (1, running.host, running.port)
    ]


def test_metadata_by_id_of_unknown_and_illegal_topics(wire: Wire) -> None:
    topic_id = wire.make_topic("by-id")
    topics = [
        {"name": None, "topic_id": topic_id},
        {"name": None, "topic_id": UUID(int=1)},
        {"name": "not there"},
        {"name": "not-there"},
    ]
    response = wire.call(Ask.Metadata(topics=topics, allow_auto_topic_creation=False))
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("by-id", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("not there", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("not-there", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_described_partitions_come_in_pages(wire: Wire) -> None:
    wire.make_topic("pages-a", 3)
    wire.make_topic("pages-b", 2)
    topics = [{"name": name} for name in ("pages-b", "pages-a", "pages-none")]
    seen = []
    cursor = None
    while True:
        response = wire.call(
            Ask.DescribeTopicPartitions(topics=topics, response_partition_limit=2, cursor=cursor)
        )
        seen.append(
            [(t.name, t.error_code, [p.partition_index for p in t.partitions])
             for t in response.topics]
        )  # fmt: skip
        if response.next_cursor is None:
            break
        cursor = {
            "topic_name": response.next_cursor.topic_name,
            "partition_index": response.next_cursor.partition_index,
        }
    assert seen == [
        [("pages-a", 0, [0, 1])],
        [("pages-a", 0, [2]), ("pages-b", 0, [0])],
        [("pages-b", 0, [1]), ("pages-none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])],
    ]


def test_topics_are_validated_only_where_that_is_asked(wire: Wire) -> None:
    topic = {"name": "only-checked", "num_partitions": 2, "replication_factor": 1}
    [result] = wire.call(Ask.CreateTopics(topics=[topic], validate_only=True)).topics
    assert (result.error_code, result.num_partitions) == (0, 2)
    request = Ask.Metadata(topics=[{"name": "only-checked"}], allow_auto_topic_creation=False)
    assert wire.call(request).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_named_twice_is_not_made(wire: Wire) -> None:
    topic = {"name": "twice", "num_partitions": 1, "replication_factor": 1}
    other = {"name": "once", "num_partitions": 1, "replication_factor": 1}
    results = wire.call(Ask.CreateTopics(topics=[topic, other, topic])).topics
    assert {r.name: r.error_code for r in results} == {
        "twice": ErrorCode.INVALID_REQUEST, "once": 0,
    }  # fmt: skip


def test_a_timeout_that_is_over_before_it_began_changes_nothing(wire: Wire) -> None:
    late = {"name": "too-late", "num_partitions": 1, "replication_factor": 1}
    [made] = wire.call(Ask.CreateTopics(topics=[late], timeout_ms=0)).topics
    assert made.error_code == ErrorCode.REQUEST_TIMED_OUT
    states = [{"name": "too-late"}]
    [gone] = wire.call(Ask.DeleteTopics(topics=states, timeout_ms=-1)).responses
    assert gone.error_code == ErrorCode.REQUEST_TIMED_OUT
    [gone] = wire.call(Ask.DeleteTopics(topics=states, timeout_ms=5000)).responses
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_name_and_id(wire: Wire) -> None:
    topic_id = wire.make_topic("dies-by-id")
    wire.make_topic("dies-by-name")
    states = [
        {"name": None, "topic_id": topic_id},
        {"name": "dies-by-name"},
        {"name": "never-was"},
        {"name": None, "topic_id": UUID(int=1)},
    ]
    results = wire.call(Ask.DeleteTopics(topics=states, timeout_ms=5000)).responses
    assert [(r.name, r.error_code) for r in results] == [
        ("dies-by-id", 0),
        ("dies-by-name", 0),
        ("never-was", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    wire.make_topic("dies-by-name")
    old = wire.call(Ask.DeleteTopics(topic_names=["dies-by-name"], timeout_ms=5000), 3)
    assert [r.error_code for r in old.responses] == [0]
