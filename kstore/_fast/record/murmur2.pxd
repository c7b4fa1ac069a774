# The hash of Kafka's partitioner, and a choice of partitions that moves keys only to new partitions
# when there are more of them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef uint32_t hash_bytes(const uint8_t* p, Py_ssize_t size) noexcept nogil

# Jump consistent hash (Lamping and Veach, 2014): the bucket of key among count > 0.
cdef inline int32_t jump_hash(uint64_t key, int32_t count) noexcept nogil:
    cdef int64_t bucket = -1
    cdef int64_t jump = 0
    while jump < count:
        bucket = jump
        key = key * <uint64_t>2862933555777941757ULL + 1
        jump = <int64_t>(<double>(bucket + 1)
                         * (2147483648.0 / <double>((key >> 33) + 1)))
    return <int32_t>bucket
