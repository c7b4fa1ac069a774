# Whether a slice of a segment may be sent; what is damaged in it is made known.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.disk.page_reader cimport ColdRead
from kstore._fast.log.log_view cimport LogView, Slice
from kstore._fast.log.segment_file cimport SegmentFile

cdef enum:
    # So much of a large slice is waited for; the rest comes while that is sent.
    STEP_BYTES = 1048576

# How much of a slice is checked. What its checksums do not cover (offsets and epochs) is compared
# with the neighbours in any case.
cdef enum Depth:
    CHECK_HEADERS                   # the headers that were not checked recently
    CHECK_SUMS                      # and the checksums that were not checked recently
    CHECK_ALL                       # everything, whatever was checked recently

# For bytes that were copied, and for those that are sent without being read.
cdef bint is_good_copy(
    LogView log, const uint8_t* p, const Slice* slice, Depth depth) except -1
cdef bint is_good_in_file(
    LogView log, SegmentFile file, const Slice* slice, Depth depth) except -1
# How much of what lies at offset, up to so many bytes, can be read without waiting for the disk: as
# much as is asked for, less where the rest has still to be read in, 0 where none can be. `seen`
# counts as there from its position on: it was read in once.
cdef int64_t readable_bytes(
    LogView log, int64_t offset, int64_t max_bytes, ColdRead seen) except -1
# Has it read in, and tell() called on the loop then. None: it can't be, who reads has to wait.
cdef ColdRead read_in_slice(LogView log, int64_t offset, int64_t max_bytes, object tell)
# From here on the loop must not wait for this log's disk, until `hurried` is 0 again: what would
# have to be waited for raises NotInMemory, and `bring_in` has a thread fetch it.
cdef inline void hurry(LogView log) noexcept:
    log.hurried = 0 if log.pages is None else log.pages.loop_thread

cdef ColdRead bring_in(object lacking, object tell)
# How much of a slice is checked for a consumer that asks for this offset: one that goes on where a
# reader left off, and is the first to get there, costs no checksum.
cdef Depth depth_for_reader(LogView log, int64_t offset, const Slice* slice) except *
