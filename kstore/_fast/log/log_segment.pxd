# One segment: its file, its bounds, and the part of its index that is in memory.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from kstore._fast.disk.page_reader cimport PageReader
from kstore._fast.log.segment_file cimport SegmentFile

cdef struct IndexEntry:
    uint32_t offset_delta           # from the segment's base offset to a batch's
    uint32_t position               # where that batch begins
    int64_t max_timestamp           # the largest of the segment's batches before it

# A range that was checked first at this time (0: never).
cdef struct CheckedPart:
    int64_t start
    int64_t end
    int64_t ms

cdef enum:
    FRESH_EACH_MS = 5000            # appends are noted this often

cdef class LogSegment:
    cdef readonly int64_t base_offset
    cdef public str path
    cdef public int64_t size_bytes          # end of the last whole batch
    cdef public int64_t next_offset         # after the last record
    cdef public int64_t max_timestamp       # -1 while empty
    cdef public int64_t first_timestamp     # of the first batch: its max timestamp; -1: unknown
    cdef public int64_t created_ms
    cdef public bint sealed
    # LMDB has the whole index; memory has a part, or nothing
    cdef public bint complete
    cdef public tuple damages               # the known damaged ranges, ascending; or None
    cdef object opener                      # callable(path) -> SegmentFile
    # this process wrote everything from here on; earlier bytes are checked when they are read
    cdef public int64_t own_position
    cdef CheckedPart order_checked          # the order of its batches
    cdef CheckedPart sums                   # their checksums
    cdef CheckedPart resident               # in the page cache
    # bytes from here on were appended recently, as of this time; and the next such pair
    cdef int64_t fresh_from
    cdef int64_t fresh_ms
    cdef int64_t next_fresh_from
    cdef int64_t next_fresh_ms
    cdef SegmentFile handle
    cdef IndexEntry* entries                # entries from number first_entry on
    cdef public int64_t first_entry
    cdef public int64_t persisted           # the number of entries in LMDB
    cdef int count
    cdef int room
    cdef public int64_t bytes_since_entry
    cdef readonly int64_t window_end        # from this offset on, memory may lack entries
    cdef SegmentFile file(self)
    cdef int add_entry(self, int64_t base_offset, int64_t position) except -1
    # Where the scan for an offset begins; -1: the entry is not in memory. floor_below: the last
    # indexed position and offset at or before the given position.
    cdef int64_t floor_position(self, int64_t offset) noexcept
    cdef int64_t floor_below(self, int64_t position, int64_t* offset) noexcept
    # Whether the order of these batches was checked recently; note that it was.
    cdef bint was_checked(self, int64_t position, int64_t end) noexcept
    cdef void note_checked(self, int64_t position, int64_t end) noexcept
    cdef bint sums_checked(self, int64_t position, int64_t end) noexcept
    cdef void note_sums(self, int64_t position, int64_t end) noexcept
    cdef void forget_checked(self) noexcept
    # Notes the position of an append. Called now and then.
    cdef void note_fresh(self, int64_t position, int64_t now) noexcept
    # Whether the bytes from here to the end were appended so recently that they must be in memory.
    cdef bint is_fresh(self, int64_t position) noexcept
    # Whether these bytes were found in memory recently.
    cdef bint is_known_resident(self, int64_t position, int64_t end) noexcept
    # Raises NotInMemory if a check of these bytes would have to wait for the disk.
    cdef int must_be_there(
        self, object log, PageReader pages, int64_t position, int64_t size_bytes) except -1
    cdef void note_resident(self, int64_t position, int64_t end) noexcept
