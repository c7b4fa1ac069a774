# Murmur2 (32 bit) as Kafka's clients compute it over keys. It only hashes; partitioners are in
# clients/core.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    MULTIPLIER = 0x5BD1E995
    SEED = 0x9747B28CU


# Four bytes at a time, little-endian; the machines that kstore runs on are.
cdef uint32_t hash_bytes(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>SEED ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        memcpy(&k, p, 4)
        k *= <uint32_t>MULTIPLIER
        k ^= k >> 24
        k *= <uint32_t>MULTIPLIER
        h *= <uint32_t>MULTIPLIER
        h ^= k
        p += 4
        size -= 4
    if size == 3:
        h ^= <uint32_t>p[2] << 16
    if size >= 2:
        h ^= <uint32_t>p[1] << 8
    if size >= 1:
        h ^= p[0]
        h *= <uint32_t>MULTIPLIER
    h ^= h >> 13
    h *= <uint32_t>MULTIPLIER
    h ^= h >> 15
    return h


def murmur2(object data):
    """The 32-bit hash, unsigned; equal to the Java client's."""
    cdef Py_buffer view
    cdef uint32_t h
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        h = hash_bytes(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return h


def jump_partition(object data, int32_t partitions):
    """The partition among so many under which keys only move to new partitions."""
    if partitions < 1:
        raise ValueError(f"there are {partitions} partitions: pass at least 1")
    return jump_hash(<uint32_t>murmur2(data), partitions)
