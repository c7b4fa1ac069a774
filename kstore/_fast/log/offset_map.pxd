# Maps each record key to its last offset, in limited memory, for compaction. Keys are stored as
# 128-bit hashes. SipHash-2-4 with a secret of the map prevents chosen collisions.

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
    MAP_FULL = 1                        # nothing changed; known keys can still be stored
    MAP_NO_MEMORY = 2

cdef class OffsetMap:
    cdef MapSlot* slots
    cdef readonly Py_ssize_t capacity       # allocated slots
    cdef readonly Py_ssize_t max_capacity   # slots within the memory limit
    cdef readonly Py_ssize_t count
    cdef public int64_t latest_offset       # of the last indexed batch; -1: none
    cdef uint64_t k0
    cdef uint64_t k1
    cdef int store(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil
    # The last stored offset of the key, or -1.
    cdef int64_t find(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef int grow(self, Py_ssize_t capacity) noexcept nogil
    cdef MapSlot* place(self, KeyHash hashed) noexcept nogil
