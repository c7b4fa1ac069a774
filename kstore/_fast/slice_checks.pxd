# Whether a slice of a segment may be sent; what is damaged in it is made known.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.log_view cimport LogView, Slice
from kstore._fast.segment_file cimport SegmentFile

# How much of a slice is looked at. What its checksums do not cover (offsets and epochs) is compared
# with the neighbours in any case.
cdef enum Depth:
    CHECK_HEADERS                   # as far as was not looked at not long ago
    CHECK_SUMS                      # the checksums as well, as far as they were not, either
    CHECK_ALL                       # all, whatever was looked at

# For bytes that were copied, and for those that are sent without being read.
cdef bint is_good_copy(
    LogView log, const uint8_t* p, const Slice* slice, Depth depth) except -1
cdef bint is_good_in_file(
    LogView log, SegmentFile file, const Slice* slice, Depth depth) except -1
# How deep a slice is looked at that a consumer asked for by this offset: readers that go on where
# they left off, and get there for the first time, cost no checksum.
cdef Depth depth_for_reader(LogView log, int64_t offset, const Slice* slice) except *
