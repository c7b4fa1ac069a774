"""Batches against the clients' own codecs, both ways: kafka-python and aiokafka."""

from __future__ import annotations

import aiokafka.record.default_records as aio
import kafka.record.default_records as kp
import pytest
from hypothesis import given, settings

from kstore.record import build_batch, decode, validate
from tests.reference.record_samples import many_rows, row_lists

CODECS = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
CLIENTS = pytest.mark.parametrize("client", [kp, aio], ids=["kafka-python", "aiokafka"])


def sent(rows):
    """Rows as a client sends them: no negative times."""
    return [(key, value, max(timestamp, 0), pairs) for key, value, timestamp, pairs in rows]


def build_by(client, codec, rows) -> bytes:
    """A batch by the client's producer code."""
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for index, (key, value, timestamp, pairs) in enumerate(rows):
        builder.append(index, timestamp=timestamp, key=key, value=value, headers=list(pairs))
    return bytes(builder.build())


@pytest.mark.quick_one_in(4)
@CLIENTS
@CODECS
@settings(max_examples=30)
@given(rows=row_lists | many_rows)
def test_their_batches_are_valid_and_read_as_written(client, codec, rows) -> None:
    rows = sent(rows)
    data = build_by(client, codec, rows)

    validate(data)
    found = [
        (r.key, r.value, r.timestamp, [tuple(pair) for pair in r.headers]) for r in decode(data)
    ]
    assert found == rows


@pytest.mark.quick_one_in(4)
@CLIENTS
@CODECS
@settings(max_examples=30)
@given(rows=row_lists | many_rows)
def test_they_read_our_batches(client, codec, rows) -> None:
    rows = sent(rows)
    data = build_batch(rows, compression=codec, base_offset=40)

    batch = client.DefaultRecordBatch(data)
    assert batch.validate_crc()
    found = [(r.offset, r.key, r.value, r.timestamp, list(r.headers)) for r in batch]
    assert found == [(40 + index, *row) for index, row in enumerate(rows)]
