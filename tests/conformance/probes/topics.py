"""Probes of ApiVersions, Metadata, CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import uuid
from typing import Any

from kstore.protocol.schema import Message
from tests.conformance.probes.story import Peer, Story, case
from tests.plain_messages import Ask

UNKNOWN_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")


def create(topic: str, partitions: int = 1, **configs: str) -> Message:
    """A request for one topic with one replica."""
    rows = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
    new = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
    return Ask.CreateTopics(topics=[new], timeout_ms=20_000)


@case("ApiVersions client names", 18, 3)
def _wrong_api_versions(peer: Peer, version: int) -> Story:
    for name, software in (("", "1.0"), ("bad name!", "1.0"), ("probe", "1.0")):
        yield Ask.ApiVersions(client_software_name=name, client_software_version=software)


@case("DescribeCluster", 60)
def _describe_cluster(peer: Peer, version: int) -> Story:
    yield Ask.DescribeCluster()
    yield Ask.DescribeCluster(include_cluster_authorized_operations=True)


@case("Metadata", 3)
def _metadata(peer: Peer, version: int) -> Story:
    yield create(f"probe-metadata-{version}", 3)

    def ask(*names: str) -> Message:
        topics = [{"name": name} for name in names]
        return Ask.Metadata(topics=topics, allow_auto_topic_creation=version < 4)

    yield ask(f"probe-metadata-{version}")
    if version >= 4:
        for wrong in ("probe-absent", "bad name", ".", "..", "", "x" * 250):
            yield ask(wrong)
        yield ask(f"probe-metadata-{version}", "probe-absent", f"probe-metadata-{version}")
    if version >= 1:
        yield ask()
    if version >= 8:
        request = ask(f"probe-metadata-{version}")
        request.include_topic_authorized_operations = True
        yield request
    if version >= 12:
        known = peer.topic_id(f"probe-metadata-{version}")
        for topic_id in (known, UNKNOWN_ID):
            yield Ask.Metadata(topics=[{"topic_id": topic_id, "name": None}])


@case("Metadata auto-creates", 3, 4)
def _auto_create(peer: Peer, version: int) -> Story:
    names = [f"probe-auto-{version}", "bad name"]
    topics = [{"name": name} for name in names]
    yield Ask.Metadata(topics=topics, allow_auto_topic_creation=True)


@case("CreateTopics", 19, every_version=False)
def _create_topics(peer: Peer, version: int) -> Story:
    name = f"probe-create-{version}"
    yield create(name, 2)
    yield create(name, 2)
    for wrong in ("bad name", "", ".", "..", "x" * 250, "a/b", "ü"):
        yield create(wrong)
    for count in (0, -1, -2):
        yield create(f"{name}-{count}", count)
    for factor in (0, -1, -2, 2, 100):
        request = create(f"{name}-rf-{factor}")
        request.topics[0].replication_factor = factor
        yield request
    yield create(f"{name}-c1", retention_ms="5000", cleanup_policy="compact,delete")
    for number, (key, value) in enumerate(_WRONG_CONFIGS):
        yield create(f"{name}-w{number}", **{key: value})
    yield create(f"{name}.dot")
    yield create(f"{name}_dot")
    request = create(f"{name}-validated")
    request.validate_only = True
    yield request
    yield create(f"{name}-validated")


_WRONG_CONFIGS = [
    ("no_such_config", "1"), ("retention_ms", "soon"), ("segment_bytes", "1"),
    ("cleanup_policy", "burn"), ("max_message_bytes", "-1"), ("compression_type", "brotli"),
    ("message_timestamp_type", "Never"), ("min_cleanable_dirty_ratio", "2"),
    ("min_insync_replicas", "0"),
]  # fmt: skip


@case("CreateTopics assigned", 19, every_version=False)
def _create_assigned(peer: Peer, version: int) -> Story:
    def assigned(suffix: str, brokers: list[list[int]], partitions: int = -1, factor: int = -1):
        rows = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers)]
        topic = {
            "name": f"probe-assigned-{version}-{suffix}", "num_partitions": partitions,
            "replication_factor": factor, "assignments": rows,
        }  # fmt: skip
        return Ask.CreateTopics(topics=[topic], timeout_ms=20_000)

    yield assigned("ok", [[1], [1]])
    yield assigned("count", [[1]], 1, 1)
    yield assigned("unknown-broker", [[7]])
    yield assigned("twice", [[1, 1]])
    yield assigned("none", [[]])
    request = assigned("gap", [[1], [1]])
    request.topics[0].assignments[1].partition_index = 2
    yield request
    twice = create(f"probe-twice-{version}")
    twice.topics *= 2
    yield twice
    yield Ask.CreateTopics(topics=[], timeout_ms=1000)


@case("DeleteTopics", 20, every_version=False)
def _delete_topics(peer: Peer, version: int) -> Story:
    name = f"probe-delete-{version}"
    yield create(name)
    if version < 6:
        for names in ([name], [name], ["probe-absent"], [], ["probe-absent", "probe-absent"]):
            yield Ask.DeleteTopics(topic_names=names, timeout_ms=20_000)
        return
    known = peer.topic_id(name)
    both = {"name": name, "topic_id": known}
    rows: list[dict[str, Any]]
    for rows in (
        [both], [{"name": None, "topic_id": known}], [{"name": None, "topic_id": known}],
        [{"name": None, "topic_id": UNKNOWN_ID}], [{"name": "probe-absent"}], [{"name": None}],
        [{"name": "probe-absent"}, {"name": "probe-absent"}], [],
    ):  # fmt: skip
        yield Ask.DeleteTopics(topics=rows, timeout_ms=20_000)


@case("CreatePartitions", 37, every_version=False)
def _create_partitions(peer: Peer, version: int) -> Story:
    name = f"probe-grow-{version}"
    yield create(name, 2)

    def grow(count: int, topic: str = name, assignments: list[list[int]] | None = None):
        rows = None
        if assignments is not None:
            rows = [{"broker_ids": ids} for ids in assignments]
        new = {"name": topic, "count": count, "assignments": rows}
        return Ask.CreatePartitions(topics=[new], timeout_ms=20_000)

    for count in (2, 1, 0):
        yield grow(count)
    yield grow(3, "probe-absent")
    yield grow(3, assignments=[[7]])
    yield grow(4, assignments=[[1]])
    request = grow(4)
    request.validate_only = True
    yield request
    yield grow(4)
    twice = grow(5)
    twice.topics *= 2
    yield twice
    yield Ask.Metadata(topics=[{"name": name}])
