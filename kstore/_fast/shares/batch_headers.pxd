# The headers of complete batches in memory.

from libc.stdint cimport int16_t, int64_t

from kstore._fast.record.memory cimport MemoryView

cdef class BatchHeaders:
    cdef MemoryView view
    cdef Py_ssize_t position                # of the next batch
    cdef int64_t base, last, producer_id    # of the current one
    cdef int16_t attributes
    cdef int rewind(self) except -1
    cdef bint read(self) except -1
    cdef int64_t end_offset(self) except -2
    cdef int64_t last_of(self, int64_t offset) except -2
    cdef list aborted_of(self, aborted)
