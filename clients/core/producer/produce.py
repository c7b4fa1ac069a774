"""Builds Produce requests from batches, and interprets the response for each partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kstore._fast.clients.producer_batch import ProducerBatch
from kstore.clients.core.metadata import Broker, ClusterView
from kstore.errors import ErrorCode, InvalidProduceOffsetError, KafkaError, error_for
from kstore.protocol.logs.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kstore.types import TopicPartition

__all__ = ["ProduceExtensions", "ProduceResult", "produce_request", "produce_results"]


class ProduceExtensions(NamedTuple):
    """kstore's fields that a broker supports and the settings allow."""

    partition_count: bool = False
    leader_epoch: bool = False
    given_offsets: bool = False
    partition_epoch: bool = False


class ProduceResult(NamedTuple):
    """The offset of a partition's batch in the log (-1: unknown), or why it was not written, and
    whether the response has another leader (KIP-951).
    """

    base_offset: int
    error: KafkaError | None
    is_redirected: bool = False


def produce_request(
    batches: Iterable[ProducerBatch],
    view: ClusterView,
    extensions: ProduceExtensions,
    *,
    acks: int,
    timeout_ms: int,
    by_id: bool,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A request with one batch per partition; topics by id from version 13 on.

    A request has either only batches with given offsets (KIP-391) or none.
    """
    topics: dict[str, TopicProduceData] = {}
    use_offset = False
    for batch in batches:
        topic = topics.get(batch.topic)
        if topic is None:
            topic = TopicProduceData(name=batch.topic)
            if by_id:
                topic = TopicProduceData(topic_id=view.topic_id(batch.topic))
            if extensions.partition_count:
                topic.partition_count = batch.partition_count
            topics[batch.topic] = topic
        # A batch is a buffer: its bytes are copied once, into the request's frame.
        records: Any = batch
        row = PartitionProduceData(index=batch.partition, records=records)
        if extensions.leader_epoch:
            row.current_leader_epoch = view.leader_epoch(batch.tp)
        if extensions.partition_epoch and not by_id:
            row.partition_epoch = view.partition_epoch(batch.tp)
        use_offset = batch.first_offset >= 0
        topic.partition_data.append(row)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
        use_offset=use_offset,
    )


def produce_results(
    response: ProduceResponse, view: ClusterView
) -> dict[TopicPartition, ProduceResult]:
    """The result of each partition in the response. Adds its leaders (KIP-951) to the view."""
    for node in response.node_endpoints:
        view.update_broker(Broker(node.node_id, node.host, node.port, node.rack))
    results: dict[TopicPartition, ProduceResult] = {}
    for topic in response.responses:
        name = topic.name or view.topic_name(topic.topic_id)
        for row in topic.partition_responses if name is not None else ():
            tp = TopicPartition(name or "", row.index)
            error = None
            redirected = False
            if row.error_code != ErrorCode.NONE:
                error = _error(row, tp)
                hint = row.current_leader
                if hint.leader_id in view.brokers:
                    redirected = view.update_leader(tp, hint.leader_id, hint.leader_epoch)
            results[tp] = ProduceResult(row.base_offset, error, redirected)
    return results


def _error(row: Any, tp: TopicPartition) -> KafkaError:
    message = row.error_message or "; ".join(
        f"record {bad.batch_index}: {bad.batch_index_error_message}" for bad in row.record_errors
    )
    default = type(error_for(row.error_code, produce=True)).description
    error = error_for(row.error_code, f"{tp}: {message or default}", produce=True)
    if isinstance(error, InvalidProduceOffsetError):
        error.log_end_offset = row.log_end_offset
    return error
