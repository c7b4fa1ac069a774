"""Ready-made request frames for the load generator, written by hand from the protocol's
documentation, without kstore's code. Both Kafka 4.3.1 and kstore serve these versions.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

import crcmod.predefined

from tests.conformance.wire import request_frame

__all__ = [
    "Answer",
    "api_versions",
    "api_versions_answer",
    "compact",
    "fetch",
    "fetched_batch",
    "latest_offsets",
    "latest_offsets_answer",
    "metadata",
    "metadata_error",
    "offset_commit",
    "offset_commit_error",
    "produce",
    "produce_error",
    "produce_errors",
    "produce_to_many",
    "record_batch",
    "string",
    "unsigned",
]

_crc32c = crcmod.predefined.mkCrcFun("crc-32c")
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, API_VERSIONS = 0, 1, 2, 3, 8, 18
# The time of today: retention would delete older records while they are measured.
TIMESTAMP_MS = int(time.time() * 1000)


def unsigned(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(value: int) -> bytes:
    return unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def string(text: str) -> bytes:
    """A string in versions that are not flexible."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def compact(text: str) -> bytes:
    """A string in flexible versions."""
    data = text.encode()
    return unsigned(len(data) + 1) + data


def record_batch(values: list[bytes], keys: Sequence[bytes] = ()) -> bytes:
    """A version 2 batch of records without headers, with keys if they are given, not compressed,
    without a producer id.
    """
    records = bytearray()
    for delta, value in enumerate(values):
        key = _signed(len(keys[delta])) + keys[delta] if keys else _signed(-1)
        body = b"\x00" + _signed(0) + _signed(delta) + key + _signed(len(value)) + value
        body += _signed(0)
        records += _signed(len(body)) + body
    tail = struct.pack(
        ">hiqqqhii", 0, len(values) - 1, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, len(values)
    )
    tail += bytes(records)
    head = struct.pack(">qiib", 0, len(tail) + 9, -1, 2)
    return head + struct.pack(">I", _crc32c(tail)) + tail


class Answer:
    """Reads an answer's bytes after its correlation id. Raises struct.error or IndexError if it is
    too short.
    """

    def __init__(self, data: bytes, *, flexible_header: bool = False) -> None:
        self._data = data
        self._place = 5 if flexible_header else 4  # no tags in any answer's header

    def take(self, form: str) -> int:
        """The next number, in its struct format."""
        (value,) = struct.unpack_from(">" + form, self._data, self._place)
        self._place += struct.calcsize(">" + form)
        return int(value)

    def skip(self, size: int) -> None:
        """Skip bytes."""
        self._place += size

    def unsigned(self) -> int:
        """The next unsigned varint."""
        value = shift = 0
        while True:
            byte = self._data[self._place]
            self._place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def bytes(self, size: int) -> bytes:
        """This many bytes; none if the length is null."""
        found = self._data[self._place : self._place + max(0, size)]
        self._place += max(0, size)
        return found

    def string(self) -> str:
        """A string in versions that are not flexible; null is empty."""
        return self.bytes(self.take("h")).decode()

    def compact(self) -> str:
        """A string in flexible versions; null is empty."""
        return self.bytes(self.unsigned() - 1).decode()


def produce(topic: str, partition: int, batch: bytes, *, acks: int = -1) -> bytes:
    """Produce v9 of one batch to one partition."""
    return produce_to_many(topic, [partition], batch, acks=acks)


def produce_to_many(
    topic: str, partitions: Sequence[int], batch: bytes, *, acks: int = -1
) -> bytes:
    """Produce v9 of the same batch to several partitions of a topic."""
    body = unsigned(0) + struct.pack(">hi", acks, 30_000) + unsigned(2) + compact(topic)
    body += unsigned(len(partitions) + 1)
    size = unsigned(len(batch) + 1)
    for partition in partitions:
        body += struct.pack(">i", partition) + size + batch + b"\x00"
    return request_frame(PRODUCE, 9, body + b"\x00\x00", flexible=True)


