# One segment: its file, its bounds, and the entries of its index that are in memory.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from kstore._fast.disk.page_reader cimport PageReader
from kstore._fast.log.segment_file cimport SegmentFile

cdef struct IndexEntry:
    uint32_t offset_delta           # of a batch's base offset from the segment's
    uint32_t position               # where that batch lies
    int64_t max_timestamp           # of all batches of the segment before it

# A part that was looked at, first at this time (0: never).
cdef struct CheckedPart:
    int64_t start
    int64_t end
    int64_t ms

cdef enum:
    FRESH_EACH_MS = 5000            # an append is noted so often

cdef class LogSegment:
    cdef readonly int64_t base_offset
    cdef public str path
    cdef public int64_t size_bytes          # end of the last whole batch
    cdef public int64_t next_offset         # after its last record
    cdef public int64_t max_timestamp       # -1 while empty
    cdef public int64_t first_timestamp     # max timestamp of its first batch; -1 unknown
    cdef public int64_t created_ms
    cdef public bint sealed
    cdef public bint complete               # LMDB has the whole index; in memory is a part, if any
    cdef public tuple damages               # the damaged parts known, ascending; or None
    cdef object opener                      # callable(path) -> SegmentFile
    # from here on this process has written; all before it is checked when it is read
    cdef public int64_t own_position
    cdef CheckedPart order_checked          # of its batches
    cdef CheckedPart sums                   # their checksums
    cdef CheckedPart resident               # in the page cache
    # appended not long ago from here on, as of that time; and what takes its place
    cdef int64_t fresh_from
    cdef int64_t fresh_ms
    cdef int64_t next_fresh_from
    cdef int64_t next_fresh_ms
    cdef SegmentFile handle
    cdef IndexEntry* entries                # the entries from number first_entry on
    cdef public int64_t first_entry
    cdef public int64_t persisted           # entries that LMDB has
    cdef int count
    cdef int room
    cdef public int64_t bytes_since_entry
    cdef readonly int64_t window_end        # from this offset on, entries may be missing in memory
    cdef SegmentFile file(self)
    cdef int add_entry(self, int64_t base_offset, int64_t position) except -1
    # Where to begin a scan for an offset (or -1: the entry is not in memory); end_of: the last
    # indexed position and offset not above the given position.
    cdef int64_t floor_position(self, int64_t offset) noexcept
    cdef int64_t floor_below(self, int64_t position, int64_t* offset) noexcept
    # Whether the order of these bytes' batches was checked not long ago; that it was.
    cdef bint was_checked(self, int64_t position, int64_t end) noexcept
    cdef void note_checked(self, int64_t position, int64_t end) noexcept
    cdef bint sums_checked(self, int64_t position, int64_t end) noexcept
    cdef void note_sums(self, int64_t position, int64_t end) noexcept
    cdef void forget_checked(self) noexcept
    # What an append wrote at this position; asked of it now and then.
    cdef void note_fresh(self, int64_t position, int64_t now) noexcept
    # Whether the bytes from here to the end were appended so lately that they must be in memory.
    cdef bint is_fresh(self, int64_t position) noexcept
    # The same of what was found there not long ago; that it was.
    cdef bint is_known_resident(self, int64_t position, int64_t end) noexcept
    # NotInMemory where a look at these bytes, which must not wait, would have to.
    cdef int must_be_there(
        self, object log, PageReader pages, int64_t position, int64_t size_bytes) except -1
    cdef void note_resident(self, int64_t position, int64_t end) noexcept
