"""A single broker whose coordination store has no space answers with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS, decode_response
from tests.broker.api.requests.world import World, in_world
from tests.plain_messages import Ask, error_codes

TOPIC, SET = 2, 0
NEW_TOPIC = {"name": "new", "num_partitions": 1, "replication_factor": 1}
MORE_PARTITIONS = {"name": "old", "count": 3, "assignments": None}
RETENTION = {"name": "retention.ms", "config_operation": SET, "value": "9"}
OTHER_CONFIG = {"resource_type": TOPIC, "resource_name": "old", "configs": [RETENTION]}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "a"}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
}
FEATURE = {"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}
CHANGES: dict[str, tuple[int, dict[str, Any]]] = {
    "CreateTopics": (7, {"topics": [NEW_TOPIC], "timeout_ms": 9}),
    "DeleteTopics": (5, {"topic_names": ["old"], "timeout_ms": 9}),
    "CreatePartitions": (3, {"topics": [MORE_PARTITIONS], "timeout_ms": 9}),
    "IncrementalAlterConfigs": (1, {"resources": [OTHER_CONFIG]}),
    "AlterClientQuotas": (1, {"entries": [QUOTA]}),
    "UpdateFeatures": (2, {"feature_updates": [FEATURE]}),
}


@contextmanager
def full_disk(world: World, *, after: int = 0) -> Iterator[None]:
    """The store has no space, after this many further writes."""
    store: Any = world.broker.store
    backend = store._tree.backend
    write, left = backend.write, after

    @contextmanager
    def limited() -> Iterator[Any]:
        nonlocal left
        left -= 1
        if left < 0:
            with backend._store_errors():
                raise lmdb.DiskError("mdb_txn_commit: No space left on device")
        with write() as transaction:
            yield transaction

    backend.write = limited
    try:
        yield
    finally:
        del backend.write


@pytest.mark.parametrize("api", CHANGES)
def test_a_change_that_cannot_be_stored_is_answered(tmp_path: Path, api: str) -> None:
    version, values = CHANGES[api]
    request = getattr(Ask, api)(**values)

    async def story(world: World) -> None:
        await world.broker.topics.create(NewTopic("old"))
        with full_disk(world):
            answer = await world.ask(request, version)
        _, response = decode_response(answer, APIS[request.API_KEY].response, version)
        assert ErrorCode.KAFKA_STORAGE_ERROR in error_codes(response)
        assert "No space left on device; check its disk, and free" in str(response)

    in_world(tmp_path, story)


@pytest.mark.parametrize("api", ["CreateTopics", "DeleteTopics", "CreatePartitions"])
def test_only_topics_that_could_not_be_changed_fail(tmp_path: Path, api: str) -> None:
    names = ["a", "b"]
    topics: dict[str, list[Any]] = {
        "CreateTopics": [
            {"name": name, "num_partitions": 1, "replication_factor": 1} for name in names
        ],
        "DeleteTopics": names,
        "CreatePartitions": [{"name": name, "count": 2, "assignments": None} for name in names],
    }
    field, told = {
        "CreateTopics": ("topics", "topics"),
        "DeleteTopics": ("topic_names", "responses"),
        "CreatePartitions": ("topics", "results"),
    }[api]
    request = getattr(Ask, api)(**{field: topics[api]}, timeout_ms=9)
    version = CHANGES[api][0]
    writes = {"CreateTopics": 1, "DeleteTopics": 2, "CreatePartitions": 0}[api]

    async def story(world: World) -> None:
        if api != "CreateTopics":
            for name in names:
                await world.broker.topics.create(NewTopic(name))
        if api == "CreatePartitions":  # they run at the same time: the first fails before it writes
            await world.broker.topics.add_partitions(NewPartitions("a", 2))
        with full_disk(world, after=writes):
            answer = await world.ask(request, version)
        _, response = decode_response(answer, APIS[request.API_KEY].response, version)
        rows = getattr(response, told)
        first = ErrorCode.INVALID_PARTITIONS if api == "CreatePartitions" else ErrorCode.NONE
        assert [(row.name, row.error_code) for row in rows] == [
            ("a", first), ("b", ErrorCode.KAFKA_STORAGE_ERROR),
        ]  # fmt: skip
        assert "No space left on device" in rows[1].error_message

    in_world(tmp_path, story)


def test_metadata_without_space_for_a_new_topic_has_the_brokers_and_the_other_topics(
    tmp_path: Path,
) -> None:
    request = Ask.Metadata(
        topics=[{"name": "new"}, {"name": "old"}], allow_auto_topic_creation=True
    )

    async def story(world: World) -> None:
        await world.broker.topics.create(NewTopic("old"))
        with full_disk(world):
            answer = await world.ask(request, 9)
        _, response = decode_response(answer, APIS[request.API_KEY].response, 9)
        assert [broker.node_id for broker in response.brokers] == [1]
        assert {topic.name: topic.error_code for topic in response.topics} == {
            "new": ErrorCode.KAFKA_STORAGE_ERROR, "old": ErrorCode.NONE,
        }  # fmt: skip

    in_world(tmp_path, story)
