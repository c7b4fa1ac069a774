# What a log asks of a validated batch's records without decoding them.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.record.batch cimport BatchInfo
from kstore._fast.log.producer_table cimport EndMarker

cdef bint read_end_marker(const uint8_t* p, const BatchInfo* info, EndMarker* out) noexcept nogil
cdef int64_t least_timestamp(const uint8_t* p, const BatchInfo* info) noexcept nogil
cdef bint has_keys(const uint8_t* p, const BatchInfo* info) except -1
