"""The records that every client sends and gets back, and their shape in comparisons. Pure data."""

from __future__ import annotations

import random
import string
import time
from typing import NamedTuple

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# An hour ago: records older than a week would be deleted by retention while a test reads them.
BASE_TIMESTAMP_MS = int(time.time()) * 1000 - 3_600_000


class Sample(NamedTuple):
    """A record without its place in the log."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


_HEADERS: list[tuple[tuple[str, bytes | None], ...]] = [
    (),
    (("trace", b"abc"),),
    (("same", b"1"), ("same", b"2"), ("empty", b""), ("bytes", b"\x00\xff\x80")),
]


def samples(count: int = 60, *, seed: int = 7) -> list[Sample]:
    """Records with every combination of absent, empty, small and large parts, and rising
    timestamps; every fifth is a tombstone (a key and a null value). No record lacks both key and
    value, which kafka-python refuses to send.
    """
    noise = random.Random(seed)
    made = []
    for index in range(count):
        key = None if index % 7 == 3 else b"" if index % 11 == 5 else b"key-%d" % (index % 9)
        size = noise.choice([0, 1, 10, 100, 1000, 20_000])
        value: bytes | None = bytes(noise.choices(b"abcdef\x00\xff", k=size))
        if index % 5 == 4 and key is not None:
            value = None
        headers = _HEADERS[index % len(_HEADERS)]
        made.append(Sample(key, value, BASE_TIMESTAMP_MS + index * 10, headers))
    return made


def plain_samples(count: int = 40, *, seed: int = 3) -> list[Sample]:
    """Records that can be typed on one line, for the command-line clients: text, never empty, with
    tombstones; the timestamp is the client's and not compared (0).
    """
    noise = random.Random(seed)
    made = []
    for index in range(count):
        value: bytes | None = "".join(
            noise.choices(string.ascii_letters + string.digits, k=noise.choice([1, 20, 300]))
        ).encode()
        if index % 5 == 4:
            value = None
        made.append(Sample(b"key-%d" % (index % 9), value, 0, (("h", b"v"),)))
    return made
