"""Stages record batches: several of one target become the value of one record of the sink's own
topic. A batch is sent from the buffer in which it was encoded, without another copy. This is why
the stager does not use a producer, which would copy records into larger batches.

Several records are in flight at once, each in its own request. If an answer is lost, the record is
staged again, and the first copy is never read.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, cast

from kstore._fast.record.crc32c import checksum
from kstore._fast.record.nested import combined_checksum
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread
from kstore.errors import error_for
from kstore.protocol.logs.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.config.client.configs import ClientSettings

__all__ = ["Stager", "wrapped"]

AT_ONCE = 8
"""The limit of records in flight."""
BYTES_AT_ONCE = 8 << 20
"""The limit of their bytes; a larger batch is sent alone."""
_FRONT = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_CRC = struct.Struct(">I")
_CRC_AT, _CHECKED_FROM = 17, 21
_HEADER_REST = 9  # bytes before attributes that the length counts: leader epoch, magic, checksum
_NO_HEADERS = b"\0"


def wrapped(key: bytes, values: Sequence[bytes], timestamp_ms: int) -> tuple[bytes, ...]:
    """A record batch of one record whose value is record batches, in parts: the bytes before the
    value, the batches, which are not copied, and the bytes after them.
    """
    value_size = sum(map(len, values))
    inner = b"\0\0\0" + _varint(len(key)) + key + _varint(value_size)
    size = len(inner) + value_size + len(_NO_HEADERS)
    checked = _CHECKED.pack(0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1)
    checked += _varint(size) + inner
    crc = checksum(checked)
    for batch in values:
        crc = combined_checksum(crc, _crc_of_batch(batch), len(batch))
    crc = checksum(_NO_HEADERS, crc)
    length = _HEADER_REST + len(checked) + value_size + len(_NO_HEADERS)
    return _FRONT.pack(0, length, -1, 2, crc) + checked, *values, _NO_HEADERS


def _crc_of_batch(batch: bytes) -> int:
    """The checksum of all bytes of a batch, computed from the checksum that the batch contains."""
    (rest,) = _CRC.unpack_from(batch, _CRC_AT)
    return combined_checksum(checksum(batch[:_CHECKED_FROM]), rest, len(batch) - _CHECKED_FROM)


def _varint(number: int) -> bytes:
    """The zigzag varint of a number >= 0."""
    number <<= 1
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


class Stager:
    """Stages batches in one topic. Leaving the context closes the connections, even if batches are
    in flight.
    """

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._cluster = ClusterClient(settings)
        self._thread = LoopThread()
        self._room = threading.Condition()
        self._waiting: dict[Future[int], int] = {}
        self._problem: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.run(self._cluster.close())
        self._thread.close()

    def put(self, partition: int, key: bytes, values: Sequence[bytes]) -> Future[int]:
        """Start to stage batches in one record; the future gets its offset. Waits while too many
        records are in flight. Raises the error of an earlier record.
        """
        size = sum(map(len, values))
        with self._room:
            while self._waiting and not self._has_room(size):
                self._room.wait()
            if self._problem is not None:
                raise self._problem
        parts = wrapped(key, values, time.time_ns() // 1_000_000)
        sent = asyncio.run_coroutine_threadsafe(self._stage(partition, parts), self._thread.loop)
        with self._room:
            self._waiting[sent] = size
        sent.add_done_callback(self._ended)
        return sent

    def _has_room(self, size: int) -> bool:
        under_way = sum(self._waiting.values())
        return len(self._waiting) < AT_ONCE and under_way + size <= BYTES_AT_ONCE

    def _ended(self, sent: Future[int]) -> None:
        with self._room:
            del self._waiting[sent]
            if not sent.cancelled():
                self._problem = self._problem or sent.exception()
            self._room.notify()

    async def _stage(self, partition: int, parts: tuple[bytes, ...]) -> int:
        """The offset of the record. Raises KafkaError after delivery.timeout.ms."""
        cluster, tp = self._cluster, TopicPartition(self._topic, partition)
        timeout_ms = self._settings["request.timeout.ms"]

        async def ask() -> int:
            if tp.topic not in cluster.view.topics:
                await cluster.refresh([tp.topic])
            view = cluster.view
            data = PartitionProduceData(index=partition, records=cast(Any, parts))
            named = TopicProduceData(
                name=tp.topic, topic_id=view.topic_id(tp.topic), partition_data=[data]
            )
            request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[named])
            answer = cast(ProduceResponse, await cluster.ask(view.leader(tp), request))
            row = answer.responses[0].partition_responses[0]
            if row.error_code:
                raise error_for(row.error_code, row.error_message, produce=True)
            return row.base_offset

        return await cluster.retrying(ask, self._settings["delivery.timeout.ms"], [tp.topic])
