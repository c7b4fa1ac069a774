# One partition's part of a Fetch answer, as a follower reads it.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.protocol.wire cimport WireReader

# The position and the contents of one partition's part of an answer.
cdef struct FetchedPart:
    int32_t index
    int16_t error
    int64_t high_watermark
    int64_t log_start_offset
    const uint8_t* records
    Py_ssize_t records_size
    int32_t diverging_epoch                 # -1: it does not diverge
    int64_t diverging_end_offset

# One partition of an answer; r.bad afterwards: it is truncated.
cdef int read_part(WireReader* r, FetchedPart* part) noexcept
cdef int read_part_tags(WireReader* r, FetchedPart* part) noexcept

# How many of the bytes are complete batches of leader epochs up to this one; a partial one at the
# end is ignored. later: whether a batch of a later epoch follows.
cdef Py_ssize_t whole_batches(
    const uint8_t* data, Py_ssize_t size, int32_t leader_epoch, bint* later) noexcept nogil
