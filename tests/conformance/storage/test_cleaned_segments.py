"""Kafka's DumpLogSegments reads what compaction leaves: thinned, empty and compressed batches,
markers and delete horizons.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore.log.offline.dump import DumpedBatch, DumpedRecord, dump
from kstore.record import ControlType, EndTransactionMarker, build_batch, control_batch
from tests.conformance.storage.dump_log import dump_segment

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]


def test_kafka_reads_cleaned_segments_as_kstore_does(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, cleanup_policy="compact", segment_bytes=20_000) as log:
        for number in range(300):
            codec = ("none", "gzip", "snappy", "lz4", "zstd")[number % 5]
            keys = [b"%d" % ((number * 7 + at * 13) % 600) for at in range(10)]
            records = [(key, b"x" * 40 if number % 9 else None) for key in keys]
            log.append_many(records, compression=codec)
        for producer, end in ((5, ControlType.ABORT), (6, ControlType.COMMIT)):
            log.append_batches(
                build_batch(
                    [(b"t", b"%d" % producer)], producer_id=producer, producer_epoch=0,
                    base_sequence=0, transactional=True,
                )
            )  # fmt: skip
            marker = control_batch(
                EndTransactionMarker(end, 1), producer_id=producer, producer_epoch=0, timestamp=1000
            )
            log.append_batches(marker, origin="coordinator")
        log.roll()
        log.compact()
        log.append(b"last", b"key")
        log.roll()
        log.compact()
        paths = [Path(segment.path) for segment in log.segments if segment.size_bytes]
    counts = []
    for path in paths:
        theirs = dump_segment(path)
        ours = list(dump(path, records=True))
        batches = [item for item in ours if isinstance(item, DumpedBatch)]
        records = [item for item in ours if isinstance(item, DumpedRecord)]
        assert all(batch.is_valid for batch in theirs)
        assert [
            (b.base_offset, b.last_offset, b.count, b.position, b.size, b.crc) for b in batches
        ] == [
            (b.base_offset, b.last_offset, b.count, b.position, b.size_bytes, b.crc) for b in theirs
        ]
        assert [(r.offset, r.timestamp) for r in records] == [
            (r.offset, r.timestamp_ms) for batch in theirs for r in batch.records
        ]
        counts += [(b.count, b.last_offset - b.base_offset + 1) for b in batches]
    assert any(0 < count < span for count, span in counts)
    assert any(count == 0 for count, _ in counts)
