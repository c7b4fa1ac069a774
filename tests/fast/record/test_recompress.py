"""Recompressed batches have the same records; invalid ones do not change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore._fast.record.builder import build_batch
from kstore._fast.record.recompress import recompress
from kstore.record import BatchView, batches, control_batch, decode, validate
from kstore.record.control import ControlType, EndTransactionMarker

CODECS = st.integers(0, 4)
VALUES = st.lists(st.binary(max_size=300), min_size=1, max_size=20)


def described(batch: BatchView) -> tuple[object, ...]:
    return (
        batch.base_offset, batch.last_offset, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, batch.max_timestamp, batch.leader_epoch, batch.is_transactional,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CODECS, VALUES), min_size=1, max_size=3), CODECS)
def test_only_the_compression_changes(given_batches: list[tuple[int, list[bytes]]], codec: int):
    data, offset = b"", 0
    for own, values in given_batches:
        data += build_batch(
            values, compression=own, base_offset=offset, timestamp=1_000_000 + offset,
            producer_id=7, producer_epoch=1, base_sequence=offset,
        )  # fmt: skip
        offset += len(values)
    anew = recompress(data, codec)
    if anew is None:
        assert all(own == codec for own, _ in given_batches)
        return
    validate(anew)
    assert [batch.compression for batch in batches(anew)] == [codec] * len(given_batches)
    assert [described(b) for b in batches(anew)] == [described(b) for b in batches(data)]
    before, after = decode(data), decode(anew)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in after] == [
        (r.offset, r.timestamp, r.key, r.value) for r in before
    ]


def test_a_control_batch_stays_as_it_is():
    marker = control_batch(
        EndTransactionMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=5
    )
    assert recompress(marker, 1) is None
    both = recompress(build_batch([b"x"]) + bytes(marker), 1)
    assert both is not None
    assert [batch.compression for batch in batches(both)] == [1, 0]


@pytest.mark.parametrize("place", [12, 17, 30, 61, -1])
def test_a_damaged_batch_is_left_to_the_log(place: int):
    data = bytearray(build_batch([b"x" * 100]))
    data[place] ^= 0x55
    anew = recompress(data, 4)
    assert anew is None or place == 12  # the leader epoch is not under the checksum


@pytest.mark.parametrize("size", range(0, 130, 7))
def test_a_truncated_batch_is_left_to_the_log(size: int):
    assert recompress(build_batch([b"x" * 100])[:size], 4) is None
