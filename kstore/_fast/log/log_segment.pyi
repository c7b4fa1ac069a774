"""One segment of a log: its file, its bounds, and the part of its index that is in memory."""

from collections.abc import Callable
from typing import Any

from kstore._fast.log.segment_file import SegmentFile

class LogSegment:
    """A segment: records of [base_offset, next_offset) in the first size_bytes of its file."""

    base_offset: int
    """The offset in its file name."""
    path: str
    """Its file."""
    size_bytes: int
    """End of the last whole batch."""
    next_offset: int
    """The offset after its last record."""
    max_timestamp: int
    """The largest timestamp in it, -1 while empty."""
    first_timestamp: int
    """Max timestamp of its first batch, -1 unknown."""
    created_ms: int
    """When it was begun, or opened."""
    sealed: bool
    """A later segment exists."""
    complete: bool
    """LMDB has the whole index; what is in memory is a window into it, if anything."""
    damages: tuple[Any, ...] | None
    """The known damaged parts (kstore.log.segments.damage), ascending; None: there are none."""
    first_entry: int
    """Number of the first index entry in memory."""
    persisted: int
    """How many index entries LMDB has."""
    bytes_since_entry: int
    """Bytes behind the last index entry."""
    own_position: int
    """From here on this process has written; what lies before is checked when it is read."""
    window_end: int
    """Offset from which on index entries may be missing in memory; a huge number for none."""
    @property
    def is_open(self) -> bool:
        """Whether its file is open."""
    @property
    def durable_bytes(self) -> int:
        """What is known to be on the disk, 0 if the file is not open."""
    @property
    def entry_count(self) -> int:
        """Index entries up to the last one in memory."""
    def __init__(
        self,
        base_offset: int,
        path: str,
        opener: Callable[[str], SegmentFile],
        *,
        size_bytes: int = 0,
        next_offset: int = -1,
        max_timestamp: int = -1,
        first_timestamp: int = -1,
        created_ms: int = 0,
        file: SegmentFile | None = None,
    ) -> None: ...
    def handle_or_open(self) -> SegmentFile:
        """Its open file."""
    def close(self) -> None:
        """Closes the file; it opens again when needed."""
    def packed(self, start: int, stop: int) -> bytes:
        """The index entries with these numbers, packed. IndexError if they are not in memory."""
    def offset_of_entry(self, number: int) -> int:
        """The batch offset of an index entry that is in memory."""
    def load(self, data: bytes, first_entry: int, window_end: int = ...) -> None:
        """Replaces the entries in memory with packed ones, good up to offset ``window_end``."""
    def load_pages(
        self, rows: list[tuple[bytes, bytes]], first_entry: int, window_end: int = ...
    ) -> bytes | None:
        """Replaces the entries in memory with those of pages (key, entries and their checksum).
        Where one is damaged nothing is replaced, and its key is returned."""
    def seal(self) -> None:
        """Nothing is appended any more. What this process has appended counts as checked."""
    def all_entries(self) -> bytes:
        """The entries in memory, packed."""
    def prepend(self, data: bytes) -> None:
        """Puts packed entries, which end where those in memory begin, before them."""
    def prepend_missing(self, pages: bytes) -> bool:
        """Put what is not in memory before what is, from the packed entries from the first one on;
        False where they are too few. In one piece, so readers need no lock."""
    def rewind(self, position: int) -> int:
        """Goes back to the last index entry at or before ``position``, to scan from there; returns
        where that is. All entries have to be in memory."""
    def mark(self) -> tuple[int, int, int, int, int, int]:
        """Its bounds and its number of entries, for ``go_back``."""
    def go_back(self, mark: tuple[int, int, int, int, int, int]) -> None:
        """Forgets what was taken in since ``mark``."""
    def copy(self) -> LogSegment:
        """A segment with the same file, bounds, index entries in memory and damages, which no
        reader knows.
        """
    def take(self, other: LogSegment) -> None:
        """Takes over the bounds, the index entries and the damages of a copy, all at once."""
    def drop_entries(self, upto: int) -> None:
        """Frees the entries below number ``upto``: LMDB has them."""
    def offset_before_timestamp(self, timestamp_ms: int) -> int:
        """The largest indexed offset before which no record has this timestamp or a later one; -1
        when not all entries are in memory."""
    def index_entries(self) -> list[tuple[int, int, int]]:
        """(offset, position, max timestamp before it) of the entries in memory."""
