"""A transactional producer whose records or requests run out of time, against a scripted broker
that knows no KIP-890: which call helps then, and what is not asked again.
"""

from __future__ import annotations

from typing import Any

import pytest

from kstore.clients import Producer
from kstore.errors import (
    ErrorCode,
    InvalidProducerIdMappingError,
    KafkaError,
    TransactionAbortableError,
)
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.logs.produce import ProduceRequest
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest
from kstore.protocol.transactions.transactions import AddPartitionsToTxnRequest, EndTxnRequest
from tests.clients.scripted_log import broker as broker  # a fixture
from tests.plain_messages import Answer
from tests.reference.fake_broker import HANG_UP, SILENCE, FakeBroker

VERSIONS = {0: (3, 11), 3: (4, 12), 10: (0, 3), 18: (0, 3), 22: (0, 4), 24: (0, 3), 26: (0, 3)}


class Coordinator:
    """The broker as coordinator: it gives epochs and ends transactions."""

    def __init__(self, broker: FakeBroker) -> None:
        self.epoch = -1
        self.ends = 0
        self.is_mute = False
        broker.handlers |= {
            AddPartitionsToTxnRequest: self.add,
            EndTxnRequest: self.end,
            FindCoordinatorRequest: lambda _: Answer.FindCoordinator(
                node_id=7, host="127.0.0.1", port=broker.port
            ),
            InitProducerIdRequest: self.init,
        }

    def init(self, request: InitProducerIdRequest) -> Any:
        """The next epoch; a repeated request gets the same one."""
        if self.epoch < 0 or request.producer_epoch == self.epoch:
            self.epoch += 1
        if self.is_mute:
            return HANG_UP
        return Answer.InitProducerId(producer_id=1, producer_epoch=self.epoch)

    def add(self, request: AddPartitionsToTxnRequest) -> Any:
        topics = [
            {
                "name": topic.name,
                "results_by_partition": [{"partition_index": each} for each in topic.partitions],
            }
            for topic in request.v3_and_below_topics
        ]
        return Answer.AddPartitionsToTxn(results_by_topic_v3_and_below=topics)

    def end(self, request: EndTxnRequest) -> Any:
        """Only the current epoch may end a transaction."""
        self.ends += 1
        is_current = request.producer_epoch == self.epoch
        return Answer.EndTxn(error_code=0 if is_current else ErrorCode.INVALID_PRODUCER_EPOCH)


def begun(broker: FakeBroker, **settings: Any) -> Producer:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "linger_ms": 0}
    producer = Producer(broker.address, transactional_id="x", **(quick | settings))
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def test_a_transaction_whose_record_ran_out_of_time_can_only_be_aborted(broker: FakeBroker) -> None:
    Coordinator(broker)
    broker.handlers[ProduceRequest] = lambda _: SILENCE
    with begun(broker, delivery_timeout_ms=300, request_timeout_ms=100) as producer:
        producer.send("t", b"x")
        for _ in range(2):
            with pytest.raises(TransactionAbortableError, match=r"delivery\.timeout\.ms") as failed:
                producer.commit_transaction()
            assert not failed.value.retriable
        producer.abort_transaction()
        producer.begin_transaction()


def test_an_abort_that_is_called_again_does_not_end_the_transaction_again(
    broker: FakeBroker,
) -> None:
    coordinator = Coordinator(broker)
    broker.handlers[ProduceRequest] = lambda request: Answer.Produce(
        responses=[{"name": "t", "partition_responses": [{"index": 0, "base_offset": 3}]}]
    )
    with begun(broker, max_block_ms=300) as producer:
        producer.send("t", b"x").result(20)
        coordinator.is_mute = True  # the next epoch is given, but its answer is lost
        with pytest.raises(KafkaError) as failed:
            producer.abort_transaction()
        assert failed.value.retriable
        coordinator.is_mute = False
        producer.abort_transaction()
        assert (coordinator.ends, coordinator.epoch) == (1, 1)
        producer.begin_transaction()


@pytest.mark.parametrize("forgets", [AddPartitionsToTxnRequest, EndTxnRequest])
def test_a_producer_whose_transactional_id_was_forgotten_can_only_be_closed(
    broker: FakeBroker, forgets: type
) -> None:
    """As in Kafka (KAFKA-18019). The coordinator refuses to abort, too."""
    coordinator = Coordinator(broker)
    code = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def add(request: AddPartitionsToTxnRequest) -> Any:
        answer = coordinator.add(request)
        for topic in answer.results_by_topic_v3_and_below:
            for row in topic.results_by_partition:
                row.partition_error_code = code
        return answer

    def end(request: EndTxnRequest) -> Any:
        coordinator.ends += 1
        return Answer.EndTxn(error_code=code)

    broker.handlers[ProduceRequest] = lambda request: Answer.Produce(
        responses=[{"name": "t", "partition_responses": [{"index": 0, "base_offset": 3}]}]
    )
    broker.handlers[EndTxnRequest] = end
    if forgets is AddPartitionsToTxnRequest:
        broker.handlers[AddPartitionsToTxnRequest] = add
    producer = begun(broker)
    is_lost = forgets is AddPartitionsToTxnRequest
    sent = producer.send("t", b"x")
    for call in (
        producer.commit_transaction,
        producer.abort_transaction,
        producer.abort_transaction,
        producer.begin_transaction,
        *([producer.close] if is_lost else []),
    ):
        with pytest.raises(InvalidProducerIdMappingError):
            call()
    producer.close()
    if is_lost:
        with pytest.raises(InvalidProducerIdMappingError):
            sent.result(20)
    assert coordinator.ends == (not is_lost)
