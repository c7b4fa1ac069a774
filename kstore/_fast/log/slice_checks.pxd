# Checks whether a slice of a segment may be sent, and records damage.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.disk.page_reader cimport ColdRead
from kstore._fast.log.log_view cimport LogView, Slice
from kstore._fast.log.segment_file cimport SegmentFile

cdef enum:
    # A large slice waits for this much data; the rest is loaded while that is sent.
    STEP_BYTES = 1048576

# How much of a slice is checked. Offsets and epochs, which no checksum covers, are always compared
# with the neighbours'.
cdef enum Depth:
    CHECK_HEADERS                   # headers that were not checked recently
    CHECK_SUMS                      # and checksums that were not checked recently
    CHECK_ALL                       # everything

# For copied bytes, and for bytes that are sent without being read.
cdef bint is_good_copy(
    LogView log, const uint8_t* p, const Slice* slice, Depth depth) except -1
cdef bint is_good_in_file(
    LogView log, SegmentFile file, const Slice* slice, Depth depth) except -1
# How many of max_bytes at offset can be read without waiting for the disk; 0: none. `seen` was
# loaded before: everything from its position on counts as cached.
cdef int64_t readable_bytes(
    LogView log, int64_t offset, int64_t max_bytes, ColdRead seen) except -1
# Loads it and calls tell() on the loop afterwards. None: impossible, the reader must wait.
cdef ColdRead read_in_slice(LogView log, int64_t offset, int64_t max_bytes, object tell)
# From here on the loop must not wait for this log's disk, until `hurried` is 0 again. A read that
# would wait raises NotInMemory, and `bring_in` loads the data in a thread.
cdef inline void hurry(LogView log) noexcept:
    log.hurried = 0 if log.pages is None else log.pages.loop_thread

cdef ColdRead bring_in(object lacking, object tell)
# How much of a slice is checked for a consumer at this offset. The first reader that continues
# where one stopped costs no checksum.
cdef Depth depth_for_reader(LogView log, int64_t offset, const Slice* slice) except *
