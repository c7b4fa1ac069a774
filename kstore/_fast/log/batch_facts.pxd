# Facts about a validated batch's records, without decoding them.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport BatchInfo
from kstore._fast.log.producer_table cimport EndMarker

cdef bint read_end_marker(const uint8_t* p, const BatchInfo* info, EndMarker* out) noexcept nogil
cdef int64_t least_timestamp(const uint8_t* p, const BatchInfo* info) noexcept nogil
# An invalid record in an otherwise valid batch.
cdef enum RecordFault:
    FAULT_NO_KEY = 1
    FAULT_TIME = 2                  # outside the range that the log's configuration allows
    FAULT_TIME_TYPE = 3             # the producer claims that it is the append's time

cdef struct TimeRange:
    int64_t least_ms
    int64_t most_ms
    bint fixed                      # all records have the batch's largest timestamp
    bint refused                    # although that is not allowed

# (index in its batch, RecordFault, timestamp) of each record of a validated batch that must be
# refused. A compressed batch is checked only if it expands to at most max_bytes.
cdef list record_faults(
    const uint8_t* p, const BatchInfo* info, bint keyed, const TimeRange* times, int64_t max_bytes)
cdef bint has_keys(const uint8_t* p, const BatchInfo* info) except -1
