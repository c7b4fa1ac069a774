"""A single broker whose coordination store has no space answers with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kstore.broker.state.metadata.topic_rules import NewTopic
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS, decode_response
from tests.broker.api.requests.world import World, in_world
from tests.plain_messages import Ask, error_codes

TOPIC, BROKER, SET = 2, 4, 0
OTHER_CONFIG = [{"name": "retention.ms", "config_operation": SET, "value": "9"}]
CHANGES: dict[str, tuple[int, dict[str, Any]]] = {
    "CreateTopics": (
        7,
        {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 9,
        },
    ),
    "DeleteTopics": (5, {"topic_names": ["old"], "timeout_ms": 9}),
    "CreatePartitions": (
        3,
        {"topics": [{"name": "old", "count": 3, "assignments": None}], "timeout_ms": 9},
    ),
    "IncrementalAlterConfigs": (
        1,
        {"resources": [{"resource_type": TOPIC, "resource_name": "old", "configs": OTHER_CONFIG}]},
    ),
    "AlterClientQuotas": (
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "a"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                }
            ]
        },
    ),
    "UpdateFeatures": (
        2,
        {
            "feature_updates": [
                {"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}
            ]
        },
    ),
}


@pytest.mark.parametrize("api", CHANGES)
def test_a_change_that_cannot_be_stored_is_answered(tmp_path: Path, api: str) -> None:
    version, values = CHANGES[api]
    request = getattr(Ask, api)(**values)

    async def story(world: World) -> None:
        await world.broker.topics.create(NewTopic("old"))
        store: Any = world.broker.store
        backend = store._tree.backend

        @contextmanager
        def full() -> Iterator[None]:
            with backend._store_errors():
                raise lmdb.DiskError("mdb_txn_commit: No space left on device")
            yield

        backend.write = full
        answer = await world.ask(request, version)
        del backend.write
        _, response = decode_response(answer, APIS[request.API_KEY].response, version)
        assert ErrorCode.KAFKA_STORAGE_ERROR in error_codes(response)
        assert "No space left on device; check its disk, and free" in str(response)

    in_world(tmp_path, story)
