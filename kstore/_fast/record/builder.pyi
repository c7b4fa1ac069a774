"""Builders of record batches: single batches, or a growing batch whose memory is reused."""

from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import Buffer

_Headers = Mapping[str, Buffer | None] | Sequence[tuple[str, Buffer | None]]
PASS_HEADERS: str
_Record = (
    Buffer
    | None
    | tuple[Buffer | None, Buffer | None]
    | tuple[Buffer | None, Buffer | None, int | None]
    | tuple[Buffer | None, Buffer | None, int | None, _Headers | None]
)
"""A value, or (key, value), (key, value, timestamp), (key, value, timestamp, headers)."""

class RecordBatchBuilder:
    """One batch under construction: append records, ``build()``, ``reset()``, and so on."""

    size_bytes: int
    """Size so far, header included, before compression (after ``build``: the batch's size)."""
    count: int
    """Records so far."""
    compression: int
    """Compression type 0 to 4."""
    level: int
    """Compression level, negative for the codec's default."""
    producer_id: int
    """Producer id or -1."""
    producer_epoch: int
    """Producer epoch or -1."""
    base_sequence: int
    """Sequence of the first record or -1."""
    transactional: bool
    """Whether the batch belongs to a transaction."""
    control: bool
    """Whether it is a control batch."""
    def __init__(
        self,
        *,
        compression: int = 0,
        level: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> None: ...
    def __len__(self) -> int: ...
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp: int = -1,
        headers: _Headers | None = (),
    ) -> int:
        """Add a record (timestamp in ms, -1 for none); returns its offset delta.

        Raises TypeError for parts that are not bytes-like, OverflowError above the format's 2 GiB.
        """
    def extend(self, records: Iterable[_Record], timestamp: int = -1) -> int:
        """Add records; ``timestamp`` is for those without one. Returns the count so far."""
    def build(self, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
        """The batch, compressed and with its CRC. Raises ValueError if it is empty or already
        built.
        """
    def reset(self) -> int:
        """Start the next batch with the same settings, in the same memory."""

def header_rows(headers: _Headers) -> Sequence[tuple[str, Buffer | None]]:
    """The pairs of a user's headers. Raises TypeError for a str, bytes, or a generator."""

def encode_headers(headers: Sequence[tuple[str, Buffer | None]]) -> bytes:
    """Record headers in the record format, without their count."""

def build_batch(
    records: Iterable[_Record],
    *,
    timestamp: int = -1,
    compression: int = 0,
    level: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch from ``records`` in one call."""

def build_single_batch(
    value: Buffer | None,
    key: Buffer | None = None,
    *,
    timestamp: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of one record, by the code path of the embedded log's ``append``."""
