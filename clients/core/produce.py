"""Produce requests out of batches, and what their answers say of each partition."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import NamedTuple

from kstore.clients.core.metadata import ClusterView
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kstore.types import TopicPartition

__all__ = ["ProduceResult", "produce_request", "produce_results"]


class ProduceResult(NamedTuple):
    """Where a partition's batch begins in the log (-1: not said), or why it is not there."""

    base_offset: int
    error: KafkaError | None


def produce_request(
    batches: Iterable[tuple[TopicPartition, uuid.UUID, bytes]],
    *,
    acks: int,
    timeout_ms: int,
    by_id: bool,
) -> ProduceRequest:
    """One request with one batch per partition; topics by id from version 13 on."""
    topics: dict[str, TopicProduceData] = {}
    for tp, topic_id, data in batches:
        if tp.topic not in topics:
            named = (
                TopicProduceData(topic_id=topic_id) if by_id else TopicProduceData(name=tp.topic)
            )
            topics[tp.topic] = named
        row = PartitionProduceData(index=tp.partition, records=data)
        topics[tp.topic].partition_data.append(row)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def produce_results(
    response: ProduceResponse, view: ClusterView
) -> dict[TopicPartition, ProduceResult]:
    """The result of each partition that the response names."""
    results: dict[TopicPartition, ProduceResult] = {}
    for topic in response.responses:
        name = topic.name or view.topic_name(topic.topic_id)
        for row in topic.partition_responses if name is not None else ():
            tp = TopicPartition(name or "", row.index)
            error = None
            if row.error_code != ErrorCode.NONE:
                said = row.error_message or "; ".join(
                    f"record {bad.batch_index}: {bad.batch_index_error_message}"
                    for bad in row.record_errors
                )
                default = type(error_for(row.error_code, produce=True)).description
                error = error_for(row.error_code, f"{tp}: {said or default}", produce=True)
            results[tp] = ProduceResult(row.base_offset, error)
    return results
