"""CRC-32C, batch validation, building and decoding, against crcmod's C code and the Python clients'
own codecs. All figures are CPU time; the clients' codecs get the same bytes.
"""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import crcmod.predefined

from bench.measure import Settings, in_turns
from bench.report import Goal, Row
from kstore._fast.record.batch import seconds_to_validate
from kstore._fast.record.columns import decode_columns
from kstore._fast.record.crc32c import seconds_for
from kstore.record import build_batch, decode, to_arrow

__all__ = ["rows"]

KSTORE = "kstore"
aiokafka_codec: Any = importlib.import_module("aiokafka.record.default_records")
kafka_codec: Any = importlib.import_module("kafka.record.default_records")
RECORDS = 1000
BATCHES = 8  # of a fetch: 1 MB
VALUE = b"v" * 100
WINDOW = 100  # records of 100 B: a batch has about 11 KB, and ten fit in the cache
Case = Callable[[], float]


def _per_record(work: Callable[[], object], records: int, repeat: int) -> Case:
    """A case: CPU nanoseconds per record."""

    def run() -> float:
        begin = time.thread_time()
        for _ in range(repeat):
            work()
        return (time.thread_time() - begin) * 1e9 / (repeat * records)

    return run


def _crc_ns(data: bytes, repeat: int) -> float:
    return seconds_for(data, repeat) * 1e9 / repeat


def _crc_rows(settings: Settings) -> list[Row]:
    peer = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    found = []
    for size in (100, 1000, 16384, 1 << 20):
        data = bytes(range(256)) * (size // 256 + 1)
        data = data[:size]
        repeat = max(20, settings.pick(400_000_000, 40_000_000) // (size + 200))
        medians = in_turns(
            {
                KSTORE: partial(_crc_ns, data, repeat),
                "crcmod": _per_record(partial(peer, data), 1, max(3, repeat // 100)),
            },
            5,
        )
        ours, theirs = medians[KSTORE], medians["crcmod"]
        if size == 100:
            goal = Goal(25, at_least=False, of="value")
            found.append(Row("codec", "CRC-32C of 100 B", ours, "ns", "crcmod", theirs, goal))
            continue
        wide = Goal(20, of="value") if size == 16384 else None
        label = f"CRC-32C of {size} B"
        found.append(Row("codec", label, size / ours, "GB/s", "crcmod", size / theirs, wide))
    return found


def _validation_row(settings: Settings) -> list[Row]:
    batch = build_batch([(b"key-%06d" % index, VALUE) for index in range(RECORDS)], timestamp=1)
    repeat = settings.pick(4000, 400)
    per_record = 1e9 / (repeat * RECORDS)
    medians = in_turns(
        {
            "whole": lambda: seconds_to_validate(batch, repeat) * per_record,
            "crc": lambda: seconds_for(batch, repeat) * per_record,
        },
        7,
    )
    goal = Goal(15, at_least=False, of="value")
    walk = max(0.0, medians["whole"] - medians["crc"])
    return [
        Row("codec", "validation: walk over a 100 B record", walk, "ns", goal=goal),
        Row("codec", "validation: CRC of a 100 B record", medians["crc"], "ns"),
    ]


def _client_batch(client: Any, rows: list[tuple[bytes, bytes]]) -> bytes:
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for index, (key, value) in enumerate(rows):
        builder.append(index, timestamp=1, key=key, value=value, headers=[])
    return bytes(builder.build())


def _client_decode(client: Any, batch: bytes) -> list[object]:
    view = client.DefaultRecordBatch(batch)
    return [record.value for record in view]


def _decode_rows(settings: Settings) -> list[Row]:
    batch = build_batch([(b"key-%06d" % index, VALUE) for index in range(RECORDS)], timestamp=1)
    fetch = batch * BATCHES
    repeat = settings.pick(300, 30)
    slow = max(1, repeat // 30)
    cases = {
        "lazy": _per_record(lambda: len(decode(batch, verify=False)), RECORDS, repeat),
        "objects": _per_record(lambda: deque(decode(batch, verify=False), 0), RECORDS, repeat),
        "values": _per_record(
            lambda: [r.value for r in decode(batch, verify=False)], RECORDS, repeat
        ),
        "all values": _per_record(lambda: decode(batch, verify=False).values(), RECORDS, repeat),
        "columns": _per_record(
            lambda: decode_columns(fetch, verify=False), BATCHES * RECORDS, repeat // BATCHES
        ),
        "arrow": _per_record(
            lambda: to_arrow(fetch, verify=False), BATCHES * RECORDS, repeat // BATCHES
        ),
        "kafka-python": _per_record(lambda: _client_decode(kafka_codec, batch), RECORDS, slow),
        "aiokafka": _per_record(lambda: _client_decode(aiokafka_codec, batch), RECORDS, slow),
    }
    found = in_turns(cases, 7)
    labels = [
        ("lazy", "decode: walk, nothing touched", None),
        ("objects", "decode: an object per record", 18),
        ("values", "decode: an object and its value per record", 18 + 40),
        ("all values", "decode: list of values", None),
        ("columns", "decode: Arrow columns of 1 MB", 30),
        ("arrow", "decode: pyarrow.RecordBatch of 1 MB", None),
    ]
    rows = [
        Row(
            "codec",
            label,
            found[name],
            "ns/record",
            "aiokafka",
            found["aiokafka"],
            None if limit is None else Goal(limit, at_least=False, of="value"),
            note="CRC apart: 5 ns" if name == "lazy" else "",
        )
        for name, label, limit in labels
    ]
    label = "decode: an object and its value per record"
    peer = found["kafka-python"]
    rows.append(Row("codec", label, found["values"], "ns/record", "kafka-python", peer))
    return rows


def _build_rows(settings: Settings) -> list[Row]:
    records = [(b"key-%06d" % index, VALUE) for index in range(WINDOW)]
    values = [VALUE] * WINDOW
    repeat = settings.pick(3000, 300)
    slow = max(1, repeat // 30)
    cases = {
        "pairs": _per_record(lambda: build_batch(records, timestamp=1), WINDOW, repeat),
        "values": _per_record(lambda: build_batch(values, timestamp=1), WINDOW, repeat),
        "kafka-python": _per_record(lambda: _client_batch(kafka_codec, records), WINDOW, slow),
        "aiokafka": _per_record(lambda: _client_batch(aiokafka_codec, records), WINDOW, slow),
    }
    found = in_turns(cases, 7)
    label = "build: key and value, CRC included"
    goal = Goal(0.25, at_least=False)
    return [
        Row("codec", label, found["pairs"], "ns/record", peer, found[peer], goal)
        for peer in ("aiokafka", "kafka-python")
    ] + [Row("codec", "build: values, CRC included", found["values"], "ns/record")]


def rows(settings: Settings) -> list[Row]:
    """CRC in GB/s, the rest in CPU nanoseconds per record of 100 B."""
    return [
        *_crc_rows(settings),
        *_validation_row(settings),
        *_decode_rows(settings),
        *_build_rows(settings),
    ]
