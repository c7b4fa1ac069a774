# CRC-32C for record batches. crc32c_impl.h has the code and chooses the CPU's instructions at
# import; this module exports it to the other modules of _fast (crc32c.pxd) and to Python.

from libc.stdint cimport uint8_t, uint32_t
from kstore._fast.record.memory cimport MemoryView, view_of


cdef extern from "crc32c_impl.h" nogil:
    const char* kstore_crc32c_init()
    uint32_t kstore_crc32c_run(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t kstore_crc32c_run_portable(uint32_t crc, const uint8_t* data, size_t size)


IMPLEMENTATION = kstore_crc32c_init().decode()


cdef uint32_t crc32c(const uint8_t* data, size_t size) noexcept nogil:
    return kstore_crc32c_run(0, data, size)


cdef uint32_t crc32c_update(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil:
    return kstore_crc32c_run(crc, data, size)


def checksum(data, uint32_t crc=0):
    cdef MemoryView given = view_of(data)
    cdef size_t size = given.size
    cdef const uint8_t* start = given.data
    if size == 0:
        return crc
    if size > 65536:
        with nogil:
            crc = kstore_crc32c_run(crc, start, size)
        return crc
    return kstore_crc32c_run(crc, start, size)


def checksum_portable(data, uint32_t crc=0):
    cdef MemoryView given = view_of(data)
    if given.size == 0:
        return crc
    return kstore_crc32c_run_portable(crc, given.data, given.size)


def seconds_for(data, int repeat):
    # For the benchmark: no Python between the checksums.
    from time import thread_time

    cdef MemoryView given = view_of(data)
    cdef size_t size = given.size
    cdef uint32_t crc = 0
    cdef int i
    if size == 0:
        raise ValueError("seconds_for needs at least one byte")
    start = thread_time()
    for i in range(repeat):
        crc = kstore_crc32c_run(crc, given.data, size)
    return thread_time() - start
