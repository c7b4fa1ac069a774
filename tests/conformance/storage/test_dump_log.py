"""Kafka's DumpLogSegments reads the segment files that kstore writes, and agrees on every offset,
checksum and record with what was sent and with what kstore itself decodes.
"""

from __future__ import annotations

from pathlib import Path

import crcmod.predefined
import pytest

from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.conformance.libraries.samples import (
    BASE_TIMESTAMP_MS,
    CODECS,
    Sample,
    plain_samples,
    samples,
)
from tests.conformance.storage.dump_log import DumpedBatch, DumpedRecord, dump_segment
from tests.conformance.storage.stored import stored_batches

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

crc32c = crcmod.predefined.mkCrcFun("crc-32c")


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def agreed(path: Path) -> list[DumpedBatch]:
    """Kafka's dump of the file, after comparing it with the independent walk and kstore's
    decoder.
    """
    from kstore.record import decode

    dumped = dump_segment(path)
    assert all(batch.is_valid for batch in dumped)
    walked = list(stored_batches(path))
    assert [(b.base_offset, b.position, b.size_bytes, b.crc, b.count) for b in dumped] == [
        (b.base_offset, b.position, b.size_bytes, b.crc, b.count) for b in walked
    ]
    assert [b.crc for b in walked] == [crc32c(b.covered) for b in walked]
    ours = decode(path.read_bytes()[: sum(b.size_bytes for b in walked)])
    theirs = [record for batch in dumped for record in batch.records]
    assert len(ours) == len(theirs)
    for mine, kafkas in zip(ours, theirs, strict=True):
        same_as_sent(
            kafkas, mine.offset, Sample(mine.key, mine.value, mine.timestamp, tuple(mine.headers))
        )
    return dumped


def same_as_sent(record: DumpedRecord, offset: int, sent: Sample) -> None:
    """Kafka's view of one record equals a sample at an offset; bytes are compared where
    printable.
    """
    assert record.offset == offset
    assert record.timestamp_ms == sent.timestamp_ms
    assert record.key_size == (-1 if sent.key is None else len(sent.key))
    assert record.value_size == (-1 if sent.value is None else len(sent.value))
    assert record.header_keys == tuple(name for name, _ in sent.headers)
    for shown, data in ((record.key, sent.key), (record.payload, sent.value)):
        if data is not None and data.isascii() and data.decode().isprintable():
            assert shown == data.decode()


def test_segments_of_a_broker_agree_with_kafka_for_every_client_and_codec(own_broker, topic):
    clients = [kind(own_broker.bootstrap) for kind in PYTHON_CLIENTS.values()]
    clients[0].create_topic(topic, 1, segment_bytes="1048576")
    sent: list[Sample] = []
    for client in clients:
        for codec in CODECS:
            for idempotent in (False, True):
                batch = samples(40, seed=len(sent))
                client.send(topic, batch, codec=codec, idempotent=idempotent)
                sent += batch
    own_broker.stop()
    files = segments(own_broker.log_dir / f"{topic}-0")
    assert len(files) > 1
    dumped = [batch for path in files for batch in agreed(path)]
    assert {batch.codec for batch in dumped} == set(CODECS)
    records = [record for batch in dumped for record in batch.records]
    for offset, (record, sample) in enumerate(zip(records, sent, strict=True)):
        same_as_sent(record, offset, sample)
    assert {path.stem for path in files} <= {f"{b.base_offset:020d}" for b in dumped}


@pytest.mark.parametrize("codec", CODECS)
def test_segments_of_an_embedded_log_agree_with_kafka(tmp_path, codec):
    import kstore

    sent = [
        s._replace(timestamp_ms=BASE_TIMESTAMP_MS + i) for i, s in enumerate(plain_samples(200))
    ]
    with kstore.open_log(tmp_path, segment_bytes=1 << 20) as log:
        rows = [(s.key, s.value, s.timestamp_ms, s.headers) for s in sent]
        log.append(sent[0].value, sent[0].key, sent[0].timestamp_ms, sent[0].headers)
        log.append_many(rows[1:100], compression=codec)
        log.append_many(rows[100:], compression=codec)
    (path,) = segments(tmp_path / "log-0")
    records = [record for batch in agreed(path) for record in batch.records]
    for offset, (record, sample) in enumerate(zip(records, sent, strict=True)):
        same_as_sent(record, offset, sample)


def test_gaps_between_given_offsets_are_where_kafka_sees_them(tmp_path):
    import kstore

    rows = [(s.key, s.value) for s in plain_samples(10)]
    with kstore.open_log(tmp_path) as log:
        log.append_at(5, rows)
        log.append_at(1000, rows)
        log.append_many(rows)
    (path,) = segments(tmp_path / "log-0")
    found = [(batch.base_offset, batch.last_offset, batch.count) for batch in agreed(path)]
    assert found == [(5, 14, 10), (1000, 1009, 10), (1010, 1019, 10)]
