# From a record's key to the last offset that it was written at, in bounded memory: what compaction
# decides by. Keys are kept as 128-bit hashes (SipHash-2-4 under a secret of the map, so that keys
# can't be chosen to collide).

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct MapSlot:
    uint64_t high
    uint64_t low
    int64_t offset                      # -1: the slot is free

cdef struct KeyHash:
    uint64_t high
    uint64_t low

cdef KeyHash hash_key(uint64_t k0, uint64_t k1, const uint8_t* data, Py_ssize_t size) noexcept nogil

cdef enum MapStatus:
    MAP_STORED = 0
    MAP_FULL = 1                        # nothing changed; a known key still has its place
    MAP_NO_MEMORY = 2

cdef class OffsetMap:
    cdef MapSlot* slots
    cdef readonly Py_ssize_t capacity       # slots allocated
    cdef readonly Py_ssize_t max_capacity   # slots that the memory bound allows
    cdef readonly Py_ssize_t count
    cdef public int64_t latest_offset       # of the last batch that was indexed; -1: none
    cdef uint64_t k0
    cdef uint64_t k1
    cdef int store(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil
    # The offset stored last for the key, or -1.
    cdef int64_t find(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef int grow(self, Py_ssize_t capacity) noexcept nogil
    cdef MapSlot* place(self, KeyHash hashed) noexcept nogil
