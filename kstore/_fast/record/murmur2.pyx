# Murmur2: in 32 bits as Kafka's clients compute it over keys, in 64 bits over a column of values
# for comparing copies; and Java's hash of a string. It only hashes; partitioners are in
# clients/core.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kstore._fast.record.memory cimport MemoryView, view_of

cdef enum:
    MULTIPLIER = 0x5BD1E995
    SEED = 0x9747B28CU


# Four bytes at a time, little-endian, like the machines that kstore runs on.
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
    """The unsigned 32-bit hash, equal to the Java client's."""
    cdef Py_buffer view
    cdef uint32_t h
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        h = hash_bytes(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return h


def string_hash(str text not None):
    """Java's String.hashCode, signed."""
    cdef Py_UCS4 character
    cdef uint32_t unit, code = 0
    for character in text:
        unit = <uint32_t>character
        if unit > 0xFFFF:                           # two units of UTF-16
            code = code * 31 + 0xD7C0 + (unit >> 10)
            unit = 0xDC00 | (unit & 0x3FF)
        code = code * 31 + unit
    return <int32_t>code


def jump_partition(object data, int32_t partitions):
    """The partition of a key; with more partitions, keys move only to new ones."""
    if partitions < 1:
        raise ValueError(f"there are {partitions} partitions: pass at least 1")
    return jump_hash(<uint32_t>murmur2(data), partitions)


# MurmurHash64A: eight bytes at a time, little-endian.
cdef uint64_t hash64(const uint8_t* p, Py_ssize_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t m = <uint64_t>0xC6A4A7935BD1E995ULL
    cdef uint64_t h = seed ^ (<uint64_t>size * m)
    cdef uint64_t k
    while size >= 8:
        memcpy(&k, p, 8)
        k *= m
        k ^= k >> 47
        k *= m
        h ^= k
        h *= m
        p += 8
        size -= 8
    if size:
        k = 0
        memcpy(&k, p, size)
        h ^= k
        h *= m
    h ^= h >> 47
    h *= m
    h ^= h >> 47
    return h


def hash64_column(object offsets, object data, object validity, Py_ssize_t first,
                  Py_ssize_t count, uint64_t seed):
    """Each value's hash, eight bytes per value; null has its own hash, which depends on the
    seed."""
    cdef MemoryView places = view_of(offsets)
    cdef MemoryView values = view_of(data) if data is not None else None
    cdef MemoryView bits = view_of(validity) if validity is not None else None
    cdef Py_ssize_t size = values.size if values is not None else 0
    cdef const uint8_t* p = values.data if values is not None else NULL
    cdef const int32_t* place
    cdef const uint8_t* bit = NULL
    cdef Py_ssize_t row
    cdef int32_t start, end
    # Written so that no sum can overflow.
    if first < 0 or count < 0 or first > places.size // 4 - 1 - count:
        raise ValueError(
            f"{count} values from {first} on do not fit {places.size} bytes of offsets")
    if bits is not None:
        if (first + count + 7) // 8 > bits.size:
            raise ValueError(f"{bits.size} bytes of validity are too few for {count} values")
        bit = bits.data
    out = bytearray(8 * count)
    cdef MemoryView room = view_of(out, True)
    cdef uint64_t* hashes = <uint64_t*>room.data
    cdef bint good = True
    place = <const int32_t*>places.data + first
    with nogil:
        for row in range(count):
            start = place[row]
            end = place[row + 1]
            if start < 0 or end < start or end > size:
                good = False
                break
            if bit != NULL and not bit[(first + row) >> 3] >> ((first + row) & 7) & 1:
                hashes[row] = hash64(NULL, 0, ~seed)
            else:
                hashes[row] = hash64(p + start, end - start, seed)
    if not good:
        raise ValueError(f"value {row} lies at {start} to {end}, outside of {size} bytes")
    return out
