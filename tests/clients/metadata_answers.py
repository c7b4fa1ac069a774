"""Metadata responses of scripted brokers, about partitions of topic t."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kstore.protocol.metadata.metadata import MetadataResponse
from kstore.protocol.schema import ZERO_UUID
from tests.plain_messages import Answer


def metadata(
    ports: Iterable[int], *partitions: Mapping[str, Any], first: int = 0,
    topic_id: UUID = ZERO_UUID, **fields: Any,
) -> MetadataResponse:  # fmt: skip
    """Brokers with ids from ``first`` on, and a partition for each row of fields."""
    brokers = [
        {"node_id": node, "host": "127.0.0.1", "port": port}
        for node, port in enumerate(ports, first)
    ]
    rows = [{"partition_index": index, **row} for index, row in enumerate(partitions)]
    topics = [{"name": "t", "topic_id": topic_id, "partitions": rows}]
    return Answer.Metadata(brokers=brokers, cluster_id="c", topics=topics, **fields)