def produce_error(answer: bytes, topic: str) -> int:
    """The error code in the answer to `produce`."""
    place = 4 + 1 + 1 + len(compact(topic)) + 1 + 4
    return int(struct.unpack_from(">h", answer, place)[0])


def produce_errors(answer: bytes) -> dict[int, int]:
    """Partition to error code in the answer to `produce_to_many`."""
    found = Answer(answer, flexible_header=True)
    found.unsigned()
    found.compact()
    errors = {}
    for _ in range(found.unsigned() - 1):
        partition, code = found.take("i"), found.take("h")
        found.skip(24)  # base offset, append time, log start offset
        for _ in range(found.unsigned() - 1):
            found.skip(4)
            found.compact()
            found.skip(1)
        found.compact()
        for _ in range(found.unsigned()):
            found.unsigned()
            found.bytes(found.unsigned())
        errors[partition] = code
    return errors


def fetch(topic: str, partition: int, offset: int, *, max_bytes: int) -> bytes:
    """Fetch v12 of one partition without a session, answered at once."""
    body = struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1) + unsigned(2) + compact(topic)
    body += unsigned(2) + struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes)
    body += b"\x00\x00" + unsigned(1) + unsigned(1) + b"\x00"
    return request_frame(FETCH, 12, body, flexible=True)


def fetched_batch(answer: bytes, batch: bytes) -> bool:
    """True if the answer to `fetch` has these records (everything after a batch's CRC)."""
    return batch[21:] in answer


def latest_offsets(topic: str, partitions: Sequence[int]) -> bytes:
    """ListOffsets v1 for the log end offsets of some partitions of one topic."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(partitions))
    body += b"".join(struct.pack(">iq", partition, -1) for partition in partitions)
    return request_frame(LIST_OFFSETS, 1, body)


def latest_offsets_answer(answer: bytes) -> dict[int, tuple[int, int]]:
    """Partition to (error code, offset) in the answer to `latest_offsets`."""
    found = Answer(answer)
    found.skip(4)
    found.string()
    offsets = {}
    for _ in range(found.take("i")):
        partition, code = found.take("i"), found.take("h")
        found.skip(8)  # timestamp
        offsets[partition] = (code, found.take("q"))
    return offsets


def api_versions() -> bytes:
    """ApiVersions v3, as clients send it."""
    body = compact("bench") + compact("1") + b"\x00"
    return request_frame(API_VERSIONS, 3, body, flexible=True)


def api_versions_answer(answer: bytes) -> dict[int, tuple[int, int]]:
    """API key to (lowest, highest version) in the answer to `api_versions`; empty for an error."""
    found = Answer(answer)  # its header is never flexible
    if found.take("h"):
        return {}
    served = {}
    for _ in range(found.unsigned() - 1):
        key = found.take("h")
        served[key] = (found.take("h"), found.take("h"))
        found.skip(1)
    return served


def metadata(topic: str) -> bytes:
    """Metadata v12 of one topic by its name."""
    body = unsigned(2) + bytes(16) + compact(topic) + b"\x00" + b"\x00\x00\x00"
    return request_frame(METADATA, 12, body, flexible=True)


def metadata_error(answer: bytes, topic: str) -> int:
    """The topic's error code in the answer to `metadata`; -1 if the topic is missing."""
    place = answer.find(compact(topic)) - 2
    return int(struct.unpack_from(">h", answer, place)[0]) if place > 0 else -1


def offset_commit(group: str, topic: str, partition: int, offset: int) -> bytes:
    """OffsetCommit v8 of one partition, by a consumer that is not a member."""
    body = compact(group) + struct.pack(">i", -1) + compact("") + b"\x00" + unsigned(2)
    body += compact(topic) + unsigned(2) + struct.pack(">iqi", partition, offset, -1)
    body += compact("") + b"\x00\x00\x00"
    return request_frame(OFFSET_COMMIT, 8, body, flexible=True)


def offset_commit_error(answer: bytes) -> int:
    """The error code in the answer to `offset_commit`."""
    found = Answer(answer, flexible_header=True)
    found.skip(4)
    found.unsigned()
    found.compact()
    found.unsigned()
    found.skip(4)
    return found.take("h")
