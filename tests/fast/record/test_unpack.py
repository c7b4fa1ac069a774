"""Compressed batches of clients: what they claim to hold, how much they may, and what a look at
their records through a window finds; the same as a look at all of them at once.
"""

from __future__ import annotations

import gzip
import random
import struct

import pytest

from kstore._fast.record.batch import STATUS_NAMES, InvalidBatchError
from kstore._fast.record.batch_view import validate
from kstore._fast.record.builder import build_batch
from kstore._fast.record.compression import compress
from kstore._fast.record.crc32c import checksum
from kstore._fast.record.unpack import claim, limit, look_into

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
HEADER = 61
MB = 1 << 20


def packed(codec: int, payload: bytes, count: int = 1) -> bytes:
    """A batch whose records are this compressed payload, and good else."""
    batch = bytearray(build_batch([b"x"] * count, timestamp=1))[:HEADER] + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">I", batch, 17, checksum(bytes(batch[21:])))
    return bytes(batch)


def records(*values: bytes, keyed: bool = False) -> bytes:
    rows = [(b"k", value) for value in values] if keyed else list(values)
    return build_batch(rows, timestamp=1)[HEADER:]


def seen(batch: bytes, max_bytes: int = 64 * MB) -> str:
    return STATUS_NAMES[look_into(batch, max_bytes).status]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_any_size_pass_the_window(codec: int) -> None:
    values = [bytes([i % 251]) * size for i, size in enumerate((0, 1, 70_000, 5, 400_000, 9) * 20)]
    payload = records(*values)
    batch = packed(codec, compress(codec, payload), len(values))
    assert seen(batch) == "OK"
    assert seen(batch, len(payload)) == "OK"
    assert seen(batch, len(payload) - 1) == "TOO_LARGE"
    assert claim(codec, compress(codec, payload)) >= len(payload)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("codec", CODECS)
def test_a_window_finds_what_a_look_at_everything_finds(codec: int) -> None:
    """Damage in the records (before they are compressed) and in what is compressed."""
    dice = random.Random(codec)
    values = [dice.randbytes(dice.randrange(3_000)) for _ in range(60)]
    plain = records(*values)
    for _ in range(150):
        payload = bytearray(plain if dice.random() < 0.5 else compress(codec, plain))
        is_plain = payload == plain
        for _ in range(dice.randrange(3)):
            payload[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
        if dice.random() < 0.3:
            del payload[dice.randrange(len(payload)) :]
        batch = packed(codec, compress(codec, payload) if is_plain else bytes(payload), len(values))
        try:
            validate(batch)
            expected = "OK"
        except InvalidBatchError as problem:
            expected = str(problem.status)
        found = seen(batch)
        # The window may have read invalid records before.
        if "BAD_COMPRESSION" in (found, expected):
            assert (found == "OK") == (expected == "OK"), (found, expected)
        else:
            assert found == expected


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_of_no_records_is_refused_at_its_first_window(codec: int) -> None:
    """Counted in what is read of the stream: all of it would be beyond the limit."""
    batch = packed(codec, compress(codec, bytes(32 * MB)))
    assert seen(batch, 1 * MB) in ("BAD_RECORD", "TOO_LARGE")
    if codec != SNAPPY:  # whose claim is exact
        assert seen(batch, 1 * MB) == "BAD_RECORD"


@pytest.mark.parametrize("codec", CODECS)
def test_one_large_record_is_refused_by_its_length(codec: int) -> None:
    batch = packed(codec, compress(codec, records(bytes(8 * MB))))
    assert seen(batch, 4 * MB) == "TOO_LARGE"
    assert seen(batch, 9 * MB) == "OK"


@pytest.mark.parametrize("codec", CODECS)
def test_a_payload_that_is_cut_or_has_a_tail_is_refused(codec: int) -> None:
    payload = compress(codec, records(bytes(1000)))
    for bad in (payload[:-1], payload + b"\1\2\3\4\5\6\7\x08\x09", b""):
        assert seen(packed(codec, bad)) != "OK"


def test_gzip_members_behind_each_other_are_one_stream() -> None:
    payload = records(b"one", b"two")
    halves = gzip.compress(payload[:5]) + gzip.compress(payload[5:])
    assert seen(packed(GZIP, halves, 2)) == "OK"


def test_the_verdict_tells_keys_and_gives_the_batch_in_another_codec() -> None:
    for keyed in (True, False):
        batch = packed(ZSTD, compress(ZSTD, records(b"a", b"b", keyed=keyed)), 2)
        verdict = look_into(batch, MB, GZIP)
        assert verdict.has_keys is keyed
        assert verdict.anew is not None
        assert validate(verdict.anew)[0].compression == GZIP
    assert look_into(packed(ZSTD, b"no zstd"), MB, GZIP).anew is None


def test_a_claim_is_never_less_than_what_a_payload_holds() -> None:
    dice = random.Random(3)
    for codec in CODECS:
        for size in (1, 100, 70_000, 300_000):
            for plain in (bytes(size), dice.randbytes(size)):
                assert claim(codec, compress(codec, plain)) >= size
        assert claim(codec, b"\0" * 5) in (-1, 0)


def test_what_a_batch_may_hold() -> None:
    assert limit(8_000, 1 << 20) == 32 * MB
    assert limit(100, 1000) == 16 * MB, "however small the topic's limit"
    assert limit(1 << 20, 1 << 20) == 256 * MB, "of a batch that is large itself"
    assert limit(1 << 30, 1 << 30) == 256 * MB
