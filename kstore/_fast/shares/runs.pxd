# The runs of offsets of a share-partition.

from libc.stdint cimport int8_t, int32_t, int64_t

cdef enum:
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

cdef struct Run:
    int64_t first
    int64_t last
    int64_t owner
    int64_t deadline
    int64_t batch                           # the start of the range in which it was first acquired
    int32_t batch_size                      # that range's number of records
    int32_t deliveries
    int32_t token                           # 0: no change is being stored
    int8_t state
    int8_t lasts                            # the change stays even if it can't be stored

cdef class Runs:
    cdef readonly int64_t start_offset, end_offset
    cdef Run* runs
    cdef Py_ssize_t size, capacity
    cdef int grow(self, Py_ssize_t more) except -1
    cdef Run* append(self, int64_t last, int8_t state, int32_t deliveries) except NULL
    cdef Py_ssize_t find(self, int64_t offset) noexcept
    cdef Py_ssize_t isolate(self, Py_ssize_t i, int64_t first, int64_t last) except -1
    cdef int compact(self) except -1
    cdef int64_t start_of(self, int32_t token) noexcept

cdef inline bint is_complete(Run* run, int32_t token) noexcept:
    """Whether the run is finished, if the token is committed."""
    return run.state >= ACKNOWLEDGED and (run.token == 0 or run.token == token)
