"""A transactional producer that sends exactly what the test says, right or wrong, at any version;
and the records that a read_committed consumer returns.
"""

from __future__ import annotations

import time
from copy import copy
from typing import Any

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.schema import Message
from kstore.record import decode
from tests.beside.waiting import answer_of
from tests.conformance.probes.peer import Peer
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, list_request, offsets_request, only

NAME, TOPIC = "tx", "t"


class Producer:
    """A transactional producer that sends exactly what the test says."""

    def __init__(self, broker: Any, name: str = NAME, topic: str = TOPIC) -> None:
        self.peer = Peer("kstore", broker.host, broker.port)
        self.name, self.topic = name, topic
        self.id = self.epoch = -1
        self.behind_ms = 0  # how old the records say to be

    @property
    def fields(self) -> dict[str, Any]:
        """What its requests say of it."""
        who = {"producer_id": self.id, "producer_epoch": self.epoch}
        return {"transactional_id": self.name, **who}

    def twin(self) -> Producer:
        """Another one of the same id and epoch."""
        return copy(self)

    def ask(self, message: Message, version: int) -> Any:
        return self.peer.ask(message, version)

    def init(self, timeout_ms: int = 60_000, **claim: int) -> Any:
        """Find the coordinator and take an id and an epoch."""
        self.ask(Ask.FindCoordinator(key=self.name, key_type=1), 3)
        request = Ask.InitProducerId(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, **claim
        )
        answer = self.ask(request, 5)
        if answer.error_code == ErrorCode.NONE:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def batch(self, value: bytes, sequence: int) -> bytes:
        """One transactional record."""
        return build_batch(
            [(b"k", value)],
            timestamp=int(time.time() * 1000) - self.behind_ms,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def write(
        self, value: bytes, sequence: int = 0, *partitions: int, version: int = 12
    ) -> list[int]:
        """The error code of each partition."""
        rows = [
            {"index": index, "records": self.batch(value, sequence)} for index in partitions or (0,)
        ]
        topics = [{"name": self.topic, "partition_data": rows}]
        said = {"transactional_id": self.name, "acks": -1, "timeout_ms": 5000}
        answer = self.ask(Ask.Produce(**said, topic_data=topics), version)
        return [row.error_code for row in answer.responses[0].partition_responses]

    def add(self, *partitions: int) -> list[int]:
        """AddPartitionsToTxn; the error code of each partition."""
        topics = [{"name": self.topic, "partitions": list(partitions)}]
        said = self.fields | {"topics": topics}
        request = Ask.AddPartitionsToTxn(**{f"v3_and_below_{key}": said[key] for key in said})
        answer = self.ask(request, 3)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        return [row.partition_error_code for row in rows]

    def commit_offset(self, group: str, offset: int) -> int:
        """TxnOffsetCommit of the topic's first partition; its error code."""
        rows = [{"partition_index": 0, "committed_offset": offset}]
        topics = [{"name": self.topic, "partitions": rows}]
        request = Ask.TxnOffsetCommit(**self.fields, group_id=group, topics=topics)
        return int(self.ask(request, 5).topics[0].partitions[0].error_code)

    def end(self, *, committed: bool, version: int = 5) -> Any:
        """EndTxn; the next epoch is taken over."""
        answer = self.ask(Ask.EndTxn(**self.fields, committed=committed), version)
        if version >= 5 and answer.error_code == ErrorCode.NONE:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def state(self) -> Any:
        """DescribeTransactions."""
        answer = self.ask(Ask.DescribeTransactions(transactional_ids=[self.name]), 0)
        return answer.transaction_states[0]

    def await_state(self, *names: str) -> Any:
        """Wait until the transaction is in one of these states."""
        return answer_of(self.state, lambda found: found.transaction_state in names, pause_s=0.005)

    def create_topic(self, partitions: int = 2) -> None:
        new = {"name": self.topic, "num_partitions": partitions, "replication_factor": 1}
        answer = self.ask(Ask.CreateTopics(topics=[new], timeout_ms=20_000), 7)
        assert answer.topics[0].error_code == ErrorCode.NONE

    def read(self, partition: int = 0) -> list[bytes]:
        """What a read_committed consumer gets, without what was aborted."""
        part = fetch_part(0, partition)
        request = fetch_request(self.topic, part, max_bytes=1 << 20, isolation_level=1)
        found = only(self.ask(request, 12))
        assert found.error_code == ErrorCode.NONE
        return committed_values(bytes(found.records or b""), found.aborted_transactions or [])

    def stable_offset(self, partition: int = 0) -> int:
        """The last stable offset."""
        request = list_request(self.topic, partition=partition, isolation_level=1)
        return int(self.ask(request, 7).topics[0].partitions[0].offset)

    def offset(self, group: str) -> tuple[int, int]:
        """(offset, error code) of OffsetFetch with require_stable."""
        self.ask(Ask.FindCoordinator(key=group, key_type=0), 3)  # waits until it is loaded
        answer = self.ask(offsets_request(self.topic, 0, group=group, require_stable=True), 8)
        row = answer.groups[0].topics[0].partitions[0]
        return row.committed_offset, row.error_code


def committed_values(data: bytes, aborted: list[Any]) -> list[bytes]:
    """As consumers do it: an aborted transaction's batches are skipped until its marker."""
    begins = sorted((row.first_offset, row.producer_id) for row in aborted)
    open_ids: set[int] = set()
    values = []
    for record in decode(data, control=True):
        while begins and begins[0][0] <= record.offset:
            open_ids.add(begins.pop(0)[1])
        batch = record.batch
        if batch.is_control:
            open_ids.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_ids):
            values.append(bytes(record.value or b""))
    return values
