"""Records of a topic for the browser: a filtered page from any position, and new records as they
arrive.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kstore.cli.records.field_formats import FieldFormat, coder
from kstore.cli.records.record_text import Coder, RecordFormatError
from kstore.clients import AIOConsumer
from kstore.clients.consumer import ConsumerRecord
from kstore.types import TopicPartition

__all__ = ["FORMATS", "Coding", "Found", "Position", "Shown", "read", "tail"]

MAX_SCANNED = 50_000
MAX_SCAN_S = 5.0
POLL_MS = 250
FORMATS = ("auto", *(form.value for form in FieldFormat))
CONSUMER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
    "max.partition.fetch.bytes": 262_144,
    "fetch.max.bytes": 4_194_304,
}

Position = dict[int, int]
"""Partition to the offset to read next."""


class Shown(NamedTuple):
    """A record as text. An error says why a field is shown in hexadecimal."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    key_format: str
    value_format: str
    headers: tuple[tuple[str, str], ...]
    size: int
    error: str = ""


class Found(NamedTuple):
    """A page of records, the position of the next one, the number of checked records, and whether
    the end was reached.
    """

    rows: list[Shown]
    position: Position
    scanned: int
    at_end: bool


class Coding:
    """How keys and values are decoded: a format of FORMATS each; auto: text if it is UTF-8."""

    def __init__(self, key: str, value: str, registry: str | None) -> None:
        self._key, self._value = _coder(key, "key", registry), _coder(value, "value", registry)
        self.waits = FieldFormat.AVRO.value in {key, value}
        """Whether decoding may wait for a registry, and must run in a thread."""

    def shown(self, record: ConsumerRecord) -> Shown:
        """The record as text."""
        key, key_format, key_error = _text(record.key, self._key)
        value, value_format, value_error = _text(record.value, self._value)
        errors = [f"the key {key_error}" if key_error else ""]
        errors.append(f"the value {value_error}" if value_error else "")
        return Shown(
            record.topic, record.partition, record.offset, record.timestamp, key, value,
            key_format, value_format,
            tuple((name, _text(data, None)[0] or "") for name, data in record.headers),
            max(record.key_size, 0) + max(record.value_size, 0),
            "; ".join(filter(None, errors)),
        )  # fmt: skip


def _coder(form: str, field: str, registry: str | None) -> Coder | None:
    if form not in FORMATS:
        raise ValueError(f"{form!r} is not one of {', '.join(FORMATS)}")
    if form == "auto":
        return None
    if form == FieldFormat.AVRO and registry is None:
        raise ValueError("avro needs a schema registry: start the console with its URL")
    return coder(FieldFormat(form), field, registry)


def _text(data: bytes | None, form: Coder | None) -> tuple[str | None, str, str]:
    """Text, its format, and the error if there is one."""
    if data is None:
        return None, "null", ""
    if form is not None:
        try:
            return form.decode(data).text.decode(), "", ""
        except RecordFormatError as error:
            return data.hex(" "), "hex", str(error)
    try:
        return data.decode(), "string", ""
    except UnicodeDecodeError:
        return data.hex(" "), "hex", ""


@asynccontextmanager
async def _consumer(
    client: Mapping[str, Any], topic: str, position: Mapping[int, int], isolation: str
) -> AsyncIterator[AIOConsumer]:
    """A consumer without a group, at these offsets."""
    async with AIOConsumer({**CONSUMER, **client, "isolation.level": isolation}) as consumer:
        partitions = [TopicPartition(topic, index) for index in position]
        consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, position[tp.partition])
        yield consumer


Wanted = Callable[[Shown], bool]


async def _decoded(records: Sequence[ConsumerRecord], coding: Coding) -> list[Shown]:
    if coding.waits:
        return await asyncio.to_thread(lambda: [coding.shown(each) for each in records])
    return [coding.shown(each) for each in records]


async def read(
    client: Mapping[str, Any], topic: str, position: Position, ends: Mapping[int, int],
    *, count: int, coding: Coding, wanted: Wanted, isolation: str = "read_uncommitted",
) -> Found:  # fmt: skip
    """Up to ``count`` matching records, from the position on and before the ends."""
    at = {index: offset for index, offset in position.items() if offset < ends.get(index, 0)}
    done = {index: offset for index, offset in position.items() if index not in at}
    rows: list[Shown] = []
    scanned, until = 0, time.monotonic() + MAX_SCAN_S
    if not at:
        return Found([], dict(position), 0, True)
    async with _consumer(client, topic, at, isolation) as consumer:
        while at and len(rows) < count and scanned < MAX_SCANNED and time.monotonic() < until:
            records = await consumer.poll(POLL_MS, count)
            for record, shown in zip(records, await _decoded(records, coding), strict=True):
                if record.partition not in at or record.offset >= ends[record.partition]:
                    continue
                if len(rows) >= count:
                    break
                scanned += 1
                at[record.partition] = record.offset + 1
                if wanted(shown):
                    rows.append(shown)
            else:
                for tp in consumer.assignment():  # also after markers and compacted records
                    reached = await consumer.position(tp)
                    if reached > at.get(tp.partition, reached) and len(rows) < count:
                        at[tp.partition] = reached
            for index in [each for each in at if at[each] >= ends[each]]:
                done[index] = at.pop(index)
                consumer.pause(TopicPartition(topic, index))
    return Found(rows, {**at, **done}, scanned, not at)


async def tail(
    client: Mapping[str, Any], topic: str, position: Position,
    *, seconds: float, coding: Coding, wanted: Wanted, isolation: str = "read_uncommitted",
) -> AsyncIterator[tuple[list[Shown], Position]]:  # fmt: skip
    """New records as they arrive, with the position after them; ends after so many seconds."""
    at = dict(position)
    until = time.monotonic() + seconds
    async with _consumer(client, topic, at, isolation) as consumer:
        while time.monotonic() < until:
            records = await consumer.poll(1000, 200)
            for record in records:
                at[record.partition] = record.offset + 1
            shown = await _decoded(records, coding)
            yield [each for each in shown if wanted(each)], dict(at)
