"""What one log holds and how an offset is found in it; LogCore adds the appending."""

from typing import Any

from kstore._fast.disk.page_reader import PageReader
from kstore._fast.log.epoch_cache import EpochCache
from kstore._fast.log.log_segment import LogSegment
from kstore._fast.log.producer_table import ProducerTable

class LogView:
    """Offsets, segments, epochs and producers of one log."""

    log_start_offset: int
    """The first offset that may be read."""
    log_end_offset: int
    """The offset that the next record gets."""
    high_watermark: int
    """Below it every record is on all in-sync replicas."""
    last_stable_offset: int
    """Below it no transaction is open."""
    follows_end: bool
    """There are no replicas: the high watermark is as far as anybody may see."""
    shows_durable: bool
    """Nobody may see what is not on the disk: the high watermark stays below durable_offset."""
    durable_offset: int
    """Every record below it is on the disk."""
    segments: list[LogSegment]
    """Ascending; the last one is active."""
    active: LogSegment
    """The segment that is appended to."""
    pages: PageReader | None
    """What reads for a loop that must not wait."""
    epochs: EpochCache
    """Leader epochs."""
    producers: ProducerTable
    """Producers and transactions."""
    def __init__(self, owner: object, *, index_interval_bytes: int = 4096) -> None: ...
    def scan(
        self,
        segment: LogSegment,
        position: int,
        end: int,
        *,
        producers_from: int = 0,
        into: str = "all",
        limit: int = -1,
    ) -> tuple[int, int]:
        """Takes the whole, valid batches of [position, end) into segment and index, epochs and,
        from an offset on, producers ("all"); or into the first two ("index"), or the last
        ("producers"). Batches that reach ``limit``, or do not follow the one before, end it.

        Returns the position after the last good one and the BatchStatus that stopped it (0 at
        the end).
        """
    def set_offsets(self, log_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        """Sets all three; the high watermark is kept between the others."""
    def set_high_watermark(self, offset: int) -> None:
        """Moves the high watermark, and with it the last stable offset."""
    def set_durable_offset(self, offset: int) -> None:
        """More is on the disk, and may be seen where that counts. It never goes back here."""
    def set_log_start_offset(self, offset: int) -> None:
        """Moves the log start offset."""
    def set_segments(self, segments: list[LogSegment]) -> None:
        """Replaces the segments (ascending, not empty)."""
    def forget_hints(self) -> None:
        """Forgets where readers left off: positions have changed."""
    def slice_at(
        self, offset: int, max_offset: int, max_bytes: int, min_one: bool = True
    ) -> tuple[str, int, int, int, int] | None:
        """(path, position, size, base offset, next offset) of the slice at ``offset``, or None."""
    def read(
        self,
        offset: int,
        max_offset: int,
        max_bytes: int,
        min_one: bool = True,
    ) -> tuple[bytes, int]:
        """The whole batches at ``offset`` and where to read on."""
    damages_found: int
    """How often a damaged part became known."""
    def note_damages(self, segment: LogSegment, damages: tuple[Any, ...]) -> None:
        """These parts of a segment are damaged (kstore.log.segments.damage): reads avoid them."""
    def mark_entry(self, segment: LogSegment) -> None:
        """Has the next batch begin an index entry: damage lies before it."""
