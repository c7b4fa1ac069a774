# Which leader epoch began at which offset.

from libc.stdint cimport int32_t, int64_t

cdef struct EpochEntry:
    int32_t epoch
    int64_t start_offset

cdef class EpochCache:
    cdef EpochEntry* entries                # ascending in both fields
    cdef int count
    cdef int room
    cdef readonly int32_t latest_epoch      # -1 when empty
    # True when the cache changed. Entries that the new one contradicts go.
    cdef bint assign(self, int32_t epoch, int64_t start_offset) except -1
    cdef int find(self, int32_t epoch) noexcept
    cdef int _note_latest(self) noexcept
