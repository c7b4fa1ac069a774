"""Offsets by timestamp, asked of the leaders; shared by the consumer and the admin client."""

from __future__ import annotations

from collections.abc import Mapping

from kstore.clients.core.fetch import OffsetResult, list_offsets_request, list_offsets_results
from kstore.clients.network import Cluster
from kstore.errors import KafkaError
from kstore.protocol.list_offsets import ListOffsetsResponse
from kstore.types import TopicPartition

__all__ = ["list_offsets"]


def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int,
    timeout_ms: int,
) -> dict[TopicPartition, OffsetResult]:
    """The first offset at or after each timestamp, retried until timeout_ms is over.

    Raises the error of the first partition that has one.
    """
    found: dict[TopicPartition, OffsetResult] = {}
    topics = sorted({tp.topic for tp in timestamps})

    def ask() -> dict[TopicPartition, OffsetResult]:
        if any(topic not in cluster.view.topics for topic in topics):
            cluster.refresh(topics)
        by_leader: dict[int, list[tuple[TopicPartition, int]]] = {}
        for tp, timestamp in timestamps.items():
            if tp not in found:
                by_leader.setdefault(cluster.view.leader(tp), []).append((tp, timestamp))
        error: KafkaError | None = None
        for leader, rows in by_leader.items():
            request = list_offsets_request(rows, isolation_level, timeout_ms)
            answer = cluster.ask(cluster.broker(leader), request, ListOffsetsResponse)
            for tp, result in list_offsets_results(answer).items():
                if isinstance(result, KafkaError):
                    error = error or result
                else:
                    found[tp] = result
        if error is not None:
            raise error
        return found

    return cluster.retrying(ask, timeout_ms / 1000, topics)
