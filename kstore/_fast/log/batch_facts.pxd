# What a log asks of a validated batch's records without decoding them.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport BatchInfo
from kstore._fast.log.producer_table cimport EndMarker

cdef bint read_end_marker(const uint8_t* p, const BatchInfo* info, EndMarker* out) noexcept nogil
cdef int64_t least_timestamp(const uint8_t* p, const BatchInfo* info) noexcept nogil
# What is wrong with one record of a batch that is good by itself.
cdef enum RecordFault:
    FAULT_NO_KEY = 1
    FAULT_TIME = 2                  # out of the range that the log's configuration gives
    FAULT_TIME_TYPE = 3             # the producer says that it is the time of the append

cdef struct TimeRange:
    int64_t least_ms
    int64_t most_ms
    bint fixed                      # all records have the batch's largest timestamp
    bint refused                    # and may not

# (index in its batch, RecordFault, timestamp) of each record of a validated batch that may not be
# appended. A compressed batch is looked into if it holds max_bytes at most.
cdef list record_faults(
    const uint8_t* p, const BatchInfo* info, bint keyed, const TimeRange* times, int64_t max_bytes)
cdef bint has_keys(const uint8_t* p, const BatchInfo* info) except -1
