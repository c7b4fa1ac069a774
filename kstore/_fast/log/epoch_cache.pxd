# The start offset of each leader epoch.

from libc.stdint cimport int32_t, int64_t

cdef struct EpochEntry:
    int32_t epoch
    int64_t start_offset

cdef class EpochCache:
    cdef EpochEntry* entries                # ascending in both fields
    cdef int count
    cdef int room
    cdef readonly int32_t latest_epoch      # -1 when empty
    # Returns whether the cache changed. Entries that contradict the new one are removed.
    cdef bint assign(self, int32_t epoch, int64_t start_offset) except -1
    cdef int find(self, int32_t epoch) noexcept
    cdef int _note_latest(self) noexcept
