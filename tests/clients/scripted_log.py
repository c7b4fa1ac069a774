"""The log of one partition at a scripted broker: what a consumer's tests have it answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.protocol.logs.fetch import AbortedTransaction, FetchRequest
from kstore.protocol.logs.list_offsets import ListOffsetsRequest
from kstore.protocol.schema import Message
from kstore.record import build_batch
from kstore.types import TopicPartition
from tests.plain_messages import Answer
from tests.record.producer_batches import produced
from tests.reference.fake_broker import HANG_UP, FakeBroker

FAST = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "fetch_max_wait_ms": 5}
BY_NAME = {1: (4, 12), 2: (1, 6), 3: (4, 12), 18: (0, 3)}
TP = TopicPartition("t", 0)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """It has the file's VERSIONS of APIs; without them, its topics go by name."""
    with FakeBroker(versions=getattr(request.module, "VERSIONS", BY_NAME)) as running:
        yield running


class Log:
    """Answers fetches of partition 0 out of batches; a script of codes comes first."""

    def __init__(self, *batches: bytes, start: int = 0, script: tuple[Any, ...] = ()) -> None:
        self.batches = batches
        self.start = start
        self.script = list(script)
        self.aborted: list[AbortedTransaction] = []
        self.asked: list[int] = []

    def serve(self, broker: FakeBroker) -> None:
        """Let this broker answer from the log."""
        broker.handlers |= {FetchRequest: self.fetch, ListOffsetsRequest: self.list_offsets}

    def fetch(self, request: Message) -> Any:
        """All batches that end after the requested offset."""
        (topic,) = request.topics
        (partition,) = topic.partitions
        offset = partition.fetch_offset
        self.asked.append(offset)
        code = self.script.pop(0) if self.script else 0
        if code is HANG_UP:
            return HANG_UP
        if not code and not self.start <= offset <= self.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b"".join(b for b in self.batches if last_offset(b) >= offset)
        if not code and not records:
            time.sleep(request.max_wait_ms / 1000)  # as a broker does
        row = {
            "error_code": code,
            "records": b"" if code else records,
            "aborted_transactions": self.aborted,
            "log_start_offset": self.start,
        }
        return Answer.Fetch(responses=[{"topic": "t", "partitions": [row]}])

    def list_offsets(self, request: Message) -> Message:
        (topic,) = request.topics
        (row,) = topic.partitions
        offset = {-1: self.end, -2: self.start}[row.timestamp]
        found = {"offset": offset}
        return Answer.ListOffsets(topics=[{"name": "t", "partitions": [found]}])

    @property
    def end(self) -> int:
        return last_offset(self.batches[-1]) + 1 if self.batches else self.start


def last_offset(batch: bytes) -> int:
    """Base offset plus last offset delta."""
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big")


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    """A batch at an offset, transactional when it has a producer id."""
    if producer_id < 0:
        return build_batch(values, base_offset=base_offset, leader_epoch=0)
    return produced(
        *values, producer=producer_id, base_offset=base_offset, leader_epoch=0, transactional=True
    )
